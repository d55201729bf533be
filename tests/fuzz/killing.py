"""Kills relink at random moments. A program of its own: ``python -m tests.fuzz.killing WORKS SCRATCH SEED COUNT``.

It has read all modules before it forks, so a kill hits relink's work and not the start of Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from relink import library
from relink.wheel.archive import WheelArchive
from tests.support.works import OUTPUT, Works

PR_SET_CHILD_SUBREAPER = 36  # prctl(2): patchelf outlives its killed parent, and is to be waited for here


def begin(works: Works, wheel: Path, out: Path) -> int:
    """Fork a relink of `wheel`; returns its process id."""
    child = os.fork()
    if child:
        return child
    code = 2
    with contextlib.suppress(BaseException):
        code = 0 if library.relink(wheel, works.options(out)).ok else 1
    os._exit(code)


def all_ended() -> None:
    """Wait for what is left of the killed process."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def main(works: Works, scratch: Path, seed: int, count: int) -> dict[str, int]:
    """Kill `count` relinks, and let another run to its end after each; those that end before they are killed do not count.

    Raises AssertionError where the output is neither absent (or what it was before) nor right, or where something is left over.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rng = random.Random(seed)
    wheel = works.wheel(scratch / "in")
    given = digest(wheel)
    out, temporary = scratch / "out", scratch / "tmp"
    temporary.mkdir()
    tempfile.tempdir = str(temporary)
    began = time.monotonic()
    assert os.waitstatus_to_exitcode(os.waitpid(begin(works, wheel, out), 0)[1]) == 0
    lasts = time.monotonic() - began
    right = digest(out / OUTPUT)
    counted = {"killed": 0, "too late": 0, "left something": 0, "output was there": 0}
    while counted["killed"] < count:
        number = counted["killed"]
        assert counted["too late"] <= 2 * count + 20, "hardly anything is killed"
        old = rng.choice((None, b"old"))
        (out / OUTPUT).unlink()
        if old:
            (out / OUTPUT).write_bytes(old)
        child = begin(works, wheel, out)
        time.sleep(rng.uniform(0, lasts * 1.1))
        os.kill(child, signal.SIGKILL)
        counted["killed" if os.WIFSIGNALED(os.waitpid(child, 0)[1]) else "too late"] += 1
        all_ended()
        found = digest(out / OUTPUT)
        assert found in (right, old and hashlib.sha256(old).hexdigest()), (
            f"kill {number}: neither old nor right"
        )
        counted["output was there"] += found == right
        counted["left something"] += bool(set(os.listdir(out)) - {OUTPUT} or os.listdir(temporary))
        began = time.monotonic()
        assert os.waitstatus_to_exitcode(os.waitpid(begin(works, wheel, out), 0)[1]) == 0
        # Other work on the machine makes the next kill come too early or too late.
        lasts = (lasts + time.monotonic() - began) / 2
        assert digest(out / OUTPUT) == right, f"kill {number}: the run after it is wrong"
        assert os.listdir(out) == [OUTPUT], f"kill {number}: left in the output directory"
        assert os.listdir(temporary) == [], f"kill {number}: left in the temporary directory"
        assert digest(wheel) == given
    with WheelArchive(out / OUTPUT) as archive:
        for name in archive.members:
            archive.read(name)
    return counted


if __name__ == "__main__":
    at = Path(sys.argv[1])
    names = ("a.so", "plain.so", "lost.so", "prog")
    built = Works(at, at / "rocm", *(at / "members" / name for name in names))
    sys.stdout.write(json.dumps(main(built, Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
