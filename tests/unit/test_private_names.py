"""Tests use what a module gives to everybody: a private name of relink is neither imported, read, patched nor set by them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
FILES = sorted([*TESTS.rglob("*.py"), *TESTS.with_name("benchmarks").rglob("*.py")])
IN_TEXT = re.compile(r"\brelink(?:\.\w+)*\._(?!_)\w+")
PATCHING = frozenset({"setattr", "delattr", "getattr"})


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def imported(tree: ast.Module) -> dict[str, str]:
    """What of relink the names of a test module stand for."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "relink":
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names = [alias for alias in node.names if alias.name.partition(".")[0] == "relink"]
            found |= {alias.asname or alias.name: alias.name for alias in names}
            if any(alias.asname is None for alias in names):
                found["relink"] = "relink"
    return found


def root_of(node: ast.expr) -> str:
    """The name that an expression begins with: ``a`` of ``a.b(c).d``."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def private_names(source: str) -> Iterator[str]:
    """The private names of relink that a source reaches for, with their lines."""
    tree = ast.parse(source)
    ours = imported(tree)
    for name in ours.values():
        if any(map(is_private, name.split("."))):
            yield f"import {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and root_of(node.value) in ours:
            yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (f"{node.lineno}: {found}" for found in IN_TEXT.findall(node.value))
        elif isinstance(node, ast.Call) and len(node.args) > 1:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else root_of(node.func)
            second = node.args[1]
            private = isinstance(second, ast.Constant) and is_private(str(second.value))
            if called not in PATCHING or not private:
                continue
            if "monkeypatch" in ast.unparse(node.func) or root_of(node.args[0]) in ours:
                yield f"{node.lineno}: {ast.unparse(node)}"


@pytest.mark.slow(reason="every test is parsed")
def test_no_private_name_of_relink_is_used() -> None:
    found = {
        str(path.relative_to(TESTS.parent)): list(private_names(path.read_text(encoding="utf-8")))
        for path in FILES
        if path != Path(__file__).resolve()  # whose examples are below
    }
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "from relink.elf.image import _read",
        "from relink.gpu._data import table",
        "import relink.gpu._data",
        "from relink.elf import patchelf\npatchelf._locate()",
        "import relink.elf.patchelf\nrelink.elf.patchelf._locate()",
        "from relink.wheel import Blocks\nBlocks(1, 2)._walk(0)",
        "from relink.elf import patchelf\ndef test(monkeypatch): monkeypatch.setattr(patchelf, '_TIMEOUT', 1)",
        "def test(patch): patch.setattr('relink.loader.dryrun._parse', None)",
        "PROGRAM = 'import relink.elf.patchelf as p; relink.system.sandbox._best = None'",
        "from relink import cli\ngetattr(cli, '_app')",
    ],
)
def test_each_way_is_seen(source: str) -> None:
    assert list(private_names(source)) != []


@pytest.mark.parametrize(
    "source",
    [
        "from relink.elf import patchelf\npatchelf.__file__",
        "import os\nos._exit(0)",
        "class A:\n    def f(self): return self._x",
        "from relink import cli\ngetattr(cli, '__name__')",
        "import zipfile\nsetattr(zipfile.ZipInfo(), '_compresslevel', 1)",
    ],
)
def test_what_is_allowed(source: str) -> None:
    assert list(private_names(source)) == []
