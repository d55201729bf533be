"""Interrupts install, repair and undo at random moments, or lets their disk be full. A program of its own:

``python -m tests.fuzz.install_killing WORKS SCRATCH SEED COUNT pip|uv interrupted|full``. The environment must be as before or as
after: at once where relink itself could put things back (SIGINT, a full disk), else with the next command.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pip

from relink import cli
from relink.indexes.install.environment import find_environment
from relink.indexes.install.installers import has_pip
from relink.indexes.install.replacing import own
from tests.fuzz.killing import PR_SET_CHILD_SUBREAPER, all_ended
from tests.support.outside import OFFLINE
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works
from tests.unit.indexes.install.conftest import put, python_of, site_of, tree

STEPS = ("install", "undo", "repair")
_BLOCK = 4096
# Bytes of a full disk that are left at most; a step takes some 700 KB.
_MOST_LEFT = 800_000
# Disturbances of a step one after the other, `count` at most; then it runs to its end.
_IN_A_ROW = 4


def snapshot(environment: Path) -> dict[str, str]:
    """Return the digest of what is installed, by path; of what has times in it, that it is there."""
    found = {}
    for path, digest in tree(environment).items():
        found[path] = "" if path.endswith((".pyc", "uv_cache.json")) else digest
        if path.endswith("/RECORD"):
            lines = (environment / path).read_text().splitlines()
            found[path] = "\n".join(line for line in lines if "uv_cache.json" not in line)
    return found


def begin(words: list[str], directory: Path) -> int:
    """Fork a relink of these words, with its installer a process group of its own."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background has it ignored
    os.chdir(directory)
    for number in (1, 2):
        os.dup2(os.open(directory / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.argv = ["relink", *words]
    code = 3
    with suppress(KeyboardInterrupt):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
    os._exit(code)


def wait_until(child: int, place: Path, *, there: bool) -> float:
    """Wait until a file is there or gone, or the child has ended; returns the seconds."""
    began = time.monotonic()
    ended = os.WEXITED | os.WNOWAIT | os.WNOHANG
    while place.exists() != there and os.waitid(os.P_PID, child, ended) is None:
        time.sleep(0.001)
    return time.monotonic() - began


def interrupt(child: int, rng: random.Random) -> str:
    """Send a signal as a terminal, a user or the kernel does."""
    how = rng.choice(("SIGINT to all", "SIGINT", "SIGKILL to all", "SIGKILL"))
    number = signal.SIGINT if how.startswith("SIGINT") else signal.SIGKILL
    with suppress(ProcessLookupError):
        (os.killpg if how.endswith("all") else os.kill)(child, number)
    return how


def fill(disk: Path, free: int) -> Path:
    """Leave so many bytes of a disk."""
    ballast = disk / "ballast"
    room = os.statvfs(disk)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(room.f_bavail * room.f_frsize - free, _BLOCK))
    return ballast


def main(works: Works, scratch: Path, seed: int, count: int, by: str, what: str) -> dict[str, int]:
    """Disturb `count` steps; returns how many of each kind, and what they left.

    Raises AssertionError where an environment is neither as before nor as after, or where the next run does not do it.

    :param scratch: for `full` a small file system is mounted at its ``disk``.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rng = random.Random(seed)
    index, environment = scratch / "index", scratch / "disk" / "venv"
    __import__("venv").create(environment, symlinks=True)
    if by == "pip":
        (site_of(environment) / "pip").symlink_to(Path(pip.__file__).parent)
    os.environ |= OFFLINE | {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    os.environ |= {
        "PIP_FIND_LINKS": str(index),
        "UV_FIND_LINKS": str(index),
        "UV_CACHE_DIR": str(scratch / "uv"),
    }
    os.environ |= {"XDG_CACHE_HOME": str(scratch / "cache")}
    os.environ.pop("VIRTUAL_ENV", None)
    files: dict[str, bytes | Path] = {f"demo/more/{n}.py": rng.randbytes(9).hex().encode() for n in range(40)}
    files |= {
        "demo/__init__.py": b"",
        "demo/data": rng.randbytes(400_000),
        "demo-1.0.data/data/etc/demo": b"x",
    }
    make_wheel(index, {**files, "demo/a.so": works.library}, tag=TAG)
    old = make_wheel(scratch, {"demo/__init__.py": b"old", "demo/old/x.py": b""}, version="0.5", tag=TAG)
    facts = find_environment(str(python_of(environment)), {})
    for python in (facts.python, sys.executable):  # known to those that are forked
        has_pip(python)
    place = ["--python", str(python_of(environment))]
    planned = [*place, "--prefix", str(works.prefix), "--no-import-test"]
    words = {
        "install": ["install", "demo", "--no-deps", *planned],
        "undo": ["repair", "demo", "--undo", *place],
        "repair": ["repair", "demo", *planned],
    }

    def go(step: str, disturb: Callable[[int], str]) -> tuple[int, str]:
        """Run a step to its end, and what it has started to theirs; returns its status, and what `disturb` says."""
        (scratch / "said").write_text("")
        child = begin(words[step], scratch)
        how = disturb(child)
        status = os.waitpid(child, 0)[1]
        all_ended()
        return status, how

    # Of each step what it leaves, and the seconds until the replacement begins and until it ends.
    after: dict[str, dict[str, str]] = {}
    lasts: dict[str, tuple[float, float]] = {}
    replaced = facts.site[0] / ".relink-replaced"
    counted: Counter[str] = Counter()

    def watch(child: int) -> str:
        lasts[step] = wait_until(child, replaced, there=True), wait_until(child, replaced, there=False)
        return "nothing"

    def disturb(child: int) -> str:
        before, during = lasts[step]
        if rng.random() < 0.3:
            time.sleep(rng.uniform(0.1, 1.1) * before)
        else:
            wait_until(child, replaced, there=True)
            time.sleep(rng.uniform(0, 1.1) * during)
        return interrupt(child, rng)

    def run(number: int, before: dict[str, str]) -> bool:
        """Disturb a step, and look at what it leaves; returns whether it has ended well."""
        if what == "full":
            ballast = fill(environment.parent, rng.randrange(_MOST_LEFT))
            status, how = go(step, lambda _: "full disk")
            ballast.unlink()
        else:
            status, how = go(step, disturb)
        at_once = snapshot(environment)
        with own(facts):
            found = snapshot(environment)
        where = f"{number}: {step} by {by}, {how}, status {status}: {(scratch / 'said').read_text()}"
        wanted = (after[step],) if status == 0 else (before, after[step])
        assert found in wanted, f"{where}: {differ(found, wanted[0])}"
        if not how.startswith("SIGKILL"):
            assert found == at_once, f"{where}: the next command has to put back {differ(found, at_once)}"
        counted["ended well" if status == 0 else f"{step}, {how}"] += 1
        counted["put back by the next command"] += found != at_once
        counted["failed, and as after"] += status != 0 and found == after[step]
        return status == 0

    put(environment, old)
    for step in STEPS:
        assert go(step, watch)[0] == 0, (scratch / "said").read_text()
        after[step] = snapshot(environment)
    number = 0
    while number < count:
        for step in STEPS:
            if step == "install":
                put(environment, old)
            before = snapshot(environment)
            for _ in range(min(_IN_A_ROW, count)):
                if run(number, before):
                    break
                number += 1
                if snapshot(environment) == after[step]:
                    break
            else:
                assert go(step, watch)[0] == 0, f"{number}: the next one: {(scratch / 'said').read_text()}"
            wrong = differ(snapshot(environment), after[step])
            assert not wrong, f"{number}: {step} is not as without a disturbance: {wrong}"
    return dict(counted)


def differ(found: dict[str, str], wanted: dict[str, str]) -> list[str]:
    """Return the paths that are not alike."""
    return sorted(path for path in found.keys() | wanted.keys() if found.get(path) != wanted.get(path))


if __name__ == "__main__":
    at = Path(sys.argv[1])
    names = ("a.so", "plain.so", "lost.so", "prog")
    built = Works(at, at / "rocm", *(at / "members" / name for name in names))
    sys.stdout.write(
        json.dumps(main(built, Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:7]))
    )
