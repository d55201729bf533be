"""Members inflated in one go: as gzip files, which they are not, so that nothing else may pass for one."""

from __future__ import annotations

import gc
import struct
import weakref
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relink.spool import room_in
from relink.wheel.deflate import stream
from relink.wheel.deflate.blocks import Blocks
from relink.wheel.deflate.inflate import Block, crc_before
from relink.wheel.deflate.stream import inflate_into
from relink.wheel.zipformat import STORED, Member
from tests.support.deflate_encoder import BitWriter, Encoder
from tests.unit.wheel.streams import KIB, deflate, made, member, reader

CONTENT = made(1, 300 * KIB)
HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


def inflated(raw: bytes, claimed: Member, split: Block | None = None) -> bytes | None:
    into = bytearray(claimed.size)
    progress: list[int] = []
    start = inflate_into(reader(raw), claimed, room_in(memoryview(into)), progress.append, split and split[0])
    if start is None:
        return None
    assert sum(progress) == claimed.size
    assert start == (split[1] if split else claimed.size)
    return bytes(into)


def end(content: bytes) -> bytes:
    return struct.pack("<2I", zlib.crc32(content), len(content))


@pytest.mark.parametrize("level", [0, 1, 6, 9])
@pytest.mark.parametrize("size", [1, 100, 64 * KIB, 300 * KIB])
def test_what_comes_out(monkeypatch: pytest.MonkeyPatch, level: int, size: int) -> None:
    content = CONTENT[:size]
    raw = deflate(content, level)
    for feed, at_once in ((1 << 20, 64 << 20), (1000, 64 << 20), (1 << 20, 7777), (20, 100_000)):
        monkeypatch.setattr(stream, "COMPRESSED_READ", feed)
        monkeypatch.setattr(stream, "PROGRESS_STEP", at_once)
        assert inflated(raw, member(raw, content)) == content


def test_what_is_not_claimed() -> None:
    raw = deflate(CONTENT, 6)
    right = member(raw, CONTENT)
    assert inflated(raw, right) == CONTENT
    assert inflated(raw, replace(right, crc=right.crc ^ 1)) is None
    assert inflated(raw, replace(right, size=right.size - 1)) is None
    assert inflated(raw, replace(right, size=right.size + 1)) is None
    assert inflated(raw[:-1], replace(right, compressed_size=len(raw) - 1)) is None
    assert inflated(b"\x07" + raw, replace(right, compressed_size=len(raw) + 1)) is None


def test_in_two_parts() -> None:
    """The claims are of both together."""
    raw = deflate(CONTENT, 6)
    right = member(raw, CONTENT)
    blocks = Blocks(reader(raw), len(raw), memoryview(CONTENT))
    for place in (100 * KIB, 250 * KIB):
        split = blocks.after(place)
        assert split
        assert inflated(raw, right, split) == CONTENT
        assert inflated(raw, replace(right, crc=right.crc ^ 1), split) is None
        assert inflated(raw, replace(right, size=right.size - 1), split) is None
        assert inflated(raw, replace(right, size=right.size + 1), split) is None
        assert inflated(raw[:-1], replace(right, compressed_size=len(raw) - 1), split) is None
        assert inflated(raw + b"\0", replace(right, compressed_size=len(raw) + 1), split) is None
        assert inflated(raw, replace(right, size=place), split) is None
        assert inflated(raw, member(raw, CONTENT + bytes(5)), split) is None
        first = raw[: split[0] // 8 + 1]
        assert inflated(first, replace(right, compressed_size=len(first)), split) is None


MORE = pytest.mark.slow(reason="other streams of the same kinds of blocks")


@pytest.mark.few(0, reason="a second")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=MORE) for seed in range(1, 6))])
def test_it_can_be_divided_where_blocks_begin_and_nowhere_else(seed: int) -> None:
    """Every bit of streams of all kinds of blocks is tried; in the last block, too."""
    encoder = Encoder(seed)
    rng = encoder.rng
    encoder.dynamic(encoder.tokens(20))
    for _ in range(6):
        encoder.stored(rng.randbytes(rng.randrange(12)), padding=rng.randrange(256))
        encoder.fixed(encoder.tokens(rng.randrange(12)))
        encoder.dynamic(encoder.tokens(rng.randrange(12)))
    (encoder.fixed if seed % 2 else encoder.dynamic)(encoder.tokens(40), last=True)
    raw, content = encoder.result()
    assert len(content) - encoder.starts[-1][1] >= 15  # in a shorter last block the stream is not divided
    claimed = member(raw, content)
    found = {}
    for bit in range(8 * len(raw) + 1):
        start = inflate_into(reader(raw), claimed, room_in(memoryview(bytearray(len(content)))), split=bit)
        if start is not None:
            found[bit] = start
    assert found == dict(encoder.starts)


