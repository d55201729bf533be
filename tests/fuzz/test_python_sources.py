"""Damaged and mixed Python sources through the reader of imports: each is followed to an end, or told to be unreadable."""

from __future__ import annotations

import ast
import random
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.python.facts_cache import FactsCache
from relink.python.process import PythonProcesses
from tests.support.amount import amount
from tests.support.python_processes import python_of, write_files

ORDINARY = amount(100)  # sources of an ordinary run, of each kind
STANDARD = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))


def mixed(rng: random.Random) -> bytes:
    """Return the statements of several modules, with parts of expressions exchanged, called with each other and nested."""
    trees = [ast.parse(path.read_bytes()) for path in rng.choices(STANDARD, k=2)]
    expressions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.expr)]
    statements = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    for statement in rng.choices(statements, k=200):
        for field, value in ast.iter_fields(statement):
            if isinstance(value, ast.expr) and isinstance(getattr(value, "ctx", ast.Load()), ast.Load):
                setattr(statement, field, rng.choice(expressions))
    chosen = rng.choices(statements, k=60)
    parts = []
    for statement in chosen:
        try:
            parts.append(ast.unparse(statement))
        except (RecursionError, ValueError, AttributeError, TypeError, KeyError):
            continue
    return "\n".join(parts).encode("utf-8", "replace")


def damaged(rng: random.Random) -> bytes:
    """Return a module in which bytes are exchanged, repeated or left out."""
    data = bytearray(rng.choice(STANDARD).read_bytes()[: 1 << 16])
    for _ in range(rng.randrange(1, 20)):
        at = rng.randrange(len(data))
        data[at : at + rng.randrange(4)] = rng.choice(
            (b"", b"(", b"\n", b" ", bytes((rng.randrange(256),)), data[at : at + 50])
        )
    return bytes(data)


@pytest.mark.parametrize("make", [mixed, damaged])
def test_sources(tmp_path: Path, make: Callable[[random.Random], bytes]) -> None:
    for seed in range(ORDINARY):
        source = make(random.Random(seed))
        write_files(tmp_path, {"user.py": source, "x.so": ""})
        processes = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables={})
        try:
            processes.read_import("user")
            processes.read_import("user", frozenset({str(tmp_path / "x.so")}))
        except Exception as error:
            raise AssertionError(f"seed {seed} of {make.__name__}:\n{source[:20000]!r}") from error
