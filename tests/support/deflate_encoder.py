"""A small deflate encoder (RFC 1951), which writes the blocks that it is asked for. It shares no code with relink.

Real compressors use little of what the format allows. This one writes stored blocks with bits set in their padding, blocks
without content, code lengths of up to 15 bits, codes with a single distance, and distances of 32,768 across blocks. All of it
is valid for zlib, which is stricter than other inflaters (inflate_table in its inftrees.c), unless a block is given a defect.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

__all__ = [
    "DEFECTS",
    "END",
    "LENGTHS",
    "LENGTH_ORDER",
    "STORED_MOST",
    "BitWriter",
    "Encoder",
    "Token",
    "codes_of",
    "distance_symbol",
]

Token: TypeAlias = int | tuple[int, int]
"""A literal byte, or (length, distance)."""

WINDOW: Final = 32768
STORED_MOST: Final = 65535
END: Final = 256  # the symbol for a block's end

# (first length, extra bits) of the symbols from 257 on, and (first distance, extra bits) of those from 0 on: 3.2.5.
LENGTHS: Final = [
    *((3 + n, 0) for n in range(8)),
    *((3 + (4 + n % 4 << n // 4 - 1), n // 4 - 1) for n in range(8, 28)),
    (258, 0),
]
_DISTANCES: Final = [
    *((1 + n, 0) for n in range(4)),
    *((1 + (2 + n % 2 << n // 2 - 1), n // 2 - 1) for n in range(4, 30)),
]
_FIXED: Final = (*[8] * 144, *[9] * 112, *[7] * 24, *[8] * 8)
_FIXED_DISTANCES: Final = (5,) * 32
DEFECTS: Final = (
    "literals incomplete",
    "literals over-subscribed",
    "distances incomplete",
    "distances over-subscribed",
    "one long distance",
    "no distance",
    "code lengths incomplete",
    "code lengths over-subscribed",
    "no end of block",
    "287 literals",
    "31 distances",
    "a repeat at the beginning",
    "a repeat beyond the end",
)
"""What :meth:`Encoder.dynamic` can make wrong with a block's header; by zlib's inflate.c and inftrees.c each is an error."""
LENGTH_ORDER: Final = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)


@dataclass
class BitWriter:
    """Bits, the lowest of each byte first."""

    number: int = 0
    count: int = 0
    done: bytearray = field(default_factory=bytearray)

    def put(self, value: int, width: int) -> None:
        self.number |= value << self.count
        self.count += width
        if self.count >= 64:
            self._spill()

    def _spill(self) -> None:
        size = self.count // 8
        self.done += (self.number & (1 << 8 * size) - 1).to_bytes(size, "little")
        self.number >>= 8 * size
        self.count -= 8 * size

    def align(self, padding: int = 0) -> None:
        """Go to the next byte's beginning; what lies before it is never read by an inflater."""
        width = -self.count % 8
        self.put(padding & (1 << width) - 1, width)
        self._spill()

    def append(self, data: bytes) -> None:
        """Put whole bytes, at a byte's beginning."""
        assert self.count % 8 == 0
        self._spill()
        self.done += data

    @property
    def bit(self) -> int:
        return 8 * len(self.done) + self.count


def _symbol(value: int, table: Sequence[tuple[int, int]]) -> tuple[int, int, int]:
    """Return the last symbol of a table that covers a value, with its extra bits and how many there are."""
    place = bisect.bisect_right(table, (value, 99)) - 1
    return place, value - table[place][0], table[place][1]


def distance_symbol(distance: int) -> tuple[int, int, int]:
    """Return the symbol of a distance, its extra bits and how many there are."""
    return _symbol(distance, _DISTANCES)


_LENGTH_SYMBOL: Final = {length: _symbol(length, LENGTHS) for length in range(3, 259)}


@lru_cache(8)
def codes_of(lengths: tuple[int, ...]) -> list[int]:
    """Return the codes that lengths stand for (3.2.2), as they are written: the highest bit comes first (3.1.1)."""
    codes, code, before = [0] * len(lengths), 0, 0
    for width, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths) if length):
        code <<= width - before
        # Cut, since a code of an over-subscribed set has more bits than it should.
        codes[symbol] = int(f"{code:0{width}b}"[-width:][::-1], 2)
        code, before = code + 1, width
    return codes


def _complete(count: int, most: int, rng: random.Random) -> list[int]:
    """Return the lengths of a complete code of `count` symbols (at least two), in any order; some as long as is allowed."""
    skewed = rng.random() < 0.4
    lengths, short = [1, 1], [0, 1]  # places of those that can be one longer
    while len(lengths) < count:
        at = len(short) - 1 if skewed and rng.random() < 0.9 else int(rng.random() * len(short))
        place = short[at]
        lengths[place] += 1
        if lengths[place] == most:
            short[at] = short[-1]
            short.pop()
        else:
            short.append(len(lengths))
        lengths.append(lengths[place])
    rng.shuffle(lengths)
    return lengths


