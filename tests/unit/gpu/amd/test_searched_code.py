"""Device code outside of .hip_fatbin, which is found when it is searched for."""

from __future__ import annotations

import struct

import pytest

from relink.gpu.amd.file_coverage import coverage_of
from tests.unit.gpu.amd.build import (
    TEXT,
    Piece,
    ccob,
    code_object,
    entries_of,
    hip,
    library,
    raw,
)
from tests.unit.gpu.amd.reading import THREE, read


@pytest.mark.parametrize("section", [".rodata", ".data"])
def test_device_code_elsewhere_is_found_when_it_is_asked_for(section: str) -> None:
    strings = b"__CLANG_OFFLOAD_BUNDLE__\0CCOB\0\x7fELF\x02\x01\x01 and so on, as compilers have it"
    data = (
        strings + bytes(7) + raw(entries_of("gfx1100", "gfx1030"), align=16) + b"zz" + code_object("gfx1010")
    )
    data += bytes(5) + ccob(raw(entries_of("gfx1100"))) + strings
    extra = [
        Piece(section, data, flags=2),
        Piece(".text", code_object(), flags=6),
        Piece(".debug", code_object(), flags=0),
    ]
    image = library([THREE[0]], extra=extra)
    assert read(image).embedded == ()
    code = read(image, scan_limit=1 << 20)
    assert [b.container for b in code.embedded] == ["raw", "code-object", "ccob-v3"]
    assert [[str(t.target) for t in b.targets] for b in code.embedded] == [
        ["gfx1100", "gfx1030"],
        ["gfx1010"],
        ["gfx1100"],
    ]
    assert code.problems == ()
    assert [b.address for b in code.embedded] == [b.offset + TEXT for b in code.embedded]
    assert any("bytes of" in p for p in read(image, scan_limit=64).problems)


def test_a_bundle_elsewhere_that_is_in_doubt_is_none() -> None:
    doubtful = (
        b"__CLANG_OFFLOAD_BUNDLE__"
        + struct.pack("<QQQQ", 2, 64, 64, 40)
        + hip("gfx1100").encode()
        + bytes(100)
    )
    assert read(library(extra=[Piece(".rodata", doubtful)]), scan_limit=1 << 20).embedded == ()


def test_code_across_the_pieces_of_the_search_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relink.gpu.amd.searched_code.SEARCH_STEP", 1000)
    data = b"".join(
        bytes(993) + code_object(name, size=993) for name in ("gfx1100", "gfx1030", "gfx1010") * 5
    )
    code = read(library(extra=[Piece(".data", data)]), scan_limit=1 << 20)
    assert len(code.embedded) == 15


def test_embedded_bundles_count_where_there_is_no_fatbin_but_bare_code_objects_do_not() -> None:
    data = raw(entries_of("gfx1100", "gfx1030"), align=16) + bytes(9) + raw(entries_of("gfx1100"), align=16)
    found = coverage_of(
        read(library(extra=[Piece(".rodata", data + code_object("gfx1010"))]), scan_limit=1 << 20)
    )
    assert (found.targets, found.partial, found.embedded) == (("gfx1100",), (("gfx1030", 1),), 3)
