"""The dynamic segment: its entries, its strings, and files that lie about both."""

from __future__ import annotations

import itertools
import struct
import time

import pytest

from relink.elf.dynamic import Memory, Strings
from relink.system.errors import ElfError
from tests.unit.elf.handmade import (
    HASH,
    STRSZ,
    STRTAB,
    SYMENT,
    SYMTAB,
    VERDEF,
    VERNEED,
    VERSYM,
    Handmade,
    read_symbols,
    told_quickly,
)

LIES_STRINGS: dict[str, tuple[Handmade, str]] = {
    "strings outside": (Handmade(tags={STRTAB: 0x999999}), "string table"),
    "string size too large": (Handmade(tags={STRSZ: 1 << 40}), "DT_STRSZ"),
    "strings cut off": (Handmade(tags={STRSZ: 7}), "does not end in a zero byte"),
    "name outside": (Handmade(words={("sym", 72): 0xFFFFFFF0}), "names outside"),
}


@pytest.mark.parametrize("lie", LIES_STRINGS)
def test_lies_of_strings_and_entries_are_problems_and_end_quickly(lie: str) -> None:
    told_quickly(*LIES_STRINGS[lie])


def test_a_dynamic_segment_without_an_end() -> None:
    told_quickly(Handmade(), "no end", cut=16)


def test_overlapping_names_cost_no_more_than_their_table() -> None:
    """20,000 symbols times one long name would be gigabytes."""
    count, length = 20_000, 1_000_000
    symbols = b"".join(struct.pack("<IBBHQQ", i, 0x12, 0, 7, 1, 0) for i in range(count))
    base = 64 + 2 * 56
    tables = (
        struct.pack("<II", 1, count) + struct.pack("<I", 1) + struct.pack(f"<{count}I", *range(1, count), 0)
    )
    hashes, strings = base + len(symbols), base + len(symbols) + len(tables)
    dynamic = strings + length + 1
    array = [(SYMTAB, base), (STRTAB, strings), (HASH, hashes), (STRSZ, length + 1), (SYMENT, 24), (0, 0)]
    body = symbols + tables + b"a" * length + b"\0"
    body += b"".join(struct.pack("<QQ", *((t, v + 0x40000) if t in (4, 5, 6) else (t, v))) for t, v in array)
    head = (
        b"\x7fELF\x02\x01\x01"
        + b"\0" * 9
        + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    )
    size = base + len(body)
    loads = struct.pack("<IIQQQQQQ", 1, 4, 0, 0x40000, 0, size, size, 8)
    loads += struct.pack("<IIQQQQQQ", 2, 4, dynamic, 0x40000 + dynamic, 0, 96, 96, 8)
    start = time.process_time()
    table = read_symbols(head + loads + body)
    assert time.process_time() - start < 2
    assert any("overlap" in p for p in table.problems), table.problems


def memory_of(made: Handmade) -> Memory:
    memory = Memory(memoryview(made.build()))
    memory.read_header()
    return memory


@pytest.mark.parametrize("endian", ["<", ">"])
@pytest.mark.parametrize("wide", [True, False])
def test_addresses_and_numbers(wide: bool, endian: str) -> None:
    memory = memory_of(Handmade(wide, endian))
    assert (memory.wide, memory.endian, memory.machine, memory.problems) == (wide, endian, 62, [])
    versions = memory.dynamic[VERSYM]
    assert list(memory.words(versions, 5, "H")) == [0, 4, 1, 0x8002, 3]
    assert list(memory.numbers("H", struct.pack(endian + "HH", 1, 0x102) + b"x")) == [1, 0x102]
    ((address, length, offset),) = memory.loads
    assert offset == 0
    assert memory.read(address, 4) == b"\x7fELF"
    assert memory.read(address + length - 2, 9) == bytes(memory.view[length - 2 :])
    assert memory.read(address - 1, 4) == memory.read(address + length, 4) == b""
    assert len(memory.words(address + length - 6, 5)) == 1  # as many as there are


def test_the_last_entry_of_a_tag_wins() -> None:
    memory = memory_of(Handmade())
    at = memory.dynamic[VERSYM]
    first = [tag for tag, _ in memory.entries]
    assert first.count(VERSYM) == 1
    made = Handmade(tags={STRSZ: 7}).build()
    doubled = bytearray(made)
    # The entry before the end of the array becomes a second DT_STRSZ.
    struct.pack_into("<QQ", doubled, len(doubled) - 32, STRSZ, 9)
    again = Memory(memoryview(bytes(doubled)))
    again.read_header()
    assert [value for tag, value in again.entries if tag == STRSZ] == [7, 9]
    assert again.dynamic[STRSZ] == 9
    assert memory.available(at) > 0


def test_a_table_ends_where_the_next_one_begins() -> None:
    memory = memory_of(Handmade())
    tables = sorted(memory.dynamic[tag] for tag in (SYMTAB, STRTAB, VERSYM, VERNEED, VERDEF))
    for one, following in itertools.pairwise(tables):
        assert memory.available(one) <= following - one
    assert memory.available(0) == 0


def test_strings_by_offset() -> None:
    strings = Strings(
        memory_of(Handmade(names=("need", "perhaps", "call", "libdep.so", "V1", "self", "ONE", "TWO")))
    )
    assert strings.get(1, 4) == "need"
    assert strings.get(1, 3) is None  # too long
    assert strings.get(3, 9) == "ed"  # a tail
    assert strings.get(1 << 20, 9) is None
    assert strings.names([1, 6, 3, 0, 1 << 20]) == (["need", "perhaps", "ed", "", ""], 1)


def test_names_that_are_no_utf_8_survive() -> None:
    made = Handmade().build().replace(b"perhaps\0", b"p\xc3\xa4\xff\0xx\0")
    memory = Memory(memoryview(made))
    memory.read_header()
    strings = Strings(memory)
    assert strings.get(6, 9) == "pä\udcff"
    assert strings.names([6, 11]) == (["pä\udcff", "xx"], 0)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x7fELF\x03\x01" + bytes(60), "not an ELF file"),
        (b"\x7fELF\x02\x03" + bytes(60), "not an ELF file"),
        (b"\x7fELF\x02\x01" + bytes(50), "cut off"),
        (Handmade().build()[:100], "the 2 program headers of 56 bytes at 0x40 lie outside of the file"),
    ],
)
def test_headers_that_are_none(data: bytes, said: str) -> None:
    with pytest.raises(ElfError, match=said):
        Memory(memoryview(data)).read_header()
