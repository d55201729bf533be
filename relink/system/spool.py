"""Contents that are not held: in a file without a name, mapped read-only, or in memory that is filled where it is read.

Pages of such a map take memory while they are used: :func:`release_pages` gives them back, and the kernel takes them where it
needs memory. A file without a name is gone with its process, however that ends.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Self, TypeAlias

import msgspec

from relink.system.atomic import make_unnamed_file
from relink.system.errors import MachineError, RelinkError, raise_if_machine_fault

WHOLE: Final = 768 << 20
KEPT: Final = 256 << 20
# Bytes that are moved to the file at a time: few enough for the processor's cache.
MOVED_AT_ONCE: Final = 8 << 20
# What may be fetched for LazyMemory, in sizes of the content, before all of it is put there.
_MOST_FETCHED: Final = 3
_USUAL: Final = Path("/var/tmp")  # noqa: S108 - on a disk, where /tmp may be memory (file-hierarchy(7))
NO_RESERVE: Final = 0x4000
"""MAP_NORESERVE: the kernel sets no memory aside for a mapping that is never all in use (mmap(2))."""
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


class LazyMemory(mmap.mmap):
    """The place of a content of which pages are missing until somebody asks for them (:func:`fill`).

    What nobody asks for takes no memory. Who reads a missing page without asking for it reads zeros.

    :ivar is_file: it is a file, and the kernel can take the memory.
    """

    is_file: bool
    _fetch: Callable[[range], Iterator[tuple[int, bytes]]]
    _present: bytearray
    _fetched: int
    _last: int
    _lock: threading.Lock

    def __new__(
        cls, size: int, fetch: Callable[[range], Iterator[tuple[int, bytes]]], spool: Spool | None = None
    ) -> Self:
        """Make the place.

        :param fetch: yields pieces of the content with their offsets, in order: those of a range, and perhaps some around them.
        :param spool: what is too large for memory is in a file.
        :raises RelinkError: nothing can be written there.
        """
        is_file = spool is not None and size > spool.whole
        fd = spool.new_file(size) if spool and is_file else -1
        try:
            flags = mmap.MAP_SHARED if is_file else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
            memory = super().__new__(cls, fd, size, flags=flags)
        finally:
            if fd >= 0:
                os.close(fd)
        memory.is_file = is_file
        memory._fetch = fetch
        # A byte for each page, 1 where it is there.
        memory._present = bytearray(-(-size // mmap.PAGESIZE))
        memory._fetched, memory._last = 0, -1
        memory._lock = threading.Lock()
        return memory

    def put(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Store a part of the content that begins with a page, and ends with one or with the content."""
        self[offset : offset + len(data)] = bytes(data)
        self._mark(offset // mmap.PAGESIZE, -(-(offset + len(data)) // mmap.PAGESIZE))

    def fill(self, start: int, stop: int) -> None:
        """Make sure that the pages of a range are there.

        :raises WheelError: the source of the content is damaged, or has been closed.
        """
        size = len(self)
        first, last = start // mmap.PAGESIZE, -(-min(stop, size) // mmap.PAGESIZE)
        if self._present.find(0, first, last) < 0:
            return
        with self._lock:
            # Who reads here and there would have the same pieces fetched again and again.
            if self._fetched > _MOST_FETCHED * size:
                first, last = 0, len(self._present)
            while (begin := self._present.find(0, first, last)) >= 0:
                end = self._present.find(1, begin, last)
                end = last if end < 0 else end
                part = range(begin * mmap.PAGESIZE, min(end * mmap.PAGESIZE, size))
                for offset, data in self._fetch(part):
                    low, high = max(part.start, offset), min(part.stop, offset + len(data))
                    if low < high:
                        self[low:high] = data[low - offset : high - offset]
                    # The last piece is at hand still.
                    self._fetched += len(data) if offset != self._last else 0
                    self._last = offset
                self._mark(begin, end)

    def stop_fetching(self) -> None:
        """Let what is missing be zeros from now on, and let the source go."""
        with self._lock:
            self._mark(0, len(self._present))
            self._fetch = lambda _: iter(())

    def _mark(self, first: int, last: int) -> None:
        self._present[first:last] = b"\1" * (last - first)


def fill(buffer: bytes | bytearray | memoryview | mmap.mmap, start: int, stop: int) -> None:
    """Make sure that a range of a content is in memory, where it is kept in :class:`LazyMemory`; of others nothing.

    :param buffer: the whole content.
    """
    memory = buffer.obj if isinstance(buffer, memoryview) else buffer
    if isinstance(memory, LazyMemory) and start < stop:
        memory.fill(start, stop)


def take(buffer: bytes | bytearray | memoryview | mmap.mmap, start: int, stop: int) -> bytes:
    """Return a copy of a range of a content, filled before where it is missing (:func:`fill`)."""
    fill(buffer, start, stop)
    return bytes(buffer[start:stop])


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


def is_spooled(view: memoryview) -> bool:
    """Whether a content is in a file, so that pages of it can be released at any time."""
    return isinstance(view.obj, mmap.mmap) and (
        view.obj.is_file if isinstance(view.obj, LazyMemory) else view.readonly
    )


def release_pages(view: memoryview) -> None:
    """Give back the memory of a content that is in a file; it is read again when it is used. Of others nothing."""
    if is_spooled(view) and isinstance(view.obj, mmap.mmap):
        view.obj.madvise(mmap.MADV_DONTNEED)
