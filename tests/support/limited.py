"""relink in a process of its own, with a cap on its memory and an end to its time."""

from __future__ import annotations

import resource
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.forking import start

__all__ = ["Ended", "limited"]

_CAP = 1 << 30  # bytes of address space; a run of relink has 200 MiB of it
_SECONDS = 120  # by the clock, for what waits; a run takes one


@dataclass(frozen=True)
class Ended:
    """How it ended: `cpu` in seconds, `peak` in bytes of resident memory."""

    code: int
    out: str
    err: str
    cpu: float
    peak: int


def limited(*words: str | Path, seconds: float = _SECONDS, cap: int = _CAP) -> Ended:
    """Run ``relink WORDS``.

    :raises AssertionError: it has not ended after `seconds`, or was killed.
    """
    process = start(*words, limits={resource.RLIMIT_AS: cap})
    try:
        out, err = process.communicate(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"not ended after {seconds} s") from None
    code = process.wait()
    assert code >= 0, f"killed by signal {-code}"
    return Ended(code, out, err, process.cpu, process.peak)
