"""Deflated data taken over as it is: blocks of an old stream inside of a new one.

A deflate stream (RFC 1951) is a row of blocks, each of which begins at any bit and refers to at most 32 KiB of content before it.
Where a stretch of content stays what it was, the blocks in it mean the same in another stream behind the same 32 KiB. Where they
begin is written nowhere; it is searched for: what looks like a block's header is one if the stream, ended there, ends in order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, Protocol, TypeAlias, cast

from isal import isal_zlib

from relink.wheel.blocks import HEADER, LENGTH_ORDER, possible_headers
from relink.wheel.stream import Compressed

__all__ = ["END", "WINDOW", "Deflater", "Joiner", "Piece", "Span", "find_spans"]

Buffer: TypeAlias = bytes | bytearray | memoryview

LEAST: Final = 16 << 20
"""Bytes of a stretch below which deflating it anew costs less than looking for its blocks."""

WINDOW: Final = 32 << 10
"""Bytes of content that a block may refer back to (RFC 1951, 2)."""

# Bytes that an inflater may have decoded and not handed out yet: hardly any where it had room for more.
_LAG: Final = 16 << 10
_SEARCHED: Final = 1 << 19  # bytes of compressed data in which a block's beginning must be found
_STEP: Final = 8 << 10
_PATIENCE: Final = 64 << 20
_TRIED: Final = 32 << 10  # bytes that could be inflated while one candidate is tried in vain
_PIECE: Final = 1 << 19
_OUTPUT: Final = 2 << 20  # large, since an inflater waits for the interpreter between any two of them
_ZEROS: Final = bytes(WINDOW)
_END: Final = 0b011, 10  # an empty block of fixed codes that is the last: 1, 01, and seven zeros for its end
END: Final = _END[0].to_bytes(2, "little")
"""The same, for blocks that end at a byte's end."""
_EMPTY: Final = 0b010, 10  # one that is not the last
_STORED: Final = 0, 3  # a stored block's three bits, behind which it begins at a byte

_InflateError = cast("type[Exception]", isal_zlib.error)


class Deflater(Protocol):
    """A raw deflate compressor of isal or zlib."""

    def compress(self, data: Buffer, /) -> bytes:
        """Take content; return what of it is ready."""

    def flush(self, mode: int = ..., /) -> bytes:
        """Return the rest, to a byte's end, and end the stream unless `mode` says otherwise."""


@dataclass(frozen=True, slots=True)
class Span:
    """Whole blocks: the content at `start` to `stop` is at bit `first` to `last` of `data`.

    :ivar crc: CRC-32 of what they inflate to, if that is known.
    """

    start: int
    stop: int
    first: int
    last: int
    data: Compressed
    crc: int | None = None

    def stream(self) -> Iterator[bytes]:
        """Yield its blocks from one byte's beginning to another's, with empty ones around them to get there."""
        yield from _taken(self.data, self.first, self.last, _STORED)
        yield b"\0\0\xff\xff"  # no bytes, and the complement of that


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
    """Return the blocks that lie in stretches of content, in order; nothing where none can be found soon.

    That they are blocks is proved: what comes before a span, ended there, inflates in order, and so does what will be taken over.
    The same data and stretches give the same spans, whatever the marks are.

    :param stretches: in order and apart; those below :data:`LEAST` are left out.
    :param content: the whole, where it is in memory: only then the spans have a CRC.
    """
    found = []
    for stretch in stretches:
        if len(stretch) < LEAST:
            continue
        patience = _Patience(2 * data.size + _PATIENCE)
        begin = _first(data, stretch.start + WINDOW if stretch.start else 0, patience)
        end = _last(data, stretch.stop, begin, patience) if begin else None
        if begin and end and begin[1] < end[1]:
            span = Span(begin[1], end[1], begin[0], end[0], data)
            # A last block that was found from the data's end on could be none, if somebody made the data to look so.
            window = content[max(0, span.start - WINDOW) : span.start] if content is not None else _ZEROS
            size, crc = _inflated(chain(span.stream(), [END]), patience, window) or (0, 0)
            if size == span.stop - span.start:
                found.append(span if content is None else replace(span, crc=crc))
    return tuple(found)


@dataclass(slots=True)
class _Patience:
    """What a search may cost, in bytes that are inflated: data can be made to look like headers everywhere."""

    left: int


def _first(data: Compressed, lowest: int, patience: _Patience) -> tuple[int, int] | None:
    """Return (bit, content) of the first block whose content begins at `lowest` or later."""
    if lowest == 0:
        return 0, 0
    place = bisect_right(data.marks, lowest - _LAG, key=lambda mark: mark[1])
    from_byte = data.marks[place - 1][0] if place else 0
    known = 0, 0
    for bit in _candidates(data, from_byte, from_byte + _SEARCHED):
        length = _length(data, known[0], bit, patience)
        if patience.left < 0:
            return None
        if length is None:
            continue
        known = bit, known[1] + length
        if known[1] >= lowest:
            return known
    return None


