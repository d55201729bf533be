"""Bits out of the middle of a stream, made a stream of their own; that spans are right is in test_splice.py."""

from __future__ import annotations

import zlib

import pytest

from relink.wheel.deflate.bits import LAST_BLOCK, LAST_BLOCK_BYTES, PADDING, copy_bits, joined_bits


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
