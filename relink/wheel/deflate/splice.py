"""Deflate blocks of an old stream, reused bit by bit inside of a new stream.

Takes ranges in which the content is unchanged. Gives :class:`Span`, and by :class:`Joiner` the new stream with its pieces.

A deflate stream (RFC 1951) is a sequence of blocks. Each begins at any bit and refers to at most 32 KiB of content before it.
Where a range of content is unchanged, its blocks can be copied into another stream, if the same 32 KiB of content come before.

The bits at which the blocks of a deflate stream (RFC 1951) begin, where the content of the stream is known.

Takes a reader of the compressed bytes and the content. Gives the first block behind, or the last block before, a place in the
content.

No inflater reports where blocks begin. But an inflater stops behind a block whose first bit, BFINAL, is set. So each block is
inflated alone, with BFINAL set and the content before the block as its window. The byte in which the block ends is then known.
The bit is found by ending the block at each of the eight bits, and inflating it. The bit at which the next header seems to begin
is tried first, and is not believed unless the block inflates: stored bytes, with the padding before them, can be made to look
like a header.

So blocks are walked through from one that is known, at first the beginning of the stream. Over a long way they are walked through
from a checkpoint instead, a copy of the inflater that has read the member. A header is searched behind the checkpoint. It is
believed if the inflater, at that bit, reads a block of random bytes.

The headers of dynamic and stored blocks (RFC 1951, 3.2.4 and 3.2.7), searched in a deflate stream: where blocks may begin.

Takes a reader of the compressed bytes. Gives bits at which a block may begin; who uses one of these confirms it
(:mod:`relink.wheel.deflate.splice`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Final, Protocol

import msgspec
from isal import isal_zlib
from zlib_ng import zlib_ng

from relink.system.spool import release_pages, take
from relink.wheel.deflate.stream import (
    EMPTY_STORED,
    LAST_BLOCK,
    PADDING,
    STORED_BLOCK,
    WINDOW,
    Block,
    Checkpoint,
    InflateError,
    copy_bits,
    copy_inflater,
    inflate_piece,
    read_up_to,
)
from relink.wheel.zipformat import BytesLike, RangeReader

# Compressed bytes that are searched at a time.
SEARCH_READ: Final = 64 << 10
# Bytes: one to eight bits, and the first 74 of a dynamic block.
_HEADER: Final = 11
# Compressed bytes that are searched for a header at once.
SEARCHED: Final = 12 << 10
# Headers, of which there are about four in each KiB that are none.
TRIES: Final = 500
_SHARE: Final = tuple((128 >> length) % 128 for length in range(8))
"""The share of a code of 128 that a code length takes: a code is complete if the shares add up to 128 (RFC 1951, 3.2.2)."""


def likely_headers(read: RangeReader, length: int, searched: range) -> Iterator[int]:
    """Yield the bits of a stream at which a block seems to begin: the next 64 KiB can be inflated, after any content.

    :param length: of the stream in bytes.
    :param searched: bytes of it; the search ends after :data:`TRIES` headers that are none.
    """
    tries = TRIES
    for at in range(searched.start, searched.stop, SEARCHED):
        text = read(at, min(SEARCHED + _HEADER, length - at))
        for header in sorted((*find_headers(text), *find_stored(text))):
            bit = 8 * at + header
            inflater = zlib_ng.decompressobj(-15, bytes(WINDOW))
            try:
                for piece in copy_bits(read, bit, 8 * min(length, at + SEARCH_READ), (0, 0)):
                    inflater.decompress(piece, _OUTPUT)
            except InflateError:
                tries -= 1
                if not tries:
                    return
            else:
                yield bit


def find_stored(text: bytes) -> Iterator[int]:
    """Yield the bits where a stored block that is not the last could begin: zeros, up to seven bits, LEN and its complement."""
    number = int.from_bytes(text, "little")
    complements = (number ^ number >> 16).to_bytes(len(text), "little")[:-2]
    at = complements.find(b"\xff\xff")
    while at >= 0:
        yield from (bit for bit in range(max(0, 8 * at - 10), 8 * at - 2) if not number >> bit & 0b111)
        at = complements.find(b"\xff\xff", at + 1)


def guess_start(read: RangeReader, byte: int) -> int | None:
    """Return the only bit of a byte at which the header of a dynamic block could begin; None if none or several could be it.

    The numbers of codes in the header must be possible, and the code of the code lengths complete (RFC 1951, 3.2.3 and 3.2.7).
    The guess may be wrong: bits of other blocks can look like such a header. The first bit of the byte is not tried, the one
    behind its end is.
    """
    number = int.from_bytes(read(byte, _HEADER), "little")
    start = None
    for bit in range(8 * byte + 1, 8 * byte + 9):
        number >>= 1
        # BTYPE 10 (its low bit comes first), HLIT and HDIST below 30, then HCLEN + 4 code lengths of three bits each.
        if number & 0b110 == 0b100 and number >> 3 & 31 <= 29 and number >> 8 & 31 <= 29:
            sizes = range(17, 17 + 3 * ((number >> 13 & 15) + 4), 3)
            if sum(_SHARE[number >> size & 7] for size in sizes) == 128:
                if start is not None:
                    return None
                start = bit
    return start


def find_headers(text: bytes) -> Iterator[int]:
    """Yield the bits where the header of a dynamic block that is not the last could begin, as :func:`guess_start` for one byte.

    All bits are tested together: bit n of each number below stands for a header that begins at bit n of the text. So `bits >> k`
    has, at each n, the k-th bit of that header, and `&`, `|` and `~` compute with all of them in one operation.
    """
    bits = int.from_bytes(text, "little")
    every = (1 << max(0, 8 * len(text) - 8 * _HEADER)) - 1
    possible = bits >> 2 & ~(bits >> 1 | bits) & every  # BFINAL 0, BTYPE 10
    # 30 and 31 are no number of codes.
    for first in (4, 9):
        possible &= ~(bits >> first & bits >> first + 1 & bits >> first + 2 & bits >> first + 3)
    # Of each header the sum of its shares, a number of eight bits, one list item for each binary digit.
    total = [0] * 8
    for position, counted in enumerate(_counted(bits >> 13, every)):
        one, two, four = (bits >> 17 + 3 * position + more & counted for more in range(3))
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
        # A ripple-carry adder: full adders from the lowest binary digit up.
        carry = 0
        for weight, share in enumerate((*shares, 0)):
            was = total[weight]
            total[weight] = was ^ share ^ carry
            carry = was & share | carry & (was ^ share)
        possible &= ~carry  # more than 255
    # The sum is 128: bit 7 and no other.
    possible &= total[7]
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
            for position in range(4):
                bit = numbers >> position
                enough = bit & enough if most >> position & 1 else bit | enough
        yield enough & every


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
# Checkpoints that are tried for one place.
_TRIED: Final = 16
# Bytes of content in a mapped file that are read before their pages are released.
_RELEASED: Final = 32 << 20
# Bytes that may be inflated in vain, beside four times the content.
BUDGET: Final = 64 << 20


class _BlockEnd(msgspec.Struct, frozen=True):
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
    :param checkpoints: of the pass that has inflated it, in order.
    """

    def __init__(
        self, read: RangeReader, length: int, content: memoryview, checkpoints: Sequence[Checkpoint] = ()
    ) -> None:
        self._read = _buffered(read, length)
        self._length = length
        self._content = content
        self._checkpoints = checkpoints
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
            first = self._from_checkpoint(first[1], offset) or first
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

    def _from_checkpoint(self, after: int, offset: int) -> Block | None:
        """Return a block between two places, found from one of the last checkpoints before the second; None if none finds one."""
        index = bisect_right(self._checkpoints, offset, key=attrgetter("start"))
        for checkpoint in reversed(self._checkpoints[max(0, index - _TRIED) : index]):
            if checkpoint.start <= after:
                return None
            stop = min(self._length, checkpoint.byte + SEARCH_READ)
            for bit in likely_headers(self._read, self._length, range(checkpoint.byte, stop)):
                if self._inflate_budget <= 0:
                    return None
                self._inflate_budget -= _TRY
                data = read_up_to(copy_inflater(checkpoint.inflater), self._read, checkpoint.byte, bit)
                if data is not None:
                    self._inflate_budget -= len(data)
                    if (start := checkpoint.start + len(data)) <= offset:
                        return bit, start
                    # A later block would begin behind the place, too.
                    break
        return None

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
        # Empty blocks before it fill a byte, so that every bit of it keeps its place in one.
        number, count = PADDING[shift]
        number |= (text[0] >> shift | 1) << count
        feed = number.to_bytes(count // 8 + 1, "little") + text[1:]
        inflater = zlib_ng.decompressobj(-15, self._window(start))
        stop = start
        while not inflater.eof:
            byte += len(text)
            try:
                parts = inflate_piece(inflater, feed, _OUTPUT) if text else ()
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
                data = b"".join(inflate_piece(inflater, feed, size))
                ended = inflater.eof and not inflater.unused_data
                if ended and len(data) == size and self._is(start, data):
                    return bit, end.start
        return None

    def _window(self, start: int) -> bytes:
        """Return the content that a block which begins at `start` may refer back to."""
        return take(self._content, max(0, start - WINDOW), start)

    def _is(self, offset: int, data: bytes) -> bool:
        """Whether the content at a place is `data`."""
        self._inflate_budget -= len(data)
        same = take(self._content, offset, offset + len(data)) == data
        self._compared += len(data)
        if self._compared >= _RELEASED:
            self._compared = 0
            release_pages(self._content)
        return same


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


class Span(msgspec.Struct, frozen=True):
    """Whole blocks: the content at `start` to `stop` is at bit `first` to `last` of what `read` gives."""

    start: int
    stop: int
    first: int
    last: int
    read: RangeReader

    @property
    def length(self) -> int:
        """How many bytes :meth:`stream` yields."""
        bits = PADDING[self.first % 8][1] + self.last - self.first + STORED_BLOCK[1]
        return -(-bits // 8) + len(EMPTY_STORED)

    def stream(self) -> Iterator[bytes]:
        """Yield its blocks from one byte's beginning to another's, with empty ones around them to get there."""
        yield from copy_bits(self.read, self.first, self.last, STORED_BLOCK)
        yield EMPTY_STORED


class Piece(msgspec.Struct, frozen=True):
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
    checkpoints: Sequence[Checkpoint] = (),
) -> tuple[Span, ...]:
    """Return the blocks that lie in unchanged ranges together with the window that they refer back to.

    :param length: of the stream in bytes; `content`: of all of it.
    :param unchanged: ranges of the content, sorted and disjoint; those below :data:`LEAST` are left out.
    :param checkpoints: of the pass that has inflated it; without them the blocks are walked through one by one.
    """
    blocks = Blocks(read, length, content, checkpoints)
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
    :param write: takes what is to be written: bytes, and spans, whose streams are to be written.
    """

    def __init__(
        self,
        deflater: Callable[[], Deflater],
        spans: Sequence[Span],
        write: Callable[[BytesLike | Span], object],
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
        self._write(span)
        self._length += span.length

    def _end_piece(self, span: Span | None = None) -> None:
        """Record the piece that has been written, and begin with another."""
        self._pieces.append(Piece(self._length, self._size, self._crc, span))
        self._length = self._size = self._crc = 0

    def _put(self, data: BytesLike) -> None:
        """Write compressed bytes, and count them for the piece that is being made."""
        self._write(data)
        self._length += len(data)
