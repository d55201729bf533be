"""What commands cost: seconds, processor seconds, peak memory of all processes, size of the output."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BIN: Final = Path(sys.executable).parent
_POLL: Final = 0.01  # seconds
_TURNS: Final = 3
_LONG: Final = 60.0  # seconds: what took longer is not run again


class Skipped(Exception):  # noqa: N818 - it is no error
    """This machine lacks what the benchmark compares with; the message says what."""


@dataclass
class Cost:
    """One run of one or several commands: seconds, processor seconds, bytes of memory and of output.

    Of several runs it has the least time, the most memory, and the seconds of the slowest as `worst`. `flush` are the seconds
    after the last command until the output is on the disk.
    """

    wall: float = 0.0
    processor: float = 0.0
    memory: int = 0
    output: int = 0
    worst: float = 0.0
    flush: float = 0.0


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


def measured(
    commands: Sequence[Sequence[str]],
    place: Path,
    allowed: frozenset[int] = frozenset({0}),
    *,
    cwd: Path | None = None,
) -> Cost:
    """Run commands one after the other.

    :param place: for their temporary files; where they run if `cwd` is not another directory.
    :raises Skipped: one ends with a status that is not allowed.
    """
    cost = Cost()
    more = {"PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}", "TMPDIR": str(place)}
    # What relink remembers for this user is neither read nor written: it would change what a run takes and counts.
    more["XDG_CACHE_HOME"] = str(place)
    for command in commands:
        with tempfile.TemporaryFile() as said:
            start = time.perf_counter()
            process = subprocess.Popen(
                command, cwd=cwd or place, stdout=subprocess.DEVNULL, stderr=said, env=os.environ | more
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
                raise Skipped(f"{Path(command[0]).name} ends with status {process.returncode}: {text}")
        cost.processor += usage.ru_utime + usage.ru_stime
    cost.worst = cost.wall
    return cost


def in_turns(ways: Mapping[str, Callable[[Path], Cost]], turns: int = _TURNS) -> dict[str, Cost | Skipped]:
    """Run each way, then each again, so that other work on the machine meets all of them.

    Each gets an empty directory, below RELINK_BENCH_DIR if that is set; what it leaves in ``out`` is its output.
    """
    results: dict[str, Cost | Skipped] = {}
    for turn in range(turns):
        for name, run in ways.items():
            known = results.get(name)
            if turn and (not isinstance(known, Cost) or known.worst > _LONG):
                continue
            with tempfile.TemporaryDirectory(prefix="relink-bench-", dir=bench_directory()) as temporary:
                try:
                    cost = run(Path(temporary))
                except Skipped as reason:
                    results[name] = reason
                    continue
                outputs = list((Path(temporary) / "out").glob("*.whl"))
                cost.output = sum(path.stat().st_size for path in outputs)
                cost.flush = _flush(outputs)
            if isinstance(known, Cost):
                cost.wall, cost.processor = min(known.wall, cost.wall), min(known.processor, cost.processor)
                cost.memory, cost.worst = max(known.memory, cost.memory), max(known.worst, cost.worst)
                cost.flush = min(known.flush, cost.flush)
            results[name] = cost
    return results


def _flush(paths: Sequence[Path]) -> float:
    start = time.perf_counter()
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return time.perf_counter() - start


def need_space(what: str, size: int) -> None:
    """:raises Skipped: there are not so many bytes free where large files go."""
    place = bench_directory() or tempfile.gettempdir()
    free = shutil.disk_usage(place).free
    if free < size:
        raise Skipped(
            f"{what} takes {size / 1e9:.0f} GB; {free / 1e9:.0f} are free, and RELINK_BENCH_DIR names another place"
        )


def bench_directory() -> str | None:
    """Where large files go; None for the system's temporary directory."""
    return os.environ.get("RELINK_BENCH_DIR")


def directory(variable: str, what: str) -> Path:
    """Return the directory that an environment variable names."""
    value = os.environ.get(variable)
    if not value:
        raise Skipped(f"{variable} is not set; it names {what}")
    if not Path(value).is_dir():
        raise Skipped(f"{variable}={value} is no directory")
    return Path(value)
