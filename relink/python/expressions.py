"""The expressions of a source: what each means for an import, as a function of the walk, the frame and the fields of its node."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from relink.python.syntax import Nodes, SyntaxNode
from relink.python.values import (
    MISSING,
    UNKNOWN,
    Class,
    Frame,
    Function,
    Instance,
    Native,
    Raised,
    binary,
    bounded,
    compare,
    is_key,
    is_kind,
    is_same,
    items,
    raised_after,
    truth,
)

# Names in annotations only: the walk follows expressions by EXPRESSIONS.
if TYPE_CHECKING:
    from relink.python.evaluation import Evaluation

_SURE = nullcontext()
_WIDTH = re.compile("0?[1-9]?d?")
TURNS = 200
"""Turns of a loop that are followed."""


def read_variable(evaluation: Evaluation, name: Any, default: Any = None, *, strict: bool = False) -> Any:
    """Return an environment variable, and note that it was read.

    :raises Raised: it is not set and `strict`.
    """
    if not isinstance(name, str):
        return UNKNOWN
    evaluation.read_variables.append(name)
    if name not in evaluation.variables and strict:
        raise Raised("KeyError", is_certain=True)
    return evaluation.variables.get(name, default)


def _name(evaluation: Evaluation, frame: Frame, name: str) -> Any:
    for names in (frame.names, *frame.outer, frame.module.names):
        if name in names:
            return names[name]
    if f"builtins.{name}" in evaluation.known:
        return Native(f"builtins.{name}")
    if is_kind(name, "BaseException") and hasattr(builtins, name):
        return Native(name)
    if not frame.module.is_open and not hasattr(builtins, name):
        evaluation.raise_where_caught("NameError")
    return UNKNOWN


def _attribute(evaluation: Evaluation, frame: Frame, node: SyntaxNode, name: str) -> Any:
    owner = evaluation.value(frame, node)
    if (
        owner is None
        and evaluation.is_certain
        and (frame.lost or not frame.is_function)
        and not hasattr(None, name)
    ):
        text = f"'NoneType' object has no attribute {name!r}"
        raise Raised(
            "AttributeError", text, is_certain=True, opening=frame.lost.opening if frame.lost else ""
        )
    found = evaluation.attribute(owner, name)
    if found is MISSING:
        evaluation.raise_where_caught("AttributeError")
        return UNKNOWN
    return found


def _call(evaluation: Evaluation, frame: Frame, target: SyntaxNode, given: Nodes, keywords: Nodes) -> Any:
    line = evaluation.state.line
    function = evaluation.value(frame, target)
    arguments = evaluation.values_of(frame, given)
    named = {name: evaluation.value(frame, one) for _, _, name, one in keywords if name}
    found = UNKNOWN if arguments is None else evaluation.call(function, arguments, named)
    evaluation.state.line = line
    return found


def _binop(evaluation: Evaluation, frame: Frame, operator: str, left: SyntaxNode, right: SyntaxNode) -> Any:
    return binary(operator, evaluation.value(frame, left), evaluation.value(frame, right))


def _boolop(evaluation: Evaluation, frame: Frame, operator: str, nodes: Nodes) -> Any:
    """Return the first value that decides, or the last one; after one that is not known the rest is conditional."""
    stop = operator == "Or"
    found: Any = UNKNOWN
    is_open = False
    for node in nodes:
        with evaluation.at_least("conditional") if is_open else _SURE:
            found = evaluation.value(frame, node)
        test = truth(found)
        if test is stop:
            return stop if is_open else found
        is_open |= test is None
    return UNKNOWN if is_open else found


def _unaryop(evaluation: Evaluation, frame: Frame, operator: str, node: SyntaxNode) -> Any:
    value = evaluation.value(frame, node)
    test = truth(value)
    if operator == "Not":
        return UNKNOWN if test is None else not test
    return -value if operator == "USub" and isinstance(value, int) else UNKNOWN


def _compare(
    evaluation: Evaluation, frame: Frame, first: SyntaxNode, operators: list[str], others: Nodes
) -> Any:
    left: Any = evaluation.value(frame, first)
    result: Any = True
    for operator, node in zip(operators, others, strict=True):
        right = evaluation.value(frame, node)
        if right == Native("os.environ"):
            right = (left,) if read_variable(evaluation, left) is not None else ()
        found = compare(operator, left, right)
        if found is False:
            return False
        result = found if found is UNKNOWN else result
        left = right
    return result


def _ifexp(
    evaluation: Evaluation, frame: Frame, test: SyntaxNode, body: SyntaxNode, orelse: SyntaxNode
) -> Any:
    decided = truth(evaluation.value(frame, test))
    if decided is not None:
        return evaluation.value(frame, body if decided else orelse)
    found = []
    for node in (body, orelse):
        with suppress(Raised), evaluation.at_least("conditional"):
            found.append(evaluation.value(frame, node))
    return found[0] if len(found) == 1 or (found and is_same(*found)) else UNKNOWN


def _joinedstr(evaluation: Evaluation, frame: Frame, parts: Nodes) -> Any:
    found = [evaluation.value(frame, part) for part in parts]
    is_text = all(isinstance(one, str | int | PurePosixPath) for one in found)
    return bounded("".join(map(str, found))) if is_text else UNKNOWN


def _formattedvalue(
    evaluation: Evaluation, frame: Frame, node: SyntaxNode, conversion: int, style: SyntaxNode | None
) -> Any:
    value = evaluation.value(frame, node)
    if style is not None and isinstance(value, int):
        # Only zeros and a width of one digit, which could be of any size.
        width = evaluation.value(frame, style)
        return f"{value:{width}}" if isinstance(width, str) and _WIDTH.fullmatch(width) else UNKNOWN
    return value if style is None and conversion in (-1, ord("s")) else UNKNOWN


def _subscript(evaluation: Evaluation, frame: Frame, node: SyntaxNode, index: SyntaxNode) -> Any:
    return item(evaluation, frame, evaluation.value(frame, node), evaluation.value(frame, index))


def item(evaluation: Evaluation, frame: Frame, owner: Any, key: Any) -> Any:
    """Return ``OWNER[KEY]``.

    :raises Raised: there is no such item, or the method that is called for it raises.
    """
    if owner == Native("os.environ"):
        return read_variable(evaluation, key, strict=True)
    if owner == Native("sys.modules") and isinstance(key, str):
        return evaluation.modules.get(key, UNKNOWN)
    if isinstance(owner, Instance) and "<opened>" in owner.names and isinstance(key, str):
        return evaluation.look_up(owner, key)
    if isinstance(owner, Instance) and "ctypes.LibraryLoader" in owner.cls.lines():
        return evaluation.known["ctypes.CDLL"](evaluation, [key], {})
    if (
        isinstance(owner, dict)
        and frame.lost
        and evaluation.state.is_sure
        and is_key(key)
        and key not in owner
    ):
        # The dlopen that has failed in this block would have given it (amdsmi).
        raise Raised("KeyError", frame.lost.text, is_certain=True, opening=frame.lost.opening)
    taken = evaluation.state.caught & {"KeyError", "LookupError"}
    if owner == {} and is_key(key) and taken and evaluation.state.is_sure:
        raise Raised("KeyError")
    if isinstance(owner, Class):
        members = owner.names.get("__members__")  # of enum; else generic: of these types
        return members.get(key, owner) if isinstance(members, dict) and is_key(key) else owner
    if owner == [] and isinstance(key, int) and evaluation.state.has_sought:
        raise raised_after(frame.lost, Native("IndexError"), evaluation.state)
    if isinstance(owner, Instance) and isinstance(method := owner.cls.find("__getitem__"), Function):
        return evaluation.call(method, [owner, key], {})
    # A value that is not known may have been put where there seems to be none.
    with suppress(LookupError, TypeError, ValueError):
        return owner[key] if isinstance(owner, str | list | tuple | dict) else UNKNOWN
    return UNKNOWN


def _slice(evaluation: Evaluation, frame: Frame, *parts: SyntaxNode | None) -> Any:
    found = [None if part is None else evaluation.value(frame, part) for part in parts]
    return slice(*found) if all(isinstance(one, int | None) for one in found) else UNKNOWN


def _tuple(evaluation: Evaluation, frame: Frame, nodes: Nodes) -> Any:
    found = evaluation.values_of(frame, nodes)
    return UNKNOWN if found is None else tuple(found)


def _set(evaluation: Evaluation, frame: Frame, nodes: Nodes) -> Any:
    with suppress(TypeError):
        return set(evaluation.values_of(frame, nodes) or [UNKNOWN])
    return UNKNOWN


def _list(evaluation: Evaluation, frame: Frame, nodes: Nodes) -> Any:
    found = evaluation.values_of(frame, nodes)
    return UNKNOWN if found is None else found


def _dict(evaluation: Evaluation, frame: Frame, keys: list[SyntaxNode | None], nodes: Nodes) -> Any:
    found: dict[Any, Any] = {}
    for key_node, node in zip(keys, nodes, strict=True):
        key, value = evaluation.value(frame, key_node), evaluation.value(frame, node)
        if key_node is None and isinstance(value, dict):
            found |= value
        elif is_key(key):
            found[key] = value
    return found


def _starred(_evaluation: Evaluation, _frame: Frame, _node: SyntaxNode) -> Any:
    return UNKNOWN


def _namedexpr(evaluation: Evaluation, frame: Frame, target: SyntaxNode, node: SyntaxNode) -> Any:
    value = evaluation.value(frame, node)
    evaluation.bind(frame, target, value)
    return value


def _listcomp(evaluation: Evaluation, frame: Frame, element: SyntaxNode, generators: Nodes) -> Any:
    _, _, target, over, tests = generators[0]
    values = items(evaluation.value(frame, over))
    if values is None or len(values) > TURNS or len(generators) > 1:
        return UNKNOWN
    inside = Frame(frame.module, {}, (frame.names, *frame.outer), is_function=True, prefix=frame.prefix)
    found = []
    for value in values:
        evaluation.bind(inside, target, value)
        chosen = [truth(evaluation.value(inside, test)) for test in tests]
        if None in chosen:
            return UNKNOWN
        if all(chosen):
            found.append(evaluation.value(inside, element))
    return found


def _dictcomp(
    evaluation: Evaluation, frame: Frame, key: SyntaxNode, value: SyntaxNode, generators: Nodes
) -> Any:
    found = _listcomp(evaluation, frame, ["Tuple", 0, [key, value]], generators)
    return dict(found) if found is not UNKNOWN and all(is_key(one) for one, _ in found) else UNKNOWN


def _lambda(
    evaluation: Evaluation, frame: Frame, parameters: SyntaxNode, flags: list[bool], number: int
) -> Function:
    return evaluation.make_function(frame, "<lambda>", parameters, flags, number)


def _yield(evaluation: Evaluation, frame: Frame, node: SyntaxNode | None) -> Any:
    value = evaluation.value(frame, node) if node else None
    if frame.take is not None:
        frame.take(value)
    return UNKNOWN


def _yieldfrom(evaluation: Evaluation, frame: Frame, node: SyntaxNode) -> Any:
    for value in items(evaluation.value(frame, node)) or [UNKNOWN]:
        if frame.take is not None:
            frame.take(value)
    return UNKNOWN


def match_pattern(
    evaluation: Evaluation, frame: Frame, pattern: SyntaxNode | None, value: Any
) -> bool | None:
    """Return whether a pattern of ``match`` fits a value, and bind its names; None where that is not known."""
    match pattern:
        case ["MatchValue", _, node]:
            return truth(compare("Eq", value, evaluation.value(frame, node)))
        case ["MatchOr", _, patterns]:
            found = [match_pattern(evaluation, frame, one, value) for one in patterns]
            return True if True in found else None if None in found else False
        case ["MatchAs", _, inner, name]:
            fits = inner is None or match_pattern(evaluation, frame, inner, value)
            evaluation.bind(frame, name and ["Name", 0, name], value)
            return fits
    return None


EXPRESSIONS: dict[str, Callable[..., Any]] = {
    "Name": _name,
    "Attribute": _attribute,
    "Call": _call,
    "BinOp": _binop,
    "BoolOp": _boolop,
    "UnaryOp": _unaryop,
    "Compare": _compare,
    "IfExp": _ifexp,
    "JoinedStr": _joinedstr,
    "FormattedValue": _formattedvalue,
    "Subscript": _subscript,
    "Slice": _slice,
    "Tuple": _tuple,
    "List": _list,
    "Set": _set,
    "Dict": _dict,
    "Starred": _starred,
    "NamedExpr": _namedexpr,
    "Lambda": _lambda,
    "ListComp": _listcomp,
    "GeneratorExp": _listcomp,
    "DictComp": _dictcomp,
    "Await": lambda evaluation, frame, node: evaluation.value(frame, node),
    "Yield": _yield,
    "YieldFrom": _yieldfrom,
}
"""By the class of a node of ast, what returns its value."""
