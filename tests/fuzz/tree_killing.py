"""Kills in-place edits of a tree at random moments: ``python -m tests.fuzz.tree_killing WORKS SCRATCH SEED COUNT WAY``.

WAY is ``one-step``, or ``file-by-file`` as where the one step is not possible. Half of the kills come at a random time, half at a
random one of the calls that change what is on the disk: the exchange takes a thousandth of the time.
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
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relink.atomic import remove_stale
from relink.library import relink_tree, undo_tree
from relink.options import Options
from relink.trees import exchange
from relink.trees.journal import held, place_of
from relink.trees.obstacles import exchange_names
from tests.fuzz.killing import PR_SET_CHILD_SUBREAPER, all_ended
from tests.support.works import Works

Snapshot = dict[str, tuple[object, ...]]
CALLS = ("replace", "link", "unlink", "open", "fsync", "rename", "mkdir", "rmdir", "chmod", "utime")


def make_tree(works: Works, root: Path) -> Path:
    """A tree with libraries at several depths, a link, a program, and a RECORD; and a second name of each file outside."""
    tree = root / "vendor"
    for number, folder in enumerate(("lib", "lib/deep", "pkg/a/b")):
        (tree / folder).mkdir(parents=True, exist_ok=True)
        (tree / folder / f"lib{number}.so.1.0").write_bytes(works.library.read_bytes())
        (tree / folder / f"lib{number}.so").symlink_to(f"lib{number}.so.1.0")
    (tree / "bin").mkdir()
    (tree / "bin/prog").write_bytes(works.program.read_bytes())
    (tree / "bin/prog").chmod(0o755)
    (tree / "lib/plain.so").write_bytes(works.plain.read_bytes())
    (tree / "d-1.dist-info").mkdir()
    (tree / "d-1.dist-info/RECORD").write_text(
        "lib/lib0.so.1.0,sha256=old,3\nbin/prog,,\nd-1.dist-info/RECORD,,\n"
    )
    (root / "cache").mkdir()
    for number, path in enumerate(sorted(tree.rglob("*"))):
        if path.is_file() and not path.is_symlink():
            os.utime(path, ns=(10**18 + number, 10**18 + number))
            os.link(path, root / "cache" / str(number))
    return tree


def snapshot(tree: Path, *, exact: bool, folders: bool = False) -> Snapshot:
    """What is in a tree: kind, mode and content of everything.

    :param exact: also the time and the inode of a file.
    :param folders: also the time of a directory.
    """
    found: Snapshot = {}
    for path in sorted(tree.rglob("*")):
        status = path.lstat()
        facts: list[object] = [status.st_mode]
        if path.is_symlink():
            facts.append(os.readlink(path))
        elif path.is_file():
            facts.append(hashlib.sha256(path.read_bytes()).hexdigest())
            facts += [status.st_ino, status.st_mtime_ns] if exact else []
        else:
            facts += [status.st_mtime_ns] if folders else []
        found[str(path.relative_to(tree))] = tuple(facts)
    return found


def wrap_calls(wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Wrap each of the calls that change what is on the disk."""
    for name in CALLS:
        setattr(os, name, wrapped(getattr(os, name)))
    setattr(exchange, "exchange_names", wrapped(exchange_names))  # noqa: B010


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


def main(works: Works, scratch: Path, seed: int, count: int, way: str) -> dict[str, int]:
    """Kill `count` relinks and undos of one tree. Raises AssertionError where a tree is between, or something is left over."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rng = random.Random(seed)
    one_step = way == "one-step"
    if not one_step:
        setattr(exchange, "obstacle", lambda *_: "a reason")  # noqa: B010
    tree = make_tree(works, scratch)
    temporary = scratch / "tmp"
    temporary.mkdir()
    tempfile.tempdir = str(temporary)
    cache = snapshot(scratch / "cache", exact=True)
    vendor = snapshot(tree, exact=True, folders=one_step)
    before = snapshot(tree, exact=False)
    options = Options(prefixes=(str(works.prefix),))
    actions = {"relink": lambda: relink_tree(tree, options), "undo": lambda: undo_tree(tree)}
    lasts, calls = {}, {}
    for name, action in actions.items():  # a run of each, to know how long it takes
        began = time.monotonic()
        calls[name] = counted_calls(action)
        lasts[name] = time.monotonic() - began
        if name == "relink":
            after = snapshot(tree, exact=False)
    assert after != before
    assert snapshot(tree, exact=True, folders=one_step) == vendor, "an undo that nobody kills"
    counted: Counter[str] = Counter()
    while counted["killed"] < count:
        assert counted["too late"] <= 2 * count + 20, "hardly anything is killed"
        name = rng.choice(("relink", "undo"))
        if name == "undo":
            relink_tree(tree, options)
        at = rng.randrange(calls[name]) if rng.random() < 0.5 else None
        child = begin(actions[name], at)
        if at is None:
            time.sleep(rng.uniform(0, lasts[name] * 1.1))
            os.kill(child, signal.SIGKILL)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        counted["killed" if killed else "too late"] += 1
        all_ended()
        where = f"kill {counted['killed']} of {name} at {at}"
        there = snapshot(tree, exact=False)
        between = there not in (before, after)
        assert not (between and one_step), f"{where}: between, as the kill left it"
        for path, facts in there.items():
            assert facts in (before[path], after[path]), f"{where}: {path} is neither old nor new"
        counted["between, as the kill left it"] += between
        counted["left something"] += place_of(tree).exists()
        with held(tree):
            exchange.finish(tree)
        there = snapshot(tree, exact=False)
        assert there in (before, after), f"{where}: between, after the next run has finished it"
        counted["after" if there == after else "before"] += 1
        if rng.random() < 0.5:
            relink_tree(tree, options)
            assert snapshot(tree, exact=False) == after, f"{where}: the run after it is wrong"
        if place_of(tree).exists():
            undo_tree(tree)
        assert snapshot(tree, exact=True, folders=one_step) == vendor, f"{where}: the undo after it is wrong"
        assert not place_of(tree).exists(), f"{where}: left beside the tree"
        remove_stale(temporary)  # as any next run does
        assert os.listdir(temporary) == [], f"{where}: left in the temporary directory"
        assert snapshot(scratch / "cache", exact=True) == cache, (
            f"{where}: a file of the cache was written into"
        )
    return dict(counted)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    names = ("a.so", "plain.so", "lost.so", "prog")
    built = Works(place, place / "rocm", *(place / "members" / name for name in names))
    seed, count = map(int, sys.argv[3:5])
    sys.stdout.write(json.dumps(main(built, Path(sys.argv[2]), seed, count, sys.argv[5])))
