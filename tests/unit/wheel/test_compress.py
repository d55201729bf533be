"""One member, deflated or stored, with the facts that its headers state."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator

import pytest

from relink.system.errors import RelinkError
from relink.wheel.compress import largest_packed_size, pack
from relink.wheel.zipformat import DEFLATED, STORED

CONTENT = b"abc" * 100_000 + random.Random(1).randbytes(100_000)


def pieces() -> Iterator[bytes]:
    for start in range(0, len(CONTENT), 70_001):
        yield CONTENT[start : start + 70_001]


@pytest.mark.parametrize("level", range(1, 10))
def test_a_deflated_member(level: int) -> None:
    packed = pack("x", CONTENT, None, level=level)
    stream = b"".join(packed.parts)
    assert zlib.decompress(stream, -15) == CONTENT
    assert (packed.crc, packed.size) == (zlib.crc32(CONTENT), len(CONTENT))
    assert packed.compressed_size == len(stream) < len(CONTENT)
    assert (packed.pieces, packed.sha256) == ((), None)  # nothing is reused


def test_pieces_are_the_same_as_the_whole() -> None:
    assert pack("x", pieces(), len(CONTENT), level=3) == pack("x", CONTENT, None, level=3)


def test_a_stored_member() -> None:
    packed = pack("x", pieces(), len(CONTENT), level=3, method=STORED)
    assert b"".join(packed.parts) == CONTENT
    assert (packed.crc, packed.compressed_size, packed.size) == (
        zlib.crc32(CONTENT),
        len(CONTENT),
        len(CONTENT),
    )


def test_what_is_written_is_not_kept() -> None:
    written = bytearray()
    packed = pack("x", CONTENT, None, level=3, write=written.extend)
    assert packed.parts == ()
    assert packed.compressed_size == len(written)
    assert zlib.decompress(written, -15) == CONTENT


@pytest.mark.parametrize("method", [STORED, DEFLATED])
@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_size_that_is_not_true(method: int, wrong: int) -> None:
    with pytest.raises(RelinkError, match=f"'x' was announced with {len(CONTENT) + wrong} bytes and has"):
        pack("x", pieces(), len(CONTENT) + wrong, level=3, method=method)


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000])
@pytest.mark.parametrize("level", [1, 3, 9])
def test_the_upper_bound_holds_for_what_does_not_compress(size: int, level: int) -> None:
    noise = random.Random(size).randbytes(size)
    assert pack("x", noise, None, level=level).compressed_size <= largest_packed_size(DEFLATED, size)
    assert largest_packed_size(STORED, size) == size
