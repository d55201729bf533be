"""The main job against its peers, in one run: seconds, processor seconds, peak memory of all processes, size of the output.

RELINK_REAL_WHEELS names a directory with the wheel of onnxruntime-rocm, RELINK_REAL_PREFIX_FULL a prefix of Debian's ROCm 7.2.4
(…/usr).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isal import isal_zlib

from benchmarks.common import Skipped, directory
from relink.elf.patchelf import find_patchelf
from relink.wheel.archive import WheelArchive
from relink.wheel.zipformat import STORED
from relink.wheel.zipwriter import MemberHeader, ZipWriter

_TIMES = 3
_POLL = 0.01  # seconds
_BIN = Path(sys.executable).parent


@dataclass
class Cost:
    """One run of one or several commands: seconds, processor seconds, bytes of memory and of output."""

    wall: float = 0.0
    processor: float = 0.0
    memory: int = 0
    output: int = 0


def tree_memory(pid: int, parent: bytes = b"") -> int:
    """Resident bytes of a process and all below it; shared pages count for each, so this is no less than what they take.

    A process that has not begun its own program yet is its parent, in the same memory, and does not count (vfork(2)).
    """
    total = 0
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if command == parent:
            return 0
        total = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                total += tree_memory(int(child), command)
    except (OSError, IndexError, ValueError):
        pass  # it has ended
    return total


def measured(commands: Sequence[Sequence[str]], cwd: Path, allowed: frozenset[int] = frozenset({0})) -> Cost:
    cost = Cost()
    for command in commands:
        with tempfile.TemporaryFile() as said:
            start = time.perf_counter()
            path = f"{_BIN}{os.pathsep}{os.environ.get('PATH', '')}"  # auditwheel looks for patchelf
            process = subprocess.Popen(
                command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=said, env=os.environ | {"PATH": path}
            )
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    break
                cost.memory = max(cost.memory, tree_memory(process.pid))
                time.sleep(_POLL)
            cost.wall += time.perf_counter() - start
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode not in allowed:
                said.seek(0)
                text = said.read().decode(errors="replace")[-300:]
                raise Skipped(f"{command[0]} ends with status {process.returncode}: {text}")
        cost.processor += usage.ru_utime + usage.ru_stime
    return cost


def built(place: Path) -> int:
    return sum(path.stat().st_size for path in place.glob("*.whl"))


def edit_calls(files: list[dict[str, Any]], unpacked: Path) -> list[list[str]]:
    """What people do by hand: one call of patchelf for each kind of edit."""
    patchelf = find_patchelf().path
    calls = []
    for file in files:
        path = str(unpacked / file["path"])
        for need in file["needed"]:
            if need["action"] == "substitute":
                calls.append([patchelf, "--replace-needed", need["soname"], need["soname_after"], path])
            elif need["action"] == "drop":
                calls.append([patchelf, "--remove-needed", need["soname"], path])
        added = [need["soname"] for need in file["needed"] if need["action"] == "add"]
        if added:
            calls.append([patchelf, *(word for soname in added for word in ("--add-needed", soname)), path])
        calls.append([patchelf, "--set-rpath", file["rpath"]["after"] or "", path])
    return calls


def floor(wheel: Path, changed: list[str], level: int, place: Path) -> Cost:
    """Inflate, hash and deflate what changes, once, by the same libraries; copy the rest."""
    program = (
        "import sys; from pathlib import Path; from benchmarks.relink import floor_work; "
        "floor_work(Path(sys.argv[1]), sys.argv[2].split('|'), int(sys.argv[3]), Path(sys.argv[4]))"
    )
    root = Path(__file__).resolve().parent.parent
    return measured(
        [[sys.executable, "-c", program, str(wheel), "|".join(changed), str(level), str(place)]], root
    )


def _hashed(chunks: Iterator[bytes], pool: ThreadPoolExecutor) -> Iterator[bytes]:
    """Yield the chunks, which are hashed meanwhile."""
    digest = hashlib.sha256()
    for chunk in chunks:
        hashing = pool.submit(digest.update, chunk)
        yield chunk
        hashing.result()


def floor_work(wheel: Path, changed: list[str], level: int, place: Path) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        WheelArchive(wheel) as archive,
        (place / wheel.name).open("wb") as file,
    ):
        writer = ZipWriter(file, level)
        for name, member in archive.members.items():
            header = MemberHeader(
                name, member.method, member.date_time, member.external_attributes, member.create_system
            )
            if name in changed and member.method != STORED:
                writer.add(header, _hashed(archive.chunks(name), pool), member.size)
            elif not member.is_directory:
                writer.copy(header, member, archive.raw(name))
        writer.finish()


def main_job() -> Iterator[str]:
    """Relinking onnxruntime-rocm for another ROCm, all checks and verification included."""
    wheels = directory("RELINK_REAL_WHEELS", "a directory of vendor wheels")
    prefix = directory("RELINK_REAL_PREFIX_FULL", "a full ROCm prefix")
    wheel = next(iter(sorted(wheels.glob("onnxruntime_rocm-*-cp312-*.whl"))), None)
    if wheel is None:
        raise Skipped("onnxruntime_rocm is not in RELINK_REAL_WHEELS")
    loader = prefix / "lib" / "x86_64-linux-gnu" / "ld-linux-x86-64.so.2"
    ours = [sys.executable, "-m", "relink", str(wheel), "--prefix", str(prefix), "--interpreter", str(loader)]
    text = subprocess.run([*ours, "--dry-run", "--json"], capture_output=True, check=False).stdout
    plan = json.loads(text)
    changed = [file for file in plan["files"] if file["changed"]]
    sonames = {need["soname"] for file in plan["files"] for need in file["needed"]}
    with WheelArchive(wheel) as archive:
        largest = max(archive.members[file["path"]].size for file in changed)
        size = sum(archive.members[file["path"]].size for file in changed)
    yield f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {len(changed)} files of {size / 1e6:.0f} MB change"

    def by_hand(place: Path) -> Cost:
        tool = [str(_BIN / "wheel"), "pack", str(place / "x"), "-d", str(place / "out")]
        if (unzip := shutil.which("unzip")) is None:
            raise Skipped("unzip is not installed")
        (place / "out").mkdir()
        return measured(
            [[unzip, "-q", str(wheel), "-d", "x"], *edit_calls(changed, place / "x"), tool], place
        )

    def auditwheel(place: Path) -> Cost:
        exclude = [word for soname in sorted(sonames) for word in ("--exclude", soname)]
        repair = [str(_BIN / "auditwheel"), "repair", "--plat", "manylinux_2_35_x86_64", *exclude]
        return measured([[*repair, "-w", str(place / "out"), str(wheel)]], place)

    def relink(place: Path, *more: str) -> Cost:
        return measured([[*ours, "-o", str(place / "out"), *more]], place)

    def least(place: Path, level: int = 3) -> Cost:
        (place / "out").mkdir()
        return floor(wheel, [file["path"] for file in changed], level, place / "out")

    rows: dict[str, Callable[[Path], Cost]] = {
        "unzip, patchelf, wheel pack": by_hand,
        "auditwheel repair": auditwheel,
        "relink": relink,
        "relink --compress fast": lambda place: relink(place, "--compress", "fast"),
        "relink --compress small": lambda place: relink(place, "--compress", "small"),
        "the floor (as relink)": least,
        "the floor (as --compress fast)": lambda place: least(place, 2),
    }
    results: dict[str, Cost] = {}
    for turn in range(_TIMES):
        for name, run in rows.items():
            if turn and name == "relink --compress small":
                continue
            with tempfile.TemporaryDirectory(prefix="relink-bench-") as temporary:
                try:
                    cost = run(Path(temporary))
                except Skipped as reason:
                    yield f"  {name}: skipped: {reason}"
                    continue
                cost.output = built(Path(temporary) / "out")
            best = results.setdefault(name, cost)
            best.wall, best.processor = min(best.wall, cost.wall), min(best.processor, cost.processor)
            best.memory = max(best.memory, cost.memory)
    base = results["relink"]
    yield f"  {'':32} wall, s   processor, s   (relink: 1)    peak MB   (largest file: 1)   output/input"
    for name, cost in results.items():
        yield (
            f"  {name:32} {cost.wall:7.2f}   {cost.processor:12.2f}   "
            f"{cost.wall / base.wall:5.1f} {cost.processor / base.processor:5.1f}   "
            f"{cost.memory / 1e6:8.0f}   {cost.memory / largest:18.2f}   {cost.output / wheel.stat().st_size:12.3f}"
        )


def small_hash() -> Iterator[str]:
    """What the libraries do a second here, so that the rest can be compared between machines."""
    data = os.urandom(1 << 20) * 64
    start = time.process_time()
    hashlib.sha256(data)
    middle = time.process_time()
    isal_zlib.crc32(data)
    yield f"sha256 {64 / (middle - start):.0f} MiB/s, crc32 {64 / (time.process_time() - middle):.0f} MiB/s"


BENCHMARKS = (small_hash, main_job)
