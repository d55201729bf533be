"""Files in place of memory: the content of a member that is too large for it, in a file without a name, mapped read-only.

Pages of such a map take memory while they are used: :func:`release_pages` gives them back, and the kernel takes them where it
needs memory. A file without a name is gone with its process, however that ends.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Self, TypeAlias

import msgspec

from relink.system.atomic import make_unnamed_file
from relink.system.errors import MachineError, RelinkError, raise_if_machine_fault

WHOLE: Final = 768 << 20
KEPT: Final = 256 << 20
# Bytes that are moved to the file at a time: few enough for the processor's cache.
MOVED_AT_ONCE: Final = 8 << 20
_USUAL: Final = Path("/var/tmp")  # noqa: S108 - on a disk, where /tmp may be memory (file-hierarchy(7))
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Room: TypeAlias = Callable[[int, int], memoryview]
"""Gives the memory for a part of the content, from one place on and up to another or less far. Parts are asked for in order; only
the one that was given last is valid."""


class Spool(msgspec.Struct, frozen=True):
    """Where contents go that are too large for memory.

    :ivar directory: where the files are, or None for the usual place of large temporary files.
    :ivar whole: bytes; a larger member is in a file from the beginning.
    :ivar kept: bytes of several members together that stay in memory.
    """

    directory: Path | None = None
    whole: int = WHOLE
    kept: int = KEPT

    def new_file(self, size: int) -> int:
        """Return the descriptor of a new file of `size` bytes, all of it a hole.

        :raises RelinkError: nothing can be written there.
        """
        places = [
            directory for directory in (self.directory, _USUAL, Path(tempfile.gettempdir())) if directory
        ]
        for directory in places:
            try:
                fd = make_unnamed_file(directory)
            except OSError as error:
                raise_if_machine_fault(error, f"{directory}: a temporary file of {size} bytes cannot be made")
                continue
            try:
                os.ftruncate(fd, size)
            except OSError:  # larger than a file can be there
                os.close(fd)
                continue
            return fd
        raise RelinkError(
            f"{places[0]}: a temporary file of {size} bytes cannot be made there; raise --max-memory, or set TMPDIR"
        )

    def copy_to_file(self, view: memoryview, parts: Iterable[range]) -> memoryview:
        """Return a copy of a buffer in a file: `parts` of it, and zeros for the rest.

        :raises RelinkError: nothing can be written, or the disk is full.
        """
        fd = self.new_file(len(view))
        try:
            for part in parts:
                _write(fd, view[part.start : part.stop], part.start)
            return _mapped(fd, len(view))
        finally:
            os.close(fd)


def make_anonymous_memory(size: int) -> memoryview:
    """Return `size` bytes of zeros that are in memory once they are written.

    :raises OSError, OverflowError: there is not that much.
    """
    # Private: shared anonymous memory would be accounted as tmpfs and get no huge pages.
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # Without huge pages half of the time goes into page faults.
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


def write_into(room: Room, position: int, data: bytes) -> None:
    """Put content in its place."""
    rest = memoryview(data)
    while rest:
        part = room(position, position + len(rest))
        part[:] = rest[: len(part)]
        rest, position = rest[len(part) :], position + len(part)


class Filling:
    """A file that is filled from its beginning to its end, by way of a little memory; a context manager.

    The memory is used again and again: new memory would be filled with zeros first.

    :param size: bytes of the file.
    """

    def __init__(self, spool: Spool, size: int) -> None:
        self._size = size
        self._memory = make_anonymous_memory(min(size, MOVED_AT_ONCE))
        self._fd = spool.new_file(size)
        # The place in the file of what is in memory.
        self._start = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def room(self, start: int, stop: int) -> memoryview:
        """Return the memory for what is in the file from one place on, up to another or less far (:data:`Room`).

        :raises RelinkError: the disk is full.
        """
        if stop - self._start > len(self._memory) and start > self._start:
            _write(self._fd, self._memory[: start - self._start], self._start)
            self._start = start
        return self._memory[start - self._start : stop - self._start]

    def finished(self) -> memoryview:
        """Return all of it, mapped read-only.

        :raises RelinkError: the disk is full.
        """
        _write(self._fd, self._memory[: self._size - self._start], self._start)
        self._memory.release()
        return _mapped(self._fd, self._size)


def _write(fd: int, data: memoryview, offset: int) -> None:
    while data:
        try:
            done = os.pwrite(fd, data, offset)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise MachineError(
                    f"a large file that memory has no room for cannot be kept on the disk ({error.strerror}); make room "
                    "beside the output, or raise --max-memory"
                ) from error
            raise_if_machine_fault(error, "a temporary file cannot be written")
            raise RelinkError(f"a temporary file cannot be written ({error.strerror})") from error
        data, offset = data[done:], offset + done


def _mapped(fd: int, size: int) -> memoryview:
    memory = mmap.mmap(fd, size, access=mmap.ACCESS_READ)
    # With huge pages in the page cache, to read one byte would take 2 MiB of memory.
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memoryview(memory)


def release_pages(view: memoryview) -> None:
    """Give back the memory of a file that is mapped read-only; its content is read again when it is used. Of others nothing."""
    if view.readonly and isinstance(view.obj, mmap.mmap):
        view.obj.madvise(mmap.MADV_DONTNEED)
