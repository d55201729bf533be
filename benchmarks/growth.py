"""How the main job grows: with the bytes of ELF files that change, with bytes that stay, and with the number of members.

Synthetic wheels of compiled libraries with made-up device code, half of which does not compress. RELINK_BENCH_DIR names a
directory with space for two of the largest (14 GiB); the system's temporary directory if it is not set.
"""

from __future__ import annotations

import base64
import hashlib
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from benchmarks.common import Skipped
from benchmarks.relink import Cost, measured
from relink.wheel.zipformat import DEFLATED
from relink.wheel.zipwriter import MemberHeader, ZipWriter
from tests.support.cc import shared

_MIB: Final = 1 << 20
_FREE_SPACE: Final = 14 << 30  # bytes
_LARGEST: Final = 512  # MiB of one member
_SIZES: Final = (100, 500, 1000, 2000, 4500)  # MiB
_MOMENT: Final = (2026, 1, 1, 0, 0, 0)
_DIST_INFO: Final = "demo-1.0.dist-info"
_TAG: Final = "py3-none-manylinux_2_17_x86_64"
_FILES: Final = {
    "METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
    "WHEEL": f"Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: false\nTag: {_TAG}\n".encode(),
}
_SOURCE: Final = """
extern int hip(void); int g(void) { return hip() + 1; }
__asm__(".section .hip_fatbin,\\"aw\\",@progbits\\n.p2align 12\\n.incbin \\"PAYLOAD\\"\\n.previous\\n");
"""


def _sha256(content: Path | bytes) -> bytes:
    if isinstance(content, bytes):
        return hashlib.sha256(content).digest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _write(wheel: Path, files: Mapping[str, Path | bytes]) -> None:
    """Write a wheel of these files, level 1."""
    rows: list[str] = []
    with wheel.open("wb") as file:
        writer = ZipWriter(file, 1)
        for name, content in (*files.items(), *((f"{_DIST_INFO}/{k}", v) for k, v in _FILES.items())):
            writer.add(MemberHeader(name, DEFLATED, _MOMENT, 0o100644 << 16, 3), content)
            text = base64.urlsafe_b64encode(_sha256(content)).rstrip(b"=").decode()
            rows.append(f"{name},sha256={text},{writer.members[-1].size}\n")
        record = f"{_DIST_INFO}/RECORD"
        text = "".join((*rows, f"{record},,\n"))
        writer.add(MemberHeader(record, DEFLATED, _MOMENT, 0o100644 << 16, 3), text.encode())
        writer.finish()


def _payload(path: Path, mib: int) -> Path:
    rng = random.Random(mib)
    with path.open("wb") as file:
        for _ in range(mib):
            file.write(rng.randbytes(_MIB // 2) + bytes(_MIB // 2))
    return path


def _library(place: Path, prefix: Path, mib: int) -> Path:
    source = _SOURCE.replace("PAYLOAD", str(_payload(place / "payload", mib)))
    made = shared(place / f"a{mib}.so", source, needed=[prefix / "lib" / "libhip.so.7"])
    (place / "payload").unlink()
    return made


def _prefix(place: Path) -> Path:
    (place / "rocm" / "lib").mkdir(parents=True)
    shared(place / "rocm" / "lib" / "libhip.so.7", "int hip(void) { return 41; }")
    return place / "rocm"


def _relink(wheel: Path, prefix: Path, place: Path) -> Cost:
    out = place / "out"
    cost = measured(
        [[sys.executable, "-m", "relink", str(wheel), "--prefix", str(prefix), "-o", str(out)]], place
    )
    shutil.rmtree(out)
    return cost


Files: TypeAlias = Mapping[str, Path | bytes]


def _series(cases: Iterable[tuple[str, Callable[[Path, Path], Files]]]) -> Iterator[str]:
    """Relink one wheel after the other.

    :param cases: what it is, and what makes its files, of a directory for them and the prefix.
    """
    yield f"  {'':24} wheel, MB   wall, s   processor, s   of first    peak MB"
    base = None
    with tempfile.TemporaryDirectory(prefix="relink-growth-", dir=os.environ.get("RELINK_BENCH_DIR")) as top:
        place = Path(top)
        prefix = _prefix(place)
        for what, files in cases:
            if shutil.disk_usage(place).free < _FREE_SPACE:
                raise Skipped(
                    f"{place} has not {_FREE_SPACE >> 30} GiB free; name another by RELINK_BENCH_DIR"
                )
            wheel = place / f"demo-1.0-{_TAG}.whl"
            _write(wheel, files(place, prefix))
            cost = _relink(wheel, prefix, place)
            base = base or cost
            yield (
                f"  {what:24} {wheel.stat().st_size / 1e6:10.0f}   {cost.wall:7.2f}   {cost.processor:12.2f}   "
                f"{cost.processor / base.processor:8.1f}   {cost.memory / 1e6:8.0f}"
            )


def changed_bytes() -> Iterator[str]:
    """ELF files of 512 MiB at most, all of which change."""

    def files(mib: int, place: Path, prefix: Path) -> Files:
        count = -(-mib // _LARGEST)
        library = _library(place, prefix, mib // count)
        return {f"demo/a{number}.so": library for number in range(count)}

    yield from _series((f"{mib} MiB change", partial(files, mib)) for mib in _SIZES)


def untouched_bytes() -> Iterator[str]:
    """One ELF file of 16 MiB that changes, beside data that does not."""

    def files(mib: int, place: Path, prefix: Path) -> Files:
        count = -(-mib // _LARGEST)
        data = _payload(place / "data", mib // max(count, 1))
        return {
            "demo/a.so": _library(place, prefix, 16),
            **{f"demo/{number}.bin": data for number in range(count)},
        }

    yield from _series((f"{mib} MiB beside", partial(files, mib)) for mib in (0, *_SIZES))


def members() -> Iterator[str]:
    """One small ELF file among so many modules."""

    def files(count: int, place: Path, prefix: Path) -> Files:
        modules = {f"demo/m{number}.py": f"x = {number}\n".encode() * 9 for number in range(count)}
        return {"demo/a.so": _library(place, prefix, 1), **modules}

    yield from _series((f"{count} members", partial(files, count)) for count in (10, 1000, 10_000))


BENCHMARKS = (changed_bytes, untouched_bytes, members)
