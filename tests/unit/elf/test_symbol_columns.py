"""How many symbols there are and which are imports, by hash tables and relocations."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from relink.elf.edit import ElfEdit
from relink.elf.image import read_image
from relink.elf.symbol_reader import read_symbols as read_table
from tests.support.cc import shared
from tests.support.edits import apply_edit
from tests.unit.elf.handmade import (
    GNU_HASH,
    IMPORTS,
    JMPREL,
    ONE,
    PLTREL,
    PLTRELSZ,
    REL,
    RELA,
    RELSZ,
    SYMENT,
    SYMTAB,
    TWO,
    Handmade,
    read,
    read_symbols,
    script,
    told_quickly,
)

_SOURCE = "int other(void); int one(void) { return other(); } int data; __attribute__((weak)) int two(void) { return 2; }"


@pytest.mark.parametrize("flags", [[], ["-Wl,-rpath,/the/vendor"]])
def test_an_edit_keeps_the_symbols(tmp_path: Path, flags: list[str]) -> None:
    """patchelf writes over an old search path in the string table."""
    path = shared(tmp_path / "libuser.so", _SOURCE, flags=flags)
    original = path.read_bytes()
    known = read_table(original)
    apply_edit(
        path,
        ElfEdit("/a/search/path/longer/than/any:$ORIGIN", "runpath"),
        read_image(original, path.name),
        original,
    )
    edited = path.read_bytes()
    assert read_table(edited) == known


def test_imports_that_no_relocation_names_are_marked(tmp_path: Path) -> None:
    source = """int called(void); int user(void) { return called(); } extern int taken; int *p = &taken;
    __asm__(".globl never_used");"""
    table = read(shared(tmp_path / "libr.so", source))
    assert {i.name: i.relocated for i in table.imports} == {
        "called": True,
        "taken": True,
        "never_used": False,
    }


def test_nothing_exported_the_imports_are_counted_from_relocations(tmp_path: Path) -> None:
    source = "extern int far(void), near(void); static int go(void){return far()+near();} int (*p)(void)=go;"
    flags = [script(tmp_path, "{ local: *; };"), "-Wl,--hash-style=gnu"]
    table = read(shared(tmp_path / "libquiet.so", source, flags=flags))
    assert table.exports == {}
    assert {i.name for i in table.imports} <= {"far", "near"}
    source = "extern int far(void), near(void); __attribute__((constructor)) void go(void){far(); near();}"
    table = read(shared(tmp_path / "libquiet2.so", source, flags=flags))
    assert {i.name for i in table.imports} == {"far", "near"}
    assert table.problems == ()


def test_hash_entries_of_eight_bytes_on_s390() -> None:
    table = read_symbols(Handmade(endian=">", machine=22, tables=("sysv", "versions", "rela")).build())
    assert table.problems == ()
    assert table.exports == {"call": (TWO, ONE)}


@pytest.mark.parametrize(("wide", "endian"), [(True, "<"), (True, ">"), (False, "<"), (False, ">")])
def test_relocations_count_where_the_hash_table_is_empty(wide: bool, endian: str) -> None:
    made = Handmade(wide, endian)
    made.words = {
        ("gnu", 4): 1,
        ("gnu", 24 if wide else 20): 0,
    }  # as GNU ld writes it when nothing is exported
    table = read_symbols(made.build())
    assert set(table.imports) == IMPORTS
    assert (table.exports, table.rejected, table.count, table.problems) == ({}, {}, 3, ())


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("kind", ["rela", "rel", "plt"])
def test_every_relocation_table_is_read(wide: bool, kind: str) -> None:
    table = read_symbols(Handmade(wide, tables=("gnu", "versions", kind)).build())
    assert table.problems == ()
    assert set(table.imports) == IMPORTS


def test_a_plt_without_addends() -> None:
    made = Handmade(tables=("gnu", "versions", "rel"))
    made.tags = {REL: None, RELSZ: None, PLTREL: REL, PLTRELSZ: 32}
    at = made.base + made.build().index(struct.pack("<4Q", 0x300, 6, 0x300, 2 << 32 | 6))
    made.tags |= {JMPREL: at}
    table = read_symbols(made.build())
    assert {i.name for i in table.imports if i.relocated} == {"perhaps"}


def test_an_empty_hash_table_without_relocations_counts_to_its_first_symbol() -> None:
    table = read_symbols(Handmade(tables=("gnu", "versions"), words={("gnu", 24): 0}).build())
    assert (table.count, table.exports, table.problems) == (3, {}, ())
    assert {i.name for i in table.imports} == {"need", "perhaps"}


LIES_COLUMNS: dict[str, tuple[Handmade, str]] = {
    "symbol entry of zero": (Handmade(tags={SYMENT: 0}), "DT_SYMENT is 0"),
    "no symbol table": (Handmade(tags={SYMTAB: None}), "no symbol table"),
    "symbol table outside": (Handmade(tags={SYMTAB: 0x999999}), "there is room for"),
    "huge nbuckets": (Handmade(words={("gnu", 0): 0xFFFFFFFF}), "4294967295 buckets"),
    "huge bloom": (Handmade(words={("gnu", 8): 0x80000000}), "filter words"),
    "bloom not a power": (Handmade(words={("gnu", 8): 0}), "power of two"),
    "bucket too high": (Handmade(words={("gnu", 24): 0xFFFFFFF0}), "buckets outside"),
    "bucket below first": (Handmade(words={("gnu", 24): 1}), "buckets outside"),
    "chain without end": (Handmade(words={("gnu", 32): 0x10}, tables=("gnu",)), "has no end"),
    "gnu hash outside": (Handmade(tags={GNU_HASH: 0x999999}), "DT_GNU_HASH lies outside"),
    "huge nchain": (Handmade(words={("sysv", 4): 0xFFFFFFFF}, tables=("sysv",)), "DT_HASH"),
    "circle": (Handmade(words={("sysv", 8 + 4 + 12): 4}, tables=("sysv",)), "circle"),
    "chain leaves": (Handmade(words={("sysv", 8): 77}, tables=("sysv",)), "leaves the table"),
    "hash tables differ": (Handmade(words={("sysv", 4): 4}, tables=("gnu", "sysv")), "DT_HASH counts 4"),
    "relocations outside": (Handmade(tags={RELA: 0x999999}), "relocation table"),
}


@pytest.mark.parametrize("lie", LIES_COLUMNS)
def test_lies_of_tables_are_problems_and_end_quickly(lie: str) -> None:
    told_quickly(*LIES_COLUMNS[lie])


def test_a_hash_table_gone_leaves_imports() -> None:
    table = read_symbols(Handmade(tags={GNU_HASH: None}, tables=("gnu", "versions", "rela")).build())
    assert set(table.imports) == IMPORTS
    assert table.exports == {}


def test_the_larger_of_two_counts_is_used() -> None:
    table = read_symbols(Handmade(words={("sysv", 4): 4}, tables=("gnu", "sysv", "versions")).build())
    assert table.exports == {"call": (ONE, TWO)}
