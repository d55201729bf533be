"""Deflate streams for tests: any valid layout of blocks, chosen by a seed, and stored bytes that look like blocks themselves."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from tests.support.deflate_encoder import (
    DEFECTS,
    END,
    LENGTH_ORDER,
    LENGTHS,
    STORED_MOST,
    BitWriter,
    Encoder,
    codes_of,
    distance_symbol,
)

__all__ = ["BLOCK_DEFECTS", "Disguise", "crafted", "damaged", "decoy", "disguise_of", "encode"]


def encode(seed: int, blocks: int = 12) -> tuple[bytes, bytes]:
    """Return a stream of about so many blocks, and its content: the same for the same seed."""
    encoder = Encoder(seed)
    rng = encoder.rng
    count = rng.randint(1, 2 * blocks)
    for number in range(count):
        last = number == count - 1
        padding = rng.choice((0, 255, rng.randrange(256)))
        match rng.randrange(12):
            case 0:
                size = rng.choice((0, 1, 65534, 65535, rng.randrange(65536)))
                encoder.stored(rng.randbytes(size), last=last, padding=padding)
            case 1:
                encoder.stored(bytes(rng.randrange(40)), last=last, padding=padding)
            case 2:
                encoder.fixed((), last=last)
            case 3:
                encoder.dynamic((), last=last)
            case 4:
                encoder.flush()
                if last:
                    encoder.fixed((), last=True)
            case 5:
                crafted(encoder, rng.randrange(200, 30000))
                if last:
                    encoder.dynamic((), last=True)
            case 6:
                encoder.stored(decoy(rng), last=last, padding=padding)
            case 7 | 8:
                encoder.fixed(encoder.tokens(rng.choice((1, 10, 100, 300))), last=last)
            case _:
                encoder.dynamic(encoder.tokens(rng.choice((1, 10, 100, 300))), last=last)
    return encoder.result()


BLOCK_DEFECTS: Final = (
    "reserved block",
    "other complement",
    "distance before the beginning",
    "literal 286",
    "literal 287",
    "distance 30",
    "distance 31",
    "cut",
    "cut in a stored block's header",
    "more behind the end",
    "another bit",
)
"""What :func:`damaged` can make wrong beside :data:`tests.support.deflate_encoder.DEFECTS`."""


def damaged(seed: int, defect: str) -> tuple[bytes, bytes]:
    """Return a stream with one defect, in any block, and what an inflater that does not see it may read there.

    :param defect: of :data:`BLOCK_DEFECTS` or :data:`tests.support.deflate_encoder.DEFECTS`.
    """
    encoder = Encoder(seed)
    rng = encoder.rng
    for _ in range(rng.randrange(3)):
        _valid(encoder)
    place, more = encoder.bits.bit, rng.randrange(3)
    if defect in DEFECTS:
        tokens = encoder.tokens(rng.choice((0, 1, 10, 100)))
        encoder.dynamic(tokens, last=not more, defect=defect)
    else:
        _wrong_block(encoder, defect, last=not more)
    for number in range(more):
        _valid(encoder, last=number == more - 1)
    stream, content = encoder.result()
    match defect:
        case "cut":
            stream = stream[: rng.randrange(len(stream))]
        case "cut in a stored block's header":
            stream = stream[: (place + 3 + 7) // 8 + rng.randrange(4)]
        case "more behind the end":
            stream += rng.choice((b"\0", bytes(8), rng.randbytes(3), b"\x03\0"))
        case "another bit":
            bit = rng.randrange(8 * len(stream))
            number = int.from_bytes(stream, "little") ^ 1 << bit
            stream = number.to_bytes(len(stream), "little")
    return stream, content


def _valid(encoder: Encoder, *, last: bool = False) -> None:
    """Write a small block of any kind."""
    rng = encoder.rng
    match rng.randrange(3):
        case 0:
            encoder.stored(rng.randbytes(rng.choice((0, 1, 300))), last=last, padding=rng.randrange(256))
        case 1:
            encoder.fixed(encoder.tokens(rng.choice((0, 5, 50))), last=last)
        case _:
            encoder.dynamic(encoder.tokens(rng.choice((0, 5, 50))), last=last)


def _wrong_block(encoder: Encoder, defect: str, *, last: bool) -> None:
    """Write a block with a defect that is none of a dynamic block's header, or a valid one where the stream is changed later."""
    rng, bits = encoder.rng, encoder.bits
    match defect:
        case "reserved block":
            bits.put(last | 3 << 1, 3)
        case "other complement":
            bits.put(int(last), 3)
            bits.align()
            bits.put(5 | (5 ^ 0xFFFF ^ 1 << rng.randrange(16)) << 16, 32)
            bits.append(b"12345")
        case "cut in a stored block's header":
            encoder.stored(b"12345", last=last)
        case "distance before the beginning":
            size = min(len(encoder.content), 24576)
            _fixed_pair(encoder, size + 1, last=last)
        case "literal 286" | "literal 287":
            bits.put(last | 1 << 1, 3)
            bits.put(int(f"{0b11000000 + int(defect[-3:]) - 280:08b}"[::-1], 2), 8)
            bits.put(0, 5)
            bits.put(0, 7)
        case "distance 30" | "distance 31":
            encoder.stored(b"1234")
            bits.put(last | 1 << 1, 3)
            bits.put(int(f"{1:07b}"[::-1], 2), 7)  # length 3
            bits.put(int(f"{int(defect[-2:]):05b}"[::-1], 2), 5)
            bits.put(0, 7)
        case _:
            _valid(encoder, last=last)


