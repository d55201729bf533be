"""The digest of what linking depends on: it sees each part of that, nothing else, and reads a bounded part of a file."""

from __future__ import annotations

import struct
import time

import pytest

from relink.elf.digest import linking_digest
from relink.elf.image import read_image
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