def _last(
    data: Compressed, highest: int, first: tuple[int, int], patience: _Patience
) -> tuple[int, int] | None:
    """Return (bit, content) of the last block whose content begins at `highest` or before.

    :param first: the same of a block before it.
    """
    place = bisect_left(data.marks, highest, key=lambda mark: mark[1])
    stop = data.marks[place][0] if place < len(data.marks) else data.length
    known: tuple[int, int] | None = None
    nearer = highest - first[1] < data.size - highest
    for end in range(stop, max(first[0] // 8, stop - _SEARCHED), -_STEP):
        for bit in reversed([*_candidates(data, max(0, end - _STEP), end)]):
            if known is None and nearer:
                length = _length(data, first[0], bit, patience)
                content = first[1] + (length or 0)
            else:
                length = _length(data, bit, known[0] if known else None, patience)
                content = (known[1] if known else data.size) - (length or 0)
            if patience.left < 0:
                return None
            if length is None:
                continue
            known = bit, content
            if content <= highest:
                return known
    return None


def _length(data: Compressed, first: int, last: int | None, patience: _Patience) -> int | None:
    """Return how many bytes of content the blocks from bit `first` to `last` have (None: to the end of the data).

    None if no block begins at one of these, or patience is at its end.
    """
    found = _inflated(_bits(data, first, last), patience)
    return found and found[0]


def _inflated(
    stream: Iterable[bytes], patience: _Patience, window: Buffer = _ZEROS
) -> tuple[int, int] | None:
    """Return (bytes of content, their CRC-32); None if the stream does not end in order, or patience is at its end.

    :param window: content before the stream; its length does not depend on that.
    """
    inflater = isal_zlib.decompressobj(-15, bytes(window))
    length = crc = 0
    patience.left -= _TRIED
    try:
        for piece in stream:
            feed = piece
            while feed or inflater.unconsumed_tail:
                data = inflater.decompress(inflater.unconsumed_tail or feed, _OUTPUT)
                length += len(data)
                crc = isal_zlib.crc32(data, crc)
                patience.left -= len(data)
                feed = b""
                if patience.left < 0:
                    return None
                if inflater.eof:
                    break
        while not inflater.eof and (data := inflater.decompress(b"", _OUTPUT)):
            length += len(data)
            crc = isal_zlib.crc32(data, crc)
    except _InflateError:
        return None
    return (length, crc) if inflater.eof and not inflater.unused_data else None


def _bits(data: Compressed, first: int, last: int | None) -> Iterator[bytes]:
    """Yield a stream of the blocks from bit `first` to `last` and an end, or to the data's own end."""
    yield from _taken(
        data, first, 8 * data.length if last is None else last, (0, 0) if last is None else _END
    )


def _taken(data: Compressed, first: int, last: int, end: tuple[int, int]) -> Iterator[bytes]:
    """Yield the bits from `first` to `last`, and those of `end` behind them, up to a byte's end.

    They keep their place in a byte, since stored blocks begin at a byte's beginning: empty blocks fill up to it.
    """
    number, count = _filling(first % 8)
    at, stop, left = first // 8, last // 8, last % 8
    if at < stop:
        if count % 8:
            number |= data.read(at, 1)[0] >> count % 8 << count
            at, count = at + 1, count + 8 - count % 8
        yield number.to_bytes(count // 8, "little")
        number = count = 0
    while at < stop:
        piece = data.read(at, min(_PIECE, stop - at))
        at += len(piece)
        yield piece
    if left > count % 8:  # else there is nothing between first and last
        number |= (data.read(stop, 1)[0] & (1 << left) - 1) >> count % 8 << count
        count += left - count % 8
    number, count = number | end[0] << count, count + end[1]
    yield number.to_bytes(-(-count // 8), "little")


def _candidates(data: Compressed, start: int, stop: int) -> Iterator[int]:
    """Yield the bits, from byte `start` to `stop`, where the header of a block that is not the last could be, in order."""
    for at in range(start, min(stop, data.length), _STEP):
        length = min(_STEP, stop - at, data.length - at)
        text = data.read(at, min(length + HEADER, data.length - at))
        for bit in possible_headers(text, length):
            yield 8 * at + bit


def _filling(place: int) -> tuple[int, int]:
    """Return empty blocks that end at a place in a byte: their bits, the first of them lowest, and how many."""
    number, count = _odd() if place % 2 else (0, 0)
    while count % 8 != place:
        number, count = number | _EMPTY[0] << count, count + _EMPTY[1]
    return number, count


def _odd() -> tuple[int, int]:
    """Return an empty block of 95 bits, an odd number: its two codes are one bit long, and all 19 lengths are told."""
    fields = [(0b100, 3), (0, 5), (1, 5), (15, 4)]
    fields += [(1 if symbol in (1, 18) else 0, 3) for symbol in LENGTH_ORDER]
    one, zeros = (0, 1), (1, 1)  # the codes of length 1, and of a run of zeros
    fields += [one, zeros, (138 - 11, 7), zeros, (117 - 11, 7), one, one, one, (1, 1)]
    number = count = 0
    for value, width in fields:
        number |= value << count
        count += width
    return number, count


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
