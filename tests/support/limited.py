"""relink in a process of its own, with a cap on its memory and an end to its time."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Ended", "limited"]

_CAP = 1 << 30  # bytes of address space; a run of relink has 200 MiB of it
_SECONDS = 120  # by the clock, for what waits; a run takes one


@dataclass(frozen=True)
class Ended:
    """How it ended: `cpu` in seconds, `peak` in bytes of resident memory, as seen every 5 ms."""

    code: int
    out: str
    err: str
    cpu: float
    peak: int


def limited(*words: str | Path, seconds: float = _SECONDS, cap: int = _CAP) -> Ended:
    """Run ``relink WORDS``.

    :raises AssertionError: it has not ended after `seconds`, or was killed.
    """
    return run_limited([sys.executable, "-m", "relink", *map(str, words)], seconds=seconds, cap=cap)


def run_limited(command: Sequence[str], *, seconds: float, cap: int) -> Ended:
    """Run a command the same way."""
    before = _children()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        resource.prlimit(process.pid, resource.RLIMIT_AS, (cap, cap))
        peak, began = 0, time.monotonic()
        out = err = b""
        while True:
            try:
                out, err = process.communicate(timeout=0.005)
                break
            except subprocess.TimeoutExpired:
                peak = max(peak, _held(process.pid))
                assert time.monotonic() - began < seconds, f"not ended after {seconds} s"
    finally:
        process.kill()
        process.wait()
    cpu = _children() - before
    assert process.returncode >= 0, f"killed by signal {-process.returncode}"
    return Ended(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"), cpu, peak)


def _held(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return max((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), default=0)


def _children() -> float:
    """Seconds of processor time of all processes that this one has started and that have ended."""
    times = os.times()
    return times.children_user + times.children_system
