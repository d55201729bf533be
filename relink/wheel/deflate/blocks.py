"""The bits at which the blocks of a deflate stream (RFC 1951) begin, where the content of the stream is known.

Takes a reader of the compressed bytes and the content. Gives the first block behind, or the last block before, a place in the
content.

No inflater reports where blocks begin. But an inflater stops behind a block whose first bit, BFINAL, is set. So each block is
inflated alone, with BFINAL set and the content before the block as its window. The byte in which the block ends is then known.
The bit is found by ending the block at each of the eight bits, and inflating it. The bit at which the next header seems to begin
is tried first, and is not believed unless the block inflates: stored bytes, with the padding before them, can be made to look
like a header.

So blocks are walked through, from the beginning of the stream or from a block near its end, whose header is searched before
anything is inflated. That a block begins there is confirmed when the stream is read: it is inflated up to that bit, and from that
bit on (:func:`relink.wheel.deflate.stream.inflate_into`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from zlib_ng import zlib_ng

from relink.spool import release_pages
from relink.wheel.byte_types import RangeReader
from relink.wheel.deflate.bits import LAST_BLOCK, PADDING, copy_bits
from relink.wheel.deflate.inflate import WINDOW, Block, InflateError, inflated

__all__ = [
    "Blocks",
    "find_headers",
    "find_split",
    "guess_start",
]

AHEAD: Final = 1 << 20  # compressed bytes that one read of the archive asks for
_SEARCH_READ: Final = 64 << 10  # compressed bytes that are searched at a time
_OUTPUT: Final = 1 << 20  # bytes of content that one call of the inflater may give
LARGEST_BLOCK: Final = 32 << 20  # bytes of a block's content; isal ends them at 16 MiB, others far earlier
_HEADER: Final = 11  # bytes: one to eight bits, and the first 74 of a dynamic block
_SMALL: Final = 16 << 10  # bytes of content that a block costs, if it has fewer
_TRY: Final = 32 << 10  # bytes of content that trying one bit costs, if the block has fewer
SEARCHED: Final = 12 << 10  # compressed bytes that are searched for a header at once
FAR: Final = 1 << 20  # compressed bytes that are searched in all
TRIES: Final = 500  # headers, of which there are about four in each KiB that are none
# The part of a stream behind the split, in which most edits are: a twelfth, or up to a third of a short stream (3 MiB).
LATE, LATEST, BEHIND = 12, 3, 3 << 20
_RELEASED: Final = (
    32 << 20
)  # bytes of content in a mapped file that are compared before their pages are released
BUDGET: Final = 64 << 20  # bytes that may be inflated in vain, beside four times the content
_SHARE: Final = tuple((128 >> length) % 128 for length in range(8))
"""The share of a code of 128 that a code length takes: a code is complete if the shares add up to 128 (RFC 1951, 3.2.2)."""


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
    :param split: a block that is known to begin there (:func:`relink.wheel.deflate.stream.inflate_into`).
    """

    def __init__(
        self, read: RangeReader, length: int, content: memoryview, split: Block | None = None
    ) -> None:
        self._read = _buffered(read, length)
        self._length = length
        self._content = content
        self._end: Block = (8 * length, len(content))
        self._split = split or (0, 0)
        self._known: Block = (0, 0)
        self._compared = 0  # bytes of content since pages of it were released
        self._inflate_budget = 4 * len(content) + BUDGET  # bytes that may be inflated in all

    def after(self, place: int) -> Block | None:
        """Return the first block that begins at or behind a place in the content, or the stream's end if none does."""
        return next((block for block in self.walk(place) if block[1] >= place), None)

    def before(self, place: int) -> Block | None:
        """Return the last block that begins at or before a place in the content."""
        found = None
        for block in self.walk(place):
            if block[1] > place or block == self._end:
                break
            found = block
        return found

    def walk(self, place: int) -> Iterator[Block]:
        """Yield blocks one after the other, from one that begins at or before `place`; the stream's end comes last."""
        at: Block | None = max(block for block in ((0, 0), self._split, self._known) if block[1] <= place)
        while at is not None and at != self._end:
            following = self._next(at)
            if following is None:
                return
            self._known = at
            yield at
            at = following
        if at is not None:
            yield at

    def _next(self, at: Block) -> Block | None:
        """Return the next block, or the stream's end; None if neither can be confirmed."""
        end = self._inflate(at)
        if end is None:
            return None
        self._inflate_budget -= max(0, _SMALL - (end.start - at[1]))
        if end.last:
            return self._end
        if end.aligned:  # a stored block, which ends where a byte does
            return 8 * end.byte + 8, end.start
        return self.ended_at(at, end)

    def _inflate(self, at: Block) -> _BlockEnd | None:
        """Inflate one block; None if it does not give the content at its place, or is the last one before the end."""
        bit, start = at
        byte, place = divmod(bit, 8)
        text = self._read(byte, _SEARCH_READ)
        if not text:
            return None
        header = (
            int.from_bytes(text[:2], "little") >> place
        )  # BFINAL, and two bits of BTYPE (RFC 1951, 3.2.3)
        # Empty blocks fill the bits before the block, so that every bit of it keeps its place in a byte; `| 1` sets BFINAL.
        number, count = PADDING[place]
        number |= (text[0] >> place | 1) << count
        feed = number.to_bytes(count // 8 + 1, "little") + text[1:]
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
                feed = text = self._read(byte, _SEARCH_READ)
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

    def _is(self, place: int, data: bytes) -> bool:
        """Whether the content at a place is `data`."""
        self._inflate_budget -= len(data)
        same = bytes(self._content[place : place + len(data)]) == data
        self._compared += len(data)
        if self._compared >= _RELEASED:
            self._compared = 0
            release_pages(self._content)
        return same


def find_split(read: RangeReader, length: int) -> int | None:
    """Return a bit at which a block seems to begin, behind most of a stream. The caller confirms it by dividing the stream there.

    :param length: of the stream in bytes.
    """
    begin = length - max(length // LATE, min(length // LATEST, BEHIND))
    tries = TRIES
    for at in range(begin, min(length, begin + FAR), SEARCHED):
        for header in find_headers(read(at, min(SEARCHED + _HEADER, length - at))):
            bit = 8 * at + header
            inflater = zlib_ng.decompressobj(-15, bytes(WINDOW))
            with suppress(InflateError):
                for piece in copy_bits(read, bit, 8 * min(length, at + _SEARCH_READ), (0, 0)):
                    inflater.decompress(piece, _OUTPUT)
                return bit
            tries -= 1
            if not tries:
                return None
    return None


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


def guess_start(read: RangeReader, byte: int) -> int | None:
    """Return the only bit of a byte at which the header of a dynamic block could begin; None if none or several could be it.

    The numbers of codes in the header must be possible, and the code of the code lengths complete (RFC 1951, 3.2.3 and 3.2.7).
    The guess may be wrong: bits of other blocks can look like such a header. The first bit of the byte is not tried, the one
    behind its end is.
    """
    number = int.from_bytes(read(byte, _HEADER), "little")
    found = None
    for bit in range(8 * byte + 1, 8 * byte + 9):
        number >>= 1
        # BTYPE 10 (its low bit comes first), HLIT and HDIST below 30, then HCLEN + 4 code lengths of three bits each.
        if number & 0b110 == 0b100 and number >> 3 & 31 <= 29 and number >> 8 & 31 <= 29:
            sizes = range(17, 17 + 3 * ((number >> 13 & 15) + 4), 3)
            if sum(_SHARE[number >> size & 7] for size in sizes) == 128:
                if found is not None:
                    return None
                found = bit
    return found


def find_headers(text: bytes) -> Iterator[int]:
    """Yield the bits where the header of a dynamic block that is not the last could begin, as :func:`guess_start` for one byte.

    All bits are tested together: bit n of each number below stands for a header that begins at bit n of the text. So `bits >> k`
    has, at each n, the k-th bit of that header, and `&`, `|` and `~` compute with all of them in one operation.
    """
    bits = int.from_bytes(text, "little")
    every = (1 << max(0, 8 * len(text) - 8 * _HEADER)) - 1
    possible = bits >> 2 & ~(bits >> 1 | bits) & every  # BFINAL 0, BTYPE 10
    for first in (4, 9):  # 30 and 31 are no number of codes
        possible &= ~(bits >> first & bits >> first + 1 & bits >> first + 2 & bits >> first + 3)
    total = [
        0
    ] * 8  # of each header the sum of its shares, a number of eight bits, one list item for each binary digit
    for place, counted in enumerate(_counted(bits >> 13, every)):
        one, two, four = (bits >> 17 + 3 * place + more & counted for more in range(3))
        neither, only_one = counted & ~(one | two), one & ~two
        # A length of n takes 128 >> n: that bit of the sum.
        shares = [
            one & two & four,
            two & four & ~one,
            only_one & four,
            neither & four,
            one & two & ~four,
            two & ~(one | four),
            only_one & ~four,
        ]
        carry = 0  # a ripple-carry adder: full adders from the lowest binary digit up
        for weight, share in enumerate((*shares, 0)):
            was = total[weight]
            total[weight] = was ^ share ^ carry
            carry = was & share | carry & (was ^ share)
        possible &= ~carry  # more than 255
    possible &= total[7]  # the sum is 128: bit 7 and no other
    for digit in total[:7]:
        possible &= ~digit
    while possible:
        lowest = possible & -possible
        yield lowest.bit_length() - 1
        possible ^= lowest


def _counted(numbers: int, every: int) -> Iterator[int]:
    """Yield for each of 19 code lengths the headers that have it: four do, and as many more as the number at a bit says."""
    for most in range(-3, 16):
        enough = every
        if most > 0:
            for place in range(4):
                bit = numbers >> place
                enough = bit & enough if most >> place & 1 else bit | enough
        yield enough & every
