"""The part of a Python source that decides what an import loads, as JSON data.

A node is a list: the class of ast, its line, and the fields that `_FIELDS` names; None stands for what is not followed, and an
operator is its name. The bodies of functions stand apart, each as JSON text, since few of them are called during an import:
the node of a function has the number of its body, and flags: whether it opens something itself, and whether it yields.

Most bodies are not even parsed, which takes two thirds of the time: they are cut out of the text by their indentation, and
:func:`read_body` parses those that are called. A cut counts only where the parser finds a function without a body on just that
line; else the whole text is parsed. An error of grammar in a body that is not called is not seen, but for the last body of a
source, where a truncated one ends. What such a body opens is looked for by :func:`read_flags` when it is called.

A source is input of a stranger. Its size, tokens and depth are bounded before ast.parse, which takes some 200 bytes of memory
for a token; what is larger than any real module cannot be read, as what is not of the grammar of the Python that runs relink.
"""

from __future__ import annotations

import ast
import codecs
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

SyntaxNode: TypeAlias = list[Any]
"""A statement or an expression."""
Nodes: TypeAlias = list[SyntaxNode]

SOURCE_LIMIT = 4 << 20
"""Bytes of a source that is read."""
# Tokens of a source; below so many bytes they are not counted.
_NAMED_CHARACTER = re.compile(rb"(?<!\\)\\N\{[A-Z][A-Z0-9 -]*\}")  # in a text
_TOKENS = 750_000
_STRING = 4096  # characters of a constant
_SURROGATE = re.compile(r"[\ud800-\udfff]")  # no text of JSON has one
_TOKEN = re.compile(rb"\w+|[^\w\s]")
# The head of a function, whose last line ends with a colon, and the lines of its body, which begin further to the right.
_FUNCTION = re.compile(
    r"^([ \t]*+)(?:async[ \t]++)?+def[ \t](?:[^\n]*+\n(?:\1[ \t]|(?=\1\)))){0,60}?[^\n]*\)[^\n:)]*:[ \t]*(?:#[^\n]*)?\n"
    r"((?:(?:\1[ \t][^\n]*|[ \t]*)\n)++)",
    re.MULTILINE,
)
_CUT = 10  # characters of a body that is worth it
_COOKIE = re.compile(
    rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)"
)  # Python's reference, "Encoding declarations"
_CODECS = re.compile(r"utf-8|ascii|iso8859-\d+|cp125\d|koi8-r|gb2312|gbk|euc_jp|shift_jis|big5")
_OPENERS = frozenset(
    {
        *("CDLL", "PyDLL", "LoadLibrary", "dlopen", "find_library", "import_module", "__import__"),
        *("cdll", "pydll", "setdlopenflags", "load_library", "exec_module"),
    }
)
"""The names by which a function opens a library or imports a module."""
_IMPORT = re.compile(r"(?:^|[;:])[ \t]*+(?:from|import)\b", re.MULTILINE)
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_FIELDS: dict[str, tuple[str, ...]] = {
    "Expr": ("value",),
    "Assign": ("targets", "value"),
    "AnnAssign": ("target", "value"),
    "AugAssign": ("target", "op", "value"),
    "If": ("test", "body", "orelse"),
    "Try": ("body", "handlers", "orelse", "finalbody"),
    "ExceptHandler": ("type", "name", "body"),
    "With": ("items", "body"),
    "withitem": ("context_expr", "optional_vars"),
    "For": ("target", "iter", "body", "orelse"),
    "While": ("test", "body", "orelse"),
    "Assert": ("test",),
    "Match": ("subject", "cases"),
    "match_case": ("pattern", "guard", "body"),
    "MatchValue": ("value",),
    "MatchOr": ("patterns",),
    "MatchAs": ("pattern", "name"),
    "ClassDef": ("name", "bases", "keywords", "body", "decorator_list"),
    "Import": ("names",),
    "ImportFrom": ("level", "module", "names"),
    "alias": ("name", "asname"),
    "Return": ("value",),
    "Raise": ("exc",),
    "Break": (),
    "Continue": (),
    "Global": ("names",),
    "arguments": ("posonlyargs", "args", "defaults", "kwonlyargs", "kw_defaults", "vararg", "kwarg"),
    "Constant": ("value",),
    "Name": ("id",),
    "Attribute": ("value", "attr"),
    "Call": ("func", "args", "keywords"),
    "keyword": ("arg", "value"),
    "BinOp": ("op", "left", "right"),
    "BoolOp": ("op", "values"),
    "UnaryOp": ("op", "operand"),
    "Compare": ("left", "ops", "comparators"),
    "IfExp": ("test", "body", "orelse"),
    "JoinedStr": ("values",),
    "FormattedValue": ("value", "conversion", "format_spec"),
    "Subscript": ("value", "slice"),
    "Slice": ("lower", "upper", "step"),
    "Tuple": ("elts",),
    "List": ("elts",),
    "Set": ("elts",),
    "Dict": ("keys", "values"),
    "Starred": ("value",),
    "NamedExpr": ("target", "value"),
    "Await": ("value",),
    "Yield": ("value",),
    "YieldFrom": ("value",),
    "ListComp": ("elt", "generators"),
    "GeneratorExp": ("elt", "generators"),
    "DictComp": ("key", "value", "generators"),
    "comprehension": ("target", "iter", "ifs"),
}
_SAME = {"AsyncFor": "For", "AsyncWith": "With", "TryStar": "Try", "SetComp": "ListComp"}
_STATEMENTS = _FIELDS.keys() | _SAME.keys() | {"FunctionDef", "AsyncFunctionDef", "TypeAlias"}
_NAMES = {"Name": "id", "Attribute": "attr"}
_WITHOUT_LINE = ("withitem", "match_case", "arguments", "comprehension")
# By the class of ast its name here, whether it has a line, and its fields.
_PLANS: dict[type, tuple[str, bool, tuple[str, ...]]] = {
    getattr(ast, name): (kind, name not in _WITHOUT_LINE, _FIELDS[kind])
    for name, kind in {**{name: name for name in _FIELDS}, **_SAME}.items()
    if hasattr(ast, name)
}


