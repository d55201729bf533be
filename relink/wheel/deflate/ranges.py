"""The content of a large member of which only what is asked for takes memory.

The content is inflated once, compared with the CRC and the size in the directory, and forgotten but for its beginning and its
end, where an ELF file has its headers. Any other part is inflated again when it is asked for, from the last checkpoint before
it: inflating takes less time than the kernel takes to give out as much memory.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from operator import attrgetter
from typing import Final

from zlib_ng import zlib_ng

from relink.system.errors import RelinkError, WheelError
from relink.system.progress import OnProgress
from relink.system.spool import LazyMemory, Spool
from relink.wheel.deflate.stream import (
    CHUNK,
    COMPRESSED_CHUNK,
    Checkpoint,
    InflateError,
    content,
    copy_inflater,
    inflate_piece,
)
from relink.wheel.zipformat import STORED, Member, RangeReader

SIGNATURE: Final = 4
"""Bytes."""
# Bytes at the beginning and at the end that are kept: two pieces of either, in whole pages.
ENDS: Final = 2 << 20


class _Ranges:
    """Yields ranges of one member's content.

    :param read: reads the archive; `checkpoints`: of the pass that has inflated the member, in order.
    """

    def __init__(self, read: RangeReader, member: Member, checkpoints: Sequence[Checkpoint]) -> None:
        self._read, self._member, self._checkpoints = read, member, checkpoints
        # Where the next piece begins: an inflater, the byte of the stream, and the place in the content.
        self._next = Checkpoint(zlib_ng.decompressobj(-15), 0, 0)
        # The piece before that one.
        self._offset, self._piece = 0, b""

    def fetch(self, part: range) -> Iterator[tuple[int, bytes]]:
        """Yield pieces of the content with their offsets, until the range is complete.

        :raises WheelError: the archive is not what was inflated before.
        """
        if self._member.method == STORED:
            for start in part[::CHUNK]:
                yield start, self._read(self._member.data_offset + start, min(CHUNK, part.stop - start))
            return
        index = bisect_right(self._checkpoints, part.start, key=attrgetter("start"))
        last = self._checkpoints[index - 1] if index else Checkpoint(zlib_ng.decompressobj(-15), 0, 0)
        if not self._offset <= part.start or self._next.start < last.start:
            self._next = Checkpoint(copy_inflater(last.inflater), last.byte, last.start)
            self._offset, self._piece = last.start, b""
        yield self._offset, self._piece
        while self._next.start < part.stop:
            self._inflate_next()
            yield self._offset, self._piece

    def _inflate_next(self) -> None:
        inflater, byte, start = self._next.inflater, self._next.byte, self._next.start
        member = self._member
        feed = self._read(
            member.data_offset + byte, min(COMPRESSED_CHUNK, max(0, member.compressed_size - byte))
        )
        try:
            piece = b"".join(inflate_piece(inflater, feed, CHUNK))
        except InflateError:
            piece = b""
        if not feed or (not piece and inflater.eof):
            raise WheelError(f"{member.name!r} has changed since it was read")
        self._offset, self._piece = start, piece
        self._next = Checkpoint(inflater, byte + len(feed), start + len(piece))


def make_place(
    name: str, size: int, fetch: Callable[[range], Iterator[tuple[int, bytes]]], spool: Spool | None
) -> LazyMemory:
    """Return :class:`relink.system.spool.LazyMemory`, which has the parameters, for the content of a member.

    :raises RelinkError: there is not that much room.
    """
    try:
        return LazyMemory(size, fetch, spool)
    except (OSError, OverflowError, ValueError) as error:
        raise RelinkError(
            f"{name!r} has {size} bytes, more than there is room for ({error}); free some"
        ) from error


def load_lazily(
    read: RangeReader,
    member: Member,
    on_progress: OnProgress,
    signatures: Collection[bytes] = (),
    spool: Spool | None = None,
) -> tuple[memoryview, list[Checkpoint]]:
    """Return the content of a member in :class:`relink.system.spool.LazyMemory`, and the checkpoints of its stream.

    :param read: reads the archive.
    :param on_progress: called with the number of bytes read since the last call.
    :param signatures: pages that begin with one of these (:data:`SIGNATURE` bytes each) are kept: they will be asked for.
    :param spool: what is too large for memory is in a file.
    :raises WheelError: the content is not what the directory claims.
    :raises RelinkError: there is not that much room.
    """
    checkpoints: list[Checkpoint] = []
    memory = make_place(member.name, member.size, _Ranges(read, member, checkpoints).fetch, spool)
    beginning, end = bytearray(), bytearray()
    end_at = max(ENDS, (member.size - ENDS) // mmap.PAGESIZE * mmap.PAGESIZE)
    position = 0
    # The page that a piece ended in, if it is kept.
    page, page_at = bytearray(), 0
    for data in content(read, member, checkpoints.append):
        if position < ENDS:
            beginning += data[: ENDS - position]
        if position + len(data) > end_at:
            end += data[max(0, end_at - position) :]
        if page:
            page += data[: mmap.PAGESIZE - len(page)]
            if len(page) == mmap.PAGESIZE:
                memory.put(page_at, page)
                page.clear()
        for at in range(-position % mmap.PAGESIZE, len(data), mmap.PAGESIZE) if signatures else ():
            if data[at : at + SIGNATURE] in signatures:
                if at + mmap.PAGESIZE <= len(data):
                    memory.put(position + at, data[at : at + mmap.PAGESIZE])
                else:
                    page, page_at = bytearray(data[at:]), position + at
        position += len(data)
        on_progress(len(data))
    memory.put(0, beginning)
    memory.put(end_at, end)
    return memoryview(memory), checkpoints
