"""The main job against its peers, wheel by wheel: seconds, processor seconds, peak memory of all processes, size of the output.

RELINK_REAL_WHEELS names a directory with vendors' wheels, RELINK_REAL_PREFIX_FULL a prefix of Debian's ROCm 7.2.4 (…/usr), and
RELINK_REAL_PREFIX_FULL6 one of ROCm 6.4.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from isal import isal_zlib

from benchmarks import results
from benchmarks.cost import Cost, Skipped, bench_directory, directory, in_turns, need_space
from benchmarks.floor import floor
from benchmarks.job import RELINK, Job, by_relink, plan_job, sizes, ways
from benchmarks.shapes import make_members
from benchmarks.wheel_file import NAME

_GIB: Final = 1 << 30
_MEMBERS: Final = 10_000
_CUPY: Final = (
    "libamdhip64.so.5", "libhipfft.so", "libhipblas.so.0", "libhiprand.so.1",
    "librocblas.so.0", "libhipsparse.so.0", "librccl.so.1", "libroctx64.so.1",
)  # fmt: skip
"""What cupy-rocm-5-0 needs of ROCm 5, and no later one has."""


def _real(pattern: str, variable: str, *options: str) -> Job:
    wheels = directory("RELINK_REAL_WHEELS", "a directory of vendors' wheels")
    prefix = directory(variable, "a full ROCm prefix")
    wheel = next(iter(sorted(wheels.glob(pattern))), None)
    if wheel is None:
        raise Skipped(f"{pattern} is not in RELINK_REAL_WHEELS")
    loader = prefix / "lib" / "x86_64-linux-gnu" / "ld-linux-x86-64.so.2"
    return plan_job(wheel, ["--prefix", str(prefix), "--interpreter", str(loader), *options])


def _compare(case: str, job: Job, more: dict[str, Callable[[Path], Cost]] | None = None) -> Iterator[str]:
    """Do the job in each way; keep the results, and print them."""
    size = sizes(job)
    need_space(case, size["bytes"] + 2 * size["wheel"])
    rows = ways(job) | (more or {})
    if size["largest"] > _GIB:
        rows["relink --max-memory 1024"] = lambda place: by_relink(job, place, "--max-memory", "1024")
    job.wheel.read_bytes()  # into the page cache
    measured = in_turns(rows)
    results.keep("cases", case, size, measured)
    yield (
        f"{job.wheel.name}: {size['wheel'] / 1e6:.1f} MB; {size['files']} ELF files of {size['bytes'] / 1e6:.0f} MB, the largest "
        f"{size['largest'] / 1e6:.0f} MB; {size['changed']} of {size['changed_bytes'] / 1e6:.0f} MB change"
    )
    yield from _printed(measured, size["wheel"])


def _printed(measured: dict[str, Cost | Skipped], size: int) -> Iterator[str]:
    yield f"  {'':32} wall, s (worst)   processor, s   (relink: 1)    peak MB   flush, s   output/input"
    base = measured[RELINK]
    for name, cost in measured.items():
        if isinstance(cost, Skipped):
            yield f"  {name:32} skipped: {cost}"
            continue
        ratios = ""
        if isinstance(base, Cost):
            ratios = f"{cost.wall / base.wall:5.1f} {cost.processor / base.processor:5.1f}"
        yield (
            f"  {name:32} {cost.wall:7.2f} ({cost.worst:5.2f})   {cost.processor:12.2f}   {ratios:11}   "
            f"{cost.memory / 1e6:8.0f}   {cost.flush:8.2f}   {cost.output / size:12.3f}"
        )


def onnxruntime() -> Iterator[str]:
    """onnxruntime-rocm for ROCm 7.2; and what `--compress` and the least possible work take."""
    job = _real("onnxruntime_rocm-1.22.2.post3-cp312-*.whl", "RELINK_REAL_PREFIX_FULL")
    changed = [file["path"] for file in job.changed]
    more: dict[str, Callable[[Path], Cost]] = {
        "relink --compress fast": lambda place: by_relink(job, place, "--compress", "fast"),
        "relink --compress small": lambda place: by_relink(job, place, "--compress", "small"),
        "the floor (as relink)": partial(floor, job.wheel, changed, 3),
        "the floor (as --compress fast)": partial(floor, job.wheel, changed, 2),
    }
    yield from _compare("onnxruntime-rocm 1.22.2.post3, ROCm 7.2", job, more)


def onnxruntime_large() -> Iterator[str]:
    """onnxruntime-rocm for ROCm 6.4: one ELF file of 1.45 GB."""
    job = _real("onnxruntime_rocm-1.22.2.post1-cp312-*.whl", "RELINK_REAL_PREFIX_FULL6")
    yield from _compare("onnxruntime-rocm 1.22.2.post1, ROCm 6.4", job)


def tensorflow() -> Iterator[str]:
    """tensorflow-rocm: 70 ELF files, the largest 1.39 GB."""
    job = _real(
        "tensorflow_rocm-2.14.0.600-cp311-*.whl",
        "RELINK_REAL_PREFIX_FULL6",
        *("--stub", "auto", "--forward", "auto"),
    )
    yield from _compare("tensorflow-rocm 2.14, ROCm 6.4", job)


def cupy() -> Iterator[str]:
    """cupy-rocm-5-0, which ROCm 7.2 lacks eight libraries of: with these allowed to be missing, and as it is refused."""
    pattern, variable = "cupy_rocm_5_0-13.3.0-cp312-*.whl", "RELINK_REAL_PREFIX_FULL"
    job = _real(pattern, variable, *(word for soname in _CUPY for word in ("--allow-missing", soname)))
    strict = _real(pattern, variable)
    more = {"relink, which refuses": lambda place: by_relink(strict, place)} if strict.refused else {}
    yield from _compare("cupy-rocm-5-0 13.3.0, ROCm 7.2", job, more)


def small_members() -> Iterator[str]:
    """One small ELF file among 10,000 small members."""
    with tempfile.TemporaryDirectory(prefix="relink-members-", dir=bench_directory()) as name:
        place = Path(name)
        prefix = make_members(place, _MEMBERS)
        job = plan_job(place / NAME, ["--prefix", str(prefix)])
        yield from _compare("generated, 10,000 small members", job)


def small_hash() -> Iterator[str]:
    """What the libraries do a second here, so that the rest can be compared between machines."""
    data = os.urandom(1 << 20) * 64
    start = time.process_time()
    hashlib.sha256(data)
    middle = time.process_time()
    isal_zlib.crc32(data)
    yield f"sha256 {64 / (middle - start):.0f} MiB/s, crc32 {64 / (time.process_time() - middle):.0f} MiB/s"


BENCHMARKS = (
    small_hash, onnxruntime, onnxruntime_large, tensorflow, cupy, small_members,
)  # fmt: skip
