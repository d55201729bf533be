"""The content of a member in chunks: all that the directory claims, and nothing else."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest

from relink.system.errors import WheelError
from relink.wheel.deflate import stream
from relink.wheel.zipformat import STORED, Member
from tests.unit.wheel.streams import KIB, deflate, made, member, reader

CONTENT = made(1, 300 * KIB)


def inflated(raw: bytes, claimed: Member) -> bytes | None:
    """What comes out; None if the content is refused, and then its last chunk has been held back."""
    chunks: list[bytes] = []
    try:
        chunks += stream.content(reader(raw), claimed)
    except WheelError:
        assert sum(map(len, chunks)) < claimed.size
        return None
    return b"".join(chunks)


@pytest.mark.parametrize("level", [0, 1, 6, 9])
@pytest.mark.parametrize("size", [0, 1, 100, 64 * KIB, 300 * KIB])
def test_what_comes_out(monkeypatch: pytest.MonkeyPatch, level: int, size: int) -> None:
    content = CONTENT[:size]
    raw = deflate(content, level)
    for feed, at_once in ((1 << 14, 1 << 20), (1000, 1 << 20), (1 << 14, 7777), (20, 100_000)):
        monkeypatch.setattr(stream, "COMPRESSED_CHUNK", feed)
        monkeypatch.setattr(stream, "CHUNK", at_once)
        assert inflated(raw, member(raw, content)) == content


def test_what_is_not_claimed() -> None:
    raw = deflate(CONTENT, 6)
    right = member(raw, CONTENT)
    assert inflated(raw, right) == CONTENT
    assert inflated(raw, replace(right, crc=right.crc ^ 1)) is None
    assert inflated(raw, replace(right, size=right.size - 1)) is None
    assert inflated(raw, replace(right, size=right.size + 1)) is None
    assert inflated(raw, replace(right, size=right.size + (1 << 32))) is None
    assert inflated(raw[:-1], replace(right, compressed_size=len(raw) - 1)) is None
    assert inflated(b"\x07" + raw, replace(right, compressed_size=len(raw) + 1)) is None
    stored = replace(right, method=STORED, compressed_size=len(CONTENT))
    assert inflated(CONTENT, stored) == CONTENT
    assert inflated(CONTENT, replace(stored, crc=stored.crc ^ 1)) is None


@pytest.mark.parametrize("more", [b"\0", bytes(8), deflate(b"", 6), deflate(CONTENT, 6)])
def test_more_behind_the_end(more: bytes) -> None:
    raw = deflate(CONTENT, 6) + more
    assert inflated(raw, member(raw, CONTENT)) is None
    both = member(raw, CONTENT + CONTENT)
    assert inflated(raw, replace(both, crc=zlib.crc32(CONTENT + CONTENT))) is None
