"""Where the blocks of a stream begin: walked through from its beginning, or from where it can be divided."""

from __future__ import annotations

import bisect
import itertools
import random
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from relink.wheel.deflate import blocks, headers
from relink.wheel.deflate.bits import LAST_BLOCK, LAST_BLOCK_BYTES, PADDING, Bits, copy_bits
from relink.wheel.deflate.blocks import Blocks
from relink.wheel.deflate.inflate import Block
from tests.unit.wheel.streams import KIB, deflate, made, reader

STRATEGIES = {"default": zlib.Z_DEFAULT_STRATEGY, "codes": zlib.Z_HUFFMAN_ONLY, "fixed": zlib.Z_FIXED}


def blocks_of(stream: bytes, content: bytes) -> Blocks:
    return Blocks(reader(stream), len(stream), memoryview(content))


def walked(stream: bytes, content: bytes) -> list[Block]:
    return [*blocks_of(stream, content).walk(0)]


def whole_of(inflater: Any, stream: bytes) -> bytes:
    data: bytes = inflater.decompress(stream)
    if not inflater.eof or inflater.unused_data:
        raise EOFError
    return data


def inflated(stream: bytes) -> bytes:
    """What zlib makes of a stream that ends where it should."""
    return whole_of(zlib.decompressobj(-15), stream)


def begins(stream: bytes, block: Block, content: bytes) -> bool:
    """Whether the stream, ended where the block begins, inflates to the content before it."""
    try:
        data = inflated(b"".join(copy_bits(reader(stream), 0, block[0], LAST_BLOCK)))
    except (zlib.error, EOFError):
        return False
    return data == content[: block[1]]


def check(stream: bytes, content: bytes) -> list[Block]:
    """All blocks up to the end are there, and each begins where it should."""
    found = walked(stream, content)
    assert found[0] == (0, 0)
    assert found == sorted(found)
    assert found.pop() == (8 * len(stream), len(content))
    assert [block for block in found if not begins(stream, block, content)] == []
    return found


def calls(monkeypatch: pytest.MonkeyPatch, name: str) -> Mock:
    """Note the calls of a method of :class:`Blocks`; the first argument of each is the object."""
    mock = Mock(wraps=getattr(Blocks, name))
    monkeypatch.setattr(Blocks, name, lambda *arguments, call=mock: call(*arguments))
    return mock


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_streams_of_zlib(level: int, strategy: int) -> None:
    content = made(level, 700 * KIB)
    assert len(check(deflate(content, level, strategy), content)) > 5


def isal(content: bytes, level: int) -> bytes:
    deflater = isal_zlib.compressobj(level, isal_zlib.DEFLATED, -15)
    return deflater.compress(content) + deflater.flush()


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_streams_of_isal(level: int) -> None:
    content = made(level, 700 * KIB)
    assert len(check(isal(content, level), content)) > 1


def flushed(content: bytes, flush: int) -> bytes:
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
    stream = b""
    for at in range(0, len(content), 7 * KIB):
        stream += deflater.compress(content[at : at + 7 * KIB]) + deflater.flush(flush)
    return stream + deflater.flush()


@pytest.mark.parametrize("flush", [zlib.Z_PARTIAL_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH])
def test_blocks_without_content(flush: int) -> None:
    """What a flush leaves is a stored block, or one of fixed codes, in any place of a byte."""
    content = made(4, 300 * KIB)
    places = check(flushed(content, flush), content)
    assert len({start for _, start in places}) < len(places)


def test_of_blocks_at_one_place() -> None:
    content = made(4, 60 * KIB)
    stream = flushed(content, zlib.Z_SYNC_FLUSH)
    every = walked(stream, content)
    (first, *_, last) = (block for block in every if block[1] == 14 * KIB)
    assert blocks_of(stream, content).after(14 * KIB) == first != last
    assert blocks_of(stream, content).before(14 * KIB) == last


def test_the_filling() -> None:
    """What relink puts around blocks that it takes over can be taken over itself."""
    for place, (number, count) in enumerate(PADDING):
        assert count % 8 == place
        stream = whole((number, count), LAST_BLOCK)
        assert zlib.decompress(stream, wbits=-15) == b""
        check(stream, b"")


