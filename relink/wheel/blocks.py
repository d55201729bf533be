"""Inflating a deflate stream (RFC 1951) block by block, to know where each begins.

No inflater tells that. But it stops behind a block that says it is the last, and every block begins with the bit that says so:
each is inflated alone, with that bit set and the content before it as window. Where it stops is known to a byte. At which bit the
next block begins, its header mostly tells, and if not, what the block inflates to when it is ended there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from isal import isal_zlib

from relink.wheel.bits import FILLING, LAST, Reader, taken
from relink.wheel.stream import InflateError

__all__ = ["WINDOW", "Block", "crc_of", "inflate_blocks", "window_of"]

Block: TypeAlias = tuple[int, int]
"""(bit, content): where a block begins in the stream, and how many bytes of content come before it."""

WINDOW: Final = 32 << 10
"""Bytes of content that a block may refer back to (RFC 1951, 2)."""

_AHEAD: Final = 1 << 20
_FEED: Final = 64 << 10
_OUTPUT: Final = 1 << 20  # of so much compressed data, mostly
_LARGEST: Final = 32 << 20  # bytes of a block's content; isal ends them at 16 MiB, others far earlier
_HEADER: Final = 11  # bytes: one to eight bits, and the first 74 of a dynamic block
_FEW: Final = (
    256  # blocks that may have any size; each costs as much as inflating what others must have on average:
)
_CONTENT: Final = 16 << 10  # bytes
_PATIENCE: Final = 64 << 20
_TRY: Final = 32 << 10  # bytes that could be inflated while one bit is tried
_SHARE: Final = tuple((128 >> length) % 128 for length in range(8))
"""What a length of three bits takes of a code's 128 (RFC 1951, 3.2.2)."""


@dataclass(frozen=True, slots=True)
class _Inflated:
    """A block that was inflated.

    :ivar start: of its content; `stop`: its end.
    :ivar byte: the one in the stream that its last bit is in; `aligned`: that is the last one there.
    """

    bit: int
    start: int
    stop: int
    byte: int
    aligned: bool
    last: bool


def inflate_blocks(
    read: Reader, length: int, into: memoryview, told: Callable[[int], object] = lambda _: None
) -> tuple[list[Block], int] | None:
    """Inflate a stream; return where its blocks begin, and the CRC-32 of the content.

    None where that cannot be done: the stream is damaged, does not end where it should, has another size, or consists of blocks
    so small or so odd that it would take long. Which of these it is shows when it is inflated as one.

    :param length: of the stream in bytes.
    :param into: as long as the content must be.
    :param told: how many bytes more have been inflated, each time.
    """
    blocks: list[Block] = []
    bit: int | None = 0
    start = summed = crc = 0
    before: _Inflated | None = None  # the last block, if where it ends is a guess
    patience = len(into) + _PATIENCE
    read = _buffered(read, length)
    while bit is not None:
        block = _inflate_block(read, length, (bit, start), into, told)
        if block is None:
            bit, before = _end(read, before, into) if before else None, None
            continue
        blocks.append((bit, start))
        if block.last or block.stop - summed >= _OUTPUT:
            crc = isal_zlib.crc32(into[summed : block.stop], crc)
            summed = block.stop
        if block.last:
            return blocks, crc
        if len(blocks) > _FEW + block.stop // _CONTENT:
            return None
        bit, before = 8 * block.byte + 8, None
        if not block.aligned:
            bit, before = _guess(read, block.byte), block
        if bit is None:
            patience -= 8 * (block.stop - start + _TRY)
            if patience < 0:
                return None
            bit, before = _end(read, block, into), None
        start = block.stop
    return None


def window_of(content: memoryview, start: int) -> bytes:
    """Return the content that a block which begins at `start` may refer back to."""
    return bytes(content[max(0, start - WINDOW) : start])


