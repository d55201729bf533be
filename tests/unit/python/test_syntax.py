"""Sources as data: what is kept, and sources that are made to take all time or memory."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sysconfig
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from relink.python import syntax
from relink.python.syntax import SOURCE_LIMIT, UnreadableSourceError, parse_source, read_body, read_flags


def test_the_bodies_of_functions_stand_apart() -> None:
    statements, bodies = parse_source(
        b'"""text"""\ndef f(a, b=1):\n    import x\n\n@property\ndef g(self): return 1\n'
    )
    assert [node[:3] for node in statements] == [["FunctionDef", 2, "f"], ["FunctionDef", 6, "g"]]
    assert [node[4:] for node in statements] == [
        [[], 0, []],
        [[False, False], 1, [["Name", 5, "property"]]],
    ]
    assert read_flags(bodies, 0) == [True, False]
    assert json.loads(bodies[0]) == [["Import", 3, [["alias", 3, "x", None]]]]


def expand(node: Any, bodies: list[Any]) -> Any:
    """Return a node with the bodies of functions in place of their numbers, and their flags."""
    if not isinstance(node, list):
        return node
    found = [expand(one, bodies) for one in node]
    place = {"FunctionDef": 5, "Lambda": 4}.get(node[0] if node and isinstance(node[0], str) else "")
    if place is not None:
        body = bodies[node[place]]
        found[place - 1] = node[place - 1] or read_flags(bodies, node[place])
        found[place] = expand(read_body(bodies, node[place]) if isinstance(body, str) else body, bodies)
    return found


def is_same_uncut(source: bytes) -> bool:
    """Whether a source is read as one in which no body is cut out: with a line that ends as on an old system."""
    (found, bodies), (whole, others) = map(parse_source, (source, source + b"\r"))
    assert all(body.startswith("[") for body in others)
    return bool(expand(found, bodies) == expand(whole, others))


LONG = "    value = 'some text'  # and a comment, so that it is worth to be cut out of the rest of it\n"


@pytest.mark.few(4, reason="the same of other forms")
@pytest.mark.parametrize(
    ("head", "tail"),
    [
        ("def f(a, b=(1, 2)) -> dict[str, int]:  # a comment: (two)\n", ""),
        ("async def f(\n    a,  # of the:\n    b=lambda x: (x),\n) -> None:\n", ""),
        ("def f(a,\n      b):\n", ""),
        ("@decorated(lambda x: [import_module(x)])\ndef f(a):\n", "\n\n# comment\n"),
        ("def f(a):\n", "    import a, b; from c import d\n    def g(): return lambda: find_library(a)\n"),
        ("def f(a):\n", "# a comment at the start of a line\n    text = 2\n"),
        ("def f(a):\n", '    text = """\ndef g():\n' + LONG + '"""\n'),
        ("def f(a):\n", '    text = \'"""\'; more = """\ndef g():\n' + LONG + '"""\n'),
        ("def f(a):\n", "    text = (\n1,\n)\n"),
        ("def f(a):\n", "    text = \\\n1\n"),
        ("text = '''\ndef f(a):\n", "'''\n"),
        ("class A:\n  def f(self):\n", "  def g(self):\n" + LONG),
        ("while a:\n    pass\nelse:\n  def f(self):\n", ""),
        ("def f(a):\n# comment\n  def g():\n", "    import a\n"),
        ("def f(a):\n    x = 1\ndef g(a): return a\n\ndef h(a):\n", ""),
    ],
)
def test_a_body_that_is_cut_out_is_what_the_parser_finds(head: str, tail: str) -> None:
    assert is_same_uncut(f"import a\n\n{head}{LONG}{tail}\nz = 1\n".encode())


def test_a_body_with_a_text_of_several_lines_keeps_no_other_from_being_cut_out() -> None:
    quotes = '"' * 3
    odd = f"def f(a):\n{LONG}    text = {quotes}\nx = 1\n{quotes}\n"
    _, bodies = parse_source(f"{odd}def g(a):\n{LONG}z = 1\n".encode())
    assert [body[0] for body in bodies] == ["[", "7"]


def test_the_standard_library_is_read_as_without_cuts() -> None:
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[::4]
    cut = [path for path in paths if any(body[0] != "[" for body in parse_source(path.read_bytes())[1])]
    assert len(cut) > len(paths) / 2
    assert [path.name for path in paths if not is_same_uncut(path.read_bytes())] == []


def test_a_source_that_ends_in_a_body_is_read_to_its_end() -> None:
    source = f"def f(a):\n{LONG}\n\ndef g(a):\n{LONG}    text = (1,\n"
    with pytest.raises(UnreadableSourceError, match="grammar"):
        parse_source(source.encode())


def test_a_body_that_cannot_be_parsed_is_told() -> None:
    _, bodies = parse_source(f"def f(a):\n{LONG}    print 'of another Python'\nz = 1\n".encode())
    with pytest.raises(UnreadableSourceError, match="grammar"):
        read_body(bodies, 0)


def test_a_long_body_is_not_returned() -> None:
    _, bodies = parse_source(f"def f(a):\n{LONG}z = 1\n".encode())
    assert read_body(bodies, 0, 20) is None
    assert read_body(bodies, 0) == [["Assign", 2, [["Name", 2, "value"]], ["Constant", 2, "some text"]]]


