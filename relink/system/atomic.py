"""A file that appears under its name whole, or not at all; copies of files; and working directories.

What a killed process leaves behind is removed by a later run. A copy has the holes of the file, and takes no second place on the
disk where the file system can share the blocks.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from relink.system.errors import UsageError, describe_failure
from relink.system.safe_open import open_regular

_NAME: Final = re.compile(r"\.relink-\d+-[0-9a-f]{16}\.(?:tmp|dir)")
_BUFFER: Final = 1 << 20


def _create(parent: Path, ending: str) -> tuple[int, Path]:
    """Create a temporary file (``.tmp``) or directory (``.dir``), and lock it for as long as it is open."""
    while True:
        path = parent / f".relink-{os.getpid()}-{secrets.token_hex(8)}{ending}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        if ending == ".dir":
            path.mkdir(0o700)
            flags = os.O_RDONLY | os.O_DIRECTORY
        try:
            # 0o666: the umask decides, as for any other file the user makes.
            fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:
            if ending == ".dir":  # taken for a stale one
                continue
            raise
        try:
            # A file system without locks: what a killed run leaves there stays.
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX)
            # Between the two calls another process may have taken it for a stale one.
            # Some file systems do not count a directory's links.
            if os.fstat(fd).st_nlink and path.exists():
                return fd, path
        except BaseException:
            os.close(fd)
            _remove(path)
            raise
        os.close(fd)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write and read in ``path``'s directory; at the end it is synced and renamed to ``path``.

    After an exception, of whatever kind, the temporary file is gone and ``path`` is what it was before.

    :raises OSError: the directory cannot be written, or the disk is full.
    """
    fd, temporary = _create(path.parent, ".tmp")
    try:
        with open(fd, "w+b", buffering=_BUFFER) as file:
            yield file
            file.flush()
            os.fsync(fd)
            # Renamed while still open and locked, so that no other process takes it for a stale one.
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def save_text(path: Path, content: str, what: str) -> None:
    """Write a text under its name whole, or not at all; what lies there, a FIFO for one, is not opened.

    :param what: what it is, for the message: ``the plan``.
    :raises UsageError: it cannot be written.
    """
    with describe_failure(UsageError, f"{path}: {what} cannot be written"), atomic_file(path) as file:
        file.write(content.encode())


@contextlib.contextmanager
def working_directory(parent: Path) -> Iterator[Path]:
    """Make a directory in ``parent`` that only its maker can enter; it is gone at the end, however that comes.

    After a kill, when nobody can clean up, :func:`remove_stale` knows it for abandoned. What earlier runs left in ``parent`` goes
    first.

    :raises OSError: ``parent`` cannot be written.
    """
    remove_stale(parent)
    fd, path = _create(parent, ".dir")
    try:
        yield path
    finally:
        # Still locked while it goes: another process that finds it half empty leaves it alone.
        with contextlib.suppress(OSError):
            _remove(path)
        os.close(fd)


def publish_directory(staged: Path, final: Path, *, sync: bool = True) -> None:
    """Rename a directory, once all that is in it is on the disk, to a name that nothing has.

    What gets the name meanwhile is not lost: rename(2) replaces an empty directory, and nothing else by a directory.

    :param staged: beside `final`: a directory that its owner may not write can be renamed, but not moved.
    :param sync: False where another program sees to it that it comes to the disk.
    :raises OSError: FileExistsError if something has the name, and as rename(2).
    """
    if sync:
        sync_file_system(staged)
    if os.path.lexists(final):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final))
    os.rename(staged, final)
    if sync:
        sync_directory(final.parent)


def sync_file_system(directory: Path) -> None:
    """Wait until all that was written to a directory's file system is on the disk (syncfs(2))."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Python has no syncfs(2). Where the call fails, sync(2) does it for all file systems.
        if ctypes.CDLL(None).syncfs(fd):
            os.sync()
    finally:
        os.close(fd)


def make_unnamed_file(directory: Path) -> int:
    """Make a file in ``directory`` that has no name, for its maker alone; return its descriptor. It is gone when that is closed.

    :raises OSError: the directory cannot be written.
    """
    with tempfile.TemporaryFile(dir=directory) as file:
        return os.dup(file.fileno())


def move_synced(source: Path, target: Path) -> None:
    """Rename a file; its content and its new name are on the disk afterwards, in this order.

    :raises OSError: it cannot be renamed.
    """
    _sync(source)
    os.replace(source, target)
    sync_directory(target.parent)


def sync_directory(directory: Path) -> None:
    """Fsync a directory, so that new names in it survive a power cut. File systems that cannot are ignored."""
    with contextlib.suppress(OSError):
        _sync(directory)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _removed_if_abandoned(path: Path) -> bool:
    """Remove ``path`` if its lock is free, so that no process works on it any more; where files have no locks it stays.

    The process id in the name decides nothing: it means nothing in another container, and is given out again.
    """
    # Something hostile may have such a name: a link is not followed (O_NOFOLLOW), a FIFO not waited for (O_NONBLOCK).
    how = os.O_RDONLY | os.O_DIRECTORY if path.suffix == ".dir" else os.O_RDWR
    try:
        fd = os.open(path, how | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Removed under the lock, so that a maker that waits for it sees that it is gone.
        _remove(path)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _remove(path: Path) -> None:
    """Remove a file or directory, also where directories in it are read-only; nothing outside is touched by links in it."""
    if path.suffix == ".tmp":
        path.unlink(missing_ok=True)
        return
    with contextlib.suppress(OSError):
        for _, _, _, fd in os.fwalk(path):
            os.fchmod(fd, 0o700)
    shutil.rmtree(path)


def remove_stale(directory: Path) -> list[Path]:
    """Remove the temporary files and directories that killed runs left in ``directory``; return those removed.

    Those of running processes stay, and so does what cannot be removed: it does no harm.
    """
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    ours = (directory / name for name in names if _NAME.fullmatch(name))
    return [path for path in ours if _removed_if_abandoned(path)]


_FICLONE = 0x40049409  # linux/fs.h
# Bytes of one sendfile(2), which takes less than 2 GiB.
_MOST = 1 << 30


def copy_file(source: Path, path: Path) -> Path:
    """Copy a regular file with its mode and times; `path` has all of it, or what it had before.

    :raises OSError: `source` is no regular file (EINVAL) or cannot be read, or `path` cannot be written.
    """
    with os.fdopen(open_regular(source), "rb") as reader, atomic_file(path) as writer:
        copy_content(reader.fileno(), writer.fileno())
    shutil.copystat(source, path)
    return path


def copy_content(source: int, target: int) -> None:
    """Copy the content of an open file to one that is empty; what is a hole stays one.

    :raises OSError: it cannot be read or written.
    """
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:  # another file system, or one without
        size = os.fstat(source).st_size
        os.truncate(target, size)
        end = 0
        while part := _data(source, end, size):
            end = os.lseek(target, part.start, os.SEEK_SET)
            while end < part.stop:
                count = os.sendfile(target, source, end, min(_MOST, part.stop - end))
                # sendfile(2) copies nothing where the source was truncated meanwhile.
                end = end + count if count else part.stop


def _data(source: int, start: int, size: int) -> range:
    """Return the next part of a file that is no hole, an empty one at the end (lseek(2), SEEK_DATA)."""
    try:
        begin = os.lseek(source, start, os.SEEK_DATA)
        return range(begin, min(size, os.lseek(source, begin, os.SEEK_HOLE)))
    except OSError as error:
        # ENXIO: nothing but a hole follows. With another error holes are unknown there, and the rest counts as data.
        return range(start, start if error.errno == errno.ENXIO else size)
