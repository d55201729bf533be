"""Sources as data: what is kept, and sources that are made to take all time or memory."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from relink.python import syntax
from relink.python.syntax import SOURCE_LIMIT, UnreadableSourceError, parse_source


def test_the_bodies_of_functions_stand_apart() -> None:
    statements, bodies = parse_source(
        b'"""text"""\ndef f(a, b=1):\n    import x\n\n@property\ndef g(self): return 1\n'
    )
    assert [node[:3] for node in statements] == [["FunctionDef", 2, "f"], ["FunctionDef", 6, "g"]]
    assert [node[4:] for node in statements] == [[True, 0, []], [False, 1, [["Name", 5, "property"]]]]
    assert json.loads(bodies[0]) == [["Import", 3, [["alias", 3, "x", None]]]]


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
