"""The static scan: each attack is shown to reach the real loader, and refused; what linkers make is not."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from pathlib import Path

import pytest

from relink.elf.constants import ET_DYN, PT_LOAD
from relink.elf.image import read_image
from relink.elf.symbol_reader import read_symbols
from relink.loader.scan import MOST_REFUSALS, ProgramHeader, scan, wrong_segments
from relink.loader.target import find_target
from relink.system.safe_open import map_file
from tests.support.cc import cc, shared
from tests.support.elf_attacks import (
    FAR,
    asked,
    audited,
    dynamic_entries,
    resegmented,
    retagged,
    rewritten,
)
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library, build
from tests.support.elf_patching import Elf
from tests.unit.loader.scanned import PAGE, own_slot, said

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


# The real loader is affected


@pytest.mark.parametrize("tag", ["DT_AUDIT", "DT_DEPAUDIT"])
def test_an_audit_library(tmp_path: Path, tag: str) -> None:
    program, library = audited(tmp_path, tmp_path / "canary", tag)
    asked(find_target().interpreter, program)
    assert (tmp_path / "canary").exists()
    assert said(program).startswith(f"{tag}: names a library whose code the loader runs")
    assert said(library) == ""


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        (0x6FFFFEFA, "DT_CONFIG"),
        (0x6FFFFEFB, "DT_DEPAUDIT"),
        (0x6FFFFEFC, "DT_AUDIT"),
        (0x6FFFFEF8, "DT_GNU_CONFLICT"),
        (0x7FFFFFFD, "DT_AUXILIARY"),
        (0x7FFFFFFF, "DT_FILTER"),
    ],
)
def test_a_tag(tag: int, name: str) -> None:
    assert said(rewritten(entries=((tag, "libother.so"),))).startswith(f"{name}: ")


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        (((36, FAR), (35, 8), (37, 8)), "DT_RELR"),
        (((23, FAR), (2, 24), (20, 7)), "DT_JMPREL"),
        (((23, 0x100), (2, 24), (20, 17)), "DT_PLTREL"),
        (((20, 7),), "DT_PLTREL"),
        (((23, 0x100), (20, 7)), "DT_JMPREL"),
        (((17, 0x100), (18, 16), (19, 16)), "DT_REL"),
        (((36, 0),), "DT_RELR"),
        (((8, (1 << 64) - 24),), "DT_RELA"),
        (((9, 8),), "DT_RELA"),
        (((5, FAR),), "DT_STRTAB"),
        (((6, FAR),), "DT_SYMTAB"),
        (((4, FAR),), "DT_HASH"),
        (((0x6FFFFEF5, FAR),), "DT_GNU_HASH"),
        (((0x6FFFFEF5, 0),), "DT_GNU_HASH"),
        (((0x6FFFFFF0, FAR),), "DT_VERSYM"),
        (((0x6FFFFFFC, FAR), (0x6FFFFFFD, 1)), "DT_VERDEF"),
        (((0x6FFFFFFE, FAR), (0x6FFFFFFF, 1)), "DT_VERNEED"),
        (((3, FAR),), "DT_PLTGOT"),
        (((0x6FFFFEF7, FAR),), "DT_TLSDESC_GOT"),
        (((12, FAR),), "DT_INIT"),
        (((13, (1 << 64) - 1),), "DT_FINI"),
        (((25, FAR), (27, 8)), "DT_INIT_ARRAY"),
        (((32, 64),), "DT_PREINIT_ARRAY"),
    ],
)
def test_a_table_outside_of_the_segments(entries: tuple[tuple[int, int], ...], name: str) -> None:
    assert name in [refusal.where for refusal in scan(rewritten(entries=entries))]


@pytest.mark.parametrize(
    "entries",
    [((11, 16),), ((10, 1 << 40),), ((4, 0),), ((8, 23),), ((25, 64), (27, 7)), ((0x6FFFFFFD, 1 << 63),)],
)
def test_what_the_loader_does_not_read(entries: tuple[tuple[int, int], ...]) -> None:
    assert scan(rewritten(entries=entries)) == ()


def test_a_part_of_a_relocation_counts_as_one() -> None:
    assert said(rewritten(entries=((8, 25),))).startswith("relocation 1 of DT_RELA: writes 8 bytes")


def test_relocations_that_go_on_in_the_next_table() -> None:
    """The loader adds DT_JMPREL to the table in front of it, and counts entries from the start of that."""
    data = rewritten()
    start = next(value for _, tag, value in dynamic_entries(data) if tag == 7)
    entries = ((8, 25), (23, start + 25), (2, 24), (20, 7))
    assert "DT_RELASZ: 25 is not a multiple" in said(rewritten(entries=entries))


def test_what_lies_on_the_last_page_of_a_segment(tmp_path: Path) -> None:
    """Pages are mapped: patchelf left programs in a wheel (casadi) whose dynamic array lies behind its PT_LOAD."""
    path = shared(tmp_path / "a.so", "int a(void){return 1;}", flags=["-nostdlib", "-Wl,-z,norelro"])
    elf = Elf(bytearray(path.read_bytes()))
    dynamic = elf.header(2)
    assert dynamic is not None
    address = elf.word(dynamic + 16)
    load = next(at for at in elf.headers if elf.word(at, "I") == 1 and elf.word(at + 16) == address)
    for place in (32, 40):
        elf.put(load + place, 8)
    path.write_bytes(elf.data)
    ctypes.CDLL(str(path))
    assert scan(path.read_bytes()) == ()
    assert read_image(path.read_bytes(), "a.so").dynamic
    assert "a" in read_symbols(path.read_bytes()).exports


def test_few_words_about_many_faults() -> None:
    tags = (3, 4, 6, 12, 13, 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFEFB, 0x6FFFFEFC, 0x6FFFFEFA, 0x7FFFFFFF)
    assert len(scan(rewritten(entries=tuple((tag, FAR) for tag in tags)))) == MOST_REFUSALS


# What is not


def test_what_a_compiler_makes(tmp_path: Path) -> None:
    source = "extern int e(void); static int x; int *p = &x, y = 1; __thread int t; int f(void) { return e() + t + *p; }"
    main = "#include <stdio.h>\nextern FILE *stdout; int main(void) { return !stdout; }"
    links: tuple[list[str], ...] = (
        [],
        ["-Wl,-z,now"],
        ["-Wl,-z,pack-relative-relocs"],
        ["-s"],
        ["-Wl,--hash-style=sysv"],
    )
    for number, flags in enumerate(links):
        assert said(shared(tmp_path / f"{number}.so", source, flags=flags)) == ""
    for number, flags in enumerate((["-no-pie"], ["-pie", "-fPIE"])):
        assert said(cc(main, tmp_path / f"{number}", *flags)) == ""


@pytest.mark.slow(reason="every library of the machine")
def test_what_is_on_this_machine() -> None:
    places = [*find_target().directories, os.path.dirname(os.path.realpath(sys.executable))]
    count = 0
    for directory in places:
        for entry in os.scandir(directory) if os.path.isdir(directory) else ():
            if entry.is_file() and entry.stat().st_size > 64:
                with map_file(entry.path) as buffer:
                    if bytes(buffer[:20]) != b"\x7fELF\2\1\1" + bytes(buffer[7:16]) + b"\3\0\x3e\0":
                        continue
                    count += 1
                    assert scan(buffer) == (), entry.path
    assert count > 20


def test_retagging_changes_what_it_says_it_does() -> None:
    data = rewritten()
    assert retagged(data, {}) == data
    assert 20 in {tag for _, tag, _ in dynamic_entries(retagged(data, {9: 20}))}


def test_hostile_counts_take_no_long_time() -> None:
    """As many copies, resolvers and segments as fit: refused, or gone through in about a second."""
    copies = tuple((FAR, 5, number, 0) for number in range(1 << 13))
    began = time.process_time()
    assert "copy more than 4096 symbols" in said(rewritten(relocations=copies))
    resolvers = ((own_slot(), 37, 0, 64),) * (1 << 17)
    assert said(resegmented(rewritten(relocations=resolvers), 1, flags=7)) == ""
    header = bytearray(64 + 56 * 4096)
    header[:64] = rewritten()[:64]
    struct.pack_into("<H", header, 56, 4096)
    for number in range(4096):
        place = 0x1000 * number
        struct.pack_into("<IIQQQQQQ", header, 64 + 56 * number, 1, 7, 0, place, place, 8, 8, PAGE)
    assert "more than 256 PT_LOAD" in said(bytes(header))
    assert time.process_time() - began < 5


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
        (
            1,
            {"address": PAGE - 8, "offset": PAGE - 8, "memory_size": 8},
            "is larger in the file than in memory",
        ),
        (1, {"memory_size": (1 << 64) - 1}, "reaches to"),
        (1, {"file_size": 1 << 40, "memory_size": 1 << 40}, "ends past the end of the file"),
        (1, {"type": 0}, "have no PT_LOAD"),
        (2, {"address": FAR}, "PT_DYNAMIC: 0x7f000000 is not in the file's part of a segment"),
        (2, {"file_size": 1 << 40}, ""),
        (2, {"type": 6}, "PT_PHDR: "),
        (0x6474E551, {"type": 2}, "PT_DYNAMIC: is there more than once"),
        (0x6474E551, {"type": 6, "address": 65}, "is not where the program headers are mapped"),
        (0x6474E551, {"type": 7, "memory_size": 1 << 40, "align": 8}, "PT_TLS: has 0 bytes"),
        (0x6474E551, {"type": 7, "memory_size": 8, "file_size": 16, "align": 8}, "PT_TLS: has 16 bytes"),
        (0x6474E551, {"type": 7, "memory_size": 8, "align": 1 << 21}, "PT_TLS: has the alignment"),
        (0x6474E551, {"type": 7, "memory_size": 8, "align": 0}, "PT_TLS: has the alignment"),
        (
            0x6474E551,
            {"type": 7, "memory_size": 8, "file_size": 8, "address": FAR, "align": 8},
            "PT_TLS: 0x7f",
        ),
        (
            0x6474E551,
            {"type": 7, "memory_size": 8, "file_size": 8, "address": 0, "align": 8},
            "PT_TLS: has its image at the address 0",
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


@pytest.mark.parametrize(
    ("memory", "offset", "refused"), [(0x28, 0, False), (0x30, 0, True), (0x28, PAGE, True)]
)
def test_two_segments_on_one_page_of_the_file(memory: int, offset: int, *, refused: bool) -> None:
    """Programs of cmdstan have them: the page is mapped twice at one place, and its content stays."""
    segments = [
        ProgramHeader(PT_LOAD, 6, 0, 0x10000, 0x28, memory, PAGE, 0),
        ProgramHeader(PT_LOAD, 4, 0x28 + offset, 0x10028, 8, 8, PAGE, 1),
    ]
    found = [*wrong_segments(segments, ET_DYN, 1 << 20)]
    assert [one.where for one in found] == ["PT_LOAD 1"] * refused
