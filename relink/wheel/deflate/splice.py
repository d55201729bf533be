"""Deflate blocks of an old stream, reused bit by bit inside of a new stream.

Takes ranges in which the content is unchanged. Gives :class:`Span`, and by :class:`Joiner` the new stream with its pieces.

A deflate stream (RFC 1951) is a sequence of blocks. Each begins at any bit and refers to at most 32 KiB of content before it.
Where a range of content is unchanged, its blocks can be copied into another stream, if the same 32 KiB of content come before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from isal import isal_zlib

from relink.wheel.byte_types import BytesLike, RangeReader
from relink.wheel.deflate.bits import EMPTY_STORED, STORED_BLOCK, copy_bits
from relink.wheel.deflate.blocks import Blocks
from relink.wheel.deflate.inflate import WINDOW

LEAST: Final = 1 << 20
"""Bytes: a smaller range is deflated anew, which takes milliseconds."""

# The output of a deflater depends on how its input is divided, so it is always divided at multiples of this.
_BLOCK: Final = 1 << 20


class Deflater(Protocol):
    """A raw deflate compressor of isal or zlib."""

    def compress(self, data: BytesLike, /) -> bytes:
        """Take content; return what of it is ready."""

    def flush(self, mode: int = ..., /) -> bytes:
        """Return the rest, to a byte's end, and end the stream unless `mode` says otherwise."""


@dataclass(frozen=True, slots=True)
class Span:
    """Whole blocks: the content at `start` to `stop` is at bit `first` to `last` of what `read` gives."""

    start: int
    stop: int
    first: int
    last: int
    read: RangeReader

    def stream(self) -> Iterator[bytes]:
        """Yield its blocks from one byte's beginning to another's, with empty ones around them to get there."""
        yield from copy_bits(self.read, self.first, self.last, STORED_BLOCK)
        yield EMPTY_STORED


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a joined stream that are whole blocks: those of a span, or new ones.

    :ivar length: bytes of the stream; `size`: bytes of the content that they inflate to.
    :ivar crc: CRC-32 of that content.
    """

    length: int
    size: int
    crc: int
    span: Span | None = None


def find_spans(
    read: RangeReader,
    length: int,
    content: memoryview,
    unchanged: Iterable[range],
) -> tuple[Span, ...]:
    """Return the blocks that lie in unchanged ranges together with the window that they refer back to.

    :param length: of the stream in bytes; `content`: of all of it.
    :param unchanged: ranges of the content, sorted and disjoint; those below :data:`LEAST` are left out.
    """
    blocks = Blocks(read, length, content)
    spans = []
    for part in unchanged:
        if len(part) < LEAST:
            continue
        first = blocks.after(part.start + WINDOW if part.start else 0)
        last = blocks.before(part.stop)
        if first and last and first < last:
            spans.append(Span(first[1], last[1], first[0], last[0], read))
    return tuple(spans)


class Joiner:
    """Makes one deflate stream of new content and of spans of old streams.

    :param deflater: makes a compressor; a new one begins behind each span.
    :param write: takes what is to be written.
    """

    def __init__(
        self, deflater: Callable[[], Deflater], spans: Sequence[Span], write: Callable[[BytesLike], object]
    ) -> None:
        self._new = deflater
        self._write = write
        self._spans = [*spans]
        self._deflater = deflater()
        self._position = 0
        # The span that the next content belongs to.
        self._reused: Span | None = None
        # New content that is not a whole block.
        self._waiting = bytearray()
        self._pieces: list[Piece] = []
        # Of the piece that is being made.
        self._length = self._size = self._crc = 0

    def add(self, content: BytesLike) -> None:
        """Add the next content; that of a span is not deflated."""
        view = memoryview(content)
        while view:
            if self._spans and self._position == self._spans[0].start:
                self._reused = self._spans.pop(0)
                self._reuse(self._reused)
            if self._reused:
                part = view[: self._reused.stop - self._position]
            else:
                stop = self._position // _BLOCK * _BLOCK + _BLOCK
                if self._spans:
                    stop = min(stop, self._spans[0].start)
                part = view[: stop - self._position]
                self._deflate(part, whole=self._position + len(part) == stop)
            self._size += len(part)
            self._crc = isal_zlib.crc32(part, self._crc)
            self._position += len(part)
            view = view[len(part) :]
            if self._reused and self._position == self._reused.stop:
                self._end_piece(self._reused)
                self._reused = None

    def finish(self) -> tuple[Piece, ...]:
        """End the stream; return the pieces that it is made of."""
        self._deflate(b"", whole=True)
        self._put(self._deflater.flush())
        self._end_piece()
        return tuple(self._pieces)

    def _deflate(self, part: BytesLike, *, whole: bool) -> None:
        """Deflate new content; parts are collected until the block is `whole`, since the division changes the output."""
        if whole and not self._waiting:
            self._put(self._deflater.compress(part))
            return
        self._waiting += part
        if whole:
            self._put(self._deflater.compress(self._waiting))
            self._waiting = bytearray()

    def _reuse(self, span: Span) -> None:
        """End the new blocks at a byte, write the blocks of a span, and begin with a compressor that has no window."""
        if span.start:
            self._put(self._deflater.flush(isal_zlib.Z_SYNC_FLUSH))
            self._end_piece()
        self._deflater = self._new()
        for data in span.stream():
            self._put(data)

    def _end_piece(self, span: Span | None = None) -> None:
        """Record the piece that has been written, and begin with another."""
        self._pieces.append(Piece(self._length, self._size, self._crc, span))
        self._length = self._size = self._crc = 0

    def _put(self, data: BytesLike) -> None:
        """Write compressed bytes, and count them for the piece that is being made."""
        self._write(data)
        self._length += len(data)
