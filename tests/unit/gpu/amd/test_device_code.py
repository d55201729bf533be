"""Files of every form: libraries with wrappers and relocations, object files, code objects, archives."""

from __future__ import annotations

import dataclasses
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from relink.elf.source import BufferSource, ByteSource, FileSource
from relink.gpu.amd.device_code import (
    DeviceCode,
    read_device_code,
    read_file,
    same_device_code,
    with_archives,
)
from relink.gpu.amd.file_coverage import coverage_of
from relink.gpu.amd.kpack import Effort, KpackArchive, parse_archive
from relink.gpu.amd.survey import survey
from relink.gpu.coverage import TargetId
from relink.gpu.host_elf import HostElf, pointers
from relink.wheel.archive import WheelArchive
from tests.support.hostile_counts import scattered_wrappers
from tests.support.wheels import make_wheel
from tests.unit.gpu.amd import build
from tests.unit.gpu.amd.build import (
    BASE,
    PAGE,
    TEXT,
    Piece,
    ccob,
    code_object,
    entries_of,
    hip,
    kpack_archive,
    library,
    raw,
)
from tests.unit.gpu.amd.reading import THREE, read, targets


@pytest.mark.parametrize("relocation", ["rela", "rela-in-place", "relr"])
def test_wrappers_and_bundles_agree(relocation: str) -> None:
    code = read(library([*THREE, *THREE], relocation=relocation))
    assert code.problems == ()
    assert code.wrappers == 6
    assert targets(code) == [["gfx1030", "gfx1100"][::-1], ["gfx1100"], ["gfx1100"]] * 2
    assert all(bundle.address == bundle.offset + TEXT for bundle in code.bundles)
    assert code.container == "raw + ccob-v3 + ccob-v1"


def test_the_addend_is_read_and_not_the_empty_slot() -> None:
    data = library(THREE)
    assert struct.pack("<IIQQ", 0x48495046, 1, 0, 0) * 3 in data
    assert read(data).problems == ()


def test_wrappers_that_nothing_relocates_are_named() -> None:
    data = bytearray(library(THREE, relocation="rela-in-place"))
    slot = (
        data.index(struct.pack("<IIQQ", 0x48495046, 1, read(bytes(data)).bundles[1].offset + TEXT, 0))
        + 8
        + BASE
    )
    at = data.index(struct.pack("<QQ", slot, 8)) + 8
    struct.pack_into("<Q", data, at, 1)  # no longer RELATIVE
    assert any("nothing relocates" in p for p in read(bytes(data)).problems)


def test_without_wrappers_the_walk_is_enough() -> None:
    code = read(library(THREE[:2], wrappers=False))
    assert (len(code.bundles), code.problems) == (2, ())


def test_a_wrapper_that_misses_its_bundle_counts_as_an_unreadable_bundle() -> None:
    code = read(library(THREE[:2], pointers=[0, 8192 + 64]))
    assert any("finds no bundle" in p for p in code.problems)
    assert any("have no wrapper" in p for p in code.problems)
    assert coverage_of(code).unreadable == 1
    outside = read(library(THREE[:2], pointers=[0, 1 << 40]))
    assert any("outside of the file" in p for p in outside.problems)
    twice = read(library(THREE[:2], pointers=[0, 0]))
    assert any("as another one does" in p for p in twice.problems)
    elsewhere = read(library(THREE[:1], pointers=[0, -PAGE + 512]))
    assert any("outside of .hip_fatbin" in p for p in elsewhere.problems)


def test_a_wrapper_to_an_emptied_page_counts_as_an_unreadable_bundle() -> None:
    code = read(library([THREE[0], bytes(PAGE), THREE[1]]))
    assert [b.container for b in code.bundles] == ["raw", "unreadable", "ccob-v3"]
    assert code.bundles[1].address == code.bundles[1].offset + TEXT
    assert any("no bundle starts here" in p for p in code.problems)


