"""Section headers, as pyelftools reads them, in both classes and byte orders; and tables that lie."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

import relink.elf.sections
from relink.elf.image import read_image
from relink.elf.sections import Section, library_names, read_sections
from relink.system.errors import ElfError
from tests.support.cc import shared


def names(tmp_path: Path, *texts: str) -> tuple[str, ...]:
    strings = "".join(
        f'const char *text{number}(void){{return "{text}";}}\n' for number, text in enumerate(texts)
    )
    data = shared(tmp_path / "liba.so.1", strings).read_bytes()
    return library_names(data, read_image(data, "liba.so.1"))


def test_whole_strings_only(tmp_path: Path) -> None:
    found = names(
        tmp_path,
        "libcomgr.so.3",
        "load libfoo.so.1 now",
        "/opt/libbar.so",
        "libdrm_amdgpu.so",
        "lib.so",
        "libx.sol",
    )
    assert found == ("libcomgr.so.3", "libdrm_amdgpu.so")


def test_the_first_string_and_the_own_name(tmp_path: Path) -> None:
    assert names(tmp_path, "libfirst.so.1") == ("libfirst.so.1",)
    assert names(tmp_path, "liba.so.1", "libb.so.2") == ("libb.so.2",)


def test_across_the_border_of_two_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filler = "x" * 500
    for chunk in (17, 64, 509):
        monkeypatch.setattr(relink.elf.sections, "SEARCHED_AT_ONCE", chunk)
        assert names(tmp_path, filler, "libcomgr.so.3", filler[:200], "libtwo.so.2") == (
            "libcomgr.so.3",
            "libtwo.so.2",
        )


def test_a_file_without_section_headers_gives_none(tmp_path: Path) -> None:
    data = bytearray(
        shared(tmp_path / "liba.so.1", 'const char *t(void){return "libcomgr.so.3";}').read_bytes()
    )
    data[40:48] = bytes(8)  # e_shoff
    data[58:64] = bytes(6)  # e_shentsize, e_shnum, e_shstrndx
    assert library_names(bytes(data), read_image(bytes(data), "liba.so.1")) == ()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    source = "int data[100] = {1}; static int zero[1000]; int *f(void) { return zero; }"
    return shared(tmp_path_factory.mktemp("sections") / "liba.so", source).read_bytes()


def test_as_pyelftools_reads_them(library: bytes) -> None:
    theirs = [
        Section(
            section.name,
            0,  # a name there
            section["sh_flags"],
            section["sh_addr"],
            section["sh_offset"],
            0 if section["sh_type"] == "SHT_NOBITS" else section["sh_size"],
            section["sh_addralign"],
            section["sh_size"],
        )
        for section in ELFFile(io.BytesIO(library)).iter_sections()
    ]
    ours = read_sections(library, "x")
    assert [
        (one.name, one.flags, one.address, one.offset, one.file_size, one.align, one.size) for one in ours
    ] == [
        (one.name, one.flags, one.address, one.offset, one.file_size, one.align, one.size) for one in theirs
    ]
    (bss,) = (section for section in ours if section.name == ".bss")
    assert (bss.file_size, bss.size >= 4000, bss.type) == (0, True, 8)


def big_endian_32() -> bytes:
    """A file of nothing but headers: two sections, of which the second has the names."""
    names = b"\0.names\0"
    head = (
        b"\x7fELF\x01\x02\x01"
        + bytes(9)
        + struct.pack(">HHIIIIIHHHHHH", 3, 8, 1, 0, 0, 60, 0, 52, 32, 0, 40, 2, 1)
    )
    empty, row = bytes(40), struct.pack(">10I", 1, 3, 0, 0, 52, len(names), 0, 0, 1, 0)
    return head + names + empty + row


def test_another_class_and_byte_order() -> None:
    empty, names = read_sections(big_endian_32(), "x")
    assert (empty.name, empty.size) == ("", 0)
    assert names == Section(".names", 3, 0, 0, 52, 8, 1, 8)


def test_a_file_without_any(library: bytes) -> None:
    stripped = bytearray(library)
    struct.pack_into("<Q", stripped, 40, 0)
    assert read_sections(bytes(stripped), "x") == ()


@pytest.mark.parametrize(
    ("offset", "form", "value"),
    [(40, "<Q", 1 << 40), (58, "<H", 63), (60, "<H", 0xFEFF), (62, "<H", 200)],
    ids=["past the end", "of another size", "more than there are", "names in none of them"],
)
def test_a_table_that_lies(library: bytes, offset: int, form: str, value: int) -> None:
    lying = bytearray(library)
    struct.pack_into(form, lying, offset, value)
    with pytest.raises(ElfError, match=r"x: .*section headers"):
        read_sections(bytes(lying), "x")