class _WrongCutError(Exception):
    """Something else than the body of a function was cut out."""


class UnreadableSourceError(ValueError):
    """A source that cannot be parsed: too large, nested too deep, or of another Python; the message says why."""


def parse_source(data: bytes) -> tuple[list[SyntaxNode], list[str]]:
    """Return the statements of a module that decide what its import loads, and the bodies of its functions.

    A body is JSON text, or its line and its source.

    :raises UnreadableSourceError: as the class says.
    """
    if len(data) > SOURCE_LIMIT:
        raise UnreadableSourceError(f"larger than {SOURCE_LIMIT >> 20} MiB")
    if len(data) > _TOKENS and sum(1 for _ in _TOKEN.finditer(data)) > _TOKENS:
        raise UnreadableSourceError(f"more than {_TOKENS} tokens")
    with _named_errors():
        text = _decode(data)
        statements: list[SyntaxNode] = [["Compile", 1]] if _NAMED_CHARACTER.search(data) else []
        try:
            found, bodies = _reduce_source(*_cut_bodies(text))
        except (SyntaxError, _WrongCutError):
            found, bodies = _reduce_source(text, {})
        return statements + found, bodies


def read_body(bodies: list[Any], number: int, longest: int | None = None) -> Nodes | None:
    """Return the body of a function, which is kept in place of its text; the bodies inside of a cut one are added.

    :param longest: characters of JSON text; None is returned for a longer one.
    :raises UnreadableSourceError: as for a source.
    """
    if not bodies[number].startswith("["):
        with _named_errors():
            _Reduction(bodies).parse_body(number)
    if longest is not None and len(bodies[number]) > longest:
        return None
    bodies[number] = json.loads(bodies[number])
    nodes: Nodes = bodies[number]
    return nodes


