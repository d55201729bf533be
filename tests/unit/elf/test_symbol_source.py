"""elf.symbol_source: symbols that were read before are taken for another file exactly where that file has the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.elf.patchelf import ElfEdit, apply_edit
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import SymbolTable
from relink.system.errors import ElfError
from tests.support.cc import shared
from tests.unit.elf.handmade import VERSYM, Handmade

_SOURCE = "int other(void); int one(void) { return other(); } int data; __attribute__((weak)) int two(void) { return 2; }"


def _read(data: bytes, known: SymbolTable | None = None) -> SymbolTable | str:
    try:
        return read_symbols(data, known)
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
    known = read_symbols(data, with_source=True)
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
    known = read_symbols(original, with_source=True)
    apply_edit(
        path,
        ElfEdit("/a/search/path/longer/than/any:$ORIGIN", "runpath"),
        read_image(original, path.name),
        original,
    )
    edited = path.read_bytes()
    assert read_symbols(edited, known) is known
    assert read_symbols(edited) is not known
    assert read_symbols(edited) == known


def test_a_table_without_a_source_is_never_taken(tmp_path: Path) -> None:
    data = shared(tmp_path / "libuser.so", _SOURCE).read_bytes()
    known = read_symbols(data)
    assert known.source is None
    assert read_symbols(data, known) is not known


def test_a_damaged_table_has_no_source() -> None:
    table = read_symbols(Handmade(halves={("versym", 4): 77}).build(), with_source=True)
    assert table.problems
    assert table.source is None


def test_the_order_in_the_chains_counts() -> None:
    """The last two symbols, which have one name, change their places."""
    tables = ("sysv", "versions")
    known = read_symbols(Handmade(tables=tables).build(), with_source=True)
    other = Handmade(tables=tables, words={("sysv", 8): 3, ("sysv", 24): 4, ("sysv", 28): 2}).build()
    assert read_symbols(other, known) == read_symbols(other) != known


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
    known = read_symbols(made.build(), with_source=True)
    assert name in {item.name for item in known.imports}
    written_over = shared_string.removesuffix(path) + "X" * len(path)
    changed = made.build().replace(shared_string.encode(), written_over.encode())
    assert read_symbols(changed, known) == read_symbols(changed) != known