def crc_of(read: Reader, first: int, last: int, window: bytes, size: int) -> int | None:
    """Return the CRC-32 of what the blocks from bit `first` to `last` inflate to.

    None if that has not `size` bytes, or no block ends at `last`.

    :param window: content before them.
    """
    inflater = isal_zlib.decompressobj(-15, window)
    try:
        parts = _inflated(inflater, b"".join(taken(read, first, last, LAST)), size)
    except InflateError:
        return None
    if not inflater.eof or inflater.unused_data or sum(map(len, parts)) != size:
        return None
    return isal_zlib.crc32(parts[1], isal_zlib.crc32(parts[0]))


def _inflated(inflater: isal_zlib.Decompress, feed: bytes, size: int) -> tuple[bytes, bytes]:
    """Return the content of more data, about `size` bytes, in two parts.

    ``decompress`` begins with little room, and waits for the interpreter each time that it takes more; ``flush`` is told.

    :raises isal.isal_zlib.error: the data is damaged.
    """
    return inflater.decompress(feed, 1), b"" if inflater.eof else inflater.flush(max(1, size))


def _buffered(read: Reader, length: int) -> Reader:
    """Read far more than is asked for, since what comes next is asked for soon; nothing behind the end."""
    start = 0
    text = b""

    def get(at: int, size: int) -> bytes:
        nonlocal start, text
        size = min(size, length - at)
        if not start <= at <= at + size <= start + len(text):
            start, text = at, read(at, min(max(size, _AHEAD), length - at))
        return text[at - start : at - start + size]

    return get


def _inflate_block(
    read: Reader, length: int, begin: Block, into: memoryview, told: Callable[[int], object]
) -> _Inflated | None:
    """Inflate one block to its place; None if that fails, or it is the last and does not end where all does."""
    bit, start = begin
    at, place = divmod(bit, 8)
    text = read(at, _FEED)
    if not text:
        return None
    header = int.from_bytes(text[:2], "little") >> place
    number, count = FILLING[place]
    number |= (text[0] >> place | 1) << count
    feed = number.to_bytes(count // 8 + 1, "little") + text[1:]
    inflater = isal_zlib.decompressobj(-15, window_of(into, start))
    stop = start
    while not inflater.eof:
        if not text:
            return None
        at += len(text)
        try:
            parts = _inflated(inflater, feed, _OUTPUT)
        except InflateError:
            return None
        for data in parts:
            if len(data) > min(len(into), start + _LARGEST) - stop:
                return None
            into[stop : stop + len(data)] = data
            stop += len(data)
            told(len(data))
        if not inflater.eof:
            feed = text = read(at, _FEED)
    end = at - len(inflater.unused_data)
    last = bool(header & 1)
    if last and (end, stop) != (length, len(into)):
        return None
    return _Inflated(bit, start, stop, end - 1, header & 0b110 == 0, last)


def _guess(read: Reader, byte: int) -> int | None:
    """Return the one bit behind the first of `byte`, or at its end, where the header of a dynamic block could begin.

    That is, its numbers are possible, and the code of its code lengths is complete (RFC 1951, 3.2.3 and 3.2.7). None if there is
    not just one.
    """
    number = int.from_bytes(read(byte, _HEADER), "little")
    found = None
    for bit in range(8 * byte + 1, 8 * byte + 9):
        number >>= 1
        if number & 0b110 == 0b100 and number >> 3 & 31 <= 29 and number >> 8 & 31 <= 29:
            sizes = range(17, 17 + 3 * ((number >> 13 & 15) + 4), 3)
            if sum(_SHARE[number >> size & 7] for size in sizes) == 128:
                if found is not None:
                    return None
                found = bit
    return found


def _end(read: Reader, block: _Inflated, into: memoryview) -> int | None:
    """Return the bit at which the block, ended there, inflates to what it did."""
    content, window = into[block.start : block.stop], window_of(into, block.start)
    crc = isal_zlib.crc32(content)
    for bit in range(8 * block.byte + 1, 8 * block.byte + 9):
        if crc_of(read, block.bit, bit, window, len(content)) == crc:
            return bit
    return None
