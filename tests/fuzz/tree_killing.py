"""Kills relinks of a tree into a copy at random moments: ``python -m tests.fuzz.tree_killing WORKS SCRATCH SEED COUNT``.

Half of the kills come at a random time, half at a random one of the calls that change what is on the disk: the rename takes a
thousandth of the time.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relink.library import relink_tree
from relink.planning.options import Options
from relink.runs import relink_tree as relinking
from relink.system import atomic
from tests.fuzz.killing import PR_SET_CHILD_SUBREAPER, all_ended
from tests.support.works import Works
from tests.unit.runs.build_trees import add_rarities, kept, make_vendor_tree, snapshot

CALLS = ("chmod", "fchmod", "fsync", "link", "mkdir", "open", "rmdir", "symlink", "unlink", "utime")


def wrap_calls(wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Wrap each of the calls that change what is on the disk: those of Python, and renameat2 by the moments around it."""
    for name in CALLS:
        setattr(os, name, wrapped(getattr(os, name)))
    setattr(relinking, "publish_directory", wrapped(atomic.publish_directory))  # noqa: B010
    setattr(atomic, "sync_directory", wrapped(atomic.sync_directory))  # noqa: B010


def begin(action: Callable[[], object], calls: int | None) -> int:
    """Fork, and run an action, which kills itself at one of its calls that change the disk if `calls` says which."""
    child = os.fork()
    if child:
        return child
    if calls is not None:
        count = iter(range(calls, -1, -1))

        def killed(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                if next(count, 1) == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **named)

            return call

        wrap_calls(killed)
    code = 2
    with contextlib.suppress(BaseException):
        action()
        code = 0
    os._exit(code)


def counted_calls(action: Callable[[], object]) -> int:
    """Run an action in a fork; returns how many of the calls it makes."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        made = 0

        def counting(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                nonlocal made
                made += 1
                return real(*arguments, **named)

            return call

        wrap_calls(counting)
        action()
        os.write(writer, str(made).encode())
        os._exit(0)
    os.close(writer)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return int(os.read(reader, 20))


def main(works: Works, scratch: Path, seed: int, count: int) -> dict[str, int]:
    """Kill `count` relinks of one tree.

    Raises AssertionError where a copy is there and not whole, where the tree is not what it was (every mode, owner, time, inode
    and byte), or where the next run leaves something of the killed one.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rng = random.Random(seed)
    tree, new = make_vendor_tree(scratch / "in"), scratch / "out/new"
    shutil.copy(works.library, tree / "mod/a.so")
    add_rarities(tree)
    temporary = scratch / "tmp"
    for directory in (temporary, new.parent):
        directory.mkdir()
    tempfile.tempdir = str(temporary)
    before = snapshot(tree)

    def action() -> None:
        relink_tree(tree, Options(prefixes=(str(works.prefix),), output_directory=new))

    began = time.monotonic()
    calls = counted_calls(action)
    lasts = time.monotonic() - began
    whole = kept(new)
    shutil.rmtree(new)
    counted: Counter[str] = Counter()
    while counted["killed"] < count:
        assert counted["too late"] <= 2 * count + 20, "hardly anything is killed"
        at = rng.randrange(calls) if rng.random() < 0.5 else None
        child = begin(action, at)
        if at is None:
            time.sleep(rng.uniform(0, lasts * 1.1))
            os.kill(child, signal.SIGKILL)
        counted["killed" if os.WIFSIGNALED(os.waitpid(child, 0)[1]) else "too late"] += 1
        all_ended()
        where = f"kill {counted['killed']} at {at}"
        assert snapshot(tree) == before, f"{where}: the tree has changed"
        counted["left something"] += bool({*os.listdir(new.parent)} - {"new"})
        counted["the copy was there"] += new.exists()
        if new.exists():
            assert kept(new) == whole, f"{where}: the copy is there, and not whole"
            shutil.rmtree(new)
        if rng.random() < 0.25:
            action()
            assert kept(new) == whole, f"{where}: the run after it is wrong"
            shutil.rmtree(new)
        else:
            for directory in (new.parent, temporary):  # as any next run does
                atomic.remove_stale(directory)
        assert os.listdir(new.parent) == [], f"{where}: left beside the copy"
        assert os.listdir(temporary) == [], f"{where}: left in the temporary directory"
        assert snapshot(tree) == before, f"{where}: the tree has changed"
    return dict(counted)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    names = ("a.so", "plain.so", "lost.so", "prog")
    built = Works(place, place / "rocm", *(place / "members" / name for name in names))
    sys.stdout.write(json.dumps(main(built, Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
