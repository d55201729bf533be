"""The dynamic symbol table: compiled libraries against readelf, files made by hand, and damaged ones."""

from __future__ import annotations

import contextlib
import mmap
import re
import shutil
import struct
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relink.elf.edit import ElfEdit
from relink.elf.image import read_image
from relink.elf.symbol_reader import read_symbols as read_table
from relink.elf.symbol_reader import read_version_defs
from relink.elf.symbols import Export, SymbolTable, VersionNeed, VersionRequirement, hash_names, match
from relink.system.errors import ElfError
from tests.support.amount import amount
from tests.support.cc import cc, shared
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
    STRSZ,
    SYMENT,
    SYMTAB,
    TWO,
    VERDEF,
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


@pytest.mark.parametrize(("bucket", "is_read"), [(1, False), (1 << 28, True)])
def test_a_bucket_elsewhere_leads_to_words_with_an_end(bucket: int, *, is_read: bool) -> None:
    """ld.so reads there, and finds nothing, if there is an odd word in the segment."""
    table = read_symbols(Handmade(words={("gnu", 24): bucket}).build())
    (text,) = (text for text in table.problems if "buckets outside" in text)
    assert (text not in table.unread) == is_read


def test_a_hash_table_gone_leaves_imports() -> None:
    table = read_symbols(Handmade(tags={GNU_HASH: None}, tables=("gnu", "versions", "rela")).build())
    assert set(table.imports) == IMPORTS
    assert table.exports == {}


def test_the_larger_of_two_counts_is_used() -> None:
    table = read_symbols(Handmade(words={("sysv", 4): 4}, tables=("gnu", "sysv", "versions")).build())
    assert table.exports == {"call": (ONE, TWO)}


SOURCE = """
extern int outside(void); extern int perhaps(void) __attribute__((weak)); extern _Thread_local int elsewhere;
int plain(void) { return outside() + (perhaps ? perhaps() : 0) + elsewhere; }
__attribute__((weak)) int soft(void) { return 1; }
__attribute__((visibility("protected"))) int guarded(void) { return 2; }
__attribute__((visibility("hidden"))) int inside(void) { return 3; }
static int chosen(void) { return 4; }
static void *choose(void) { return (void *)chosen; }
int picked(void) __attribute__((ifunc("choose")));
_Thread_local int local_to_thread = 5;
int data = 6;
__asm__(".globl single\\n.type single, %gnu_unique_object\\n.data\\nsingle: .long 7\\n.size single, 4\\n.text");
"""


# What compilers and linkers write


@pytest.mark.parametrize("style", ["sysv", "gnu", "both"])
def test_kinds_of_symbols_under_each_hash_style(tmp_path: Path, style: str) -> None:
    table = read(shared(tmp_path / "libkinds.so", SOURCE, flags=[f"-Wl,--hash-style={style}"]))
    assert table.problems == ()
    assert {
        i.name: (i.binding, i.type, i.version, i.file) for i in table.imports if i.name != "__tls_get_addr"
    } == {
        "outside": ("global", "notype", None, None),
        "perhaps": ("weak", "notype", None, None),
        "elsewhere": ("global", "tls", None, None),
    }
    facts = {name: (e.binding, e.type, e.visibility) for name, (e,) in table.exports.items()}
    assert facts == {
        "plain": ("global", "func", "default"),
        "soft": ("weak", "func", "default"),
        "guarded": ("global", "func", "protected"),
        "picked": ("global", "ifunc", "default"),
        "local_to_thread": ("global", "tls", "default"),
        "data": ("global", "object", "default"),
        "single": ("unique", "object", "default"),
    }
    assert {e.index for exports in table.exports.values() for e in exports} == {1}
    assert not table.has_versym
    assert not table.verdefs


@pytest.mark.parametrize("style", ["sysv", "gnu", "both"])
@pytest.mark.parametrize("name", ["plain", "picked", "single", "outside", "inside", "nowhere"])
def test_exports_of_some_names_alone(tmp_path: Path, style: str, name: str) -> None:
    path = shared(tmp_path / "libkinds.so", SOURCE, flags=[f"-Wl,--hash-style={style}"])
    whole, some = read(path).exports, read_table(path.read_bytes(), hash_names([name])).exports
    assert some.get(name) == whole.get(name)
    assert some.keys() <= ({name} if style != "sysv" else whole.keys())


