"""Members inflated in one go: as gzip files, which they are not, so that nothing else may pass for one."""

from __future__ import annotations

import gc
import struct
import weakref
import zlib
from dataclasses import replace

import pytest

from relink.system.spool import room_in
from relink.wheel.deflate import stream
from relink.wheel.deflate.stream import inflate_into
from relink.wheel.zipformat import STORED, Member
from tests.unit.wheel.streams import KIB, deflate, made, member, reader

CONTENT = made(1, 300 * KIB)
HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


def inflated(raw: bytes, claimed: Member) -> bytes | None:
    into = bytearray(claimed.size)
    progress: list[int] = []
    if not inflate_into(reader(raw), claimed, room_in(memoryview(into)), progress.append):
        return None
    assert sum(progress) == claimed.size
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
    assert not inflate_into(reader(raw), claimed, room_in(memoryview(bytearray(len(CONTENT)))))


class Content(bytearray):
    """A place in memory that can be watched."""


@pytest.mark.parametrize("damaged", [False, True])
def test_the_place_is_not_kept(damaged: bool) -> None:
    raw = deflate(CONTENT, 6)
    claimed = member(raw, CONTENT)
    into = Content(len(CONTENT))
    watched = weakref.ref(into)
    given = replace(claimed, crc=claimed.crc ^ 1) if damaged else claimed
    assert inflate_into(reader(raw), given, room_in(memoryview(into))) != damaged
    del into
    gc.collect()
    assert watched() is None
