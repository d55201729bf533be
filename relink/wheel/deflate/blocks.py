"""The bits at which the blocks of a deflate stream (RFC 1951) begin, where the content of the stream is known.

Takes a reader of the compressed bytes and the content. Gives the first block behind, or the last block before, a place in the
content.

No inflater reports where blocks begin. But an inflater stops behind a block whose first bit, BFINAL, is set. So each block is
inflated alone, with BFINAL set and the content before the block as its window. The byte in which the block ends is then known.
The bit is found by ending the block at each of the eight bits, and inflating it. The bit at which the next header seems to begin
is tried first, and is not believed unless the block inflates: stored bytes, with the padding before them, can be made to look
like a header.

So blocks are walked through from one that is known, at first the beginning of the stream. Over a long way the stream is inflated
as a whole instead, with copies of the inflater's state. A header is searched shortly before the place that was asked for. It is
believed if the inflater, at that bit, reads a block of random bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from isal import isal_zlib
from zlib_ng import zlib_ng

from relink.system.spool import release_pages
from relink.wheel.byte_types import RangeReader
from relink.wheel.deflate.bits import LAST_BLOCK, PADDING, copy_bits
from relink.wheel.deflate.headers import SEARCH_READ, guess_start, likely_headers
from relink.wheel.deflate.inflate import WINDOW, Block, InflateError, inflated, read_up_to

# Compressed bytes that one read of the archive asks for.
AHEAD: Final = 1 << 20
# Bytes of content that one call of the inflater may give.
_OUTPUT: Final = 1 << 20
# Bytes of a block's content; isal ends them at 16 MiB, others far earlier.
LARGEST_BLOCK: Final = 32 << 20
# Bytes of content that a block costs, if it has fewer.
_SMALL: Final = 16 << 10
# Bytes of content that trying one bit costs, if the block has fewer.
_TRY: Final = 32 << 10
# Bytes of content: over less, walking from block to block takes no longer.
LONG: Final = 1 << 20
# Copies of the inflater's state that are kept, one for each 64 KiB of the stream.
_STATES: Final = 16
# Bytes of content in a mapped file that are read before their pages are released.
_RELEASED: Final = 32 << 20
# Bytes that may be inflated in vain, beside four times the content.
BUDGET: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class _State:
    """An inflater in the middle of a stream.

    :ivar byte: of the stream, which comes next; `start`: the place in the content that has been reached.
    :ivar crc: CRC-32 of what it has inflated.
    """

    inflater: zlib_ng._Decompress
    byte: int
    start: int
    crc: int


@dataclass(frozen=True, slots=True)
class _BlockEnd:
    """Where a block ends.

    :ivar start: the place in the content behind the block.
    :ivar byte: the byte of the stream that has the block's last bit.
    :ivar aligned: the block's last bit is the last bit of that byte.
    :ivar last: BFINAL was set in the stream.
    """

    start: int
    byte: int
    aligned: bool
    last: bool


class Blocks:
    """The blocks of one stream. The search ends after a limit of work: a stream that needs more is unusual, or made to cost time.

    :param read: reads the stream.
    :param length: of the stream in bytes.
    :param content: all that the stream inflates to, of which the CRC has been compared.
    """

    def __init__(self, read: RangeReader, length: int, content: memoryview) -> None:
        self._read = _buffered(read, length)
        self._length = length
        self._content = content
        self._end: Block = (8 * length, len(content))
        self._known: Block = (0, 0)
        # Bytes of content since pages of it were released.
        self._compared = 0
        # Bytes that may be inflated in all.
        self._inflate_budget = 4 * len(content) + BUDGET

    def after(self, offset: int) -> Block | None:
        """Return the first block that begins at or behind a place in the content, or the stream's end if none does."""
        return next((block for block in self.walk(offset) if block[1] >= offset), None)

    def before(self, offset: int) -> Block | None:
        """Return the last block that begins at or before a place in the content."""
        last = None
        for block in self.walk(offset):
            if block[1] > offset or block == self._end:
                break
            last = block
        # The next place is behind it, but may be before the block that was looked at last.
        if last:
            self._known = last
        return last

    def walk(self, offset: int) -> Iterator[Block]:
        """Yield blocks one after the other, from one that begins at or before `offset`; the stream's end comes last."""
        first = self._known if self._known[1] <= offset else (0, 0)
        if offset - first[1] >= LONG:
            first = self._far(first, offset) or first
        at: Block | None = first
        while at is not None and at != self._end:
            following = self._next(at)
            if following is None:
                return
            self._known = at
            yield at
            at = following
        if at is not None:
            yield at

    def _far(self, at: Block, offset: int) -> Block | None:
        """Return a block at most a MiB of the stream before a place that is far behind `at`; None if none is found there."""
        bit, begin = at
        byte, start, crc = bit // 8, begin, 0
        inflater = zlib_ng.decompressobj(-15, self._window(begin))
        text = self._read(byte, SEARCH_READ)
        feed = _from_bit(bit, text)
        states = deque[_State](maxlen=_STATES)
        try:
            while text and not inflater.eof and start <= offset and self._inflate_budget > 0:
                byte += len(text)
                for data in inflated(inflater, feed, _OUTPUT):
                    crc = isal_zlib.crc32(data, crc)
                    start += len(data)
                    self._inflate_budget -= len(data)
                if not inflater.eof:
                    states.append(_State(_copied(inflater), byte, start, crc))
                feed = text = self._read(byte, SEARCH_READ)
        except InflateError:
            return None
        for state in reversed(states):
            if state.start <= offset and (block := self._from_state(state, offset)):
                return block if state.crc == self._crc(begin, state.start) else None
        return None

    def _from_state(self, state: _State, offset: int) -> Block | None:
        """Return the first block found in what an inflater would read next, unless that begins behind a place."""
        stop = min(self._length, state.byte + SEARCH_READ)
        for bit in likely_headers(self._read, self._length, range(state.byte, stop)):
            if self._inflate_budget <= 0:
                return None
            self._inflate_budget -= _TRY
            data = read_up_to(_copied(state.inflater), self._read, state.byte, bit)
            if data is not None:
                self._inflate_budget -= len(data)
                start = state.start + len(data)
                return (bit, start) if start <= offset else None
        return None

    def _crc(self, start: int, stop: int) -> int:
        """Return the CRC-32 of a part of the content."""
        crc = 0
        for at in range(start, stop, _RELEASED):
            crc = isal_zlib.crc32(self._content[at : min(stop, at + _RELEASED)], crc)
            release_pages(self._content)
        return crc

    def _next(self, at: Block) -> Block | None:
        """Return the next block, or the stream's end; None if neither can be confirmed."""
        end = self._inflate(at)
        if end is None:
            return None
        self._inflate_budget -= max(0, _SMALL - (end.start - at[1]))
        if end.last:
            return self._end
        # A stored block, which ends where a byte does.
        if end.aligned:
            return 8 * end.byte + 8, end.start
        return self.ended_at(at, end)

    def _inflate(self, at: Block) -> _BlockEnd | None:
        """Inflate one block; None if it does not give the content at its place, or is the last one before the end."""
        bit, start = at
        byte, shift = divmod(bit, 8)
        text = self._read(byte, SEARCH_READ)
        if not text:
            return None
        # BFINAL, and two bits of BTYPE (RFC 1951, 3.2.3).
        header = int.from_bytes(text[:2], "little") >> shift
        feed = _from_bit(bit, text, last=True)
        inflater = zlib_ng.decompressobj(-15, self._window(start))
        stop = start
        while not inflater.eof:
            byte += len(text)
            try:
                parts = inflated(inflater, feed, _OUTPUT) if text else ()
            except InflateError:
                return None
            for data in parts:
                if stop + len(data) > start + LARGEST_BLOCK or not self._is(stop, data):
                    return None
                stop += len(data)
            if not (text and self._inflate_budget > 0):
                return None
            if not inflater.eof:
                feed = text = self._read(byte, SEARCH_READ)
        byte -= len(inflater.unused_data)
        last = bool(header & 1)
        if last and (byte, stop) != (self._length, len(self._content)):
            return None
        return _BlockEnd(stop, byte - 1, header & 0b110 == 0, last)

    def ended_at(self, at: Block, end: _BlockEnd) -> Block | None:
        """Return the next block: it begins at the one bit at which the block, ended there, inflates to the same content.

        Only one of the eight bits can do that (RFC 1951, 3.2.3). If the block is ended too early, it takes bits of the empty last
        block that was put there; if too late, bits of the next block come before the empty one. What remains of the ten bits, or
        what they become, is never a last block without content. So a block that was made to look as if it ended elsewhere is not
        mistaken; the guess only decides which bit is tried first.
        """
        first, start = at
        size = end.start - start
        guess = guess_start(self._read, end.byte)
        bits = range(8 * end.byte + 1, 8 * end.byte + 9)
        for bit in sorted(bits, key=lambda bit: bit != guess):
            if self._inflate_budget <= 0:
                return None
            self._inflate_budget -= max(size, _TRY)
            feed = b"".join(copy_bits(self._read, first, bit, LAST_BLOCK))
            inflater = zlib_ng.decompressobj(-15, self._window(start))
            with suppress(InflateError):
                data = b"".join(inflated(inflater, feed, size))
                ended = inflater.eof and not inflater.unused_data
                if ended and len(data) == size and self._is(start, data):
                    return bit, end.start
        return None

    def _window(self, start: int) -> bytes:
        """Return the content that a block which begins at `start` may refer back to."""
        return bytes(self._content[max(0, start - WINDOW) : start])

    def _is(self, offset: int, data: bytes) -> bool:
        """Whether the content at a place is `data`."""
        self._inflate_budget -= len(data)
        same = bytes(self._content[offset : offset + len(data)]) == data
        self._compared += len(data)
        if self._compared >= _RELEASED:
            self._compared = 0
            release_pages(self._content)
        return same


def _copied(inflater: zlib_ng._Decompress) -> zlib_ng._Decompress:
    """Return an inflater in the same state. zlib-ng's stubs lack the method, which zlib's have."""
    copy: zlib_ng._Decompress = cast("Any", inflater).copy()
    return copy


def _from_bit(bit: int, text: bytes, *, last: bool = False) -> bytes:
    """Return a stream from a block on; empty blocks before it fill a byte, so that every bit of it keeps its place in one.

    :param text: the stream from the byte on in which the block begins.
    :param last: set BFINAL of the block.
    """
    if not text:
        return b""
    number, count = PADDING[bit % 8]
    number |= (text[0] >> bit % 8 | last) << count
    return number.to_bytes(count // 8 + 1, "little") + text[1:]


def _buffered(read: RangeReader, length: int) -> RangeReader:
    """Return a reader that reads ahead, since the following bytes are asked for next; it gives nothing behind the end."""
    start = 0
    text = b""

    def get(at: int, size: int) -> bytes:
        nonlocal start, text
        size = min(size, length - at)
        if not start <= at <= at + size <= start + len(text):
            start, text = at, read(at, min(max(size, AHEAD), length - at))
        return text[at - start : at - start + size]

    return get
