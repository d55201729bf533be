"""Library names in read-only data."""

from __future__ import annotations

from pathlib import Path

import pytest

import relink.elf.dlopen_strings
from relink.elf.dlopen_strings import library_names
from relink.elf.image import read_image
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
        monkeypatch.setattr(relink.elf.dlopen_strings, "SEARCHED_AT_ONCE", chunk)
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
