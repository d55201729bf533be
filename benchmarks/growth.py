"""How the main job grows: with the bytes of ELF files that change, with bytes that stay, and with the numbers of members.

RELINK_BENCH_DIR names a directory with space for two of the largest wheels and one that is unpacked (12 GB); the system's
temporary directory if it is not set.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import results
from benchmarks.cost import Cost, bench_directory, in_turns, measured, need_space
from benchmarks.job import RELINK, plan_job, sizes, ways
from benchmarks.shapes import make_libraries, one_library, write_members, write_modules
from benchmarks.torch_shape import MIB, Shape, make_prefix, make_wheel
from benchmarks.wheel_file import NAME, WheelFile

_PIECE: Final = 512  # MiB of one file of data
_SIZES: Final = (100, 1000, 4500)  # MiB
_MODULES: Final = (200, 400, 800, 1600, 2400, 3200)


def _data(path: Path, mib: int) -> Path:
    rng = random.Random(mib)
    with path.open("wb") as file:
        for _ in range(mib):
            file.write(rng.randbytes(MIB // 2) + bytes(MIB // 2))
    return path


def _series(
    name: str, shape: Shape, cases: Mapping[str, Callable[[Path, Path], None]], wanted: tuple[str, ...] | None
) -> Iterator[str]:
    """Do one job after the other, once.

    :param shape: of the ROCm.
    :param cases: what it is, and what writes its wheel, of the wheel's path and the prefix.
    :param wanted: of the ways to do the job; None for all.
    """
    yield f"  {'':20} wheel, MB   {'':28}   wall, s   processor, s   of first    peak MB"
    first: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="relink-growth-", dir=bench_directory()) as top:
        place = Path(top)
        prefix = make_prefix(place, shape)
        wheel = place / NAME
        for case, write in cases.items():
            write(wheel, prefix)
            job = plan_job(wheel, ["--prefix", str(prefix)])
            size = sizes(job)
            need_space(case, size["bytes"] + 2 * size["wheel"])
            chosen = {way: run for way, run in ways(job).items() if wanted is None or way in wanted}
            costs = in_turns(chosen, turns=1)
            results.keep(name, case, size, costs)
            for way, cost in costs.items():
                if isinstance(cost, Cost):
                    base = first.setdefault(way, cost.processor)
                    yield (
                        f"  {case:20} {wheel.stat().st_size / 1e6:9.0f}   {way:28}   {cost.wall:7.2f}   "
                        f"{cost.processor:12.2f}   {cost.processor / base:8.1f}   {cost.memory / 1e6:8.0f}"
                    )


def changed_bytes() -> Iterator[str]:
    """Wheels of torch's shape, all of whose 60 ELF files change; by relink and its peers."""
    yield from _series(
        "changed bytes", Shape(), {f"{mib} MiB change": partial(_of_torch, mib) for mib in _SIZES}, None
    )


def _of_torch(mib: int, wheel: Path, prefix: Path) -> None:
    shape = Shape()
    small = mib // 3 // (shape.members - 3)
    large = (mib - small * (shape.members - 3)) // 3
    make_wheel(wheel, prefix, Shape(large=large, small=small))


def untouched_bytes() -> Iterator[str]:
    """One small ELF file that changes, beside data that does not."""

    def write(mib: int, wheel: Path, prefix: Path) -> None:
        count = -(-mib // _PIECE)
        data = _data(wheel.parent / "data", mib // max(count, 1))
        with WheelFile(wheel) as file:
            file.add("demo/a.so", one_library(wheel.parent, prefix))
            for number in range(count):
                file.add(f"demo/{number}.bin", data)

    cases = {f"{mib} MiB beside": partial(write, mib) for mib in (0, *_SIZES)}
    yield from _series("untouched bytes", Shape(libraries=1), cases, (RELINK,))


def members() -> Iterator[str]:
    """One small ELF file among so many modules."""

    def write(count: int, wheel: Path, prefix: Path) -> None:
        write_members(wheel.parent, prefix, count)

    cases = {f"{count} members": partial(write, count) for count in (10, 1000, 10_000)}
    yield from _series("members", Shape(libraries=1), cases, (RELINK,))


def roots() -> Iterator[str]:
    """A small wheel of torch's shape, with so many more members that share everything with the others."""
    shape = Shape(large=8, small=0)
    cases = {
        f"{count} more": lambda wheel, prefix, count=count: make_wheel(wheel, prefix, shape, count)
        for count in (0, 20, 140)
    }
    yield from _series("roots", shape, cases, (RELINK,))
    known = results.MEASURED["roots"]
    seconds = [known[case]["rows"][RELINK]["wall"] for case in cases]
    yield f"  {1000 * (seconds[-1] - seconds[0]) / 140:.0f} ms for each root more, everything included"


def modules() -> Iterator[str]:
    """A dry run over so many extension modules, each of which needs one of eight libraries, which bring the others."""
    with tempfile.TemporaryDirectory(prefix="relink-growth-", dir=bench_directory()) as top:
        place = Path(top)
        make_libraries(place)
        for count in _MODULES:
            write_modules(place, count)
            command = [sys.executable, "-m", "relink", str(place / NAME), "--prefix", str(place / "rocm")]
            ways = {RELINK: lambda place, run=(*command, "--dry-run", "--json"): measured([run], place)}
            cost = in_turns(ways)[RELINK]
            results.keep("modules", f"{count} modules", {"modules": count}, {RELINK: cost})
            if isinstance(cost, Cost):
                yield (
                    f"{count} modules: {cost.processor:.2f} s of processor time, {cost.wall:.2f} s, "
                    f"{cost.memory / 1e6:.0f} MB"
                )


BENCHMARKS = (changed_bytes, untouched_bytes, members, roots, modules)
