"""What every benchmark needs: whole commands timed side by side in one run, and a reason where one cannot be run."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class Skipped(Exception):  # noqa: N818 - it is no error
    """This machine lacks what the benchmark compares with; the message says what."""


@dataclass(frozen=True)
class Run:
    """One command: seconds of the best and the worst of several runs, and the least processor time that one took.

    On a machine with other work the processor time is what can be compared.
    """

    best: float
    worst: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.best:.3f} s (worst {self.worst:.3f}), {self.cpu:.3f} s of processor time"


def timed(command: Sequence[str | os.PathLike[str]], times: int, cwd: Path | None = None) -> Run:
    """Run a command `times` times, with its output thrown away; SIGSEGV and the like are an error."""
    seconds, cpu = [], []
    for _ in range(times):
        start, before = time.perf_counter(), _children()
        run = subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        seconds.append(time.perf_counter() - start)
        cpu.append(_children() - before)
        if run.returncode not in (0, 1):
            raise Skipped(f"{command[0]} ends with status {run.returncode}: {run.stderr.decode()[-200:]}")
    return Run(min(seconds), max(seconds), min(cpu))


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def directory(variable: str, what: str) -> Path:
    """Return the directory that an environment variable names."""
    value = os.environ.get(variable)
    if not value:
        raise Skipped(f"{variable} is not set; it names {what}")
    if not Path(value).is_dir():
        raise Skipped(f"{variable}={value} is no directory")
    return Path(value)
