"""Bits from the middle of a deflate stream (RFC 1951), copied into a stream of whole bytes that an inflater accepts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from relink.wheel.zipformat import RangeReader

Bits: TypeAlias = tuple[int, int]
"""A number whose lowest bit comes first, and how many bits there are."""

_LENGTH_ORDER: Final = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
"""The order of the lengths of the code that code lengths are written in (RFC 1951, 3.2.7)."""

LAST_BLOCK: Final[Bits] = 0b011, 10
"""An empty block of fixed codes that is the last: 1, 01, and seven zeros for its end."""

LAST_BLOCK_BYTES: Final = LAST_BLOCK[0].to_bytes(2, "little")
"""The same, for blocks that end at a byte's end."""

STORED_BLOCK: Final[Bits] = 0, 3
"""A stored block's three bits, behind which it begins at a byte."""

EMPTY_STORED: Final = b"\0\0\xff\xff"
"""What follows these in one without content: its length in bytes, and the complement of that (RFC 1951, 3.2.4)."""

# An empty block of fixed codes that is not the last: 0, 01, and seven zeros.
_EMPTY: Final[Bits] = 0b010, 10
_PIECE: Final = 1 << 19


def joined_bits(fields: Iterable[Bits]) -> Bits:
    """Return fields one behind the other."""
    number = count = 0
    for value, width in fields:
        number |= value << count
        count += width
    return number, count


def copy_bits(read: RangeReader, first: int, last: int, end: Bits) -> Iterator[bytes]:
    """Yield the bits of a stream from `first` to `last`, then those of `end`, then zeros up to a byte's end.

    Every bit keeps its place in a byte, since a stored block's content begins at a byte's beginning. So :data:`PADDING` comes
    before the first one, which has no content.
    """
    number, count = PADDING[first % 8]
    at, stop, left = first // 8, last // 8, last % 8
    if at < stop:
        if count % 8:
            number |= read(at, 1)[0] >> count % 8 << count
            at, count = at + 1, count + 8 - count % 8
        yield number.to_bytes(count // 8, "little")
        number = count = 0
    while at < stop:
        piece = read(at, min(_PIECE, stop - at))
        at += len(piece)
        yield piece
    # Else there is nothing between first and last.
    if left > count % 8:
        number |= (read(stop, 1)[0] & (1 << left) - 1) >> count % 8 << count
        count += left - count % 8
    number, count = number | end[0] << count, count + end[1]
    yield number.to_bytes(-(-count // 8), "little")


def _padding(position: int) -> Bits:
    """Return empty blocks whose bits end at a place in a byte.

    Blocks of ten bits reach the even places only, so an odd place needs a block with an odd number of bits before them.
    """
    number, count = _odd_block() if position % 2 else (0, 0)
    while count % 8 != position:
        number, count = number | _EMPTY[0] << count, count + _EMPTY[1]
    return number, count


def _odd_block() -> Bits:
    """Return an empty dynamic block (RFC 1951, 3.2.7) of 95 bits.

    Its codes have two symbols of one bit each: byte 0 and the block's end, and two distances that nothing uses.
    """
    fields = [(0b100, 3), (0, 5), (1, 5), (15, 4)]
    fields += [(1 if symbol in (1, 18) else 0, 3) for symbol in _LENGTH_ORDER]
    # The codes of length 1, and of a run of zeros.
    unit, zeros = (0, 1), (1, 1)
    fields += [
        unit,
        zeros,
        (138 - 11, 7),
        zeros,
        (117 - 11, 7),
        unit,
        unit,
        unit,
        (1, 1),
    ]
    return joined_bits(fields)


PADDING: Final = tuple(_padding(place) for place in range(8))
"""Empty blocks that end at each place in a byte."""
