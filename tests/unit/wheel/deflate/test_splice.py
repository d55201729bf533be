"""Deflate streams that take over blocks of others: what comes out has to be the new content, for every reader."""

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
from zlib_ng import zlib_ng

from relink.wheel.deflate import splice
from relink.wheel.deflate.splice import SEARCH_READ, Blocks, Joiner, Span, likely_headers
from relink.wheel.deflate.stream import (
    LAST_BLOCK,
    LAST_BLOCK_BYTES,
    PADDING,
    Bits,
    Block,
    Checkpoint,
    InflateError,
    copy_bits,
    copy_inflater,
    inflate_piece,
)
from relink.wheel.zipformat import BytesLike
from tests.unit.wheel.streams import KIB, deflate, made, reader

SLOW = pytest.mark.slow(reason="long streams; shorter ones are tried always")


def possible(text: bytes) -> list[int]:
    """The bits where a header could begin, each looked at alone (RFC 1951, 3.2.7)."""
    found = []
    for bit in range(8 * len(text) - 88):
        number = int.from_bytes(text[bit // 8 : bit // 8 + 12], "little") >> bit % 8
        final, kind, literals, distances = number & 1, number >> 1 & 3, number >> 3 & 31, number >> 8 & 31
        if final or kind != 0b10 or literals > 29 or distances > 29:
            continue
        lengths = [number >> 17 + 3 * place & 7 for place in range((number >> 13 & 15) + 4)]
        if sum(128 >> length for length in lengths if length) == 128:
            found.append(bit)
    return found


def test_headers_in_what_is_none() -> None:
    text = random.Random(2).randbytes(16 * KIB)
    assert [*splice.find_headers(text)] == possible(text) != []


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("level", [1, 6, 9])
def test_headers_of_a_stream(level: int) -> None:
    content = made(level, 30 * KIB)
    stream = deflate(content, level, memory=2)
    found = [*splice.find_headers(stream)]
    assert found == possible(stream)
    dynamic = [
        bit
        for bit, _ in walked(stream, content)[:-1]
        if int.from_bytes(stream[bit // 8 :][:2], "little") >> bit % 8 & 0b111 == 0b100
    ]
    assert {*dynamic} & {*range(8 * len(stream) - 88)} <= {*found}
    assert len(dynamic) > 10


@st.composite
def header(draw: st.DrawFn) -> Bits:
    """A header's bits, mostly of a complete code."""
    lengths = [1, 1]
    for place in draw(st.lists(st.integers(0, 18), max_size=17)):
        if lengths[place % len(lengths)] < 7:
            lengths.append(lengths[place % len(lengths)] + 1)
            lengths[place % (len(lengths) - 1)] += 1
    lengths += [0] * draw(st.integers(0, 19 - len(lengths)))
    number = width = 0
    fields = [(draw(st.sampled_from((0b100, 0b100, 0b100, 0b101, 0b010))), 3)]
    fields += [(draw(st.integers(0, 31)), 5), (draw(st.integers(0, 31)), 5)]
    fields += [(max(0, len(lengths) - 4), 4)]
    fields += [(length, 3) for length in draw(st.permutations(lengths + [0] * max(0, 4 - len(lengths))))]
    for value, count in fields:
        number |= value << width
        width += count
    return number, width


@given(
    st.lists(st.one_of(header(), st.tuples(st.just(0), st.integers(0, 9))), max_size=6),
    st.binary(max_size=40),
)
def test_headers_are_those_that_are_possible(parts: list[Bits], rest: bytes) -> None:
    text = whole(*parts) + rest
    assert [*splice.find_headers(text)] == possible(text)


def found_in(stream: bytes, start: int = 0) -> list[int]:
    """Those up to 64 KiB behind a byte; the last piece that is searched may go on a little farther."""
    searched = range(start, min(len(stream), start + SEARCH_READ))
    return [bit for bit in likely_headers(reader(stream), len(stream), searched) if bit // 8 in searched]


@pytest.mark.few(2, reason="the same of other values")
@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_where_a_block_is_likely_one_is(level: int) -> None:
    content = made(level, 1 << 20)
    stream = deflate(content, level, memory=6)
    start = len(stream) // 2
    begun = {bit for bit, _ in walked(stream, content) if start <= bit // 8 < start + SEARCH_READ}
    assert begun <= {*found_in(stream, start)}
    assert begun


def test_stored_blocks_begin_at_any_bit() -> None:
    """Behind a block that ends there; the bits up to the next byte can be anything."""
    for place in range(8):
        for filling in (0, 255):
            number, count = PADDING[place]
            number |= filling << count + 3
            count += 3 + -(count + 3) % 8
            head = (number & (1 << count) - 1).to_bytes(count // 8, "little")
            stream = head + b"\x05\0\xfa\xffbytes" + LAST_BLOCK_BYTES
            assert zlib.decompress(stream, -15) == b"bytes"
            assert PADDING[place][1] in [*splice.find_stored(stream)]


@SLOW
def test_a_header_is_found_wherever_it_is_in_what_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = deflate(made(6, 300 * KIB), 6)
    expected = found_in(stream)
    assert len(expected) > 1
    for searched in range(50, 70, 3):
        monkeypatch.setattr(splice, "SEARCHED", searched)
        assert found_in(stream) == expected


@pytest.mark.parametrize("tries", [1, 7, 50])
def test_so_many_headers_that_are_none_are_given_up(monkeypatch: pytest.MonkeyPatch, tries: int) -> None:
    monkeypatch.setattr(splice, "TRIES", tries)
    trying = Mock(wraps=copy_bits)
    monkeypatch.setattr(splice, "copy_bits", trying)
    assert found_in(random.Random(3).randbytes(300 * KIB)) == []
    assert trying.call_count == tries


STRATEGIES = {"default": zlib.Z_DEFAULT_STRATEGY, "codes": zlib.Z_HUFFMAN_ONLY, "fixed": zlib.Z_FIXED}


def open_blocks(stream: bytes, content: bytes) -> Blocks:
    return Blocks(reader(stream), len(stream), memoryview(content), checkpoints_of(stream))


def checkpoints_of(stream: bytes) -> list[Checkpoint]:
    """Return the checkpoints of a stream, one for each piece that is searched, as far as it can be inflated."""
    checkpoints: list[Checkpoint] = []
    inflater, start = zlib_ng.decompressobj(-15), 0
    with suppress(InflateError):
        for at in range(0, len(stream), splice.SEARCH_READ):
            piece = stream[at : at + splice.SEARCH_READ]
            start += sum(map(len, inflate_piece(inflater, piece, 1 << 20)))
            if inflater.eof:
                break
            checkpoints.append(Checkpoint(copy_inflater(inflater), at + len(piece), start))
    return checkpoints


def walked(stream: bytes, content: bytes) -> list[Block]:
    return [*open_blocks(stream, content).walk(0)]


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


def check_blocks(stream: bytes, content: bytes) -> list[Block]:
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


@pytest.mark.few(4, reason="the same of other values")
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_streams_of_zlib(level: int, strategy: int) -> None:
    content = made(level, 700 * KIB)
    assert len(check_blocks(deflate(content, level, strategy), content)) > 5


def isal(content: bytes, level: int) -> bytes:
    deflater = isal_zlib.compressobj(level, isal_zlib.DEFLATED, -15)
    return deflater.compress(content) + deflater.flush()


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_streams_of_isal(level: int) -> None:
    content = made(level, 700 * KIB)
    assert len(check_blocks(isal(content, level), content)) > 1


def flushed(content: bytes, flush: int) -> bytes:
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
    stream = b""
    for at in range(0, len(content), 7 * KIB):
        stream += deflater.compress(content[at : at + 7 * KIB]) + deflater.flush(flush)
    return stream + deflater.flush()


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("flush", [zlib.Z_PARTIAL_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH])
def test_blocks_without_content(flush: int) -> None:
    """What a flush leaves is a stored block, or one of fixed codes, in any place of a byte."""
    content = made(4, 300 * KIB)
    places = check_blocks(flushed(content, flush), content)
    assert len({start for _, start in places}) < len(places)


def test_of_blocks_at_one_place() -> None:
    content = made(4, 60 * KIB)
    stream = flushed(content, zlib.Z_SYNC_FLUSH)
    every = walked(stream, content)
    (first, *_, last) = (block for block in every if block[1] == 14 * KIB)
    assert open_blocks(stream, content).after(14 * KIB) == first != last
    assert open_blocks(stream, content).before(14 * KIB) == last


def test_the_filling() -> None:
    """What relink puts around blocks that it takes over can be taken over itself."""
    for place, (number, count) in enumerate(PADDING):
        assert count % 8 == place
        stream = whole((number, count), LAST_BLOCK)
        assert zlib.decompress(stream, wbits=-15) == b""
        check_blocks(stream, b"")


def whole(*bits: Bits) -> bytes:
    """Bits one behind the other, as bytes."""
    number = count = 0
    for value, width in bits:
        number |= value << count
        count += width
    return number.to_bytes(-(-count // 8), "little")


@SLOW
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
    guess, guessed = splice.guess_start, []

    def noted(*arguments: Any) -> int | None:
        bit = guess(*arguments)
        if bit is not None:
            guessed.append(bit)
        return bit

    monkeypatch.setattr(splice, "guess_start", noted)
    right = {bit for bit, _ in check_blocks(stream, content)}
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
    found = open_blocks(stream, content)
    assert found.after(len(content)) is None
    assert (8 * len(stream), len(content)) not in walked(stream, content)
    assert [block for block in walked(stream, content) if not begins(stream, block, content)] in (
        [],
        [(0, 0)],
    )


def test_so_large_blocks_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytes(300 * KIB)
    stream = deflate(content, 6)
    check_blocks(stream, content)
    monkeypatch.setattr(splice, "LARGEST_BLOCK", 200 * KIB)
    assert walked(stream, content) == []
    assert open_blocks(stream, content).before(len(content)) is None


def test_so_small_blocks_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs as much as one of 16 KiB does."""
    monkeypatch.setattr(splice, "BUDGET", 4 << 20)
    one = calls(monkeypatch, "_inflate")
    stream = b"\0\0\0\xff\xff" * 1000 + LAST_BLOCK_BYTES
    assert open_blocks(stream, b"").after(1) is None
    assert one.call_count == 257


@pytest.mark.parametrize(("budget", "enough"), [(64 << 20, True), (0, False)])
def test_so_odd_blocks_are_given_up(monkeypatch: pytest.MonkeyPatch, budget: int, enough: bool) -> None:
    """Each end of blocks with fixed codes has to be tried."""
    monkeypatch.setattr(splice, "BUDGET", budget)
    content = made(2, 800 * KIB)
    found = open_blocks(deflate(content, 6, zlib.Z_FIXED), content)
    assert (found.after(len(content)) is not None) is enough


def test_stored_blocks_end_where_a_byte_does(monkeypatch: pytest.MonkeyPatch) -> None:
    content = made(3, 800 * KIB)
    stream = deflate(content, 0)
    monkeypatch.setattr(splice, "guess_start", None)
    monkeypatch.setattr(Blocks, "ended_at", None)
    assert len(check_blocks(stream, content)) > 10


def test_places() -> None:
    content = made(5, 700 * KIB)
    stream = deflate(content, 6)
    assert open_blocks(stream, content).after(len(content)) == (8 * len(stream), len(content))
    agrees(open_blocks(stream, content), [*check_blocks(stream, content), (8 * len(stream), len(content))])


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
        found = [
            open_blocks(stream, content).before(place),
            open_blocks(stream, content).after(place),
        ]
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
    monkeypatch.setattr(splice, "BUDGET", 1 << 40)


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


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("kind", FAR_STREAMS)
def test_over_a_long_way_it_is_as_from_block_to_block(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    content = made(5, 300 * KIB)
    stream = FAR_STREAMS[kind](content)
    every = [*check_blocks(stream, content), (8 * len(stream), len(content))]
    if len({start for _, start in every}) < len(
        every
    ):  # of blocks at one place, which one is found may differ
        every = [*{start: (bit, start) for bit, start in every}.values()]
    monkeypatch.setattr(splice, "LONG", 50 * KIB)
    starts = [start for _, start in every]
    rng = random.Random(9)
    for read in (4 * KIB, 64 * KIB):
        monkeypatch.setattr(splice, "SEARCH_READ", read)
        for place in (rng.randrange(len(content)) for _ in range(6)):
            block = open_blocks(stream, content).before(place)
            assert block == every[bisect.bisect_right(starts[:-1], place) - 1], (read, place)


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("level", [0, 6])
def test_a_long_way_is_inflated_once(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    content = made(5, 3 << 20)
    stream = deflate(content, level)
    every = check_blocks(stream, content)
    inflate = calls(monkeypatch, "_inflate")
    place = len(content) - 100 * KIB
    assert open_blocks(stream, content).before(place) == max(block for block in every if block[1] <= place)
    assert inflate.call_count < 10 < len(every) / 3


def test_behind_other_content_than_the_stream_has_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    content = made(6, 1500 * KIB)
    stream = deflate(content, 6)
    monkeypatch.setattr(splice, "LONG", 100 * KIB)
    changed = checkpoints_of(stream)[-1].start + 10
    block = open_blocks(stream, content).before(len(content))
    assert block is not None
    assert block[1] > changed
    other = content[:changed] + bytes([content[changed] ^ 1]) + content[changed + 1 :]
    found = open_blocks(stream, other).before(len(content))
    assert found is None or found[1] <= changed


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("text", FALSE.values(), ids=FALSE)
def test_a_long_way_to_stored_bytes_that_look_like_blocks(
    monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    content = HEAD + text + REST
    stream = raw(HEAD) + stored(text) + deflate(REST, 6)
    every = walked(stream, content)
    monkeypatch.setattr(splice, "LONG", 10 * KIB)
    for place in range(0, len(content), 21001):
        assert open_blocks(stream, content).before(place) == max(
            block for block in every if block[1] <= place
        )


@pytest.fixture
def inflated_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each call of the inflater has given."""
    sizes: list[int] = []
    inflate = splice.inflate_piece  # type: ignore[attr-defined] # not exported there

    def noted(*arguments: Any) -> tuple[bytes, bytes]:
        parts: tuple[bytes, bytes] = inflate(*arguments)
        sizes.append(sum(map(len, parts)))
        return parts

    monkeypatch.setattr(splice, "inflate_piece", noted)
    return sizes


def test_a_long_way_costs_no_more_than_it_may(
    monkeypatch: pytest.MonkeyPatch, inflated_bytes: list[int]
) -> None:
    content = made(5, 3 << 20)
    stream = deflate(content, 6)
    found = open_blocks(stream, content)
    inflated_bytes.clear()
    assert found.before(len(content)) is not None
    assert sum(inflated_bytes) < len(content)
    monkeypatch.setattr(splice, "BUDGET", (1 << 10) - 4 * len(content))
    found = open_blocks(stream, content)
    inflated_bytes.clear()
    assert found.before(len(content)) is None
    assert sum(inflated_bytes) < 100 * KIB


@SLOW
def test_places_one_behind_the_other_are_found_by_going_on(inflated_bytes: list[int]) -> None:
    content = made(5, 6 << 20)
    found = open_blocks(deflate(content, 6), content)
    for place in range(2 << 20, 6 << 20, 1 << 20):
        assert found.before(place)
        assert found.after(place + KIB)
    assert sum(inflated_bytes) < 2 * len(content)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is worth it for real would make slow tests."""
    monkeypatch.setattr(splice, "LEAST", 64 * KIB)


def blocks_of(stream: bytes, content: bytes) -> list[Block]:
    found = [*Blocks(reader(stream), len(stream), memoryview(content)).walk(0)]
    assert found.pop() == (8 * len(stream), len(content))
    return found


def find_spans(stream: bytes, content: bytes, stretches: Sequence[range]) -> tuple[Span, ...]:
    """Each span inflates to the content there, behind the 32 KiB before it, and lies with these in a stretch."""
    spans = splice.find_spans(reader(stream), len(stream), memoryview(content), stretches)
    for span in spans:
        window = content[max(0, span.start - 32 * KIB) : span.start]
        inflater = zlib.decompressobj(-15, window)
        assert (
            inflater.decompress(b"".join(span.stream()) + LAST_BLOCK_BYTES) == content[span.start : span.stop]
        )
        assert inflater.eof
        assert any(
            stretch.start <= span.start - len(window) and span.stop <= stretch.stop for stretch in stretches
        )
    return spans


def joined(content: bytes, spans: Sequence[Span], block: int = 100 * KIB) -> bytes:
    parts: list[bytes] = []

    def write(data: BytesLike | Span) -> None:
        stream = b"".join(data.stream()) if isinstance(data, Span) else bytes(data)
        assert not isinstance(data, Span) or data.length == len(stream)
        parts.append(stream)

    joiner = Joiner(lambda: isal_zlib.compressobj(1, isal_zlib.DEFLATED, -15), spans, write)
    for at in range(0, len(content), block):
        joiner.add(content[at : at + block])
    pieces = joiner.finish()
    crc = 0
    for piece in pieces:
        crc = isal_zlib.crc32_combine(crc, piece.crc, piece.size)
    assert crc == zlib.crc32(content)
    return b"".join(parts)


def check(stream: bytes, content: bytes) -> None:
    for inflater in (zlib.decompressobj(-15), isal_zlib.decompressobj(-15)):
        assert inflater.decompress(stream) == content
        assert inflater.eof
        assert not inflater.unused_data


@pytest.mark.few(6, reason="the same of other values")
@pytest.mark.parametrize("level", [1, 3, 6, 9])
@pytest.mark.parametrize("seed", range(4))
def test_what_stays_is_taken_over(level: int, seed: int) -> None:
    rng = random.Random(seed)
    old = made(seed, 900 * KIB)
    start, stop = rng.randrange(0, 200 * KIB), rng.randrange(700 * KIB, 900 * KIB)
    new = rng.randbytes(start) + old[start:stop] + rng.randbytes(len(old) - stop)
    spans = find_spans(deflate(old, level), old, [range(start, stop)])
    assert len(spans) == 1
    assert start + 32 * KIB <= spans[0].start < start + 200 * KIB
    assert stop - 200 * KIB < spans[0].stop <= stop
    check(joined(new, spans), new)


def test_every_place_in_a_byte() -> None:
    """Little memory makes small blocks, of which some begin at each bit of a byte."""
    old = made(7, 150 * KIB)
    stream = deflate(old, 6, memory=2)
    every = blocks_of(stream, old)
    late = len(every) // 2
    firsts = {bit % 8: (bit, start) for bit, start in every[:late] if start >= 32 * KIB}
    lasts = {bit % 8: (bit, stop) for bit, stop in every[late:]}
    assert firsts.keys() == lasts.keys() == set(range(8))
    for (first, start), (last, stop) in itertools.product(firsts.values(), lasts.values()):
        new = bytes(start - 32 * KIB) + old[start - 32 * KIB : stop] + b"tail"
        check(joined(new, [Span(start, stop, first, last, reader(stream))]), new)


def test_several_and_a_whole_beginning() -> None:
    old = made(3, 1500 * KIB)
    stretches = [
        range(500 * KIB),
        range(600 * KIB, 1000 * KIB),
        range(1010 * KIB, 1020 * KIB),
        range(1100 * KIB, 1500 * KIB),
    ]
    spans = find_spans(deflate(old, 6), old, stretches)
    assert len(spans) == 3  # one is too short
    assert (spans[0].start, spans[0].first) == (0, 0)
    new = bytearray(old)
    for before, after in ((stretches[0], stretches[1]), (stretches[1], stretches[3])):
        new[before.stop : after.start] = b"x" * (after.start - before.stop)
    check(joined(bytes(new), spans), bytes(new))
    for block in (7 * KIB, 1 << 20, 2 << 20):
        assert joined(bytes(new), spans, block) == joined(bytes(new), spans)


def test_what_does_not_compress_is_stored_and_taken_over() -> None:
    old = random.Random(1).randbytes(800 * KIB)
    stream = deflate(old, 6)
    assert len(stream) > len(old)
    (span,) = find_spans(stream, old, [range(100 * KIB, 700 * KIB)])
    new = bytes(100 * KIB) + old[100 * KIB : 700 * KIB] + bytes(100 * KIB)
    check(joined(new, [span]), new)


def test_a_stream_of_isal() -> None:
    old = made(9, 3000 * KIB)
    deflater = isal_zlib.compressobj(2, isal_zlib.DEFLATED, -15)
    stream = deflater.compress(old) + deflater.flush()
    spans = find_spans(stream, old, [range(100 * KIB, 2900 * KIB)])
    assert spans
    new = bytes(100 * KIB) + old[100 * KIB :]
    check(joined(new, spans), new)


def test_the_last_block_is_not_taken_over() -> None:
    """It would end the new stream."""
    old = made(5, 400 * KIB)
    stream = deflate(old, 6)
    (span,) = find_spans(stream, old, [range(len(old))])
    last, stop = blocks_of(stream, old)[-1]
    assert (span.start, span.stop, span.first, span.last) == (0, stop, 0, last)
    check(joined(old, [span]), old)
    check(joined(old + b"tail", [span]), old + b"tail")


def test_a_stretch_in_one_block_is_left_out() -> None:
    old = bytes(400 * KIB)
    assert find_spans(deflate(old, 6), old, [range(100 * KIB, 300 * KIB)]) == ()


def test_where_blocks_are_not_found_nothing_is_taken_over() -> None:
    old = made(5, 400 * KIB)
    stream = deflate(old, 6)
    for other in (b"?" + old[1:], old[: 250 * KIB] + bytes(150 * KIB)):
        assert find_spans(stream, other, [range(240 * KIB, 400 * KIB)]) == ()


def test_a_short_stretch_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    old = made(5, 400 * KIB)
    stream = deflate(old, 6)
    monkeypatch.setattr(splice, "LEAST", 300 * KIB)
    assert find_spans(stream, old, [range(300 * KIB)])
    assert not find_spans(stream, old, [range(300 * KIB - 1)])