@pytest.mark.parametrize("before", range(4))
def test_a_split_in_the_last_block(before: int) -> None:
    """Its codes can give the bits of an end that is put there another meaning: byte 64, and the end of this block.

    Who ends the stream there reads what no other reader does: what follows is read as blocks.
    """
    bits = BitWriter()
    for _ in range(before):  # blocks without content: the place in a byte is another
        bits.put(0b010, 10)
    for value, width in ((0b101, 3), (0, 5), (0, 5), (18 - 4, 4)):
        bits.put(value, width)
    for symbol in (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1):
        bits.put({0: 1, 1: 2, 8: 2}.get(symbol, 0), 3)
    # 128 literals whose codes are a one and seven bits more, 128 that are not used, the end, whose code is a zero; no distance.
    for value, width in (*[(0b11, 2)] * 128, *[(0, 1)] * 128, (0b01, 2), (0, 1)):
        bits.put(value, width)
    for value in b"ab":
        bits.put(1 | int(f"{value:07b}"[::-1], 2) << 1, 8)
    split, inner = bits.bit, CONTENT[:3000]
    bits.put(
        int.from_bytes(deflate(inner, 6, zlib.Z_FIXED), "little"), 8 * len(deflate(inner, 6, zlib.Z_FIXED))
    )
    bits.align()
    raw, read = bytes(bits.done), b"ab@" + inner
    assert inflated(raw, member(raw, read), (split, 3)) is None


def test_what_is_left_to_others() -> None:
    assert inflated(CONTENT, replace(member(CONTENT, CONTENT), method=STORED)) is None
    assert inflated(deflate(b"", 6), member(deflate(b"", 6), b"")) is None


@pytest.mark.parametrize(
    "more",
    [
        b"\0",
        bytes(8),
        end(CONTENT),
        end(CONTENT) + bytes(100),
        end(CONTENT) + HEADER,
        end(CONTENT) + HEADER + deflate(b"", 6),
        end(CONTENT) + HEADER + deflate(CONTENT, 6),
        end(CONTENT) + HEADER[:3] + b"\x08" + HEADER[4:] + b"x" * (3 << 20),  # a name without end
    ],
)
def test_more_behind_the_end(more: bytes) -> None:
    raw = deflate(CONTENT, 6) + more
    assert inflated(raw, member(raw, CONTENT)) is None


@pytest.mark.parametrize("first", [b"", b"x", CONTENT[: 100 * KIB]])
@pytest.mark.parametrize("filling", [b"", bytes(50)])
def test_a_row_of_gzip_files(first: bytes, filling: bytes) -> None:
    """What :rfc:`1952` calls members, with what it puts between them: every other reader sees the first one alone."""
    second = CONTENT[len(first) :]
    raw = deflate(first, 6) + end(first) + filling + HEADER + deflate(second, 6)
    for content in (CONTENT, second, first + second):
        claimed = member(raw, content)
        assert inflated(raw, claimed) is None
        assert inflated(raw, replace(claimed, crc=zlib.crc32(second))) is None


def test_sizes_that_gzip_does_not_know() -> None:
    """It has the size modulo 4 GiB: the plain way is for these."""
    raw = deflate(CONTENT, 6)
    claimed = replace(member(raw, CONTENT), size=len(CONTENT) + (1 << 32))
    assert inflate_into(reader(raw), claimed, room_in(memoryview(bytearray(len(CONTENT))))) is None


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_the_crc_of_what_comes_before(first: bytes, last: bytes) -> None:
    assert crc_before(zlib.crc32(first + last), zlib.crc32(last), len(last)) == zlib.crc32(first)


@pytest.mark.parametrize("length", [1, 1 << 20, (1 << 20) + 7, 64 << 20])
def test_the_crc_of_what_comes_before_much(length: int) -> None:
    last = bytes(length)
    assert crc_before(zlib.crc32(last, zlib.crc32(b"first")), zlib.crc32(last), length) == zlib.crc32(
        b"first"
    )


class Content(bytearray):
    """A place in memory that can be watched."""


@pytest.mark.parametrize("damaged", [False, True])
def test_the_place_is_not_kept(damaged: bool) -> None:
    raw = deflate(CONTENT, 6)
    claimed = member(raw, CONTENT)
    into = Content(len(CONTENT))
    watched = weakref.ref(into)
    given = replace(claimed, crc=claimed.crc ^ 1) if damaged else claimed
    assert (inflate_into(reader(raw), given, room_in(memoryview(into))) is None) == damaged
    del into
    gc.collect()
    assert watched() is None
