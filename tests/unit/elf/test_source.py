"""Bytes at an offset, of a buffer and of a file: the same answers at the edges."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relink.elf.source import BufferSource, ByteSource, FileSource, NotedSource

DATA = bytes(range(100))
READS = [(0, 10), (90, 10), (95, 10), (100, 1), (200, 5), (-1, 5), (5, 0), (5, -3), (0, 1000)]


def expected(offset: int, length: int) -> bytes:
    return b"" if offset < 0 or length <= 0 else DATA[offset : offset + length]


@pytest.mark.parametrize(("offset", "length"), READS)
def test_edges(tmp_path: Path, offset: int, length: int) -> None:
    (tmp_path / "a").write_bytes(DATA)
    with FileSource(tmp_path / "a") as file:
        sources: list[ByteSource] = [
            file,
            BufferSource(DATA),
            BufferSource(bytearray(DATA)),
            NotedSource(DATA),
        ]
        for source in sources:
            assert source.size == 100
            assert bytes(source.read_at(offset, length)) == expected(offset, length)


def test_what_was_read_is_noted() -> None:
    source = NotedSource(DATA)
    source.read_at(10, 5)
    source.read_at(95, 10)
    assert source.noted == [range(10, 15), range(95, 100)]


def test_a_view_is_no_copy() -> None:
    data = bytearray(DATA)
    view = BufferSource(data).read_at(3, 1)
    data[3] = 77
    assert bytes(view) == b"M"


def test_a_closed_file_gives_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    source = FileSource(tmp_path / "a")
    source.close()
    source.close()
    assert (source.size, source.read_at(0, 10)) == (0, b"")


def test_a_file_that_becomes_shorter(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    with FileSource(tmp_path / "a") as source:
        os.truncate(tmp_path / "a", 5)
        assert source.read_at(0, 100) == DATA[:5]


def test_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a regular file"):
        FileSource(tmp_path / "fifo")
