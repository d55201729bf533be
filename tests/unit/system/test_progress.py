"""Seconds by stage, and bytes that several threads report.

What a run may do, asked by each loop over what files say: chains of files in which each loads the next.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from relink.library import relink
from relink.planning.options import Options
from relink.runs.questions import verify_wheel
from relink.system import progress
from relink.system.errors import BudgetError
from relink.system.progress import Clock, Count, RunBudget
from relink.wheel.limits import WheelLimits
from tests.support.cc import shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library, build
from tests.support.works import Works


def test_bytes_of_many_threads_add_up() -> None:
    told: list[tuple[int, int]] = []
    count = Count(10_000, lambda done, total: told.append((done, total)))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count.add, [7] * 1000))
    assert count.done == 7000
    assert [done for done, _ in told] == list(range(7, 7001, 7)), "the sums are told in order"


def test_never_more_than_there_are() -> None:
    told: list[tuple[int, int]] = []
    count = Count(10, lambda done, total: told.append((done, total)))
    count.add(8)
    count.add(8)
    assert told == [(8, 10), (10, 10)]
    assert count.done == 16


def test_stages() -> None:
    begun: list[str] = []
    clock = Clock(begun.append)
    for name in ("read", "plan", "read"):
        with clock.stage(name):
            time.sleep(0.01)
    assert begun == ["read", "plan", "read"]
    assert list(clock.timings) == ["read", "plan"]
    assert clock.timings["read"] > 0.015
    assert 0.005 < clock.timings["plan"] < clock.timings["read"]


def test_a_stage_that_fails_has_no_time() -> None:
    clock = Clock()
    with pytest.raises(ValueError, match="so"), clock.stage("read"):
        raise ValueError("so")
    assert clock.timings == {}


pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
N = 60
LIMITS = WheelLimits(loads=600)


def by_needed(number: int, last: str) -> bytes:
    needed = f"l{number + 1:03}.so" if number + 1 < N else last
    return build(Library(soname=f"l{number:03}.so", needed=(needed,), runpath="$ORIGIN"))


@pytest.fixture
def opening(tmp_path: Path) -> Callable[[int], bytes]:
    """Return a function that makes a library whose note names the next one."""
    note = json.dumps([{"soname": ["l001.so"], "priority": "recommended"}])
    source = (
        '__attribute__((section(".note.dlopen"), aligned(4), used)) static const struct { unsigned n, d, t; char o[4]; '
        f'char j[{len(note) // 4 * 4 + 4}]; }} note = {{4, {len(note) + 1}, 0x407c0c0a, "FDO", {json.dumps(note)}}};'
    )
    library = shared(tmp_path / "l000.so", source, flags=["-Wl,-rpath,$ORIGIN"]).read_bytes()

    def make(number: int) -> bytes:
        named = library.replace(b"l000.so", b"l%03d.so" % number)
        return named.replace(b"l001.so", b"l%03d.so" % (number + 1))

    return make


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LEAST_MAPPED", 0)
    monkeypatch.setattr(progress, "MAPPED_PER_LOAD", 1)


def test_a_budget_names_its_limit() -> None:
    left = RunBudget(2)
    left.map_file()
    left.map_file()
    with pytest.raises(BudgetError, match=r"map more than 2 files, .* --limit loads=4"):
        left.map_file()
    with pytest.raises(BudgetError, match="load more than 2 files"):
        left.check_loads(3)


def test_a_chain_of_names_that_are_opened(
    works: Works, tmp_path: Path, opening: Callable[[int], bytes]
) -> None:
    wheel = works.wheel(tmp_path, {f"demo/l{number:03}.so": opening(number) for number in range(N)})
    with pytest.raises(BudgetError, match="--limit loads=1200"):
        verify_wheel(wheel, Options(limits=LIMITS))


def test_stubs_of_a_chain(works: Works, tmp_path: Path) -> None:
    files = {f"demo/l{number:03}.so": by_needed(number, "libnowhere.so.1") for number in range(N)}
    options = works.options(tmp_path / "out", stub=("auto",), limits=LIMITS)
    with pytest.raises(BudgetError, match=r"map more than .* --limit loads=1200"):
        relink(works.wheel(tmp_path, files), options)
