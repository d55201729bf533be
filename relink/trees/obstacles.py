"""What keeps a directory from being exchanged for a copy of it in one step: mounts, processes at work in it, the file system."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from pathlib import Path

from relink.atomic import working_directory
from relink.files import read_text

__all__ = ["exchange_names", "mounts_at", "obstacle"]

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h
_MOUNTS_LIMIT = 16 << 20  # bytes of /proc/self/mountinfo
_AT_WORK = {
    "cwd": "has its working directory in it",
    "root": "has its root directory in it",
    "exe": "runs a program of it",
}


def obstacle(directory: Path, place: Path) -> str | None:
    """Return why a directory is not to be exchanged in one step, or None.

    A process that works in the directory would be left in the old one. A mount would go with the old one. Whether the kernel
    allows it is tried with a rename that cannot succeed, and whose last reason to fail is ENOTEMPTY (rename(2)): so no library
    of an overlay's lower layer is copied up by links for nothing.

    :param directory: its real path.
    :param place: a directory of relink's own, in which the copy is going to be made.
    :raises OSError: `place` cannot be written.
    """
    real = str(directory)
    if process := _process_in(real):
        return process
    try:
        mounted = mounts_at(directory)
    except OSError as error:
        return f"the kernel does not tell what is mounted ({error.strerror})"
    if mounted:
        return f"{mounted[0]} is a mount point"
    with working_directory(place) as scratch:
        empty, filled = scratch / "empty", scratch / "filled"
        empty.mkdir()
        (filled / "x").mkdir(parents=True)
        try:
            exchange_names(empty, filled)
        except OSError as error:
            return f"the file system cannot exchange two directories ({error.strerror})"
        filled = empty  # they have changed their names
        try:
            os.rename(directory, filled)
        except OSError as error:
            allowed = error.errno in (errno.ENOTEMPTY, errno.EEXIST)
            return None if allowed else f"the kernel does not let it be renamed ({error.strerror})"
        os.rename(filled, directory)  # only a file system that does not keep to rename(2) comes here
        return "the file system replaces directories that are not empty"


def exchange_names(one: Path, other: Path) -> None:
    """Give each of two directories the name of the other, in one step (renameat2(2), RENAME_EXCHANGE).

    :raises OSError: the kernel, the C library or the file system cannot do it; nothing has changed then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    rename = getattr(libc, "renameat2", None)  # glibc 2.28
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    arguments = [_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other)]
    if rename(*arguments, ctypes.c_uint(_RENAME_EXCHANGE)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))


def mounts_at(directory: Path) -> list[str]:
    """Return the mount points that are a directory or lie below it (proc_pid_mountinfo(5), field 5).

    :param directory: its real path.
    :raises OSError: /proc is not mounted.
    """
    real, found = str(directory), []
    for line in read_text("/proc/self/mountinfo", _MOUNTS_LIMIT, errors="surrogateescape").splitlines():
        fields = line.split(" ")
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        if _below(point, real):
            found.append(point)
    return found


def _process_in(real: str) -> str | None:
    """Name a process that works in a directory; only those are seen that this user may look at."""
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return None
    for number in numbers:
        for link, words in _AT_WORK.items():
            try:
                if _below(os.readlink(f"/proc/{number}/{link}"), real):
                    name = read_text(f"/proc/{number}/comm", 64, errors="replace").strip()
                    return f"process {number} ({name}) {words}"
            except OSError:
                continue
    return None


def _below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")
