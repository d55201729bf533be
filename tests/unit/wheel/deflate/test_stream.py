"""The content of a member: inflated in pieces of the archive, and what is not as the directory claims."""

from __future__ import annotations

import zlib

import pytest
from isal import isal_zlib
from msgspec.structs import replace
from zlib_ng import zlib_ng

from relink.system.errors import WheelError
from relink.wheel.deflate import stream
from relink.wheel.deflate.stream import (
    CHUNK,
    LAST_BLOCK,
    LAST_BLOCK_BYTES,
    PADDING,
    Checkpoint,
    content,
    copy_bits,
    copy_inflater,
    joined_bits,
    read_up_to,
)
from relink.wheel.zipformat import Member
from tests.support.amount import amount
from tests.support.deflate_encoder import DEFECTS, BitWriter, Encoder
from tests.support.deflate_layouts import BLOCK_DEFECTS, damaged, encode
from tests.unit.wheel.streams import KIB, deflate, made, member, reader

STREAMS = amount(400)


def by_zlib(stream: bytes) -> bytes | None:
    """What pip reads, by zipfile; None if it reads nothing. zipfile ignores what comes behind the end; relink does not."""
    inflater = zlib.decompressobj(-15)
    try:
        data = inflater.decompress(stream)
    except zlib.error:
        return None
    return data if inflater.eof and not inflater.unused_data else None


def by_isal(stream: bytes) -> bytes | None:
    """What a lax inflater reads; None if it reads nothing."""
    inflater = isal_zlib.decompressobj(-15)
    try:
        data: bytes = inflater.decompress(stream)
    except isal_zlib.error:  # type: ignore[misc] # a stub calls it an instance
        return None
    return data if inflater.eof and not inflater.unused_data else None


def by_relink(stream: bytes, claimed: bytes) -> bytes | None:
    """What relink reads; None if it refuses the stream."""
    of = replace(member(stream, claimed), compressed_size=len(stream))
    try:
        return b"".join(content(reader(stream), of))
    except WheelError:
        return None


@pytest.mark.few(6, reason="the same of other values")
@pytest.mark.parametrize("defect", [*DEFECTS, *BLOCK_DEFECTS])
def test_zlib_and_relink_read_the_same(defect: str) -> None:
    differing, refused = [], 0
    for seed in range(STREAMS):
        stream, written = damaged(seed, defect)
        wanted = by_zlib(stream)
        for claimed in {written, wanted or b"", by_isal(stream) or b""}:
            right = wanted if wanted == claimed else None
            if by_relink(stream, claimed) != right:
                differing.append((seed, len(claimed)))
        refused += wanted is None
    assert differing == []
    assert refused > STREAMS // 8


def test_both_read_what_is_valid() -> None:
    for seed in range(STREAMS // 4):
        stream, written = encode(seed)
        assert by_zlib(stream) == written
        assert by_relink(stream, written) == written


@pytest.mark.slow(reason="a second")
def test_a_lax_inflater_would_be_seen() -> None:
    """The streams are such that isal reads them otherwise than zlib: the comparison above is not of two that agree anyway."""
    lax = {
        defect
        for defect in (*DEFECTS, *BLOCK_DEFECTS)
        for stream, _ in (damaged(seed, defect) for seed in range(50))
        if by_isal(stream) != by_zlib(stream)
    }
    assert lax >= {"literals incomplete", "distances incomplete", "one long distance"}


def up_to(stream: bytes, bit: int) -> bytes | None:
    return read_up_to(zlib_ng.decompressobj(-15), reader(stream), 0, bit)


MORE = pytest.mark.slow(reason="other streams of the same kinds of blocks")


@pytest.mark.few(0, reason="a second")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=MORE) for seed in range(1, 6))])
def test_it_can_be_read_up_to_where_blocks_begin_and_nowhere_else(seed: int) -> None:
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
    found = {bit: up_to(raw, bit) for bit in range(8 * len(raw) + 1)}
    assert {bit: data for bit, data in found.items() if data is not None} == {
        bit: content[:start] for bit, start in encoder.starts
    }


@pytest.mark.parametrize("before", range(4))
def test_a_place_in_the_last_block(before: int) -> None:
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
    split, inner = bits.bit, made(1, 3000)
    bits.put(
        int.from_bytes(deflate(inner, 6, zlib.Z_FIXED), "little"), 8 * len(deflate(inner, 6, zlib.Z_FIXED))
    )
    bits.align()
    raw = bytes(bits.done)
    assert up_to(raw, split) is None


CONTENT = made(1, 300 * KIB)


def inflated(raw: bytes, claimed: Member) -> bytes:
    return b"".join(content(reader(raw), claimed))


