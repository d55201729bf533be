"""Streams inflated block by block: what any other inflater makes of them, and where each block begins."""

from __future__ import annotations

import random
import zlib
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from relink.wheel import blocks
from relink.wheel.bits import END, FILLING, LAST, taken
from relink.wheel.blocks import Block, crc_of, inflate_blocks
from tests.unit.wheel.streams import KIB, deflate, made, reader


def found(stream: bytes, size: int) -> tuple[list[Block], int, bytes] | None:
    into = bytearray(size)
    result = inflate_blocks(reader(stream), len(stream), memoryview(into))
    return result and (*result, bytes(into))


def check(stream: bytes, content: bytes) -> list[Block]:
    """All content is there; ended where a block begins, the stream inflates to what comes before."""
    result = found(stream, len(content))
    assert result
    places, crc, into = result
    assert into == content
    assert crc == zlib.crc32(content)
    assert places[0] == (0, 0)
    assert places == sorted(places)
    for bit, start in places:
        ended = b"".join(taken(reader(stream), 0, bit, LAST))
        assert zlib.decompress(ended, wbits=-15) == content[:start]
    return places


STRATEGIES = {"default": zlib.Z_DEFAULT_STRATEGY, "codes": zlib.Z_HUFFMAN_ONLY, "fixed": zlib.Z_FIXED}


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_streams_of_zlib(level: int, strategy: int) -> None:
    content = made(level, 700 * KIB)
    assert len(check(deflate(content, level, strategy), content)) > 5


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_streams_of_isal(level: int) -> None:
    content = made(level, 700 * KIB)
    deflater = isal_zlib.compressobj(level, isal_zlib.DEFLATED, -15)
    assert len(check(deflater.compress(content) + deflater.flush(), content)) > 1


@pytest.mark.parametrize("flush", [zlib.Z_PARTIAL_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH])
def test_blocks_without_content(flush: int) -> None:
    """What a flush leaves is a stored block, or one of fixed codes, in any place of a byte."""
    content = made(4, 300 * KIB)
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
    stream = b""
    for at in range(0, len(content), 7 * KIB):
        stream += deflater.compress(content[at : at + 7 * KIB]) + deflater.flush(flush)
    places = check(stream + deflater.flush(), content)
    assert len({start for _, start in places}) < len(places)


def test_the_filling() -> None:
    """What relink puts around blocks that it takes over can be taken over itself."""
    for place, (number, count) in enumerate(FILLING):
        assert count % 8 == place
        stream = (number | LAST[0] << count).to_bytes(-(-(count + LAST[1]) // 8), "little")
        assert zlib.decompress(stream, wbits=-15) == b""
        check(stream, b"")


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
    guess, guessed = blocks._guess, []

    def noted(*arguments: Any) -> int | None:
        bit = guess(*arguments)
        if bit is not None:
            guessed.append(bit)
        return bit

    monkeypatch.setattr(blocks, "_guess", noted)
    right = {bit for bit, _ in check(stream, content)}
    assert {*guessed} - right


def test_what_is_left_to_others() -> None:
    content = made(1, 200 * KIB)
    stream = deflate(content, 6)
    assert found(stream, len(content))
    assert found(stream, len(content) - 1) is None
    assert found(stream, len(content) + 1) is None
    assert found(stream[:-1], len(content)) is None
    assert found(stream + b"\0", len(content)) is None
    assert found(b"", 0) is None
    assert found(b"\x07", 0) is None  # there is no fourth kind of block
    assert found(stream + stream, 2 * len(content)) is None


def test_so_large_blocks_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytes(300 * KIB)
    stream = deflate(content, 6)
    assert found(stream, len(content))
    monkeypatch.setattr(blocks, "_LARGEST", 200 * KIB)
    assert found(stream, len(content)) is None


def test_so_small_blocks_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Mock(wraps=blocks._inflate_block)
    monkeypatch.setattr(blocks, "_inflate_block", one)
    assert found(b"\0\0\0\xff\xff" * 5000 + END, 0) is None
    assert one.call_count == 257


def test_so_odd_blocks_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each end of blocks with fixed codes has to be tried."""
    content = made(2, 800 * KIB)
    stream = deflate(content, 6, zlib.Z_FIXED)
    assert found(stream, len(content))
    monkeypatch.setattr(blocks, "_PATIENCE", 0)
    assert found(stream, len(content)) is None


def test_stored_blocks_end_where_a_byte_does(monkeypatch: pytest.MonkeyPatch) -> None:
    content = made(3, 800 * KIB)
    monkeypatch.setattr(blocks, "_end", None)
    check(deflate(content, 0), content)


@given(
    st.one_of(
        st.binary(max_size=300),
        st.builds(
            lambda seed, at, bit: flipped(deflate(made(seed, 9 * KIB), 6, memory=1), at, bit),
            st.integers(0, 5),
            st.integers(0, 9 * KIB),
            st.integers(0, 7),
        ),
    ),
    st.integers(0, 9 * KIB),
)
def test_damage_is_told_or_left_to_others(stream: bytes, size: int) -> None:
    inflater = zlib.decompressobj(-15)
    try:
        content: bytes | None = inflater.decompress(stream)
        if not inflater.eof or inflater.unused_data:
            content = None
    except zlib.error:
        content = None
    for length in {size, len(content or b"")}:
        result = found(stream, length)
        assert result is None or content is None or result[2] == content
        if content is not None and len(content) == length and result:
            assert result[1] == zlib.crc32(content)


def flipped(stream: bytes, at: int, bit: int) -> bytes:
    at %= len(stream)
    return stream[:at] + bytes([stream[at] ^ 1 << bit]) + stream[at + 1 :]


def test_blocks_are_proved() -> None:
    content = bytes(random.Random(1).choices(b"words", k=700 * KIB))
    stream = deflate(content, 6)
    result = found(stream, len(content))
    assert result
    places = result[0]
    first, start = places[len(places) // 3]
    last, stop = places[2 * len(places) // 3]
    window, size = content[start - 32 * KIB : start], stop - start
    right = zlib.crc32(content[start:stop])
    read = reader(stream)
    assert crc_of(read, first, last, window, size) == right
    assert crc_of(read, first, last, bytes(32 * KIB), size) not in (None, right)
    assert [crc_of(read, first, last, window, size + more) for more in (-1, 1)] == [None, None]
    assert [crc_of(read, first, last + bit, window, size) for bit in range(-9, 9) if bit] == [None] * 17
    assert [crc_of(read, first + bit, last, window, size) for bit in range(-9, 9) if bit] == [None] * 17
    assert crc_of(read, first, first, window, 0) == 0
