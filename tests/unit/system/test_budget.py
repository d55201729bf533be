"""What a run may do, asked by each loop over what files say: chains of files in which each loads the next."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.library import relink
from relink.planning.options import Options
from relink.runs.questions import verify_wheel
from relink.system import budget
from relink.system.budget import RunBudget
from relink.system.errors import BudgetError
from relink.wheel.limits import WheelLimits
from tests.support.cc import shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library, build
from tests.support.works import Works

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
    monkeypatch.setattr(budget, "LEAST_MAPPED", 0)
    monkeypatch.setattr(budget, "MAPPED_PER_LOAD", 1)


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