@pytest.mark.parametrize(("wide", "endian"), [(True, "<"), (True, ">"), (False, "<"), (False, ">")])
@pytest.mark.parametrize("words", [{}, {("gnu", 4): 1 << 31}, {("gnu", 8): 1 << 31}])
def test_exports_of_some_names_in_every_width(
    wide: bool, endian: str, words: dict[tuple[str, int], int]
) -> None:
    data = Handmade(wide, endian, words=words).build()
    found = read_table(data, frozenset({0x10, 0x11})).exports
    assert found == ({} if words else read_symbols(data).exports)


def test_no_symbols_at_all(tmp_path: Path) -> None:
    table = read(shared(tmp_path / "libempty.so", "", flags=[script(tmp_path, "{ local: *; };")]))
    assert (table.imports, table.exports, table.problems) == ((), {}, ())


def test_no_dynamic_segment(tmp_path: Path) -> None:
    assert read(cc("int x;", tmp_path / "part.o", "-c")) == SymbolTable()


def test_section_headers_are_not_needed(tmp_path: Path) -> None:
    data = bytearray(shared(tmp_path / "libkinds.so", SOURCE).read_bytes())
    whole = read_symbols(data)
    start = struct.unpack_from("<Q", data, 40)[0]
    bare = data[:start]
    struct.pack_into("<Q", bare, 40, 0)
    struct.pack_into("<HH", bare, 60, 0, 0)
    assert read_symbols(bare) == whole
    assert whole.exports


def test_every_kind_of_buffer_and_no_hold_on_it(tmp_path: Path) -> None:
    path = shared(tmp_path / "libkinds.so", SOURCE)
    data = path.read_bytes()
    table = read_symbols(data)
    assert read_symbols(bytearray(data)) == table
    assert read_symbols(memoryview(data)) == table
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert read_symbols(mapped) == table
    mapped.close()  # BufferError if something still points into it


