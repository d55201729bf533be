"""How much memory this process has held at most."""

from __future__ import annotations

from pathlib import Path

__all__ = ["peak"]


def peak() -> int:
    """Return bytes of resident memory at the highest point since the program was started.

    getrusage's ru_maxrss is no less than that of the process that started this one (fs/exec.c, exec_mmap): of a test's parent.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(value) << 10
