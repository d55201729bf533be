"""How many symbols there are and which are imports, by hash tables and relocations."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.elf.patchelf import ElfEdit
from relink.elf.symbol_reader import read_symbols as read_table
from relink.elf.symbols import SymbolTable
from relink.system.errors import ElfError
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
    VERSYM,
    Handmade,
    read,
    read_symbols,
    script,
    told_quickly,
)

_SOURCE = "int other(void); int one(void) { return other(); } int data; __attribute__((weak)) int two(void) { return 2; }"


def _read(data: bytes, known: SymbolTable | None = None) -> SymbolTable | str:
    try:
        return read_table(data, known)
    except ElfError as error:
        return error.message


def _changed(data: bytes) -> Iterator[bytes]:
    """The file with each of its bytes changed in turn, in two ways."""
    for at in range(len(data)):
        for bits in (0x01, 0x82):
            yield data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]


@pytest.mark.parametrize(
    "made",
    [
        Handmade(),
        Handmade(wide=False, endian=">", tables=("sysv", "versions", "rela")),
        # DT_FLAGS and DT_DEBUG, and a copy relocation.
        Handmade(tags={30: 0, 21: 0}, words={("rela", 8): 5}),
        # DT_VERSYM without version records: the null symbol, whose bytes are zero.
        Handmade(tables=("gnu", "rela"), tags={VERSYM: Handmade.base + 64 + 2 * 56}),
    ],
)
def test_no_changed_byte_that_matters_is_taken_for_the_same(made: Handmade) -> None:
    data = made.build()
    known = read_table(data, with_source=True)
    assert known.source is not None, known.problems
    taken = 0
    for changed in _changed(data):
        found = _read(changed, known)
        taken += found is known
        assert found == _read(changed)
    assert taken  # bytes outside of the tables


@pytest.mark.parametrize("flags", [[], ["-Wl,-rpath,/the/vendor"]])
def test_an_edit_keeps_the_symbols(tmp_path: Path, flags: list[str]) -> None:
    """patchelf writes over an old search path in the string table."""
    path = shared(tmp_path / "libuser.so", _SOURCE, flags=flags)
    original = path.read_bytes()
    known = read_table(original, with_source=True)
    apply_edit(
        path,
        ElfEdit("/a/search/path/longer/than/any:$ORIGIN", "runpath"),
        read_image(original, path.name),
        original,
    )
    edited = path.read_bytes()
    assert read_table(edited, known) is known
    assert read_table(edited) is not known
    assert read_table(edited) == known


def test_a_table_without_a_source_is_never_taken(tmp_path: Path) -> None:
    data = shared(tmp_path / "libuser.so", _SOURCE).read_bytes()
    known = read_table(data)
    assert known.source is None
    assert read_table(data, known) is not known


def test_a_damaged_table_has_no_source() -> None:
    table = read_table(Handmade(halves={("versym", 4): 77}).build(), with_source=True)
    assert table.problems
    assert table.source is None


def test_the_order_in_the_chains_counts() -> None:
    """The last two symbols, which have one name, change their places."""
    tables = ("sysv", "versions")
    known = read_table(Handmade(tables=tables).build(), with_source=True)
    other = Handmade(tables=tables, words={("sysv", 8): 3, ("sysv", 24): 4, ("sysv", 28): 2}).build()
    assert read_table(other, known) == read_table(other) != known


@pytest.mark.parametrize(
    ("name", "path"), [("need", "/vendor/need"), ("/vendor/need", "need"), ("need", "need")]
)
def test_a_search_path_that_shares_its_string_with_a_name_counts(name: str, path: str) -> None:
    """A linker keeps a string that is the end of another one once."""
    shared_string = "/vendor/need"
    made = Handmade(
        names=(shared_string, "perhaps", "call", "libdep.so", "V1", "self", "ONE", "TWO", "need"),
        words={("sym", 24): 1 + shared_string.index(name)},
        tags={29: 1 + shared_string.index(path)},
    )
    known = read_table(made.build(), with_source=True)
    assert name in {item.name for item in known.imports}
    written_over = shared_string.removesuffix(path) + "X" * len(path)
    changed = made.build().replace(shared_string.encode(), written_over.encode())
    assert read_table(changed, known) == read_table(changed) != known


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