def whole(*bits: Bits) -> bytes:
    """Bits one behind the other, as bytes."""
    number = count = 0
    for value, width in bits:
        number |= value << count
        count += width
    return number.to_bytes(-(-count // 8), "little")


def test_a_wrong_guess_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last bits of a block can look like a header that is not there, where a stored one comes next."""
    rng = random.Random(6)
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
    stream = content = b""
    for number in range(240):
        part = rng.randbytes(rng.randrange(16 * KIB)) if number % 2 else bytes(rng.choices(b"words", k=1000))
        stream += deflater.compress(part) + deflater.flush(zlib.Z_BLOCK)
        content += part
    stream += deflater.flush()
    guess, guessed = headers.guess_start, []

    def noted(*arguments: Any) -> int | None:
        bit = guess(*arguments)
        if bit is not None:
            guessed.append(bit)
        return bit

    monkeypatch.setattr(blocks, "guess_start", noted)
    right = {bit for bit, _ in check(stream, content)}
    assert {*guessed} - right


DAMAGED = made(1, 200 * KIB)
STREAM = deflate(DAMAGED, 6)


@pytest.mark.parametrize(
    ("stream", "content"),
    [
        (STREAM, DAMAGED[:-1]),
        (STREAM, DAMAGED + b"\0"),
        (STREAM[:-1], DAMAGED),
        (STREAM + b"\0", DAMAGED),
        (STREAM + STREAM, DAMAGED + DAMAGED),
        (b"", b"content"),
        (b"\x07", b""),
        (b"\x07", b"content"),
    ],
    ids=[
        "content short",
        "content long",
        "stream short",
        "stream long",
        "two streams",
        "nothing",
        "kind",
        "kind too",
    ],
)
def test_an_end_that_is_not_there(stream: bytes, content: bytes) -> None:
    found = blocks_of(stream, content)
    assert found.after(len(content)) is None
    assert (8 * len(stream), len(content)) not in walked(stream, content)
    assert [block for block in walked(stream, content) if not begins(stream, block, content)] in (
        [],
        [(0, 0)],
    )


def test_so_large_blocks_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytes(300 * KIB)
    stream = deflate(content, 6)
    check(stream, content)
    monkeypatch.setattr(blocks, "LARGEST_BLOCK", 200 * KIB)
    assert walked(stream, content) == []
    assert blocks_of(stream, content).before(len(content)) is None


def test_so_small_blocks_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs as much as one of 16 KiB does."""
    monkeypatch.setattr(blocks, "BUDGET", 4 << 20)
    one = calls(monkeypatch, "_inflate")
    stream = b"\0\0\0\xff\xff" * 1000 + LAST_BLOCK_BYTES
    assert blocks_of(stream, b"").after(1) is None
    assert one.call_count == 257


@pytest.mark.parametrize(("budget", "enough"), [(64 << 20, True), (0, False)])
def test_so_odd_blocks_are_given_up(monkeypatch: pytest.MonkeyPatch, budget: int, enough: bool) -> None:
    """Each end of blocks with fixed codes has to be tried."""
    monkeypatch.setattr(blocks, "BUDGET", budget)
    content = made(2, 800 * KIB)
    found = blocks_of(deflate(content, 6, zlib.Z_FIXED), content)
    assert (found.after(len(content)) is not None) is enough


def test_stored_blocks_end_where_a_byte_does(monkeypatch: pytest.MonkeyPatch) -> None:
    content = made(3, 800 * KIB)
    stream = deflate(content, 0)
    monkeypatch.setattr(blocks, "guess_start", None)
    monkeypatch.setattr(Blocks, "ended_at", None)
    assert len(check(stream, content)) > 10


def test_places() -> None:
    content = made(5, 700 * KIB)
    stream = deflate(content, 6)
    assert blocks_of(stream, content).after(len(content)) == (8 * len(stream), len(content))
    agrees(blocks_of(stream, content), [*check(stream, content), (8 * len(stream), len(content))])


def agrees(found: Blocks, every: Sequence[Block], more: Iterable[int] = ()) -> None:
    """All over the content, in any order, the blocks are those of a list that has them all.

    Where blocks without content are, which of them comes first depends on what was asked for before.
    """
    starts = [start for _, start in every]
    rng = random.Random(8)
    places = {0, starts[-1], *more, *(rng.randrange(starts[-1]) for _ in range(4))}
    for start in rng.sample(starts[1:-1], 2):
        places |= {start - 1, start, start + 1}
    for order in (sorted(places), sorted(places, reverse=True)):
        for place in order:
            assert found.before(place) == every[bisect.bisect_right(starts[:-1], place) - 1], place
            after = found.after(place)
            assert after, place
            assert after in every, place
            assert after[1] == starts[bisect.bisect_left(starts, place)], place


SMALL = [(content, deflate(content, 6, memory=1)) for content in (made(seed, 9 * KIB) for seed in range(4))]


@given(
    st.one_of(
        st.binary(max_size=300),
        st.builds(
            lambda seed, at, bit: flipped(SMALL[seed][1], at, bit),
            st.integers(0, 3),
            st.integers(0, 9 * KIB),
            st.integers(0, 7),
        ),
    ),
    st.integers(0, 3),
    st.integers(0, 9 * KIB),
)
def test_of_a_damaged_stream_nothing_wrong_is_found(stream: bytes, seed: int, place: int) -> None:
    contents = [SMALL[seed][0]]
    with suppress(zlib.error, EOFError):
        contents.append(inflated(stream))
    for content in contents:
        found = [blocks_of(stream, content).before(place), blocks_of(stream, content).after(place)]
        for block in (*found, *walked(stream, content)):
            if block == (8 * len(stream), len(content)):
                assert inflated(stream) == content
            else:
                assert block is None or begins(stream, block, content)


def flipped(stream: bytes, at: int, bit: int) -> bytes:
    at %= len(stream)
    return stream[:at] + bytes([stream[at] ^ 1 << bit]) + stream[at + 1 :]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many places are asked for of one stream."""
    monkeypatch.setattr(blocks, "BUDGET", 1 << 40)


def raw(content: bytes, memory: int = 8) -> bytes:
    """Blocks that end where a byte does, none of which is the last."""
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15, memory)
    return deflater.compress(content) + deflater.flush(zlib.Z_FULL_FLUSH)


def stored(content: bytes) -> bytes:
    """Blocks of at most 65,535 bytes, from one byte's beginning to another's."""
    parts = (content[at : at + 65535] for at in range(0, len(content), 65535))
    return b"".join(
        b"\0" + len(part).to_bytes(2, "little") + (len(part) ^ 65535).to_bytes(2, "little") + part
        for part in parts
    )


def copied(size: int, distance: int) -> bytes:
    """A block, up to a byte's end, that says: take `size` bytes (23 to 26) from `distance` (769 to 1024) before."""
    ones, zeros = (0, 1), (1, 1)  # the codes of the code lengths 1, and of a run of zeros
    fields = [(0b100, 3), (271 - 257, 5), (20 - 1, 5), (15, 4)]
    fields += [(1 if symbol in (1, 18) else 0, 3) for symbol in (16, 17, 18, *[0] * 14, 1, 15)]
    fields += [zeros, (138 - 11, 7), zeros, (118 - 11, 7), ones]  # 256, the end
    fields += [zeros, (13 - 11, 7)]  # 257 to 269
    fields += [ones]  # 270: 23 to 26
    fields += [zeros, (19 - 11, 7), ones]  # 19: 769 to 1024
    fields += [(1, 1), (size - 23, 2), (0, 1), (distance - 769, 8), (0, 1)]
    bits = sum(width for _, width in fields)
    return whole((0, -bits % 8), *fields)


HEAD, REST = made(3, 500 * KIB), made(4, 60 * KIB)
RAW = raw(REST)


def misleading() -> bytes:
    """Bytes that, at one place every 4 KiB, inflate to themselves: a copy of what was 800 bytes before, and a stored block."""
    text = bytearray(random.Random(1).randbytes(65000))
    for at in range(1000, 64000, 4000):
        left = len(text) - at - 823
        block = b"?!" + copied(23, 800) + stored(bytes(left))[:5]
        text[at : at + 23] = text[at + 800 : at + 823] = block
    return bytes(text)


FALSE = {
    "the same blocks": RAW[-15000:],
    "all of them": RAW * 2,
    "a whole stream": deflate(REST, 6),
    "nothing": random.Random(2).randbytes(60000) + whole(PADDING[1], PADDING[1], PADDING[6]),
    "itself": misleading(),
}


def test_other_content_than_the_stream_has() -> None:
    """What is behind the other byte is not found from the beginning."""
    content = made(6, 700 * KIB)
    stream = deflate(content, 6)
    place = len(content) // 2
    every = walked(stream, content)
    before = [block for block, (_, stop) in itertools.pairwise(every) if stop <= place]
    for instead in (b"", b"!", b"more"):
        assert instead != content[place : place + 1]
        assert walked(stream, content[:place] + instead + content[place + 1 :]) == before


FAR_STREAMS: dict[str, Callable[[bytes], bytes]] = {
    "zlib": lambda content: deflate(content, 6),
    "small blocks": lambda content: deflate(content, 9, memory=2),
    "isal": lambda content: isal(content, 2),
    "flushed": lambda content: flushed(content, zlib.Z_SYNC_FLUSH),
    "stored": lambda content: deflate(content, 0),
    "fixed": lambda content: deflate(content, 6, zlib.Z_FIXED),
}


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("kind", FAR_STREAMS)
def test_over_a_long_way_it_is_as_from_block_to_block(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    content = made(5, 300 * KIB)
    stream = FAR_STREAMS[kind](content)
    every = [*check(stream, content), (8 * len(stream), len(content))]
    if len({start for _, start in every}) < len(
        every
    ):  # of blocks at one place, which one is found may differ
        every = [*{start: (bit, start) for bit, start in every}.values()]
    monkeypatch.setattr(blocks, "LONG", 50 * KIB)
    starts = [start for _, start in every]
    rng = random.Random(9)
    for read in (4 * KIB, 64 * KIB):
        monkeypatch.setattr(blocks, "SEARCH_READ", read)
        for place in (rng.randrange(len(content)) for _ in range(6)):
            block = blocks_of(stream, content).before(place)
            assert block == every[bisect.bisect_right(starts[:-1], place) - 1], (read, place)


@pytest.mark.parametrize("level", [0, 6])
def test_a_long_way_is_inflated_once(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    content = made(5, 3 << 20)
    stream = deflate(content, level)
    every = check(stream, content)
    inflate = calls(monkeypatch, "_inflate")
    place = len(content) - 100 * KIB
    assert blocks_of(stream, content).before(place) == max(block for block in every if block[1] <= place)
    assert inflate.call_count < 10 < len(every) / 3


def test_behind_other_content_than_the_stream_has_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    content = made(6, 1500 * KIB)
    stream = deflate(content, 6)
    other = content[: 700 * KIB] + b"!" + content[700 * KIB + 1 :]
    assert other != content
    monkeypatch.setattr(blocks, "LONG", 100 * KIB)
    assert blocks_of(stream, content).before(len(content)) is not None
    found = blocks_of(stream, other).before(len(content))
    assert found is None or found[1] <= 700 * KIB


@pytest.mark.parametrize("text", FALSE.values(), ids=FALSE)
def test_a_long_way_to_stored_bytes_that_look_like_blocks(
    monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    content = HEAD + text + REST
    stream = raw(HEAD) + stored(text) + deflate(REST, 6)
    every = walked(stream, content)
    monkeypatch.setattr(blocks, "LONG", 10 * KIB)
    for place in range(0, len(content), 21001):
        assert blocks_of(stream, content).before(place) == max(block for block in every if block[1] <= place)


@pytest.fixture
def inflated_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each call of the inflater has given."""
    sizes: list[int] = []
    inflate = blocks.inflated  # type: ignore[attr-defined] # not exported there

    def noted(*arguments: Any) -> tuple[bytes, bytes]:
        parts: tuple[bytes, bytes] = inflate(*arguments)
        sizes.append(sum(map(len, parts)))
        return parts

    monkeypatch.setattr(blocks, "inflated", noted)
    return sizes


def test_a_long_way_costs_no_more_than_it_may(
    monkeypatch: pytest.MonkeyPatch, inflated_bytes: list[int]
) -> None:
    content = made(5, 3 << 20)
    stream = deflate(content, 6)
    assert blocks_of(stream, content).before(len(content)) is not None
    inflated_bytes.clear()
    monkeypatch.setattr(blocks, "BUDGET", (1 << 20) - 4 * len(content))
    assert blocks_of(stream, content).before(len(content)) is None
    assert sum(inflated_bytes) < 1200 * KIB


def test_places_one_behind_the_other_are_found_by_going_on(inflated_bytes: list[int]) -> None:
    content = made(5, 6 << 20)
    found = blocks_of(deflate(content, 6), content)
    for place in range(2 << 20, 6 << 20, 1 << 20):
        assert found.before(place)
        assert found.after(place + KIB)
    assert sum(inflated_bytes) < 2 * len(content)
