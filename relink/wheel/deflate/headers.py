"""The headers of dynamic and stored blocks (RFC 1951, 3.2.4 and 3.2.7), searched in a deflate stream: where blocks may begin.

Takes a reader of the compressed bytes. Gives bits at which a block may begin; who uses one of these confirms it
(:mod:`relink.wheel.deflate.blocks`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zlib_ng import zlib_ng

from relink.wheel.byte_types import RangeReader
from relink.wheel.deflate.bits import copy_bits
from relink.wheel.deflate.inflate import WINDOW, InflateError

# Compressed bytes that are searched at a time.
SEARCH_READ: Final = 64 << 10
# Bytes of content that one call of the inflater may give.
_OUTPUT: Final = 1 << 20
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