@pytest.mark.few(6, reason="the same of other values")
@pytest.mark.parametrize("level", [0, 1, 6, 9])
@pytest.mark.parametrize("size", [0, 1, 100, 64 * KIB, 300 * KIB])
def test_what_comes_out(monkeypatch: pytest.MonkeyPatch, level: int, size: int) -> None:
    data = CONTENT[:size]
    raw = deflate(data, level)
    for piece in (1 << 20, 16 << 10, 1000, 20):
        monkeypatch.setattr(stream, "COMPRESSED_CHUNK", piece)
        assert inflated(raw, member(raw, data)) == data


def test_no_chunk_is_longer_than_it_may_be() -> None:
    """A piece of the archive may have a thousand times as much content."""
    data = bytes(5 * CHUNK + 1)
    raw = deflate(data, 9)
    assert [len(chunk) for chunk in content(reader(raw), member(raw, data))][-1] <= CHUNK
    assert max(len(chunk) for chunk in content(reader(raw), member(raw, data))) == CHUNK


def test_next_to_nothing_more_than_is_claimed_comes_out() -> None:
    data = bytes(50 * CHUNK)
    raw = deflate(data, 9)
    given: list[bytes] = []
    with pytest.raises(WheelError, match="is larger than the 5 bytes"):
        given += content(reader(raw), replace(member(raw, data), size=5))
    assert given == []


@pytest.mark.parametrize("more", [b"\0", bytes(8), deflate(b"", 6), deflate(CONTENT, 6), b"x" * (3 << 20)])
def test_more_behind_the_end(more: bytes) -> None:
    raw = deflate(CONTENT, 6) + more
    with pytest.raises(WheelError, match="there are bytes after the end of the compressed data"):
        inflated(raw, member(raw, CONTENT))


def test_what_is_not_claimed() -> None:
    raw = deflate(CONTENT, 6)
    right = member(raw, CONTENT)
    for claimed, reason in (
        (replace(right, crc=right.crc ^ 1), "the content's CRC is"),
        (replace(right, size=right.size - 1), "is larger than the"),
        (replace(right, size=right.size + 1), "the directory claims"),
        (replace(right, compressed_size=len(raw) - 1), "the compressed data ends early"),
    ):
        with pytest.raises(WheelError, match=reason):
            inflated(raw, claimed)
    with pytest.raises(WheelError, match="cannot be inflated"):
        inflated(b"\x07" + raw, replace(right, compressed_size=len(raw) + 1))


def test_a_checkpoint_goes_on_where_the_inflater_was() -> None:
    data = made(4, 3 << 20)
    packed = deflate(data, 6)
    checkpoints: list[Checkpoint] = []
    assert b"".join(content(reader(packed), member(packed, data), checkpoints.append)) == data
    assert len(checkpoints) >= 4
    for checkpoint in checkpoints:
        inflater = copy_inflater(checkpoint.inflater)
        assert inflater.decompress(packed[checkpoint.byte :]) == data[checkpoint.start :]


def test_checkpoints_are_few_however_large_a_member_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "COMPRESSED_CHUNK", KIB)
    data = made(4, 3 << 20)
    packed = deflate(data, 6)
    checkpoints: list[Checkpoint] = []
    assert b"".join(content(reader(packed), member(packed, data), checkpoints.append)) == data
    assert 64 < len(checkpoints) <= 129


def test_fields_are_joined_lowest_bit_first() -> None:
    assert joined_bits([(0b1, 1), (0b00, 2), (0b101, 3)]) == (0b101001, 6)
    assert joined_bits([]) == (0, 0)


@pytest.mark.parametrize("place", range(8))
def test_padding_is_blocks_without_content(place: int) -> None:
    _number, count = PADDING[place]
    assert count % 8 == place
    value, size = joined_bits([PADDING[place], LAST_BLOCK])
    inflater = zlib.decompressobj(-15)
    assert inflater.decompress(value.to_bytes(-(-size // 8), "little")) == b""
    assert inflater.eof


def test_the_last_block() -> None:
    inflater = zlib.decompressobj(-15)
    assert inflater.decompress(LAST_BLOCK_BYTES) == b""
    assert inflater.eof


@pytest.mark.parametrize("first", range(8))
@pytest.mark.parametrize("length", [*range(20), 64, 1000])
def test_every_bit_keeps_its_place(first: int, length: int) -> None:
    data = bytes((7 * number * number + 3) % 256 for number in range(200))
    stream = int.from_bytes(data, "little")
    copied = b"".join(copy_bits(lambda at, size: data[at : at + size], first, first + length, (0b1, 1)))
    padding, count = PADDING[first]
    bits = (stream >> first & (1 << length) - 1) << count | padding | 1 << count + length
    assert copied == bits.to_bytes(-(-(count + length + 1) // 8), "little")