def readelf(path: Path) -> tuple[Counter[tuple[object, ...]], Counter[tuple[object, ...]]]:
    command = ["readelf", "--dyn-syms", "-W", str(path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    imports: Counter[tuple[object, ...]] = Counter()
    exports: Counter[tuple[object, ...]] = Counter()
    for line in output.splitlines():
        row = line.split()
        if len(row) < 8 or not re.fullmatch(r"\d+:", row[0]) or row[4] == "LOCAL":
            continue
        name, sign, version = re.fullmatch(r"([^@]+)(@{0,2})(.*)", row[7]).groups()  # type: ignore[union-attr]
        facts = (name, version or None, row[4].lower(), row[3].lower())
        if row[6] == "UND":
            imports[facts] += 1
        else:
            exports[*facts, row[5].lower(), sign == "@"] += 1
    return imports, exports


@pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf")
@pytest.mark.parametrize(
    "name", ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libz.so.1", "own"]
)
def test_agrees_with_readelf(tmp_path: Path, name: str) -> None:
    if name == "own":
        path = shared(tmp_path / "libown.so", SOURCE, flags=[script(tmp_path, "V { global: *; };")])
    else:
        directories = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib")
        found = [p for d in directories if (p := Path(d, name)).is_file()]
        if not found:
            pytest.skip(f"no {name} here")
        path = found[0]
    table = read(path)
    nodes = {d.name for d in table.verdefs}
    imports, exports = readelf(path)
    assert Counter((i.name, i.version, i.binding, i.type) for i in table.imports) == imports
    # readelf leaves the version off the symbol that is named like it
    mine = Counter(
        (k, None if k in nodes else e.version, e.binding, e.type, e.visibility, e.hidden)
        for k, definitions in table.exports.items()
        for e in definitions
    )
    assert mine == exports
    assert table.problems == ()
    assert table.rejected == {}


@pytest.mark.parametrize("endian", ["<", ">"])
@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("tables", [("gnu",), ("sysv",), ("gnu", "sysv")])
def test_widths_and_byte_orders(wide: bool, endian: str, tables: tuple[str, ...]) -> None:
    table = read_symbols(Handmade(wide, endian, tables=(*tables, "versions", "rela")).build())
    assert table.problems == ()
    assert set(table.imports) == IMPORTS
    order = (ONE, TWO) if "gnu" in tables else (TWO, ONE)  # ld.so follows the chain
    assert table.exports == {"call": order}
    assert [(d.name, d.weak, d.parents) for d in table.verdefs] == [
        ("self", False, ()),
        ("ONE", False, ()),
        ("TWO", True, ("ONE",)),
    ]
    assert table.count == 5


@pytest.mark.parametrize(
    ("made", "exported"),
    [
        pytest.param(Handmade(octets={("sym", 3 * 24 + 5): 2}), False, id="hidden visibility"),
        pytest.param(Handmade(octets={("sym", 3 * 24 + 5): 1}), False, id="internal visibility"),
        pytest.param(Handmade(octets={("sym", 3 * 24 + 5): 3}), True, id="protected visibility"),
        pytest.param(Handmade(octets={("sym", 3 * 24 + 4): 0x02}), False, id="local"),
        pytest.param(Handmade(octets={("sym", 3 * 24 + 4): 0x14}), False, id="a file's name"),
        pytest.param(Handmade(octets={("sym", 3 * 24 + 4): 0x13}), False, id="a section"),
        pytest.param(Handmade(octets={("sym", 3 * 24 + 4): 0x15}), True, id="common"),
        pytest.param(Handmade(words={("sym", 3 * 24 + 8): 0}), False, id="no value"),
        pytest.param(
            Handmade(words={("sym", 3 * 24 + 8): 0}, halves={("sym", 3 * 24 + 6): 0xFFF1}),
            True,
            id="absolute",
        ),
        pytest.param(
            Handmade(words={("sym", 3 * 24 + 8): 0}, octets={("sym", 3 * 24 + 4): 0x16}),
            True,
            id="TLS at zero",
        ),
        pytest.param(
            Handmade(words={("gnu", 4): 4, ("gnu", 24): 4, ("gnu", 28): 1}),
            False,
            id="below the first hashed",
        ),
    ],
)
def test_who_is_a_candidate(made: Handmade, exported: bool) -> None:
    table = read_symbols(made.build())
    assert table.problems == ()
    assert ("ONE" in {e.version for e in table.exports["call"]}) is exported
    assert ("call" in table.rejected) is not exported
    assert TWO in table.exports["call"]


def test_local_and_hidden_undefined_symbols_are_not_looked_up() -> None:
    table = read_symbols(Handmade(octets={("sym", 24 + 4): 0x02, ("sym", 48 + 5): 2}).build())
    assert table.imports == ()


def test_the_plt_address_of_an_executable_is_marked() -> None:
    table = read_symbols(Handmade(halves={("sym", 3 * 24 + 6): 0}).build())
    marked = Export("ONE", True, "global", "func", "default", 2, undefined=True)
    assert table.exports["call"] == (marked, TWO)
    assert "call" in {i.name for i in table.imports}
    assert match((marked,), "ONE") is None
    below = Handmade(halves={("sym", 3 * 24 + 6): 0}, words={("gnu", 4): 4, ("gnu", 24): 4, ("gnu", 28): 1})
    table = read_symbols(below.build())
    assert table.exports == {"call": (TWO,)}
    assert table.rejected == {}


def test_a_version_hash_of_zero_is_no_version() -> None:
    table = read_symbols(Handmade(words={("verneed", 16): 0}).build())
    assert {(i.name, i.version, i.file) for i in table.imports} == {
        ("need", None, None),
        ("perhaps", None, None),
    }


def test_version_definitions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the table; of the strings no more is read than real libraries need, whatever a file of any size says."""
    data = Handmade().build()
    assert [one.name for one in read_version_defs(data)] == [one.name for one in read_symbols(data).verdefs]
    monkeypatch.setattr("relink.elf.symbol_reader.MOST_STRINGS", 4)
    assert {one.name for one in read_version_defs(data)} == {""}


def test_versym_without_records_is_not_looked_at() -> None:
    table = read_symbols(
        Handmade(tags={VERNEED: None, VERDEF: None, VERNEEDNUM: None, VERDEFNUM: None}).build()
    )
    assert table.has_versym
    assert {(e.version, e.hidden, e.index) for e in table.exports["call"]} == {(None, False, 1)}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"#!/bin/sh\n" + b" " * 100,
        b"\x7fELF",
        b"\x7fELF\x07\x01" + b"\0" * 60,
        b"\x7fELF\x02\x09" + b"\0" * 60,
        Handmade().build()[:60],
        Handmade().build()[:100],
    ],
)
def test_not_elf(data: bytes) -> None:
    with pytest.raises(ElfError):
        read_symbols(data)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    directory = tmp_path_factory.mktemp("small")
    flags = [script(directory, "V { global: *; };"), "-Wl,--hash-style=both", "-Wl,-z,noseparate-code", "-s"]
    return shared(directory / "libsmall.so", SOURCE, flags=flags).read_bytes()


@settings(
    max_examples=amount(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=12),
    st.sampled_from(
        [Handmade(w, e, tables=("gnu", "sysv", "versions", "rela")) for w in (True, False) for e in "<>"]
    )
    | st.none(),
)
def test_flipped_bytes(small: bytes, flips: list[tuple[float, int]], made: Handmade | None) -> None:
    data = bytearray(made.build() if made else small)
    for place, value in flips:
        data[int(place * len(data))] = value
    start = time.process_time()
    with contextlib.suppress(ElfError):
        read_symbols(data)
    assert time.process_time() - start < 2


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
    "verdef name": (Handmade(words={("verdef", 20): 0xFFFFFFFF}), "name outside"),
    "verdef aux count": (Handmade(halves={("verdef", 6): 9}), "counts 9 names"),
}


@pytest.mark.parametrize("lie", LIES_VERSIONS)
def test_lies_of_version_records_are_problems_and_end_quickly(lie: str) -> None:
    told_quickly(*LIES_VERSIONS[lie])


UNREAD: dict[str, Handmade] = {
    "symbol entry": Handmade(tags={SYMENT: 17}),
    "size of the strings": Handmade(tags={STRSZ: 2}),
    "no size of the strings": Handmade(tags={STRSZ: None}),
    "verneed count": Handmade(tags={VERNEEDNUM: 9}),
    "verneed aux count": Handmade(halves={("verneed", 2): 9}),
    "verdef count": Handmade(tags={VERDEFNUM: 0}),
    "verdef layout": Handmade(halves={("verdef", 0): 9}),
    "verdef aux count": Handmade(halves={("verdef", 6): 9}),
    "parent": Handmade(words={("verdef", 84): 0xFFFFFFFF}),
    "DT_HASH": Handmade(words={("sysv", 0): 0xFFFFFFFF}, tables=("gnu", "sysv", "versions", "rela")),
    "nchain beside DT_GNU_HASH": Handmade(words={("sysv", 4): 4}, tables=("gnu", "sysv", "versions", "rela")),
    "nchain": Handmade(words={("sysv", 4): 1}, tables=("sysv", "versions", "rela")),
    "large nchain": Handmade(words={("sysv", 4): 0xFFFFFFF}, tables=("sysv", "versions", "rela")),
}


@pytest.mark.parametrize("lie", UNREAD)
def test_lies_that_ld_so_does_not_see(lie: str) -> None:
    """They are told, and what is read is the same as without."""
    made = UNREAD[lie]
    sound, found = read_symbols(Handmade(tables=made.tables).build()), read_symbols(made.build())
    assert found.unread == found.problems != ()
    assert (found.imports, found.exports, found.count) == (sound.imports, sound.exports, sound.count)
    assert found.verneeds == sound.verneeds
    assert [node.name for node in found.verdefs] == [node.name for node in sound.verdefs]


def test_two_chains_may_end_in_one() -> None:
    """ld.so follows each until its end, whatever else leads there."""
    blob = struct.pack("<9I", 2, 5, 4, 2, 0, 0, 1, 2, 3)
    made = Handmade(
        words={("sysv", 4 * at): word for at, word in enumerate(struct.unpack("<8I", blob[:32]))},
        tables=("sysv",),
        tails={"sysv": blob[32:]},
    )
    assert read_symbols(made.build()).problems == ()


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