def test_a_wrapper_with_another_magic_is_named() -> None:
    data = library(THREE).replace(struct.pack("<II", 0x48495046, 1), struct.pack("<II", 0x48495046, 7), 1)
    assert any("version 7" in p for p in read(data).problems)


@pytest.mark.parametrize("relocation", ["rela", "relr"])
def test_without_section_headers_the_wrappers_lead_to_the_bundles(relocation: str) -> None:
    full = read(library(THREE, relocation=relocation))
    code = read(library(THREE, relocation=relocation, sections=False))
    assert targets(code) == targets(full)
    assert [b.address for b in code.bundles] == [b.address for b in full.bundles]
    assert code.wrappers == 3
    assert any("no section headers" in p for p in code.problems)


def test_section_headers_past_the_end_fall_back_too() -> None:
    data = bytearray(library(THREE))
    struct.pack_into("<Q", data, 40, 1 << 50)
    code = read(bytes(data))
    assert len(code.bundles) == 3
    assert any("lie past the end" in p for p in code.problems)


def test_a_huge_number_of_sections_is_clipped() -> None:
    data = bytearray(library(THREE))
    shoff = struct.unpack_from("<Q", data, 40)[0]
    struct.pack_into("<H", data, 60, 0)
    struct.pack_into("<Q", data, shoff + 32, 1 << 60)
    assert any("section headers" in p for p in read(bytes(data)).problems)


def test_host_libraries_without_device_code_have_none() -> None:
    code = read(library(wrappers=False))
    assert (code.form, code.container, code.bundles, code.problems) == ("elf", "none", (), ())
    assert read(b"\x7fELF\x01\x01\x01" + bytes(60)).form == "elf"
    assert read(b"").form == "other"
    assert read(b"text").container == "none"


def test_bare_code_objects() -> None:
    code = read(code_object("gfx90a:xnack+"))
    assert (code.form, targets(code)) == ("code-object", [["gfx90a:xnack+"]])
    unknown = read(code_object(flags=0xFE))
    assert targets(unknown) == [[]]
    assert "unknown machine 0xfe" in unknown.problems[0]


def test_object_files_are_not_yet_relocated() -> None:
    code = read(library(THREE[:2], relocation="none", pointers=[1, 2], kind=1))
    assert code.problems == ()
    assert [b.address for b in code.bundles] == [None, None]


def test_a_kpack_archive_by_itself() -> None:
    code = read(kpack_archive({"lib/liba.so#0": ["gfx1100"], "lib/liba.so#1": ["gfx1100", "gfx1101"]}))
    assert (code.form, targets(code)) == ("kpack-archive", [["gfx1100"], ["gfx1100", "gfx1101"]])


def test_files_on_disk_and_what_cannot_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "libx.so"
    path.write_bytes(library(THREE))
    assert read_file(path).bundles == read(library(THREE)).bundles
    assert "cannot be read" in read_file(tmp_path / "absent").problems[0]
    assert read_file(tmp_path).form == "other"
    os.mkfifo(tmp_path / "pipe")
    assert read_file(tmp_path / "pipe").form == "other"  # and does not wait for a writer
    with FileSource(path) as source:
        assert source.read_at(0, 4) == b"\x7fELF"
        assert source.read_at(1 << 40, 4) == b""
        assert source.read_at(-1, 4) == b""
    assert source.read_at(0, 4) == b""
    source.close()


def test_after_an_edit_the_same_bundles_must_be_at_the_same_addresses() -> None:
    before = read(library(THREE))
    assert same_device_code(before, read(library(THREE, relocation="rela-in-place"))) == ()
    moved = read(library(THREE, extra=[Piece(".a", b"x")]))
    assert same_device_code(before, moved) == ()
    fewer = same_device_code(before, read(library(THREE[:2])))
    assert any("3 bundles before, 2 after" in text for text in fewer)
    other = same_device_code(before, read(library([THREE[1], THREE[1], THREE[2]])))
    assert any("bundle 0 has other content" in text for text in other)
    damaged = read(library(THREE, pointers=[0, 12345, 8192]))
    assert any("wrapper" in text for text in same_device_code(before, damaged))
    bundles = (dataclasses.replace(one, address=(one.address or 0) + BASE) for one in before.bundles)
    shifted = replace(before, bundles=tuple(bundles))
    assert any("moved from" in text for text in same_device_code(before, shifted))


