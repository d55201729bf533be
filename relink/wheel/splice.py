"""Deflated data taken over as it is: blocks of an old stream inside of a new one.

A deflate stream (RFC 1951) is a row of blocks, each of which begins at any bit and refers to at most 32 KiB of content before it.
Where a stretch of content stays what it was, the blocks in it mean the same in another stream behind the same 32 KiB.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from isal import isal_zlib

from relink.wheel.bits import EMPTY_STORED, STORED, Reader, taken
from relink.wheel.blocks import WINDOW, Block, crc_of, window_of

__all__ = ["Deflater", "Joiner", "Part", "Piece", "Span", "find_parts", "prove"]

Buffer: TypeAlias = bytes | bytearray | memoryview

LEAST: Final = 1 << 20
"""Bytes of a stretch below which deflating it anew costs no more than proving its blocks."""

# Bytes of content: few, since they are held; many, since who inflates them waits for the interpreter each time.
_AT_ONCE: Final = 8 << 20

# What a deflater gives depends on how its input is cut, so the input is always cut alike.
_BLOCK: Final = 1 << 20


class Deflater(Protocol):
    """A raw deflate compressor of isal or zlib."""

    def compress(self, data: Buffer, /) -> bytes:
        """Take content; return what of it is ready."""

    def flush(self, mode: int = ..., /) -> bytes:
        """Return the rest, to a byte's end, and end the stream unless `mode` says otherwise."""


@dataclass(frozen=True, slots=True)
class Span:
    """Whole blocks: the content at `start` to `stop` is at bit `first` to `last` of what `read` gives.

    :ivar crc: CRC-32 of what they inflate to.
    """

    start: int
    stop: int
    first: int
    last: int
    read: Reader
    crc: int

    def stream(self) -> Iterator[bytes]:
        """Yield its blocks from one byte's beginning to another's, with empty ones around them to get there."""
        yield from taken(self.read, self.first, self.last, STORED)
        yield EMPTY_STORED


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a joined stream that are whole blocks: those of a span, or new ones.

    :ivar length: of the stream; `size`: of the content that it stands for.
    :ivar crc: CRC-32 of that content.
    """

    length: int
    size: int
    crc: int
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks that are inflated at once, at bits and content as in :class:`Span`, and the content before them."""

    start: int
    stop: int
    first: int
    last: int
    window: bytes


def find_parts(
    blocks: Sequence[Block], stretches: Iterable[range], content: memoryview
) -> list[tuple[Part, ...]]:
    """Return the blocks that lie in stretches of content and, with what they refer back to, need nothing before these.

    :param blocks: all of a stream.
    :param stretches: in order and apart; those below :data:`LEAST` are left out.
    :param content: of the whole stream; none of it is needed later.
    """
    starts = [start for _, start in blocks]
    found = []
    for stretch in stretches:
        if len(stretch) < LEAST:
            continue
        at = bisect_left(starts, stretch.start + WINDOW if stretch.start else 0)
        end = bisect_right(starts, stretch.stop) - 1
        parts = []
        while at < end:
            first, start = blocks[at]
            at = max(at + 1, min(end, bisect_right(starts, start + _AT_ONCE) - 1))
            last, stop = blocks[at]
            parts.append(Part(start, stop, first, last, window_of(content, start)))
        if parts:
            found.append(tuple(parts))
    return found


def prove(read: Reader, found: Iterable[Sequence[Part]]) -> tuple[Span, ...]:
    """Inflate what :func:`find_parts` has found; return those stretches that consist of whole blocks, in order."""
    return tuple(span for parts in found if (span := _proved(read, parts)))


def _proved(read: Reader, parts: Sequence[Part]) -> Span | None:
    crc = 0
    for part in parts:
        size = part.stop - part.start
        more = crc_of(read, part.first, part.last, part.window, size)
        if more is None:
            return None
        crc = isal_zlib.crc32_combine(crc, more, size)
    return Span(parts[0].start, parts[-1].stop, parts[0].first, parts[-1].last, read, crc)


class Joiner:
    """Makes one deflate stream of new content and of spans of old streams.

    :param deflater: makes a compressor; a new one begins behind each span.
    :param write: takes what is to be written.
    """

    def __init__(
        self, deflater: Callable[[], Deflater], spans: Sequence[Span], write: Callable[[Buffer], object]
    ) -> None:
        self._new = deflater
        self._write = write
        self._spans = [*spans]
        self._deflater = deflater()
        self._position = 0
        self._taken: Span | None = None  # what the next content lies in
        self._waiting = bytearray()  # new content that is not a whole block
        self._pieces: list[Piece] = []
        self._length = self._size = self._crc = 0  # of the piece that is being made

    def add(self, content: Buffer) -> None:
        """Add the next content; that of a span is not deflated."""
        view = memoryview(content)
        while view:
            if self._spans and self._position == self._spans[0].start:
                self._taken = self._spans.pop(0)
                self._take_over(self._taken)
            if self._taken:
                part = view[: self._taken.stop - self._position]
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
            if self._taken and self._position == self._taken.stop:
                self._end_piece(self._taken)
                self._taken = None

    def finish(self) -> tuple[Piece, ...]:
        """End the stream; return the pieces that it is made of."""
        self._deflate(b"", whole=True)
        self._put(self._deflater.flush())
        self._end_piece()
        return tuple(self._pieces)

    def _deflate(self, part: Buffer, *, whole: bool) -> None:
        if whole and not self._waiting:
            self._put(self._deflater.compress(part))
            return
        self._waiting += part
        if whole:
            self._put(self._deflater.compress(self._waiting))
            self._waiting = bytearray()

    def _take_over(self, span: Span) -> None:
        if span.start:
            self._put(self._deflater.flush(isal_zlib.Z_SYNC_FLUSH))
            self._end_piece()
        self._deflater = self._new()
        for data in span.stream():
            self._put(data)

    def _end_piece(self, span: Span | None = None) -> None:
        self._pieces.append(Piece(self._length, self._size, self._crc, span))
        self._length = self._size = self._crc = 0

    def _put(self, data: Buffer) -> None:
        self._write(data)
        self._length += len(data)
