"""The closure's own promises; which libraries are loaded is tests/loader_rules' and tests/fuzz's business."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.loader.loading import load, trace
from relink.loader.search import Environment
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.unit.loader.planted import sonames

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


def test_trace(world: Path, environment: Environment) -> None:
    closure = trace(environment, f"{world}/liba.so")
    assert sonames(closure, closure.scope) == ["liba.so", "libb.so", "libc1.so"]
    assert closure.roots == (0,)
    assert closure.objects[1].path == environment.target.interpreter
    assert [(edge.soname, edge.requester) for edge in closure.missing] == [("libgone.so", 2)]
    assert {edge.found_by.rule for edge in closure.edges if edge.found_by} == {"runpath", "loaded"}
    assert closure.objects[2].origin == str(world)
    assert closure.objects[2].loader == 0
    assert not closure.loads


def test_edges_are_told_once(world: Path, environment: Environment) -> None:
    closure = load(environment, [f"{world}/liba.so", f"{world}/libb.so", f"{world}/liba.so"])
    asked = [(edge.requester, edge.soname) for edge in closure.edges]
    assert len(asked) == len(set(asked))


def test_fatal(world: Path, environment: Environment) -> None:
    (world / "libgone.so").write_text("INPUT(x)")
    closure = trace(environment, f"{world}/liba.so")
    assert closure.fatal == f"{world}/libgone.so: file too short"
    assert not closure.loads
