"""Where blocks of a deflate stream (RFC 1951) could begin: at a bit that reads like the header of one that is not the last.

Every bit has to be asked. Those whose first numbers are possible, one in nine, are found in whole texts at once; of these the
code of the code lengths is added up by tables.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Final

__all__ = ["HEADER", "LENGTH_ORDER", "possible_headers"]

HEADER: Final = 1 << 10
"""More bytes than the longest header of a block."""

LENGTH_ORDER: Final = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
"""The order of the lengths of the code that code lengths are written in (RFC 1951, 3.2.7)."""

_RUNS: Final = {16: (2, 3), 17: (3, 3), 18: (7, 11)}
"""Code lengths that repeat (RFC 1951, 3.2.7): bits that follow, and the least number of times."""

_REVERSED: Final = tuple(int(f"{value:07b}"[::-1], 2) for value in range(128))

# Of the lowest bits of a byte (RFC 1951, 3.2.3 and 3.2.7):
_BEGINS: Final = bytes(byte & 7 == 0b100 and byte >> 3 <= 29 for byte in range(256))  # 0, 01, HLIT
_DISTANCES: Final = bytes(byte & 31 <= 29 for byte in range(256))  # HDIST

_SHARE: Final = tuple(
    (128 >> length) % 128 for length in range(8)
)  # what a length of three bits takes of a code's 128
_SHARES: Final = tuple(a + b for b in _SHARE for a in _SHARE)
_FOUR: Final = tuple(a + b for b in _SHARES for a in _SHARES)
_FIVE: Final = tuple(a + b for b in _SHARE for a in _FOUR)
_THERE: Final = tuple(2 * ((1 << 3 * (number + 4)) - 1) for number in range(16))
"""By HCLEN: the bits of the lengths that are there, in a word that begins with HCLEN's last bit."""

_WORD: Final = struct.Struct("<Q")


def possible_headers(text: bytes, length: int) -> Iterator[int]:
    """Yield the bits of the first `length` bytes of `text` where a header could begin, in order.

    :param text: with :data:`HEADER` more bytes, unless the data ends before.
    """
    padded = text + bytes(HEADER)
    found = {bit for bit in _dynamic(padded, length) if _has_codes(padded, bit)}
    yield from sorted(found.union(_stored(padded, length)))


def _dynamic(text: bytes, length: int) -> Iterator[int]:
    """Yield the bits where a header's numbers are possible, and the code of its code lengths is complete (RFC 1951, 3.2.7)."""
    number = int.from_bytes(text[: length + 16], "little")
    five, there, word_at = _FIVE, _THERE, _WORD.unpack_from
    for shift in range(8):
        shifted = (number >> shift).to_bytes(length + 16, "little")
        begins = int.from_bytes(shifted[:length].translate(_BEGINS), "little")
        distances = int.from_bytes(shifted[1 : length + 1].translate(_DISTANCES), "little")
        for at in compress(range(length), (begins & distances).to_bytes(length, "little")):
            (word,) = word_at(shifted, at + 2)
            word &= there[shifted[at + 1] >> 5 | (word & 1) << 3]
            taken = five[word >> 1 & 0x7FFF] + five[word >> 16 & 0x7FFF]
            if taken <= 128 and taken + five[word >> 31 & 0x7FFF] + five[word >> 46] == 128:
                yield 8 * at + shift


def _stored(text: bytes, length: int) -> Iterator[int]:
    """Yield the bits where a stored block could begin: three bits and the filling up to a byte's end, all of them zeros.

    Behind that stand two bytes and their complement (RFC 1951, 3.2.4).
    """
    number = int.from_bytes(text[: length + 6], "little")
    differences = (number ^ number >> 16).to_bytes(length + 6, "little")
    at = differences.find(b"\xff\xff", 1)
    while 0 < at < length + 2:
        if at - 1 < length:
            yield from (8 * (at - 1) + shift for shift in range(6) if not text[at - 1] >> shift)
        if at > 1 and not text[at - 1]:
            yield from (8 * (at - 2) + shift for shift in (6, 7) if not text[at - 2] >> shift)
        at = differences.find(b"\xff\xff", at + 1)


def _has_codes(text: bytes, bit: int) -> bool:
    """Whether the header at `bit` has complete codes, as every compressor writes them, and one for a block's end."""
    word = int.from_bytes(text[bit // 8 : bit // 8 + HEADER], "little") >> bit % 8
    literals, distances, count = (word >> 3 & 31) + 257, (word >> 8 & 31) + 1, (word >> 13 & 15) + 4
    word >>= 17
    sizes = [0] * 19
    for symbol in LENGTH_ORDER[:count]:
        sizes[symbol] = word & 7
        word >>= 3
    codes = _by_bits(sizes)
    lengths: list[int] = []
    taken = 0  # of the literals' code
    while len(lengths) < literals + distances:
        code, size = codes[word & 127]
        word >>= size
        if code < 16:
            lengths.append(code)
            repeated = 1
        elif code == 16 and not lengths:
            return False
        else:
            width, least = _RUNS[code]
            repeated = (word & (1 << width) - 1) + least
            lengths += [lengths[-1] if code == 16 else 0] * repeated
            word >>= width
        if lengths[-1] and len(lengths) <= literals:
            taken += repeated << 15 - lengths[-1]
            if taken > 1 << 15:  # what is no header mostly ends here
                return False
    if len(lengths) > literals + distances or not lengths[256]:
        return False
    used = [length for length in lengths[literals:] if length]
    return _complete(lengths[:literals]) and (len(used) < 2 or _complete(used))


def _complete(lengths: Iterable[int]) -> bool:
    return sum(1 << 15 - length for length in lengths if length) == 1 << 15


def _by_bits(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return (symbol, size) by the next seven bits, for a complete code of symbols of these sizes (RFC 1951, 3.2.2)."""
    found = [(0, 0)] * 128
    code = 0
    for size in range(1, 8):
        code <<= 1
        for symbol, its_size in enumerate(sizes):
            if its_size == size:
                found[_REVERSED[code << 7 - size] :: 1 << size] = [(symbol, size)] * (1 << 7 - size)
                code += 1
    return found
