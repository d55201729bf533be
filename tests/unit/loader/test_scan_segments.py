"""Segments that would replace other memory, and headers that are none."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.support.cc import shared
from tests.support.elf_attacks import (
    FAR,
    resegmented,
    rewritten,
)
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library, build
from tests.unit.loader.scanned import PAGE, said

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


def test_segments_out_of_order_replace_other_memory(tmp_path: Path) -> None:
    """The place that is mapped first ends where the last segment does; the others are put where they say."""
    path = shared(tmp_path / "a.so", "int x = 1; int f(void) { return x; }")
    assert said(path) == ""
    data = path.read_bytes()
    start, size = struct.unpack_from("<Q", data, 32)[0], 56
    rows = [data[at : at + size] for at in range(start, start + size * data[56], size)]
    loads = [number for number, row in enumerate(rows) if row[:4] == b"\1\0\0\0"]
    rows[loads[1]], rows[loads[-1]] = rows[loads[-1]], rows[loads[1]]
    path.write_bytes(data[:start] + b"".join(rows) + data[start + size * len(rows) :])
    assert "begins before the page on which the one before it ends" in said(path)


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        (1, {"memory_size": 16}, "is larger in the file than in memory"),
        (1, {"memory_size": (1 << 64) - 1}, "reaches to"),
        (1, {"file_size": 1 << 40, "memory_size": 1 << 40}, "ends past the end of the file"),
        (1, {"type": 0}, "have no PT_LOAD"),
        (2, {"address": FAR}, "PT_DYNAMIC: 0x7f000000 is not in the file's part of a segment"),
        (2, {"type": 6}, "PT_PHDR: "),
        (0x6474E551, {"type": 2}, "PT_DYNAMIC: is there more than once"),
        (0x6474E551, {"type": 6, "address": 65}, "is not where the program headers are mapped"),
        (0x6474E551, {"type": 7, "memory_size": 1 << 40, "align": 8}, "PT_TLS: has 0 bytes"),
        (0x6474E551, {"type": 7, "memory_size": 8, "file_size": 16, "align": 8}, "PT_TLS: has 16 bytes"),
        (0x6474E551, {"type": 7, "memory_size": 8, "align": 24}, "PT_TLS: has the alignment"),
        (
            0x6474E551,
            {"type": 7, "memory_size": 8, "file_size": 8, "address": FAR, "align": 8},
            "PT_TLS: 0x7f",
        ),
        (0x6474E551, {"type": 0x6474E552, "address": FAR, "memory_size": PAGE}, "PT_GNU_RELRO: "),
        (0x6474E551, {"type": 3, "address": FAR, "file_size": 8, "memory_size": 8}, "PT_INTERP: "),
    ],
)
def test_a_segment(kind: int, fields: dict[str, int], reason: str) -> None:
    assert reason in said(resegmented(rewritten(), kind, **fields))


def test_a_fixed_address_where_a_loader_may_be() -> None:
    """A program of type ET_EXEC replaces whatever is at its addresses."""
    data = build(Library(kind=2))
    assert said(data) == ""
    high = resegmented(data, 1, address=0x7F00_0000_0000)
    assert "is beyond 0x1000000000" in said(high)


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", b"#!/bin/sh\n" * 9, build(Library(machine=8)), build(Library(elf_class=32))]
)
def test_what_is_no_file_for_this_loader(data: bytes) -> None:
    assert said(data).startswith("the ELF header: ")
