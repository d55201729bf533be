"""Dynamic symbols before and after an edit by the real patchelf: the same, or a difference in each place that counts."""

from __future__ import annotations

import struct

import pytest

from relink.elf.image import Buffer, read_image
from relink.elf.patchelf import ElfEdit, apply_edit
from relink.elf.sections import Section, read_sections
from relink.elf.symbol_checks import same_symbols
from tests.support.cc import shared

LAST, NAME, SECTION = 24, 0, 6  # bytes of an Elf64_Sym; offsets of st_name and st_shndx


def section(data: Buffer, name: str) -> Section:
    return next(one for one in read_sections(data, "x") if one.name == name)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A file whose search path patchelf has written over in the strings, before and after."""
    source = "int used(void); int one(void) { return used(); } int data = 5; int text(void) { return 3; }"
    path = shared(tmp_path_factory.mktemp("symbols") / "libx.so", source, flags=["-Wl,-rpath,/vendor/lib"])
    before = path.read_bytes()
    apply_edit(path, ElfEdit("/somewhere", "runpath", add=("liby.so.1",)), read_image(before, "x"), before)
    return before, path.read_bytes()


def same(before: bytes, after: bytes) -> bool:
    images = (read_image(before, "x"), read_image(after, "x"))
    return same_symbols(
        before, section(before, ".dynsym"), images[0], after, section(after, ".dynsym"), images[1]
    )


def test_no_symbol_is_hashed_after_an_ordinary_edit(
    pair: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relink.elf.symbol_checks.hashlib", None)
    before, after = pair
    tables = [data[(at := section(data, ".dynsym")).offset :][: at.file_size] for data in pair]
    strings = [data[(at := section(data, ".dynstr")).offset :][: at.file_size] for data in pair]
    assert tables[0] != tables[1]
    assert not strings[1].startswith(strings[0])
    assert same(before, after)


@pytest.mark.parametrize("number", [0, 0xFFF1], ids=["undefined", "absolute"])
def test_a_symbol_that_lost_its_section(pair: tuple[bytes, bytes], number: int) -> None:
    before, after = pair[0], bytearray(pair[1])
    table = section(after, ".dynsym")
    struct.pack_into("<H", after, table.offset + table.file_size - LAST + SECTION, number)
    assert not same(before, bytes(after))


def test_a_name_that_changed_in_the_strings(pair: tuple[bytes, bytes]) -> None:
    before, after = pair[0], bytearray(pair[1])
    table, strings = section(after, ".dynsym"), section(after, ".dynstr")
    for at in range(table.offset + LAST, table.offset + table.file_size, LAST):
        (name,) = struct.unpack_from("<I", after, at + NAME)
        end = after.index(0, strings.offset + name)
        for place in (strings.offset + name, end - 1, end):
            after[place] ^= 0x20
            assert not same(before, bytes(after)), (at, place)
            after[place] ^= 0x20
    assert same(before, bytes(after))