def _fixed_pair(encoder: Encoder, distance: int, *, last: bool) -> None:
    """Write a fixed block of three bytes that refers back further than there is content."""
    bits = encoder.bits
    bits.put(last | 1 << 1, 3)
    bits.put(int(f"{1:07b}"[::-1], 2), 7)
    symbol, extra, width = distance_symbol(distance)
    bits.put(int(f"{symbol:05b}"[::-1], 2), 5)
    bits.put(extra, width)
    bits.put(0, 7)
    encoder.content += bytes(3)


def decoy(rng: random.Random) -> bytes:
    """Return bytes that are a stream, or a part of one, themselves."""
    inner = Encoder(rng.randrange(1 << 30))
    for _ in range(rng.randint(1, 4)):
        inner.dynamic(inner.tokens(rng.choice((5, 50))))
        inner.fixed(inner.tokens(5))
    stream = inner.result()[0]
    return stream[rng.choice((0, 0, rng.randrange(len(stream)))) :][:STORED_MOST]


# A stored block that can be read as other blocks, one bit behind its own beginning: its padding, LEN and NLEN are the header of a
# dynamic block as well, and that block's content, copied from what was stored before, is those bytes themselves. What an inner
# stored block then says is content is so, too. Only somebody who knows where the outer block began can tell.

_BEFORE: Final = (
    793  # bytes stored before, then seven of nine bits each, which lead from a byte's first bit to the second
)
_ODD: Final = bytes((200, 210, 220, 230, 240, 250, 255))
_DISTANCE: Final = _BEFORE + len(_ODD)


@dataclass(frozen=True)
class Disguise:
    """A stored block's length and padding, and the beginning of its content, which those need."""

    length: int
    padding: int
    body: bytes

    @property
    def content(self) -> bytes:
        """The content from what is stored before up to the end of the body."""
        return self.body.ljust(_BEFORE, b"?") + _ODD + self.body


def crafted(encoder: Encoder, size: int, rest: bytes | None = None) -> Disguise:
    """Write such a block with about `size` bytes, and before it two blocks that it needs.

    :param rest: what follows on the body in it; random without.
    """
    disguise = disguise_of(size)
    encoder.stored(disguise.body.ljust(_BEFORE, b"?"))
    encoder.fixed(_ODD)
    left = disguise.length - len(disguise.body)
    data = encoder.rng.randbytes(left) if rest is None else rest[:left]
    assert len(data) == left, (len(data), left)
    encoder.stored(disguise.body + data, padding=disguise.padding)
    return disguise


@cache
def disguise_of(size: int) -> Disguise:
    """Return the smallest disguise of at least `size` bytes.

    Every length is tried: its bits are the numbers of codes and the first code lengths, its complement's those that follow.
    """
    for length in range(size, 1 << 16):
        distances, count = length >> 2 & 31, (length >> 7 & 15) + 4
        if not (19 <= distances <= 29 and count >= 18):
            continue
        outer = length | (length ^ 0xFFFF) << 16
        first = [outer >> place & 7 for place in range(11, 32, 3)]
        room = 128 - sum(128 >> width for width in first if width)
        if not (room > 0 and first[2] and first[3]):
            continue
        for more in range(8):  # the padding's other three bits
            literals = more | (outer & 3) << 3
            if literals <= 29 and (body := _body(length, literals, distances, count, first, room)):
                return Disguise(length, 1 | more << 1, body)
    raise ValueError(f"no disguise has {size} bytes")


def _body(
    length: int, literals: int, distances: int, count: int, first: Sequence[int], room: int
) -> bytes | None:
    """Return what the dynamic block goes on with, and the inner stored block's header behind it."""
    lengths = dict(zip(LENGTH_ORDER, first, strict=False))
    spare = [symbol for symbol in LENGTH_ORDER[7:count] if symbol != 1]
    for width in range(1, 8):
        if room & 128 >> width:
            lengths[1 if 1 not in lengths else spare.pop()] = width
    codes = codes_of(tuple(lengths.get(symbol, 0) for symbol in range(19)))
    for symbol in range(257, 257 + literals):
        least, width = LENGTHS[symbol - 257]
        row = [0] * (257 + literals + distances + 1)
        row[END] = row[symbol] = row[257 + literals + 19] = 1  # distances from 769 to 1024
        for copies in range(1, 6):
            bits = BitWriter()
            for name in LENGTH_ORDER[7:count]:
                bits.put(lengths.get(name, 0), 3)
            for name, extra, extra_width in _zero_runs(row):
                bits.put(codes[name], lengths[name])
                bits.put(extra, extra_width)
            size = -(-(bits.bit + copies * (1 + width + 1 + 8) + 1 + 3) // 8) + 4
            sizes = [size // copies + (place < size % copies) for place in range(copies)]
            if not all(least <= one < least + (1 << width) and one <= 257 for one in sizes):
                continue
            for one in sizes:
                bits.put(1, 1)
                bits.put(one - least, width)
                bits.put((_DISTANCE - 769) << 1, 9)
            bits.put(0, 1)  # the end
            bits.put(0, 3)
            bits.align()
            inner = length - size
            bits.put(inner | (inner ^ 0xFFFF) << 16, 32)
            bits.align()
            assert len(bits.done) == size
            return bytes(bits.done)
    return None


def _zero_runs(row: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    place = 0
    while place < len(row):
        run = next((more for more in range(len(row) - place) if row[place + more]), len(row) - place)
        if run >= 11:
            run = min(run, 138)
            yield 18, run - 11, 7
        else:
            run = 1
            yield row[place], 0, 0
        place += run
