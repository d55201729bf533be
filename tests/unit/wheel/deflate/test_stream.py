"""The content of a member: inflated in pieces of the archive, and what is not as the directory claims."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relink.system.errors import WheelError
from relink.wheel.deflate import stream
from relink.wheel.deflate.stream import CHUNK, content
from relink.wheel.zipformat import Member
from tests.unit.wheel.streams import KIB, deflate, made, member, reader

CONTENT = made(1, 300 * KIB)


def inflated(raw: bytes, claimed: Member) -> bytes:
    return b"".join(content(reader(raw), claimed))


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
