"""The simulation of a process against a real one: what each dlopen maps, in order, or fails of, and what each import binds to.

As in test_agreement: RELINK_FUZZ_EXAMPLES says how many processes the long run takes, RELINK_FUZZ_SEED where it starts.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, seed

from relink.loader.process import Dlopen, Failure
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import Target, find_target
from tests.fuzz.conftest import COUNTED, SEED
from tests.fuzz.graphs import Graph, fill, write
from tests.fuzz.process_graphs import STORIES, Story, process_graphs
from tests.support.amount import amount, repeatable
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.real_process import Step, assert_agreement, build_programs, really_open, simulated_open

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
SHARDS = 2
ORDINARY = amount(150)  # worlds of an ordinary run, over all shards, with STORIES processes each


@pytest.fixture(scope="module")
def target() -> Target:
    return find_target()


def _agree(
    graph: tuple[Graph, tuple[Story, ...]], world: Path, target: Target, programs: dict[str, str]
) -> Counter[str]:
    shutil.rmtree(world, ignore_errors=True)
    world.mkdir()
    write(graph[0], world, target)
    # All processes of one world share what is read.
    files = Files()
    tables = Tables(files, {})
    counts: Counter[str] = Counter()
    for story in graph[1]:

        def filled(texts: tuple[str, ...]) -> list[str]:
            return [fill(text, world, target) for text in texts]

        environment = Environment(target, files, tuple(filled(story.library_path)), str(world / graph[0].cwd))
        events = [
            Dlopen(fill(one.name, world, target), one.flags, fill(one.caller, world, target))
            for one in story.events
        ]
        program, preloads = programs[story.program], filled(story.preloads)
        real = really_open(environment, program, preloads, events, str(world))
        said = simulated_open(environment, program, preloads, events, str(world), tables)
        assert_agreement(real, said)
        counts += _counted(real, events)
    return counts


def _counted(real: list[Step], events: list[Dlopen]) -> Counter[str]:
    counts: Counter[str] = Counter(processes=1, dlopens=len(real) - 1)
    for number, step in enumerate(real):
        counts["bindings"] += len(step.bound)
        for kind, *_ in step.failure:
            counts[f"failures ({kind})"] += 1
        if number and not step.failure:
            event = events[number - 1]
            counts["dlopens of what was mapped"] += step.mapped == real[number - 1].mapped
            counts["dlopens into the global scope"] += bool(event.flags & os.RTLD_GLOBAL)
            counts["dlopens after a failure"] += any(before.failure for before in real[:number])
            counts["dlopens by a library"] += bool(event.caller)
    return counts


def _run(count: int, start: int, place: Path, target: Target, record: Callable[[str, object], None]) -> None:
    total: Counter[str] = Counter()
    programs = build_programs(place, "$ORIGIN/w/d1")

    @seed(start)
    @repeatable(count)
    @given(process_graphs())
    def compare(graph: tuple[Graph, tuple[Story, ...]]) -> None:
        total.update(_agree(graph, place / "w", target, programs))

    try:
        compare()
    finally:
        for name, value in total.items():
            record(f"{COUNTED}with ld.so, {name}", value)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_agreement(
    shard: int, target: Target, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    _run(ORDINARY // SHARDS, shard, tmp_path.resolve(), target, record_property)


def _agree_with_known(
    graph: tuple[Graph, tuple[Story, ...]], world: Path, target: Target, programs: dict[str, str]
) -> None:
    """Compare processes that know what became of dlopens with processes that compute it; then with other symbols in the files."""
    known: dict[bytes, Failure | None] = {}
    nodes = graph[0].nodes
    exported = [(node.library.exports, node.library.versions) for node in nodes]
    for shift in (0, 1):
        libraries = [
            replace(node.library, exports=exports, versions=versions)
            for node, (exports, versions) in zip(nodes, exported[shift:] + exported[:shift], strict=True)
        ]
        changed = tuple(replace(node, library=one) for node, one in zip(nodes, libraries, strict=True))
        shutil.rmtree(world, ignore_errors=True)
        world.mkdir()
        write(replace(graph[0], nodes=changed), world, target)
        files = Files()
        environment, tables = Environment(target, files, (), str(world)), Tables(files, {})
        for story in graph[1]:
            events = [
                Dlopen(fill(one.name, world, target), one.flags, fill(one.caller, world, target))
                for one in story.events
            ]
            other_flags = [Dlopen(one.name, one.flags ^ os.RTLD_GLOBAL, one.caller) for one in events]
            for told in (events, events[::-1], events[1:], other_flags, [*events, *other_flags]):
                simulated = partial(
                    simulated_open, environment, programs[story.program], (), told, str(world), tables
                )
                said = [replace(step, bound=frozenset()) for step in simulated()]
                # All that is known, then a half of it.
                for half in (False, True) if not said[0].failure else ():
                    here = {digest: one for digest, one in known.items() if not half or digest[0] % 2}
                    assert simulated(known=here) == said
                    known |= here


def test_what_is_known_of_dlopens(target: Target, tmp_path: Path) -> None:
    """A dlopen of the same files after the same dlopens has the same result, computed or not."""
    place = tmp_path.resolve()
    programs = build_programs(place, "$ORIGIN/w/d1")

    @repeatable(amount(100))
    @given(process_graphs())
    def compare(graph: tuple[Graph, tuple[Story, ...]]) -> None:
        _agree_with_known(graph, place / "w", target, programs)

    compare()


@pytest.mark.fuzz
@pytest.mark.parametrize("shard", range(SHARDS))
def test_agreement_at_length(
    shard: int, target: Target, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    count = int(os.environ.get("RELINK_FUZZ_EXAMPLES", "10000"))
    start = SEED + shard
    _run(-(-count // SHARDS // STORIES), start, tmp_path.resolve(), target, record_property)
