"""Inflating blocks out of the middle of a deflate stream (RFC 1951)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias, cast

from isal import isal_zlib

from relink.wheel.deflate.bits import Reader, taken

__all__ = ["WINDOW", "Block", "InflateError", "crc_before", "inflate_rest", "inflated"]

Block: TypeAlias = tuple[int, int]
"""(bit, content): where a block begins in the stream, and how many bytes of content come before it."""

WINDOW: Final = 32 << 10
"""Bytes of content that a block may refer back to (RFC 1951, 2)."""

_FEED: Final = 256 << 10
_OUTPUT: Final = 4 << 20  # of so much compressed data, mostly

# The stub of isal calls it an instance.
InflateError = cast("type[Exception]", isal_zlib.error)


def inflated(inflater: isal_zlib.Decompress, feed: bytes, size: int) -> tuple[bytes, bytes]:
    """Return the content of more data, about `size` bytes, in two parts.

    ``decompress`` begins with little room, and waits for the interpreter each time that it takes more; ``flush`` is told.

    :raises isal.isal_zlib.error: the data is damaged.
    """
    return inflater.decompress(feed, 1), b"" if inflater.eof else inflater.flush(max(1, size))


def inflate_rest(read: Reader, bit: int, length: int, window: bytes) -> Iterator[bytes]:
    """Inflate a stream from a block on, as any inflater does.

    :param length: of the stream in bytes.
    :param window: content before the block.
    :raises isal.isal_zlib.error: it cannot be inflated, or does not end where the stream does.
    """
    inflater = isal_zlib.decompressobj(-15, window)
    for piece in taken(read, bit, 8 * length, (0, 0)):
        for at in range(0, len(piece), _FEED):
            yield from inflated(inflater, piece[at : at + _FEED], _OUTPUT)
    if not inflater.eof or inflater.unused_data:
        raise InflateError("the blocks do not end there")


def crc_before(crc: int, last: int, length: int) -> int:
    """Return the CRC-32 of content without its end.

    What follows multiplies a CRC by x, modulo the polynomial, for each bit. That comes round after 2^32 - 1 bits, or bytes.

    :param crc: of all the content; `last`: of its last `length` bytes.
    """
    return isal_zlib.crc32_combine(crc ^ last, 0, (1 << 32) - 1 - length)
