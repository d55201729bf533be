"""Compressed bundles: each version and method, and what is damaged or too large."""

from __future__ import annotations

import struct
import time

import pytest

from relink.elf.source import BufferSource
from relink.gpu.amd.bundle import Budget, walk
from relink.gpu.amd.compressed import CompressedHeader, parse_header
from tests.unit.gpu.amd.build import ccob, chain, entries_of, raw
from tests.unit.gpu.amd.reading import names, read

COMPRESSED = [(version, method) for version in (1, 2, 3) for method in ("zstd", "zlib")]


@pytest.mark.parametrize(("version", "method"), COMPRESSED)
def test_a_compressed_bundle(version: int, method: str) -> None:
    inner = raw(entries_of("gfx1100", "gfx1200"))
    code = read(ccob(inner, version, method))
    (bundle,) = code.bundles
    assert (bundle.container, bundle.method, bundle.uncompressed_size) == (
        f"ccob-v{version}",
        method,
        len(inner),
    )
    assert names(bundle) == ["gfx1100", "gfx1200"]
    assert [o.version for o in code.code_objects] == [6, 6]
    assert [p for p in code.problems if "version 1" not in p] == []


@pytest.mark.parametrize(
    ("version", "method", "text"), [(4, 1, "version 4"), (0, 1, "version 0"), (3, 2, "method 2")]
)
def test_an_unknown_version_or_method_is_named_and_counts(version: int, method: int, text: str) -> None:
    data = b"CCOB" + struct.pack("<HH", version, method) + ccob(raw(entries_of("gfx1100")))[8:]
    code = read(data)
    assert [b.container for b in code.bundles] == ["unreadable"]
    assert any(text in p for p in code.problems)


def test_a_payload_that_is_damaged_or_no_bundle() -> None:
    data = bytearray(ccob(raw(entries_of("gfx1100")), 2, "zlib"))
    data[24:40] = bytes(16)
    assert any("damaged" in p for p in read(bytes(data)).problems)
    data = bytearray(ccob(raw(entries_of("gfx1100"))))
    data[32:36] = b"abcd"
    assert any("zstd payload cannot be read" in p for p in read(bytes(data)).problems)
    assert any("is no bundle" in p for p in read(ccob(b"something else" * 20)).problems)


def test_a_size_that_the_frame_contradicts_is_named() -> None:
    data = bytearray(ccob(raw(entries_of("gfx1100"))))
    struct.pack_into("<Q", data, 16, 123456)
    assert any("its zstd frame" in p for p in read(bytes(data)).problems)


@pytest.mark.few(0, reason="the same by the other method")
@pytest.mark.parametrize("method", ["zstd", "zlib"])
def test_a_bomb_costs_no_more_than_a_bundle(method: str) -> None:
    bomb = ccob(raw(entries_of("gfx1100")) + bytes(300 << 20), 3, method)
    assert len(bomb) < 1 << 20
    started = time.process_time()
    code = read(bomb)
    assert names(code.bundles[0]) == ["gfx1100"]
    assert time.process_time() - started < 0.5
    nothing = ccob(b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", 4000) + bytes(300 << 20), 3, method)
    started = time.process_time()
    read(nothing)
    assert time.process_time() - started < 0.5


def test_a_window_that_wants_too_much_memory_is_refused() -> None:
    content = raw(entries_of("gfx1100"))
    # RFC 8878: magic, frame header with a window of 2**(10 + 20) bytes, one raw block, the last
    packed = (
        b"\x28\xb5\x2f\xfd\x00" + bytes([20 << 3]) + struct.pack("<I", len(content) << 3 | 1)[:3] + content
    )
    assert (
        read(
            b"CCOB"
            + struct.pack("<HHQQQ", 3, 1, 32 + len(packed), len(content), 0)
            + packed.replace(b"\xa0", b"\x50", 1)
        )
        .bundles[0]
        .entries
    )
    data = b"CCOB" + struct.pack("<HHQQQ", 3, 1, 32 + len(packed), 8192, 0) + packed
    code = read(data)
    assert code.bundles[0].entries == ()
    assert any("damaged" in p for p in code.problems)


class _Endless:
    """A CCOB of version 1 whose zstd frame consists of empty blocks, each three zero bytes: a sparse file of 1 TB."""

    HEAD = b"CCOB" + struct.pack("<HHIQ", 1, 1, 1 << 20, 0) + b"\x28\xb5\x2f\xfd\x00\x50"

    def __init__(self) -> None:
        self.taken = 0

    @property
    def size(self) -> int:
        return 1 << 40

    def read_at(self, offset: int, length: int) -> bytes:
        self.taken += length
        if self.taken > 64 << 20:
            raise AssertionError("more than 64 MiB were read of a payload from which nothing comes")
        return (self.HEAD[offset : offset + length]).ljust(length, b"\0")


def test_a_frame_of_empty_blocks_is_given_up() -> None:
    source, budget = _Endless(), Budget()
    (bundle,) = walk(source, 0, source.size, budget)
    assert bundle.entries == ()
    assert any("the rest is not read" in p for p in budget.problems)
    assert source.taken < 4 << 20
    assert (1 << 20) <= Budget().inflated - budget.inflated < 2 << 20


def test_many_bombs_in_one_file_are_given_up() -> None:
    data, _ = chain([ccob(raw(entries_of("gfx1100")))] * 20)
    budget = Budget(inflated=10 * 128 * 1024)
    bundles = walk(BufferSource(data), 0, len(data), budget)
    assert sum(bool(b.entries) for b in bundles) == 10
    assert any("used up" in p for p in budget.problems)
    budget = Budget(bundles=5)
    assert len(walk(BufferSource(data), 0, len(data), budget)) == 5
    assert any("more bundles" in p for p in budget.problems)


def test_version_1_ends_at_the_next_wrapper() -> None:
    data, places = chain([ccob(raw(entries_of("gfx1100")), 1), ccob(raw(entries_of("gfx1030")), 1, "zlib")])
    budget = Budget()
    bundles = walk(BufferSource(data), 0, len(data), budget, known=places)
    assert [names(b) for b in bundles] == [["gfx1100"], ["gfx1030"]]
    assert budget.problems == []
    assert len(walk(BufferSource(data), 0, len(data), budget)) == 1
    assert any("does not say where it ends" in p for p in budget.problems)


@pytest.mark.parametrize(("version", "size"), [(2, 24), (3, 32)])
def test_a_compressed_size_equal_to_the_header(version: int, size: int) -> None:
    """Nothing follows, which is a payload that cannot be read; the header itself is none that contradicts itself."""
    data = ccob(raw(entries_of("gfx1100")), version, size=size)
    header = parse_header(data)
    assert isinstance(header, CompressedHeader)
    assert (header.size, header.header_size) == (size, size)
    assert (
        parse_header(ccob(b"", version, size=size - 1))
        == f"CCOB says {size - 1} bytes, less than its own header"
    )