def read_flags(bodies: list[Any], number: int) -> list[bool]:
    """Return the flags of a function whose body was cut out, which is parsed where it may decide; none if that fails."""
    cut = bodies[number]
    if not any(name in cut for name in (*_OPENERS, "yield")) and not _IMPORT.search(cut):
        return [False, False]
    with suppress(UnreadableSourceError), _named_errors():
        return _Reduction(bodies).parse_body(number)
    return []


@contextmanager
def _named_errors() -> Iterator[None]:
    """Raise the errors of the parser, and of what is nested too deep for it, as :class:`UnreadableSourceError`."""
    try:
        yield
    except (SyntaxError, ValueError) as error:
        raise UnreadableSourceError(f"not of this Python's grammar ({error})") from error
    except (RecursionError, MemoryError) as error:
        raise UnreadableSourceError("nested too deep") from error


def _parse(text: str) -> list[ast.stmt]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text).body


def _reduce_source(text: str, cuts: dict[int, str]) -> tuple[list[SyntaxNode], list[str]]:
    reduction = _Reduction([], cuts)
    statements: list[SyntaxNode] = reduction.reduce(_parse(text))
    if cuts:
        raise _WrongCutError
    return statements, reduction.bodies


def _cut_bodies(text: str) -> tuple[str, dict[int, str]]:
    """Return a source without the bodies of functions, with as many lines, and by a function's line its body and the body's line.

    :raises _WrongCutError: a line may not end where it seems to.
    """
    text = text.replace("\r\n", "\n")
    if "\r" in text:
        raise _WrongCutError
    cuts: dict[int, str] = {}
    parts: list[str] = []
    done, line = 0, 1
    for found in _FUNCTION.finditer(text):
        body = found[2]
        goes_on = body.count('"""') % 2 or body.count("'''") % 2 or body.endswith("\\\n")
        if goes_on or len(body) < _CUT or found.end() == len(text):
            continue
        line += text.count("\n", done, found.start())
        start = line + text.count("\n", found.start(), found.start(2))
        lines = body.count("\n")
        cuts[line] = f"{start}\n{body}"
        parts += (text[done : found.start(2)], found[1], " ...", "\n" * lines)
        done, line = found.end(), start + lines
    return "".join((*parts, text[done:])), cuts


def _decode(data: bytes) -> str:
    """Decode a source by its declaration; of the codecs only those of scripts, since others expand what they read."""
    if data.startswith(codecs.BOM_UTF8):
        return data[3:].decode("utf-8")
    for line in data.split(b"\n", 2)[:2]:
        if cookie := _COOKIE.match(line):
            try:
                name = codecs.lookup(cookie[1].decode("ascii")).name
            except LookupError as error:
                raise UnreadableSourceError("of an unknown encoding") from error
            if not _CODECS.fullmatch(name):
                raise UnreadableSourceError(f"of the encoding {name}")
            return data.decode(name)
    return data.decode("utf-8")


