"""Prefixes with links in circles, pipes, devices and files without end: what is no library is passed over."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cc import shared
from tests.support.forking import run as forked
from tests.support.limited import limited
from tests.support.works import OUTPUT, Works
from tests.unit.hostile.conftest import Run


def loops(prefix: Path) -> None:
    (prefix / "lib/again").symlink_to("..")
    (prefix / "lib/self").symlink_to("self")
    (prefix / "lib/a").symlink_to("b")
    (prefix / "lib/b").symlink_to("a")
    (prefix / "lib64").symlink_to("lib/again/lib/again/lib")
    (prefix / "lib/libloop.so.1").symlink_to("libloop.so.1")


def pipes(prefix: Path) -> None:
    for name in ("lib/libpipe.so.1", "lib/libnowhere.so.1", ".info/pipe", "lib/a.hsaco", "bin"):
        os.mkfifo(prefix / name)


def devices(prefix: Path) -> None:
    for name in ("zero", "full", "tty", "random"):
        (prefix / f"lib/lib{name}.so.1").symlink_to(f"/dev/{name}")
    (prefix / "lib/libdir.so.1").mkdir()
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):  # a container may forbid it
            os.mknod(prefix / "lib/libdevice.so.1", 0o020666, os.makedev(1, 5))


def sockets(prefix: Path) -> None:
    here = os.getcwd()
    os.chdir(prefix / "lib")  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("libsocket.so.1")
    finally:
        os.chdir(here)


def vast(prefix: Path) -> None:
    """A terabyte that is not there behind a header that is; and one of nothing but zeros."""
    for name in ("libvast.so.1", "libzeros.so.1"):
        path = prefix / "lib" / name
        if name == "libvast.so.1":
            path.write_bytes((prefix / "lib/libhip.so.7").read_bytes())
        path.touch()
        os.truncate(path, 1 << 40)


def deep(prefix: Path) -> None:
    path = prefix / "lib"
    for _ in range(400):
        path /= "d"
        path.mkdir()
    (path / "libend.so.1").symlink_to(prefix / "lib/libhip.so.7")


def unreadable(prefix: Path) -> None:
    for name in ("lib/libsecret.so.1", ".info/version-dev"):
        (prefix / name).write_bytes(b"")
        (prefix / name).chmod(0)
    (prefix / "lib/closed").mkdir(0)


@pytest.mark.few(1, reason="other damage of the same files")
@pytest.mark.parametrize("make", [loops, pipes, devices, sockets, vast, deep, unreadable])
def test_prefixes(works: Works, run: Run, tmp_path: Path, make: Callable[[Path], None]) -> None:
    """What is no library is passed over; nothing is waited for, and nothing read without end."""
    prefix = tmp_path / "rocm"
    shutil.copytree(works.prefix, prefix, symlinks=True)
    make(prefix)
    answer = run(works.small(tmp_path), prefix=prefix)
    assert (answer.code, answer.left) == (0, [OUTPUT]), answer
    if make is unreadable:
        (prefix / "lib/closed").chmod(0o755)


@pytest.mark.few(5, reason="other damage of the same files")
@pytest.mark.parametrize("make", [loops, pipes, devices, sockets, deep])
@pytest.mark.parametrize("command", ["isa", "doctor --prefix"])
def test_commands_on_prefixes(
    works: Works, tmp_path: Path, make: Callable[[Path], None], command: str
) -> None:
    prefix = tmp_path / "rocm"
    shutil.copytree(works.prefix, prefix, symlinks=True)
    make(prefix)
    ended = forked(*command.split(), prefix, timeout=30)
    assert ended.returncode in (0, 1)
    assert "Traceback" not in ended.stderr


def test_a_library_that_is_a_fifo(works: Works, run: Run, tmp_path: Path) -> None:
    """ld.so would open it and wait: it serves nothing, and a loader that would meet it is not asked."""
    prefix = tmp_path / "rocm"
    shutil.copytree(works.prefix, prefix, symlinks=True)
    (prefix / "lib/libhip.so.7").unlink()
    os.mkfifo(prefix / "lib/libhip.so.7")
    answer = run(works.small(tmp_path), prefix=prefix)
    assert (answer.code, answer.left) == (1, [])
    assert "libhip.so.7: passed over: not a regular file" in answer.out
    needing = shared(
        tmp_path / "a.so",
        "extern int hip(void); int g(void){return hip();}",
        needed=[works.prefix / "lib/libhip.so.7"],
        flags=[f"-Wl,-rpath,{prefix}/lib"],
    )
    wheel = works.wheel(tmp_path / "w", {"demo/a.so": needing, "demo/plain.so": works.plain})
    ended = limited("verify", wheel, seconds=60)
    assert ended.code == 1, ended
    assert re.search(r"RLK605 .*libhip.so.7: .*is not a regular file: the loader opens it", ended.out), (
        ended.out
    )
