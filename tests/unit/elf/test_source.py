"""Bytes at an offset, of a buffer and of a file: the same answers at the edges."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.elf.source import BufferSource, ByteSource, FileSource, NotedSource, linking_digest
from tests.support.cc import shared


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("digest") / "lib.so"
    source = "int value = 7; int first(void) { return value; }"
    return shared(path, source, flags=["-Wl,--build-id=0x0123456789abcdef0123"]).read_bytes()


def changed(content: bytes, at: int) -> bytes:
    data = bytearray(content)
    data[at] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    "part", [b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23", b"first\0"], ids=["build-id", "symbol"]
)
def test_what_linking_depends_on_counts(content: bytes, part: bytes) -> None:
    assert linking_digest(changed(content, content.index(part))) != linking_digest(content)


def test_the_size_counts_and_the_last_byte_does_not(content: bytes) -> None:
    assert linking_digest(content + b"\0") != linking_digest(content)
    assert linking_digest(changed(content, len(content) - 1)) == linking_digest(content)


def test_notes_without_end_are_read_to_a_limit(content: bytes) -> None:
    """4,000 PT_NOTE that each claim 64 MiB would be 256 GB to hash."""
    size = 64 << 20
    image = read_image(content, "x")
    load = next(segment for segment in image.segments if segment.type == 1)
    data = bytearray(content).ljust(size, b"\0")
    headers = struct.pack("<IIQQQQQQ", 1, 5, 0, load.address, 0, load.file_size, load.memory_size, 4096)
    headers += struct.pack("<IIQQQQQQ", 4, 4, 0, 0, 0, size, size, 4) * 4000
    struct.pack_into("<Q", data, 32, len(data))
    struct.pack_into("<H", data, 56, 4001)
    data += headers
    began = time.process_time()
    linking_digest(bytes(data))
    assert time.process_time() - began < 5


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
