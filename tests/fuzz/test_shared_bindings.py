"""Bindings that the closures of one wheel share, against every symbol looked up alone through its scope.

The graphs are those of :mod:`tests.fuzz.binding_graphs`. Every library of a graph is loaded as a program, with and without the
graph's preloads, and by dlopen. So the closures differ in the root, in the order of the rest, and in which definitions come first
(interposition, versions, STB_GNU_UNIQUE, DT_SYMBOLIC).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from relink.loader.binding import Bindings, Symbol, bind, by_symbol, duplicates
from relink.loader.closure import Closure
from relink.loader.loading import load, trace
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.tables import Scopes, Tables
from relink.loader.target import find_target
from relink.system.errors import TargetError
from tests.fuzz.binding_graphs import Graph, graphs, write
from tests.support.amount import amount
from tests.support.elf_builder import SUPPORTED, WHY_NOT

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


def _closures(environment: Environment, graph: Graph, world: Path) -> Iterator[Closure]:
    preloads = [str(world / name) for name in graph.preloads]
    for name, _ in graph.nodes:
        for before in ([], preloads):
            try:
                yield trace(environment, str(world / name), before)
            except TargetError:
                continue
    roots = [str(world / name) for name in graph.roots]
    for count in range(1, len(roots) + 1):
        yield load(environment, roots[:count])


def _symbols(bindings: Bindings) -> tuple[dict[Symbol, int], dict[Symbol, int]]:
    return by_symbol(bindings.bound), by_symbol(bindings.interposed)


def _alone(closure: Closure, tables: Tables) -> tuple[dict[Symbol, int], dict[Symbol, int]]:
    """What binds, and what is interposed, with nothing known beforehand: one search through the scope for each symbol."""
    bound: dict[Symbol, int] = {}
    interposed: dict[Symbol, int] = {}
    process = Scopes(closure, tables)
    for index, scope, _ in process.of_objects():
        table = process.table(index)
        for item in table.imports:
            if not item.relocated:
                continue
            found, _ = scope.find(item.name, item.version, item.file, exact=item.index in table.exact)
            if found is not None:
                bound[index, item.name, item.version] = found
        if index == 0 and table.copies:
            others = process.scope([other for other, _ in scope.order[1:]], {})
            for item in table.copies:
                found, _ = others.find(item.name, item.version, item.file)
                if found is not None:
                    bound[index, item.name, item.version] = found
        for name, version in table.references:
            found, _ = scope.find(name, version, None)
            own = (*table.rejected.get(name, ()), *table.exports.get(name, ()))
            protected = any(item.visibility == "protected" for item in own if item.version == version)
            if found is not None and found != index and not protected:
                interposed[index, name, version] = found
    return bound, interposed


def _compare(count: int, start: int, world: Path) -> int:
    target = find_target()
    compared = 0

    @seed(start)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(graphs())
    def check(graph: Graph) -> None:
        nonlocal compared
        shutil.rmtree(world, ignore_errors=True)
        write(graph, world)
        environment = Environment(target, Files())  # the files of the graph before had the same paths
        shared = Tables(environment.files, {})
        for closure in _closures(environment, graph, world):
            alone = Tables(environment.files, {})
            here, there = bind(closure, shared), bind(closure, alone)
            assert (here.unbound, here.explained) == (there.unbound, there.explained)
            assert _symbols(here) == _symbols(there)
            assert _symbols(here) == _alone(closure, alone)
            assert duplicates(closure, shared, here) == duplicates(closure, alone, there)
            compared += 1

    check()
    return compared


def test_closures_share_bindings(tmp_path: Path) -> None:
    count = amount(200)
    assert _compare(count, 1, tmp_path / "w") > count


@pytest.mark.fuzz
@pytest.mark.parametrize("shard", range(2))
def test_closures_share_bindings_at_length(shard: int, tmp_path: Path) -> None:
    count = int(os.environ.get("RELINK_FUZZ_EXAMPLES", "10000")) // 2
    assert _compare(count, 2 + shard, tmp_path / "w") > count
