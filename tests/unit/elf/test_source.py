"""Bytes at an offset, of a buffer and of a file: the same answers at the edges."""

from __future__ import annotations

import mmap
import os
import random
import struct
import sysconfig
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from relink.elf.constants import PT_DYNAMIC
from relink.elf.gaps import find_gaps
from relink.elf.image import library_names, read_image, read_sections
from relink.elf.source import BufferSource, ByteSource, FileSource, NotedSource, linking_digest
from relink.elf.symbol_reader import read_symbols
from relink.gpu.amd.device_code import read_device_code
from relink.system.errors import ElfError
from relink.system.spool import LazyMemory
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


def lazy(content: bytes) -> memoryview:
    """The content in memory of which only the first page is there."""
    memory = LazyMemory(len(content), lambda part: iter([(part.start, content[part.start : part.stop])]))
    memory.put(0, content[: mmap.PAGESIZE])
    return memoryview(memory)


def facts_of(content: bytes, given: Callable[[bytes], bytes | memoryview] = bytes) -> list[object]:
    """What the readers of ELF files say of a file, or why they refuse; each gets it anew."""
    found: list[object] = []
    readers: list[Callable[[bytes | memoryview], object]] = [
        lambda buffer: read_image(buffer, "x"),
        read_symbols,
        linking_digest,
        lambda buffer: read_sections(buffer, "x"),
        lambda buffer: read_device_code(BufferSource(buffer), "x"),
    ]
    with suppress(ElfError):
        image = read_image(content, "x")
        readers += [lambda buffer: library_names(buffer, image), lambda buffer: find_gaps(buffer, image)]
    for read in readers:
        try:
            found.append(read(given(content)))
        except ElfError as error:
            found.append(str(error))
    return found


_PLACES = (
    sysconfig.get_config_var("LIBDIR"),
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
)


# Strings and section headers that fill several pages.
_LONG = "".join(
    f'__attribute__((section(".rodata.{number}"))) const char name{number}[900] = "libnumber{number}.so.1";'
    f'__attribute__((section("part{number}"))) int value{number} = 1;'
    for number in range(150)
)


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("library", ["long.so", "libcrypto.so.3", "libstdc++.so.6", "libpython3.11.so.1.0"])
def test_what_is_filled_where_it_is_read_says_the_same(library: str, tmp_path: Path) -> None:
    """Every reader asks for what it reads, also where damage leads the reader elsewhere."""
    if library == "long.so":
        shared(tmp_path / library, _LONG)
    path = next((path for place in (tmp_path, *_PLACES) if (path := Path(place, library)).exists()), None)
    if path is None:
        pytest.skip(f"there is no {library} here")
    content = path.read_bytes()
    assert facts_of(content, lazy) == facts_of(content)
    assert BufferSource(lazy(content)).read_at(20_000, 9) == content[20_000:20_009]
    image = read_image(content, "x")
    dynamic = next(segment for segment in image.segments if segment.type == PT_DYNAMIC)
    # Numbers of the ELF header, of program headers, and of the dynamic array.
    programs = range(64, 64 + 56 * len(image.segments), 8)
    places = [24, 32, 40, *programs, *range(dynamic.offset, dynamic.offset + dynamic.file_size, 8)]
    rng = random.Random(library)
    differ = 0
    for _ in range(20):
        damaged = bytearray(content)
        for place in rng.sample(places, rng.randrange(1, 4)):
            value = rng.choice([rng.randrange(len(content)), rng.randrange(1 << 20), rng.getrandbits(64)])
            damaged[place : place + 8] = value.to_bytes(8, "little")
        expected = facts_of(bytes(damaged))
        differ += expected != facts_of(content)
        assert facts_of(bytes(damaged), lazy) == expected
    assert differ > 8