def test_relocations_are_looked_at_for_few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without section headers each run of wrappers takes a look at all relocations; a linker makes one run."""
    asked = []

    def counted(source: ByteSource, elf: HostElf, low: int, high: int) -> Any:
        asked.append(low)
        return pointers(source, elf, low, high)

    monkeypatch.setattr("relink.gpu.amd.device_code.pointers", counted)
    code = read_device_code(BufferSource(scattered_wrappers(100)), "x")
    assert len(asked) == 16
    assert [bundle.container for bundle in code.bundles] == ["unreadable"]
    assert any("wrappers in more than 16 places" in text for text in code.problems)


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
    monkeypatch.setattr("relink.gpu.amd.device_code.SEARCH_STEP", 1000)
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


KEYS = ("lib/libfoo.so#0", "lib/libfoo.so#1")
LIBRARY = build.library(
    kpack=build.msgpack(
        {"kernel_name": "lib/libfoo.so", "kpack_search_paths": ["../.kpack/foo_@GFXARCH@.kpack"]}
    ),
    kpack_wrappers=2,
)


def archive_for(*targets: str, version: int = 1) -> bytes:
    return build.kpack_archive(dict.fromkeys(KEYS, targets), version=version)


def resolved(directory: Path, files: Mapping[str, bytes], member: str = "pkg/lib/libfoo.so") -> DeviceCode:
    path = make_wheel(directory, {"pkg/__init__.py": b"", member: LIBRARY, **files})
    codes = {member: read_device_code(BufferSource(LIBRARY), member)}
    with WheelArchive(path) as archive:
        return with_archives(codes, archive)[member]


def level(code: DeviceCode, name: str) -> str:
    return coverage_of(code).level(TargetId(name)).state


def test_archives_in_the_wheel_count(tmp_path: Path) -> None:
    files = {
        "pkg/.kpack/foo_gfx1100.kpack": archive_for("gfx1100"),
        "pkg/.kpack/foo_gfx90a.kpack": archive_for("gfx90a")[:-4],
        "pkg/.kpack/foo_gfx1200.kpack": archive_for("gfx1200", version=7),
        "other/.kpack/foo_gfx1030.kpack": archive_for("gfx1030"),
    }
    code = resolved(tmp_path, files)
    assert {name: level(code, name) for name in ("gfx1100", "gfx90a", "gfx1200", "gfx1030")} == {
        "gfx1100": "full",
        "gfx90a": "unknown",
        "gfx1200": "unknown",
        "gfx1030": "none",
    }
    assert [problem for problem in code.problems if "torn" in problem]


def test_a_wheel_whose_code_another_distribution_brings(tmp_path: Path) -> None:
    code = resolved(tmp_path, {})
    assert level(code, "gfx1100") == "unknown"
    assert "none of them is in the wheel (foo_@GFXARCH@.kpack)" in code.doubts[0].reason


def test_where_another_distribution_has_put_them(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "pkg/.kpack").mkdir(parents=True)
    (site / "pkg/.kpack/foo_gfx1100.kpack").write_bytes(archive_for("gfx1100"))
    member = "pkg/lib/libfoo.so"
    path = make_wheel(tmp_path, {member: LIBRARY, "pkg/.kpack/foo_gfx90a.kpack": archive_for("gfx90a")})
    codes = {member: read_device_code(BufferSource(LIBRARY), member)}
    with WheelArchive(path) as archive:
        code = with_archives(codes, archive, lambda name: f"/v/{name}", [("/v", str(site))])[member]
    assert [level(code, name) for name in ("gfx1100", "gfx90a", "gfx1030")] == ["full", "full", "none"]


def test_a_place_that_was_looked_in_and_has_none(tmp_path: Path) -> None:
    member = "pkg/lib/libfoo.so"
    path = make_wheel(tmp_path, {member: LIBRARY})
    codes = {member: read_device_code(BufferSource(LIBRARY), member)}
    with WheelArchive(path) as archive:
        code = with_archives(codes, archive, lambda name: f"/v/{name}", [("/v", str(tmp_path))])[member]
    assert level(code, "gfx1100") == "none"
    assert not code.doubts


def test_a_large_archive_is_read_at_its_ends(tmp_path: Path) -> None:
    data = archive_for("gfx1100")
    place = int.from_bytes(data[8:16], "little")
    gap = 3 << 20  # more than one chunk of the member
    moved = data[:8] + (place + gap).to_bytes(8, "little") + data[16:place] + bytes(gap) + data[place:]
    assert level(resolved(tmp_path, {"pkg/.kpack/foo_gfx1100.kpack": moved}), "gfx1100") == "full"


@pytest.mark.parametrize("data", [b"", b"KPAK", b"KPAK\1\0\0\0" + b"\xff" * 8, b"x" * 5000])
def test_what_is_no_archive(tmp_path: Path, data: bytes) -> None:
    assert level(resolved(tmp_path, {"pkg/.kpack/foo_gfx1100.kpack": data}), "gfx1100") == "unknown"


def test_a_survey_of_a_wheel_takes_archives_as_a_choice(tmp_path: Path) -> None:
    files = {f"pkg/.kpack/foo_{name}.kpack": archive_for(name) for name in ("gfx1100", "gfx1030")}
    path = make_wheel(tmp_path, {"pkg/lib/libfoo.so": LIBRARY, **files})
    found = survey(path)
    assert [found.covers(TargetId(name)) for name in ("gfx1100", "gfx1030", "gfx90a")] == [True, True, False]


def test_kpack_toc_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of all archives of a wheel together have a bound, and each archive is read once."""
    monkeypatch.setattr("relink.gpu.amd.device_code.STEPS", 2000)
    read = []

    def counted(source: ByteSource, path: str, effort: Effort) -> KpackArchive:
        read.append(path)
        return parse_archive(source, path, effort)

    monkeypatch.setattr("relink.gpu.amd.device_code.parse_archive", counted)
    archives = {
        f"pkg/.kpack/foo_{target}.kpack": build.kpack_archive(
            dict.fromkeys(KEYS, (target,)), blobs=[0] * 600, zstd_offset=0, zstd_size=0
        )
        for target in ("gfx1030", "gfx1100", "gfx1101", "gfx1200")
    }
    files = {f"pkg/lib/lib{number}.so": LIBRARY for number in range(3)}
    path = make_wheel(tmp_path, {**files, **archives})
    codes = {member: read_device_code(BufferSource(LIBRARY), member) for member in files}
    with WheelArchive(path) as archive:
        found = with_archives(codes, archive)
    assert sorted(read) == sorted(archives)
    for member in files:
        assert (
            coverage_of(found[member])
            .level(TargetId("gfx1030"))
            .note.startswith("its kpack archives take more")
        )
    monkeypatch.setattr("relink.gpu.amd.device_code.STEPS", 10_000)
    read.clear()
    with WheelArchive(path) as archive:
        assert level(with_archives(codes, archive)["pkg/lib/lib0.so"], "gfx1030") == "full"
    assert sorted(read) == sorted(archives)


def test_kpack_toc_hang_of_archives_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`isa` of a wheel reads archives that no library names, too."""
    monkeypatch.setattr("relink.gpu.amd.survey.STEPS", 500)
    data = build.kpack_archive(dict.fromkeys(KEYS, ("gfx1100",)), blobs=[0] * 400)
    path = make_wheel(tmp_path, {f"pkg/{number}.kpack": data for number in range(3)})
    (kernels,) = survey(path).items
    assert sum("more objects than are read" in text for text in kernels.to_json()["problems"]) == 2
