"""The one place that opens what a user, a wheel or a prefix names.

Such a path may lead to a FIFO, on which open(2) waits for ever, to a device without end, to a file of a terabyte, or out of the
directory that was meant. So a path is looked at before it is opened, what is open must be a regular file, nothing waits, and a
reader states how much it reads at most. ``tests/unit/system/test_safe_open.py`` holds that nothing else in relink opens such a
path.

The errors are those of the system, so that a caller treats a refusal as any file that cannot be opened: EINVAL for what is no
regular file, EFBIG for one that is too large, EXDEV for one outside of its root (as openat2(2) has it for RESOLVE_BENEATH). A
fault of the machine says nothing about the file: that is a MachineError, which nobody takes for a file that is not there.

A file that is truncated while it is mapped ends the process (SIGBUS, mmap(2)); nothing here can prevent that.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from relink.system.errors import raise_if_machine_fault

StrPath: TypeAlias = str | os.PathLike[str]

NOT_REGULAR = "not a regular file"

# O_NONBLOCK: open(2) does not wait for the writer of a FIFO. O_NOCTTY: a terminal does not become that of the process.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# Bytes of one read(2), so that a small file needs no buffer of the whole limit.
_READ_SIZE = 1 << 20


@contextlib.contextmanager
def _telling_faults(path: StrPath) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise_if_machine_fault(error, os.fspath(path))
        raise


def open_regular(path: StrPath, *, root: str = "/") -> int:
    """Open a regular file for reading, without waiting for anything; returns its descriptor, which the caller closes.

    :param root: the file must lie below this directory, symbolic links followed; ``/`` allows every place.
    :raises OSError: it cannot be opened, is no regular file (EINVAL), or lies outside of `root` (EXDEV).
    :raises MachineError: the machine has a fault, or lacks a resource.
    """
    try:
        with _telling_faults(path):
            # To open a device may do something already.
            _check_regular(os.stat(path).st_mode, path)
            descriptor = os.open(path, _FLAGS)
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error), os.fspath(path)) from error
    try:
        # The file may have been exchanged in between.
        _check_regular(os.fstat(descriptor).st_mode, path)
        if root != "/":
            _check_below(descriptor, root, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_regular(mode: int, path: StrPath) -> None:
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, NOT_REGULAR, os.fspath(path))


def _check_below(descriptor: int, root: str, path: StrPath) -> None:
    """Compare where the open file really is with where `root` really is: what a link led to a moment ago says nothing."""
    top = os.path.realpath(root)
    if os.path.commonpath((top, os.readlink(f"/proc/self/fd/{descriptor}"))) != top:
        raise OSError(errno.EXDEV, f"lies outside of {root}", os.fspath(path))


def read_bytes(path: StrPath, limit: int, *, root: str = "/") -> bytes:
    """Return the content of a regular file.

    :param limit: bytes; a file that is larger, or grows larger meanwhile, is refused.
    :raises OSError: as :func:`open_regular`, and EFBIG.
    """
    return read_with_status(path, limit, root=root)[0]


def read_start(path: StrPath, size: int) -> bytes:
    """Return the first `size` bytes of a regular file, fewer where it ends before.

    :raises OSError: as :func:`open_regular`.
    """
    with _telling_faults(path), os.fdopen(open_regular(path), "rb", buffering=0) as file:
        return _read(file, size)


def read_text(path: StrPath, limit: int, *, errors: str = "strict", root: str = "/") -> str:
    """Return the content of a regular file as UTF-8.

    :raises OSError: as :func:`read_bytes`.
    :raises UnicodeDecodeError: it is not UTF-8, and `errors` is strict.
    """
    return read_bytes(path, limit, root=root).decode("utf-8", errors)


def read_with_status(path: StrPath, limit: int, *, root: str = "/") -> tuple[bytes, os.stat_result]:
    """Return the content of a regular file, and the status of the very file that was read: whose it is, and who may write it.

    :raises OSError: as :func:`read_bytes`.
    """
    with _telling_faults(path), os.fdopen(open_regular(path, root=root), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        # What the file system says counts for refusing only: a file of /proc or /sys has any size.
        data = b"" if status.st_size > limit else _read(file, limit + 1)
    if max(status.st_size, len(data)) > limit:
        raise _too_large(path, limit)
    return data, status


def list_names(directory: StrPath) -> list[str]:
    """Return the names in a directory, in order; none where it is not there, or cannot be read.

    :raises MachineError: that is a fault of the machine.
    """
    try:
        return sorted(os.listdir(directory))
    except OSError as error:
        raise_if_machine_fault(error, os.fspath(directory))
        return []


def file_sha256(path: StrPath, limit: int) -> str:
    """Return the SHA-256 of a regular file's content, in hex; its size in memory does not depend on the file's.

    The file is read, not mapped: one that is truncated meanwhile gives another digest, and does not end the process.

    :param limit: bytes; a file that is larger is refused.
    :raises OSError: as :func:`open_regular`, and EFBIG.
    """
    with _telling_faults(path), os.fdopen(open_regular(path), "rb") as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise _too_large(path, limit)
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_pieces(pieces: Iterable[bytes | memoryview]) -> bytes:
    """Return the SHA-256 of a content that comes in pieces."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def _read(file: io.FileIO, left: int) -> bytes:
    parts = []
    while left and (data := file.read(min(left, _READ_SIZE))):
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


def _too_large(path: StrPath, limit: int) -> OSError:
    size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
    return OSError(errno.EFBIG, f"larger than {size}", os.fspath(path))


@contextlib.contextmanager
def map_file(path: StrPath) -> Iterator[bytes | mmap.mmap]:
    """Map a regular file read-only; an empty file gives ``b""``, since mmap refuses those.

    :raises OSError: as :func:`open_regular`.
    """
    descriptor = open_regular(path)
    try:
        with _telling_faults(path):
            mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except ValueError:
        yield b""
        return
    finally:
        # The map has a descriptor of its own.
        os.close(descriptor)
    try:
        yield mapped
    finally:
        # A view of the map may still exist: the file is unmapped with the last view.
        with contextlib.suppress(BufferError):
            mapped.close()
