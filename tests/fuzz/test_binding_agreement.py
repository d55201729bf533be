"""Bindings, version checks and unbound symbols against ``ldd -r`` and LD_DEBUG=bindings over generated graphs.

Every graph is bound as a program, with preloads, and (a milder one) by dlopen, globally and locally, in a process. As in
test_agreement: RELINK_FUZZ_EXAMPLES, RELINK_FUZZ_SEED and RELINK_FUZZ_LOADER.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, seed
from hypothesis.strategies import SearchStrategy

from relink.elf.constants import DT_SYMBOLIC
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.target import Target, find_target
from tests.fuzz.binding_graphs import UNIQUE, Graph, Node, Tweak, graphs, write
from tests.fuzz.conftest import COUNTED, SEED
from tests.fuzz.real_binding import (
    Answer,
    build_opener,
    really_bind,
    really_open,
    simulated_bind,
    simulated_open,
)
from tests.support.amount import amount, repeatable
from tests.support.elf_builder import SUPPORTED, WEAK, WHY_NOT, Export, Import, Library

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
SHARDS = 2
ORDINARY = {"traced": amount(400), "opened": amount(300)}  # graphs of an ordinary run, over all shards
OTHER_LOADER = os.environ.get("RELINK_FUZZ_LOADER")
Compare = Callable[[Graph, Path], Counter[str]]


@pytest.fixture(scope="module")
def target() -> Target:
    return find_target(interpreter=OTHER_LOADER) if OTHER_LOADER else find_target()


@pytest.fixture(scope="module")
def opener(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_opener(tmp_path_factory.mktemp("opener") / "opener"))


def _paths(world: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(world / name) for name in names)


def _traced(target: Target) -> Compare:
    def compare(graph: Graph, world: Path) -> Counter[str]:
        environment = Environment(target, Files())
        program = str(world / graph.nodes[0][0])
        counts = Counter(graphs=1)
        for preloads in ((), _paths(world, graph.preloads)):
            real = really_bind(environment, program, preloads, bindings=True)
            said, _ = simulated_bind(environment, program, preloads, bindings=True)
            assert real.agrees_with(said), _explained(real, said)
            counts += Counter(
                {
                    "loads": 1,
                    "aborts": int(real.aborts),
                    "unbound symbols": len(real.lost),
                    "missing versions": len(real.gone),
                    "bindings": len(real.bound),
                }
            )
        return counts

    return compare


def _opened(target: Target, opener: str) -> Compare:
    def compare(graph: Graph, world: Path) -> Counter[str]:
        environment = Environment(target, Files())
        roots = _paths(world, graph.roots)
        real = really_open(environment, roots, opener, str(world))
        said = simulated_open(environment, roots, opener, str(world))
        assert real.agrees_with(said), (real, said)
        return Counter(
            {"graphs": 1, "loads": 1, "refused": int(real.refused is not None), "bindings": len(real.bound)}
        )

    return compare


def _explained(real: Answer, said: Answer) -> str:
    return "\n".join(
        f"{what}: only real {sorted(map(str, a - b))}, only simulated {sorted(map(str, b - a))}"
        for what, a, b in (
            ("lost", real.lost, said.lost),
            ("gone", real.gone, said.gone),
            ("bound", real.bound, said.bound),
            ("aborts", {real.aborts}, {said.aborts}),
        )
    )


def _run(
    count: int,
    start: int,
    drawn: SearchStrategy[Graph],
    compare: Compare,
    world: Path,
    record: Callable[[str, object], None],
    label: str,
) -> None:
    total: Counter[str] = Counter()

    @seed(start)
    @repeatable(count)
    @given(drawn)
    def check(graph: Graph) -> None:
        shutil.rmtree(world, ignore_errors=True)
        write(graph, world)
        total.update(compare(graph, world))

    try:
        check()
    finally:
        for name, value in total.items():
            record(f"{COUNTED}with ld.so, {label}, {name}", value)


def _one(
    way: str, target: Target, request: pytest.FixtureRequest
) -> tuple[SearchStrategy[Graph], Compare, str]:
    if way == "traced":
        return graphs(), _traced(target), "binding by ldd -r"
    if OTHER_LOADER:
        pytest.skip("the opener is a program of this system")
    return graphs(mild=True), _opened(target, request.getfixturevalue("opener")), "binding by dlopen"


def test_a_cycle_through_the_program(target: Target, tmp_path: Path) -> None:
    """What needs the program is relocated as if it did not: seen by which look-up of an STB_GNU_UNIQUE name is the first."""

    def library(soname: str, needed: str, *, defines: bool = True, refers: bool = False) -> Library:
        exports = (Export("xy", binding=UNIQUE),) if defines else ()
        return Library(
            soname, (needed,), runpath="$ORIGIN", exports=exports, imports=(Import("xy"),) if refers else ()
        )

    symbolic = replace(library("libb.so", "libd.so"), imports=(Import("x", binding=WEAK),))
    graph = Graph(
        (
            ("liba.so", Node(library("liba.so", "libb.so"))),
            ("libb.so", Node(symbolic, (Tweak("xy", own=0),), DT_SYMBOLIC)),
            ("libd.so", Node(library("libd.so", "liba.so", defines=False, refers=True))),
        ),
        preloads=(),
        roots=(),
    )
    write(graph, tmp_path)
    assert _traced(target)(graph, tmp_path)["bindings"]


@pytest.mark.parametrize("way", ORDINARY)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_binding_agreement(
    shard: int,
    way: str,
    target: Target,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    drawn, compare, label = _one(way, target, request)
    count = ORDINARY[way] // SHARDS
    _run(count, shard, drawn, compare, tmp_path.resolve() / "w", record_property, label)


@pytest.mark.fuzz
@pytest.mark.parametrize("way", ORDINARY)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_binding_agreement_at_length(
    shard: int,
    way: str,
    target: Target,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    count = -(-int(os.environ.get("RELINK_FUZZ_EXAMPLES", "10000")) // SHARDS)
    start = SEED + shard
    drawn, compare, label = _one(way, target, request)
    _run(count, start, drawn, compare, tmp_path.resolve() / "w", record_property, label)
