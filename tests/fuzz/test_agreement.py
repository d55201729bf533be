"""The simulation against the real loader over generated graphs: object by object, path by path, in order.

Every graph is loaded in three ways: as a program through the loader, as preloads of that program, and by dlopen in a process.
RELINK_FUZZ_EXAMPLES sets how many graphs the long run takes, RELINK_FUZZ_SEED where it starts, and RELINK_FUZZ_LOADER names
another loader (which then runs the first two ways only, since the helper of the third is a program of this system).
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, seed

from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.target import Target, find_target
from tests.fuzz.conftest import COUNTED, SEED
from tests.fuzz.graphs import Graph, fill, graphs, write
from tests.support.amount import amount, repeatable
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.real_loader import (
    Answer,
    build_helper,
    really_dlopen,
    really_trace,
    simulated_dlopen,
    simulated_trace,
)

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
SHARDS = 4
ORDINARY = amount(560)  # graphs of an ordinary run, over all shards
OTHER_LOADER = os.environ.get("RELINK_FUZZ_LOADER")


@pytest.fixture(scope="module")
def target() -> Target:
    return find_target(interpreter=OTHER_LOADER) if OTHER_LOADER else find_target()


@pytest.fixture(scope="module")
def helper(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_helper(tmp_path_factory.mktemp("helper") / "helper"))


def _agree(graph: Graph, world: Path, target: Target, helper: str) -> Counter[str]:
    shutil.rmtree(world, ignore_errors=True)
    world.mkdir()
    write(graph, world, target)

    def filled(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(fill(text, world, target) for text in texts)

    environment = Environment(target, Files(), filled(graph.library_path), str(world / graph.cwd))
    program = fill(graph.program, world, target)
    pairs: list[tuple[Callable[[], Answer], Callable[[], Answer]]] = [
        (lambda: really_trace(environment, program), lambda: simulated_trace(environment, program)),
        (
            lambda: really_trace(environment, program, filled(graph.preloads)),
            lambda: simulated_trace(environment, program, filled(graph.preloads)),
        ),
    ]
    if not OTHER_LOADER:
        roots = filled(graph.roots)
        pairs.append(
            (
                lambda: really_dlopen(environment, roots, helper),
                lambda: simulated_dlopen(environment, roots, helper),
            )
        )
    counts: Counter[str] = Counter(graphs=1)
    for real, simulated in pairs:
        answer, said = real(), simulated()
        assert answer.agrees_with(said), (answer, said)
        counts["loads"] += 1
        counts["loads with a fatal file or, by dlopen, a missing one"] += answer.fatal is not None
        counts["objects"] += sum(path is not None for _, path in answer.rows)
        counts["missing"] += sum(path is None for _, path in answer.rows)
    return counts


def _run(
    count: int, start: int, *, world: Path, target: Target, helper: str, record: Callable[[str, object], None]
) -> None:
    total: Counter[str] = Counter()

    @seed(start)
    @repeatable(count)
    @given(graphs())
    def compare(graph: Graph) -> None:
        total.update(_agree(graph, world, target, helper))

    try:
        compare()
    finally:
        for name, value in total.items():
            record(COUNTED + "with ld.so, " + name, value)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_agreement(
    shard: int,
    target: Target,
    helper: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    _run(
        ORDINARY // SHARDS,
        shard,
        world=tmp_path.resolve() / "w",
        target=target,
        helper=helper,
        record=record_property,
    )


@pytest.mark.fuzz
@pytest.mark.parametrize("shard", range(SHARDS))
def test_agreement_at_length(
    shard: int,
    target: Target,
    helper: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    count = int(os.environ.get("RELINK_FUZZ_EXAMPLES", "20000"))
    start = SEED + shard
    _run(
        -(-count // SHARDS),
        start,
        world=tmp_path.resolve() / "w",
        target=target,
        helper=helper,
        record=record_property,
    )
