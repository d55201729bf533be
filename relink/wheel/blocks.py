"""Inflating a deflate stream (RFC 1951) block by block, to know where each begins.

No inflater tells that. But it stops behind a block that says it is the last, and every block begins with the bit that says so:
each is inflated alone, with that bit set and the content before it as window. Where it stops is known to a byte. At which bit the
next block begins, its header mostly tells, and if not, what the block inflates to when it is ended there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from isal import isal_zlib

from relink.wheel.bits import FILLING, LAST, Reader, taken

__all__ = ["WINDOW", "Block", "Compressed", "inflate_blocks", "inflated"]

Buffer: TypeAlias = bytes | bytearray | memoryview
Block: TypeAlias = tuple[int, int]
"""(bit, content): where a block begins in the stream, and how many bytes of content come before it."""

WINDOW: Final = 32 << 10
"""Bytes of content that a block may refer back to (RFC 1951, 2)."""

_FEED: Final = 32 << 10
_OUTPUT: Final = 2 << 20  # large, since an inflater waits for the interpreter between any two of them
_HEADER: Final = 11  # bytes: one to eight bits, and the first 74 of a dynamic block
_FEW: Final = 256  # blocks that may have any size
_CONTENT: Final = (
    16 << 10
)  # bytes that the others have on average, since each costs as much as inflating these
_PATIENCE: Final = 64 << 20
_TRY: Final = 32 << 10  # bytes that could be inflated while one bit is tried
_SHARE: Final = tuple((128 >> length) % 128 for length in range(8))
"""What a length of three bits takes of a code's 128 (RFC 1951, 3.2.2)."""

_InflateError = cast("type[Exception]", isal_zlib.error)


@dataclass(frozen=True, slots=True)
class Compressed:
    """A member's deflated data: how to read it, and its blocks in order."""

    read: Reader
    blocks: Sequence[Block]


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
    start = crc = 0
    before: _Inflated | None = None  # the last block, if where it ends is a guess
    patience = len(into) + _PATIENCE
    while bit is not None:
        block = _inflate_block(read, length, (bit, start), into, told)
        if block is None:
            bit, before = _end(read, before, into) if before else None, None
            continue
        blocks.append((bit, start))
        crc = isal_zlib.crc32(into[start : block.stop], crc)
        if block.last:
            return blocks, crc
        if len(blocks) > _FEW + block.stop // _CONTENT:
            return None
        bit, before = 8 * block.byte + 8, None
        if not block.aligned:
            bit, before = _guess(read, length, block.byte), block
        if bit is None:
            patience -= 8 * (block.stop - start + _TRY)
            if patience < 0:
                return None
            bit, before = _end(read, block, into), None
        start = block.stop
    return None


def inflated(stream: Iterator[bytes], window: Buffer, most: int) -> tuple[int, int] | None:
    """Return (bytes of content, their CRC-32); None if the stream does not end in order, or has more than `most` bytes.

    :param window: content before the stream.
    """
    inflater = isal_zlib.decompressobj(-15, bytes(window))
    length = crc = 0
    try:
        for data in _output(inflater, stream, most):
            length += len(data)
            crc = isal_zlib.crc32(data, crc)
    except _InflateError:
        return None
    return None if inflater.unused_data or next(stream, b"") else (length, crc)


def _inflate_block(
    read: Reader, length: int, begin: Block, into: memoryview, told: Callable[[int], object]
) -> _Inflated | None:
    """Inflate one block to its place; None if that fails, or it is the last and does not end where all does."""
    bit, start = begin
    at, place = divmod(bit, 8)
    if at >= length:
        return None
    text = read(at, min(_FEED, length - at))
    at += len(text)
    header = int.from_bytes(text[:2], "little") >> place
    number, count = FILLING[place]
    number |= (text[0] >> place | 1) << count

    def stream() -> Iterator[bytes]:
        nonlocal at
        yield number.to_bytes(count // 8 + 1, "little") + text[1:]
        while more := read(at, min(_FEED, length - at)):
            at += len(more)
            yield more

    inflater = isal_zlib.decompressobj(-15, bytes(into[max(0, start - WINDOW) : start]))
    stop = start
    try:
        for data in _output(inflater, stream(), len(into) - start):
            into[stop : stop + len(data)] = data
            stop += len(data)
            told(len(data))
    except _InflateError:
        return None
    end = at - len(inflater.unused_data)
    last = bool(header & 1)
    if last and (end, stop) != (length, len(into)):
        return None
    return _Inflated(bit, start, stop, end - 1, header & 0b110 == 0, last)


def _output(inflater: isal_zlib.Decompress, stream: Iterator[bytes], most: int) -> Iterator[bytes]:
    """Yield the content of a stream up to its end.

    :raises isal.isal_zlib.error: it is damaged, ends early, or has more than `most` bytes.
    """
    left = most
    feed = next(stream, b"")
    while not inflater.eof:
        data = inflater.decompress(feed, min(_OUTPUT, left + 1))
        left -= len(data)
        if left < 0:
            raise _InflateError("more content than there can be")
        yield data
        feed = inflater.unconsumed_tail
        if not feed and not inflater.eof:
            feed = next(stream, b"")
            if not feed and not data:
                raise _InflateError("the data ends early")


def _guess(read: Reader, length: int, byte: int) -> int | None:
    """Return the one bit behind the first of `byte`, or at its end, where the header of a dynamic block could begin.

    That is, its numbers are possible, and the code of its code lengths is complete (RFC 1951, 3.2.3 and 3.2.7). None if there is
    not just one.
    """
    number = int.from_bytes(read(byte, min(_HEADER, length - byte)), "little")
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
    content, window = into[block.start : block.stop], into[max(0, block.start - WINDOW) : block.start]
    right = len(content), isal_zlib.crc32(content)
    for bit in range(8 * block.byte + 1, 8 * block.byte + 9):
        if inflated(taken(read, block.bit, bit, LAST), window, len(content)) == right:
            return bit
    return None
