"""What the loader will have stored into slots: DT_RELA's addends, and DT_RELR's slots."""

from __future__ import annotations

import struct

from relink.elf.source import BufferSource
from relink.gpu.host_elf import parse_host_elf, pointers

BASE = 0x1000


def with_relr(*words: int) -> BufferSource:
    """A file of one segment at address 0 that has a dynamic section with this DT_RELR, and slots from `BASE` on."""
    table = struct.pack(f"<{len(words)}Q", *words)
    dynamic = struct.pack("<6Q", 36, 0x200, 35, len(table), 0, 0)
    head = b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0
    )
    size = 0x4000
    programs = struct.pack("<IIQQQQQQ", 1, 6, 0, 0, 0, size, size, 4096)
    programs += struct.pack("<IIQQQQQQ", 2, 6, 0x100, 0x100, 0x100, len(dynamic), len(dynamic), 8)
    file = bytearray((head + programs).ljust(size, b"\0"))
    file[0x100 : 0x100 + len(dynamic)] = dynamic
    file[0x200 : 0x200 + len(table)] = table
    return BufferSource(bytes(file))


def slots(*words: int) -> list[int]:
    source = with_relr(*words)
    elf = parse_host_elf(source)
    assert elf is not None
    _, found, _ = pointers(source, elf, BASE, BASE + 0x2000)
    return sorted((slot - BASE) // 8 for slot in found)


def test_the_second_bitmap_begins_63_slots_after_the_first() -> None:
    """A bitmap's lowest bit says that it is one (gABI, SHT_RELR), so 63 of its 64 stand for slots."""
    first, last = 1 | 1 << 1, 1 | 1 << 63
    assert slots(BASE) == [0]
    assert slots(BASE, first) == [0, 1]
    assert slots(BASE, last) == [0, 63]
    assert slots(BASE, 1, first) == [0, 64]
    assert slots(BASE, last, first) == [0, 63, 64]
    assert slots(BASE, 1, last) == [0, 126]
    assert slots(BASE, 1, 1, first) == [0, 127]
    assert slots(BASE, first, BASE + 80, first) == [0, 1, 10, 11]
