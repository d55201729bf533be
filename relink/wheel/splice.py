"""Deflated data taken over as it is: blocks of an old stream inside of a new one.

A deflate stream (RFC 1951) is a row of blocks, each of which begins at any bit and refers to at most 32 KiB of content before it.
Where a stretch of content stays what it was, the blocks in it mean the same in another stream behind the same 32 KiB.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, Protocol, TypeAlias

from isal import isal_zlib

from relink.wheel.bits import EMPTY_STORED, END, STORED, Reader, taken
from relink.wheel.blocks import WINDOW, Compressed, inflated

__all__ = ["Deflater", "Joiner", "Piece", "Span", "find_spans"]

Buffer: TypeAlias = bytes | bytearray | memoryview

LEAST: Final = 1 << 20
"""Bytes of a stretch below which deflating it anew costs no more than proving its blocks."""

_ZEROS: Final = bytes(WINDOW)


class Deflater(Protocol):
    """A raw deflate compressor of isal or zlib."""

    def compress(self, data: Buffer, /) -> bytes:
        """Take content; return what of it is ready."""

    def flush(self, mode: int = ..., /) -> bytes:
        """Return the rest, to a byte's end, and end the stream unless `mode` says otherwise."""


@dataclass(frozen=True, slots=True)
class Span:
    """Whole blocks: the content at `start` to `stop` is at bit `first` to `last` of what `read` gives.

    :ivar crc: CRC-32 of what they inflate to, if that is known.
    """

    start: int
    stop: int
    first: int
    last: int
    read: Reader
    crc: int | None = None

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


def find_spans(
    data: Compressed, stretches: Iterable[range], content: memoryview | None = None
) -> tuple[Span, ...]:
    """Return the blocks that lie in stretches of content, in order, and need nothing that comes before them in the stream.

    What will be taken over is inflated as proof that it has as many bytes as it should.

    :param stretches: in order and apart; those below :data:`LEAST` are left out.
    :param content: the whole, where it is in memory: only then the spans have a CRC.
    """
    found = []
    for stretch in stretches:
        if len(stretch) < LEAST:
            continue
        lowest = stretch.start + WINDOW if stretch.start else 0
        begin = bisect_left(data.blocks, lowest, key=lambda block: block[1])
        end = bisect_right(data.blocks, stretch.stop, key=lambda block: block[1]) - 1
        if begin < end:
            (first, start), (last, stop) = data.blocks[begin], data.blocks[end]
            span = Span(start, stop, first, last, data.read)
            window = content[max(0, start - WINDOW) : start] if content is not None else _ZEROS
            size, crc = inflated(chain(span.stream(), [END]), window, stop - start) or (0, 0)
            if size == stop - start:
                found.append(span if content is None else replace(span, crc=crc))
    return tuple(found)


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
                part = view[: self._spans[0].start - self._position] if self._spans else view
                self._put(self._deflater.compress(part))
            self._size += len(part)
            self._crc = isal_zlib.crc32(part, self._crc)
            self._position += len(part)
            view = view[len(part) :]
            if self._taken and self._position == self._taken.stop:
                self._end_piece(self._taken)
                self._taken = None

    def finish(self) -> tuple[Piece, ...]:
        """End the stream; return the pieces that it is made of."""
        self._put(self._deflater.flush())
        self._end_piece()
        return tuple(self._pieces)

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
