"""Version records: what libraries define, what they require, and records that lie."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from relink.elf.symbols import Export
from relink.elf.versions import VersionNeed, VersionRequirement
from tests.support.cc import shared
from tests.unit.elf.handmade import (
    IMPORTS,
    VERDEFNUM,
    VERNEED,
    VERNEEDNUM,
    VERSYM,
    Handmade,
    elf_hash,
    one,
    read,
    read_symbols,
    script,
    told_quickly,
)


def test_versions_of_exports(tmp_path: Path) -> None:
    source = """
    __asm__(".symver old_impl, call@ONE"); __asm__(".symver new_impl, call@@TWO");
    int old_impl(void) { return 1; } int new_impl(void) { return 2; } int other(void) { return 3; }
    """
    flag = script(tmp_path, "ONE { }; TWO { global: call; other; local: *; } ONE;")
    table = read(shared(tmp_path / "libv.so", source, flags=[flag]))
    assert table.problems == ()
    assert {(e.version, e.hidden, e.index) for e in table.exports["call"]} == {
        ("ONE", True, 2),
        ("TWO", False, 3),
    }
    assert one(table, "other").version == "TWO"
    assert "old_impl" not in table.exports
    assert [(d.name, d.index, d.base, d.parents) for d in table.verdefs] == [
        ("libv.so", 1, True, ()),
        ("ONE", 2, False, ()),
        ("TWO", 3, False, ("ONE",)),
    ]
    assert table.has_versym
    assert table.verdefs


def test_versions_of_imports_name_the_file_they_blame(tmp_path: Path) -> None:
    flag = script(tmp_path, "V1 { global: a; }; V2 { global: b; local: *; };")
    base = shared(tmp_path / "libbase.so.3", "int a(void){return 1;} int b(void){return 2;}", flags=[flag])
    free = shared(tmp_path / "libfree.so", "int c(void){return 1;}")
    source = "int a(void); int b(void); int c(void); int user(void){return a()+b()+c();}"
    table = read(shared(tmp_path / "libuser.so", source, needed=[base, free]))
    assert table.problems == ()
    assert {(i.name, i.version, i.file) for i in table.imports} == {
        ("a", "V1", "libbase.so.3"),
        ("b", "V2", "libbase.so.3"),
        ("c", None, None),
    }
    (need,) = table.verneeds
    assert need.file == "libbase.so.3"
    assert {v.name for v in need.versions} == {"V1", "V2"}
    assert {v.index for v in need.versions} == {i.index for i in table.imports if i.version}
    assert one(table, "user") == Export(None, False, "global", "func", "default", 1)
    assert table.verdefs == ()


LIES_VERSIONS: dict[str, tuple[Handmade, str]] = {
    "versym outside": (Handmade(tags={VERSYM: 0x999999}), "DT_VERSYM has 0 entries"),
    "no versym": (Handmade(tags={VERSYM: None}), "no DT_VERSYM"),
    "version number unknown": (Handmade(halves={("versym", 6): 99}), "above the highest record"),
    "verneed outside": (Handmade(tags={VERNEED: 0x999999}), "DT_VERNEED has records outside"),
    "verneed count": (Handmade(tags={VERNEEDNUM: 9}), "DT_VERNEEDNUM is 9"),
    "verneed next": (Handmade(words={("verneed", 12): 0xFFFFFFFF}), "DT_VERNEED has records outside"),
    "verneed layout": (Handmade(halves={("verneed", 0): 2}), "unknown layout 2"),
    "verneed aux count": (Handmade(halves={("verneed", 2): 9}), "counts 9 versions"),
    "verneed aux next": (Handmade(words={("verneed", 28): 0xFFFFFFFF}), "DT_VERNEED has records outside"),
    "verneed file": (Handmade(words={("verneed", 4): 0xFFFFFFFF}), "name outside"),
    "verneed hash": (Handmade(words={("verneed", 16): 12345}), "wrong hash"),
    "verdef count": (Handmade(tags={VERDEFNUM: 0}), "DT_VERDEFNUM is 0"),
    "verdef next": (Handmade(words={("verdef", 16): 0xFFFFFFFF}), "DT_VERDEF has records outside"),
    "verdef layout": (Handmade(halves={("verdef", 0): 9}), "unknown layout 9"),
    "verdef name": (Handmade(words={("verdef", 20): 0xFFFFFFFF}), "name outside"),
    "verdef aux count": (Handmade(halves={("verdef", 6): 9}), "counts 9 names"),
}


@pytest.mark.parametrize("lie", LIES_VERSIONS)
def test_lies_of_version_records_are_problems_and_end_quickly(lie: str) -> None:
    told_quickly(*LIES_VERSIONS[lie])


@pytest.mark.parametrize("table", ["verneed", "verdef"])
def test_a_chain_of_names_without_end(table: str) -> None:
    """No circle is possible, but a chain may be far longer than there are version numbers."""
    if table == "verneed":
        made = Handmade(
            words={(table, 28): 16}, tails={table: struct.pack("<IHHII", 0, 0, 5, 1, 16) * 200_000}
        )
    else:
        made = Handmade(words={(table, 88): 8}, tails={table: struct.pack("<II", 1, 8) * 200_000})
    start = time.process_time()
    found = read_symbols(made.build())
    assert time.process_time() - start < 1
    assert any("more than 32768" in p for p in found.problems), found.problems


def test_flags_of_a_requirement() -> None:
    table = read_symbols(Handmade(halves={("verneed", 20): 2, ("verneed", 22): 0x8004}).build())
    assert table.verneeds == (
        VersionNeed("libdep.so", (VersionRequirement("V1", 4, True, True, elf_hash("V1")),)),
    )
    assert set(table.imports) == IMPORTS