@pytest.mark.few(2, reason="the same of other forms")
@pytest.mark.parametrize(
    "lines",
    [
        [b" " * depth + b"def a(" for depth in range(2800)],
        [b" " * depth + b"def a():  # )" for depth in range(2800)],
        [b" " * depth + b'def a():\n"""' for depth in range(2800)],
        [b"def a():", *[b" "] * 1_000_000],
        [b"def a(" + b" " * 3_000_000 + b")"],
        [b"def a():\n import x; " + b"y" * 70] * 30_000,
    ],
)
def test_no_form_of_a_source_takes_long_to_cut(lines: list[bytes]) -> None:
    start = time.process_time()
    with suppress(UnreadableSourceError):
        parse_source(b"\n".join(lines) + b"\nz = 1\n")
    assert time.process_time() - start < 10


def test_what_is_for_type_checkers_is_nothing() -> None:
    statements, _ = parse_source(
        b"import typing\nif typing.TYPE_CHECKING:\n    import x\nelse:\n    import y\n"
    )
    assert statements[1][2:4] == [["Constant", 0, False], []]
    assert statements[1][4][0][0] == "Import"


@pytest.mark.few(6, reason="the same of other values")
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"x" * (SOURCE_LIMIT + 1), "larger than 4 MiB"),
        (b"a;" * 600_000, "more than 750000 tokens"),
        (b"import a\n" * 400_000, "more than 750000 tokens"),
        (b"(" * 100_000, "grammar"),
        (b"x = " + b"-" * 100_000 + b"1", "nested too deep"),
        (b"x = " + b"not " * 50_000 + b"1", "nested too deep"),
        (b"x = a" + b".a" * 100_000, "nested too deep"),
        (b"x = a" + b"()" * 100_000, "nested too deep"),
        (b"x = 1" + b"+1" * 100_000, "nested too deep"),
        (b"if a:\n pass\n" + b"elif a:\n pass\n" * 30_000, "nested too deep"),
        (b"".join(b" " * depth + b"if a:\n" for depth in range(1000)) + b" " * 1000 + b"pass\n", "grammar"),
        (b"print 'of another Python'\n", "grammar"),
        (b"x = 1\0\n", "grammar"),
        (b"\xff\xfe\n", "grammar"),
        (b"# coding: unicode_escape\nx = 1\n", "encoding unicode"),
        (b"# coding: no-such\nx = 1\n", "unknown encoding"),
    ],
)
def test_a_source_that_cannot_be_read_is_told(source: bytes, reason: str) -> None:
    start = time.process_time()
    with pytest.raises(UnreadableSourceError, match=reason):
        parse_source(source)
    assert time.process_time() - start < 10


def test_a_source_in_another_encoding_is_read() -> None:
    statements, _ = parse_source("# coding: latin-1\nx = 'é'\n".encode("latin-1"))
    assert statements == [["Assign", 2, [["Name", 2, "x"]], ["Constant", 2, "é"]]]


def test_constants_have_a_bound() -> None:
    statements, _ = parse_source(b"x = " + b"9" * 30 + b"\ny = '" + b"z" * 5000 + b"'\nz = 1.5\n")
    assert [node[3] for node in statements] == [None, None, None]


def test_a_statement_of_a_newer_python_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Novel(ast.stmt):
        """What no Python has."""

    novel = ast.copy_location(Novel(), ast.parse("pass").body[0])
    (kept,) = ast.parse("import a").body
    monkeypatch.setattr(ast, "parse", lambda _: ast.Module([novel, kept], []))
    assert [node[0] for node in parse_source(b"")[0]] == ["Import"]


_NEWER = """
import importlib.util, json, sys
specification = importlib.util.spec_from_file_location("syntax", sys.argv[1])
syntax = importlib.util.module_from_spec(specification)
specification.loader.exec_module(syntax)
print(json.dumps(syntax.parse_source(sys.stdin.buffer.read())[0]))
"""


def find_python(minor: int) -> str | None:
    """Return a Python of this machine; pyenv's program on PATH starts none that is not chosen, so its own is taken."""
    program = shutil.which(f"python3.{minor}")
    if program and (shims := Path(program).parent).name == "shims":
        found = sorted(shims.parent.glob(f"versions/3.{minor}.*/bin/python3.{minor}"))
        return str(found[-1]) if found else None
    return program


@pytest.mark.slow(reason="a process of each other Python")
@pytest.mark.parametrize("minor", range(12, 16))
def test_what_a_newer_python_has_is_read_by_it(minor: int) -> None:
    """The module needs the standard library alone, so any Python of this machine can run it."""
    if (program := find_python(minor)) is None:
        pytest.skip(f"there is no python3.{minor}")
    source = (
        b"import a\ntype X = int\ntype Y[T] = list[T]\ndef f[T](x: T): pass\nclass C[T]: pass\nimport b\n"
    )
    if minor >= 14:
        source += b"t = t'{a}'\ntry:\n    pass\nexcept A, B:\n    import c\n"
    command = [program, "-I", "-c", _NEWER, syntax.__file__]
    ended = subprocess.run(command, input=source, capture_output=True, check=True)
    statements = json.loads(ended.stdout)
    assert [node[0] for node in statements[:6]] == [
        "Import",
        "Assign",
        "Assign",
        "FunctionDef",
        "ClassDef",
        "Import",
    ]
    assert statements[1][2:] == [[["Name", 2, "X"]], None]
    assert [node[0] for node in statements[6:]] == (["Assign", "Try"] if minor >= 14 else [])