class _Reduction:
    """Turns nodes of ast into lists.

    :ivar bodies: those of the functions, which are added to.
    :ivar cuts: the bodies that were cut out and are not met yet, by the line of the function.
    :ivar opens: a name of `_OPENERS` or an import was met; `yields`: a yield.
    :ivar inside: whether what is reduced is in a function.
    """

    def __init__(self, bodies: list[Any], cuts: dict[int, str] | None = None) -> None:
        self.bodies, self.cuts = bodies, cuts or {}
        self.opens = self.yields = self.inside = False
        # Lines of the source before what is parsed.
        self._above = 0

    def reduce(self, node: Any) -> Any:
        kind = node.__class__
        if kind is list:
            if node and isinstance(node[0], ast.stmt):
                node = [one for one in node if not _is_nothing(one)]
            return [*map(self.reduce, node)]
        if kind is ast.Constant:
            return ["Constant", self._above + node.lineno, node.value] if _is_plain(node.value) else None
        if kind is ast.Name:
            self.opens |= node.id in _OPENERS
            return ["Name", self._above + node.lineno, node.id]
        if kind is ast.arg:
            return node.arg
        if kind is ast.Attribute:
            self.opens |= node.attr in _OPENERS
            return ["Attribute", self._above + node.lineno, self.reduce(node.value), node.attr]
        if (plan := _PLANS.get(kind)) is None:
            return self._reduce_special(node) if isinstance(node, ast.AST) else node
        name, has_line, fields = plan
        self.opens |= kind is ast.Import or kind is ast.ImportFrom
        self.yields |= kind is ast.Yield or kind is ast.YieldFrom
        found = [name, self._above + node.lineno if has_line else 0]
        found += [self.reduce(getattr(node, field)) for field in fields]
        if kind is ast.If:
            test = node.test
            if getattr(test, _NAMES.get(type(test).__name__, ""), "") == "TYPE_CHECKING":
                found[2:4] = [["Constant", 0, False], []]
        return found

    def _reduce_special(self, node: Any) -> Any:
        """Reduce what `_FIELDS` lacks: a function, an operator, and what is not followed."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            made = self._reduce_function(node, node.body)
            return [
                "FunctionDef",
                self._above + node.lineno,
                node.name,
                *made,
                self.reduce(node.decorator_list),
            ]
        if isinstance(node, ast.Lambda):
            returned = ast.copy_location(ast.Return(node.body), node)
            return ["Lambda", self._above + node.lineno, *self._reduce_function(node, [returned])]
        kind = type(node).__name__
        if kind == "TypeAlias":  # `type NAME = …` of Python 3.12 binds a name
            return [
                "Assign",
                self._above + getattr(node, "lineno", 0),
                [self.reduce(getattr(node, "name", None))],
                None,
            ]
        return kind if isinstance(node, ast.operator | ast.boolop | ast.unaryop | ast.cmpop) else None

    def _reduce_function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, body: Sequence[ast.stmt]
    ) -> list[Any]:
        """Return the parameters of a function, its flags, none where its body was cut out, and the number of its body."""
        cut = None if isinstance(node, ast.Lambda) else self.cuts.pop(node.lineno, None)
        number = len(self.bodies)
        self.bodies.append(cut)
        if cut is None:
            flags = self._reduce_body(number, body)
        elif len(body) > 1 or getattr(getattr(body[0], "value", None), "value", None) is not ...:
            raise _WrongCutError
        else:
            flags = self.parse_body(number) if self.inside else []
        self.opens |= True in flags[:1]
        return [self.reduce(node.args), flags, number]

    def _reduce_body(self, number: int, body: Sequence[ast.stmt]) -> list[bool]:
        """Reduce a body to text; return the flags of the function."""
        outer = self.opens, self.yields, self.inside
        self.opens, self.yields, self.inside = False, False, True
        self.bodies[number] = _ENCODER.encode(self.reduce([*body]))
        found, (self.opens, self.yields, self.inside) = [self.opens, self.yields], outer
        return found

    def parse_body(self, number: int) -> list[bool]:
        """Parse a body that was cut out, and reduce the body to text; return what :meth:`_reduce_body` does."""
        line, _, text = self.bodies[number].partition("\n")
        (block,) = _parse(f"if 1:\n{text}")
        above, self._above = self._above, int(line) - 2
        found = self._reduce_body(number, getattr(block, "body", ()))
        self._above = above
        return found


def _is_nothing(node: Any) -> bool:
    """Whether a statement does nothing: a docstring, or one that is not followed, such as pass or one of a newer Python."""
    kind = node.__class__
    if kind is ast.Expr:
        return node.value.__class__ is ast.Constant
    return kind not in _PLANS and isinstance(node, ast.stmt) and kind.__name__ not in _STATEMENTS


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _STRING and (value.isascii() or not _SURROGATE.search(value))
    return value is None or (isinstance(value, int) and -(1 << 63) <= value < 1 << 63)