class Encoder:
    """Writes blocks one after the other; `content` is what they inflate to."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.bits = BitWriter()
        self.content = bytearray()
        self.starts: list[tuple[int, int]] = []

    def _begin(self, kind: int, *, last: bool) -> None:
        self.starts.append((self.bits.bit, len(self.content)))
        self.bits.put(last | kind << 1, 3)

    def stored(self, data: bytes, *, last: bool = False, padding: int = 0) -> None:
        """Write a block of at most 65,535 bytes as they are; `padding`: the bits before its length."""
        assert len(data) <= STORED_MOST
        self._begin(0, last=last)
        self.bits.align(padding)
        self.bits.put(len(data) | (len(data) ^ 0xFFFF) << 16, 32)
        self.bits.append(data)
        self.content += data

    def fixed(self, tokens: Iterable[Token], *, last: bool = False) -> None:
        """Write a block with the codes of 3.2.6."""
        self._begin(1, last=last)
        self._data(tokens, _FIXED, _FIXED_DISTANCES)

    def dynamic(self, tokens: Sequence[Token], *, last: bool = False, defect: str = "") -> None:
        """Write a block with codes of its own, which are drawn at random among those that have all symbols needed.

        :param defect: one of :data:`DEFECTS`. Where it does not fit the tokens, the block may have none.
        """
        rng = self.rng
        self._begin(2, last=last)
        literals, distances = self._used(tokens)
        symbols = 286 if rng.random() < 0.1 else rng.choice((0, 0, 1, 5, 40))
        unused = [symbol for symbol in range(286) if symbol not in literals]
        literals |= set(rng.sample(unused, min(symbols, len(unused))))
        lengths = {END: 1}  # of a code with nothing else, which leaves half of the code unused
        if len(literals) > 1:
            lengths = dict(zip(sorted(literals), _complete(len(literals), 15, rng), strict=True))
        unused = [symbol for symbol in range(30) if symbol not in distances]
        distances |= set(rng.sample(unused, rng.choice((0, 0, 0, 1, len(unused)))))
        if len(distances) < 2:  # none, or one of one bit (3.2.7)
            far = dict.fromkeys(distances, 1)
        else:
            far = dict(zip(sorted(distances), _complete(len(distances), 15, rng), strict=True))
        self._damage(lengths, far, defect)
        literal_lengths = self._spread(lengths, 257, 286)
        distance_lengths = self._spread(far, 1, 30)
        literal_lengths += [0] * ((287 - len(literal_lengths)) * (defect == "287 literals"))
        distance_lengths += [0] * ((31 - len(distance_lengths)) * (defect == "31 distances"))
        self._header(literal_lengths, distance_lengths, defect)
        self._data(tokens, literal_lengths, distance_lengths)

    def _damage(self, literals: dict[int, int], distances: dict[int, int], defect: str) -> None:
        """Change code lengths by symbol so that they have the defect, if it is one of these two codes."""
        match defect:
            case "literals incomplete":
                self._change(literals, 1)
            case "literals over-subscribed":
                self._change(literals, -1)
            case "distances incomplete":
                self._change(distances, 1)
            case "distances over-subscribed":
                self._change(distances, -1)
            case "one long distance" if len(distances) == 1:
                distances.update(dict.fromkeys(distances, self.rng.randint(2, 15)))
            case "no distance":
                distances.clear()
            case "no end of block":
                del literals[END]

    def _change(self, lengths: dict[int, int], more: int, most: int = 15) -> None:
        """Make one code of a set longer or shorter by a bit."""
        possible = [symbol for symbol, length in lengths.items() if 0 < length + more <= most]
        if possible:
            lengths[self.rng.choice(possible)] += more

    def _spread(self, lengths: dict[int, int], least: int, most: int) -> list[int]:
        """Return lengths by symbol, with a few more that are zero than are needed."""
        count = max([least, *(symbol + 1 for symbol in lengths)])
        count = self.rng.choice((count, count, self.rng.randint(count, most)))
        return [lengths.get(symbol, 0) for symbol in range(count)]

    @staticmethod
    def _used(tokens: Iterable[Token]) -> tuple[set[int], set[int]]:
        literals, distances = {END}, set()
        for token in tokens:
            if isinstance(token, int):
                literals.add(token)
            else:
                literals.add(257 + _LENGTH_SYMBOL[token[0]][0])
                distances.add(distance_symbol(token[1])[0])
        return literals, distances

    def _header(self, literals: Sequence[int], distances: Sequence[int], defect: str) -> None:
        """Write the code lengths of both codes as one row (3.2.7), repeated ones in a way drawn at random."""
        rng, bits = self.rng, self.bits
        row = [*literals, *distances]
        written = list(self._runs(row))
        if defect == "a repeat at the beginning":
            written[0] = (16, 0, 2)
        elif defect == "a repeat beyond the end":
            written[-1] = (18, 127, 7)
        used = sorted({symbol for symbol, *_ in written})
        if len(used) == 1:  # this code has to be complete
            used.append(next(symbol for symbol in range(19) if symbol not in used))
        lengths = dict(zip(used, _complete(len(used), 7, rng), strict=True))
        if defect in ("code lengths incomplete", "code lengths over-subscribed"):
            self._change(lengths, 1 if defect == "code lengths incomplete" else -1, 7)
        most = max(place for place, symbol in enumerate(LENGTH_ORDER) if symbol in lengths)
        count = rng.choice((max(4, most + 1), rng.randint(max(4, most + 1), 19)))
        bits.put(len(literals) - 257, 5)
        bits.put(len(distances) - 1, 5)
        bits.put(count - 4, 4)
        for symbol in LENGTH_ORDER[:count]:
            bits.put(lengths.get(symbol, 0), 3)
        codes = codes_of(tuple(lengths.get(symbol, 0) for symbol in range(19)))
        for symbol, extra, width in written:
            bits.put(codes[symbol], lengths[symbol])
            bits.put(extra, width)

    def _runs(self, row: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Yield (symbol, extra bits, how many); a run may go from one code's lengths into the other's."""
        rng, place = self.rng, 0
        lazy = rng.random() < 0.15
        while place < len(row):
            length = row[place]
            run = next((more for more in range(1, len(row) - place) if row[place + more] != length), None)
            run = len(row) - place if run is None else run
            again = place and row[place - 1] == length
            if again and run >= 3 and not lazy and rng.random() < 0.7:
                run = min(run, rng.randint(3, 6))
                yield 16, run - 3, 2
            elif not length and run >= 11 and not lazy:
                run = min(run, 138)
                yield 18, run - 11, 7
            elif not length and run >= 3 and not lazy:
                run = min(run, 10)
                yield 17, run - 3, 3
            else:
                run = 1
                yield length, 0, 0
            place += run

    def _data(self, tokens: Iterable[Token], literals: Sequence[int], distances: Sequence[int]) -> None:
        distances = [
            *distances,
            *[0] * 30,
        ]  # where those that are needed have been left out, nothing is written
        bits, codes, far = self.bits, codes_of(tuple(literals)), codes_of(tuple(distances))
        for token in tokens:
            if isinstance(token, int):
                bits.put(codes[token], literals[token])
                self.content.append(token)
                continue
            length, distance = token
            symbol, extra, width = _LENGTH_SYMBOL[length]
            bits.put(codes[257 + symbol], literals[257 + symbol])
            bits.put(extra, width)
            symbol, extra, width = distance_symbol(distance)
            bits.put(far[symbol], distances[symbol])
            bits.put(extra, width)
            self._copy(length, distance)
        bits.put(codes[END], literals[END])

    def _copy(self, length: int, distance: int) -> None:
        assert 0 < distance <= min(WINDOW, len(self.content))
        start = len(self.content) - distance
        piece = bytes(self.content[start : start + length])
        self.content += (piece * (length // len(piece) + 1))[:length]

    def flush(self) -> None:
        """What zlib writes for Z_SYNC_FLUSH: a stored block without content."""
        self.stored(b"")

    def tokens(self, count: int) -> list[Token]:
        """Draw tokens that are possible at this place."""
        rng, place, drawn = self.rng, len(self.content), list[Token]()
        alphabet = rng.sample(range(256), rng.choice((1, 2, 8, 60, 256)))
        matches, only = rng.choice((0, 0.3, 0.7, 1)), rng.choice((None, None, 1, 258, 32768, 24577))
        for _ in range(count):
            most = min(WINDOW, place)
            if not most or rng.random() >= matches:
                drawn.append(rng.choice(alphabet))
                place += 1
                continue
            length = rng.choice((3, 4, 10, 11, 257, 258, 258, rng.randint(3, 258)))
            distance = min(most, only or rng.choice((1, 2, most, rng.randint(1, most), rng.randint(1, most))))
            drawn.append((length, distance))
            place += length
        return drawn

    def result(self) -> tuple[bytes, bytes]:
        """Return the stream and its content."""
        self.bits.align()
        return bytes(self.bits.done), bytes(self.content)
