"""pyelftools beside relink's own reader: equal on what is sound, and a difference in each field is named."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from relink.elf.gaps import find_gaps
from relink.elf.image import Image, Segment, file_offset, read_image
from relink.elf.patchelf import ElfEdit, result_of
from relink.elf.symbol_reader import read_symbols
from relink.loader.target import find_target
from relink.make.elf_second_reader import VersionNeeds, differences, planned_needs, read_with_pyelftools
from relink.system.errors import ElfError
from relink.system.safe_open import map_file
from tests.support.cc import shared
from tests.support.edits import apply_edit
from tests.support.elf_builder import Export, Import, Library, build

LIBRARY = Library(
    "libx.so.1",
    ("liba.so.1", "libb.so.1"),
    runpath="/p",
    interpreter="/lib/ld.so",
    exports=(Export("f", "V_1"),),
    imports=(
        Import("h", "V_2", "liba.so.1"),
        Import("i", "V_3", "libb.so.1"),
        Import("j", "V_4", "libb.so.1"),
    ),
    weak_versions=(("libb.so.1", "V_5"),),
)


def compared(data: bytes, **plan: Any) -> list[str]:
    """The differences, where the plan is the file itself but for what is given."""
    image = read_image(data, "x.so")
    needs = planned_needs(read_symbols(data).verneeds, ElfEdit())
    segments = plan.pop("segments", image.segments)
    needs = plan.pop("needs", needs)
    return differences(data, replace(image, **plan), segments, needs)


def test_they_agree_on_a_sound_file() -> None:
    data = build(LIBRARY)
    assert compared(data) == []
    found = read_with_pyelftools(data)
    assert (found.needed, found.runpath, found.rpath) == (("liba.so.1", "libb.so.1"), "/p", None)
    assert (found.soname, found.interpreter) == ("libx.so.1", "/lib/ld.so")
    assert [(file, [version[0] for version in versions]) for file, versions in found.needs] == [
        ("liba.so.1", ["V_2"]),
        ("libb.so.1", ["V_3", "V_4", "V_5"]),
    ]
    assert len(found.segments) == 5
    old = read_with_pyelftools(build(replace(LIBRARY, rpath="/old", runpath=None)))
    assert (old.rpath, old.runpath) == ("/old", None)


PLANNED: dict[str, tuple[dict[str, Any], str]] = {
    "another NEEDED": (
        {"needed": ("liba.so.1", "libc.so.1")},
        "NEEDED: relink has .*'libc.so.1'.*'libb.so.1'",
    ),
    "another order": ({"needed": ("libb.so.1", "liba.so.1")}, "NEEDED: "),
    "one NEEDED less": ({"needed": ("liba.so.1",)}, "NEEDED: "),
    "a RUNPATH": ({"runpath": "/q"}, "RUNPATH: relink has '/q', pyelftools reads '/p'"),
    "no RUNPATH": ({"runpath": None}, "RUNPATH: relink has nothing, pyelftools reads '/p'"),
    "a RPATH instead": ({"runpath": None, "rpath": "/p"}, "RPATH: relink has '/p', pyelftools reads nothing"),
    "a soname": ({"soname": "liby.so.1"}, "the soname: relink has 'liby.so.1', pyelftools reads 'libx.so.1'"),
    "an interpreter": (
        {"interpreter": "/ld"},
        "the interpreter: relink has '/ld', pyelftools reads '/lib/ld.so'",
    ),
}


@pytest.mark.parametrize("case", PLANNED)
def test_a_plan_that_was_not_carried_out(case: str) -> None:
    plan, said = PLANNED[case]
    found = compared(build(LIBRARY), **plan)
    assert found
    assert any(re.search(said, line) for line in found), found


@pytest.mark.parametrize("field", [field.name for field in fields(Segment)])
def test_each_field_of_a_segment(field: str) -> None:
    image = read_image(build(LIBRARY), "x")
    wrong = replace(image.segments[1], **{field: getattr(image.segments[1], field) ^ 1})
    (line,) = compared(build(LIBRARY), segments=(image.segments[0], wrong, *image.segments[2:]))
    assert line.startswith("segment 1: relink has Segment(")
    assert str(image.segments[1]) in line


def test_a_segment_more_or_less() -> None:
    image = read_image(build(LIBRARY), "x")
    assert [line.split(":")[0] for line in compared(build(LIBRARY), segments=image.segments[:-1])] == [
        "segment 4"
    ]
    assert compared(build(LIBRARY), segments=(*image.segments, image.segments[0]))


def _other(needs: VersionNeeds, file: int, version: int, place: int, value: object) -> VersionNeeds:
    soname, versions = needs[file]
    row: Any = [*versions[version]]
    row[place] = value
    changed = (soname, (*versions[:version], tuple(row), *versions[version + 1 :]))
    return (*needs[:file], changed, *needs[file + 1 :])


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, "V_9"), (1, 77), (2, True), (3, True), (4, 1)],
    ids=["name", "number", "weak", "hidden", "hash"],
)
def test_each_field_of_a_version_need(place: int, value: object) -> None:
    needs = planned_needs(read_symbols(build(LIBRARY)).verneeds, ElfEdit())
    (line,) = compared(build(LIBRARY), needs=_other(needs, 1, 1, place, value))
    assert line.startswith("version need 1: relink has ('libb.so.1', ")


def test_the_file_of_a_version_need() -> None:
    needs = planned_needs(
        read_symbols(build(LIBRARY)).verneeds, ElfEdit(replace=(("libb.so.1", "libb.so.2"),))
    )
    (line,) = compared(build(LIBRARY), needs=needs)
    assert "relink has ('libb.so.2', " in line
    assert "pyelftools reads ('libb.so.1', " in line
    assert len(compared(build(LIBRARY), needs=needs[:1])) == 1


def _dynamic_entry(data: bytes, tag: int) -> int:
    (start,) = (one.offset for one in read_image(data, "x").segments if one.type == 2)
    return next(at for at in range(start, len(data), 16) if struct.unpack_from("<Q", data, at)[0] == tag)


def test_edited_bytes_that_are_not_those_of_the_plan() -> None:
    """The plan is right, and the file is not: one byte of it is another, in each table."""
    data = build(LIBRARY)
    image = read_image(data, "x")
    needs = planned_needs(read_symbols(data).verneeds, ElfEdit())
    verneed = file_offset(
        image.segments, struct.unpack_from("<Q", data, _dynamic_entry(data, 0x6FFFFFFE) + 8)[0]
    )
    assert verneed is not None
    places = {
        "NEEDED": data.index(b"liba.so.1"),
        "RUNPATH": data.index(b"/p\0"),
        "the soname": data.index(b"libx.so.1"),
        "the interpreter": data.index(b"/lib/ld.so"),
        "segment 0": 64 + 4,
        "version need 0": verneed + 16 + 6,
    }
    for word, at in places.items():
        wrong = bytearray(data)
        wrong[at] ^= 4
        found = differences(bytes(wrong), image, image.segments, needs)
        assert any(line.startswith(f"{word}: relink has") for line in found), (word, found)


def test_what_pyelftools_cannot_read() -> None:
    data = bytearray(build(LIBRARY))
    struct.pack_into("<Q", data, _dynamic_entry(bytes(data), 5) + 8, 1 << 40)  # DT_STRTAB
    image = read_image(build(LIBRARY), "x")
    (line,) = differences(bytes(data), image, image.segments, ())
    assert line == (
        "relink can read the edited file, pyelftools cannot: no PT_LOAD segment has the address 0x10000000000"
    )
    for broken in (b"", b"\x7fELF", bytes(64), bytes(data[:70]), b"\x7fELF\2\1\1" + b"\xff" * 57):
        with pytest.raises(ElfError):
            read_with_pyelftools(broken)


def test_names_that_are_not_utf_8() -> None:
    name = b"lib\xff\xfe.so".decode("utf-8", "surrogateescape")
    assert compared(build(Library(name, (name,), runpath=name))) == []


def test_section_headers_are_not_looked_at() -> None:
    """ld.so does not either: a file in which they lead nowhere is the same to it."""
    with map_file(str(next(Path(find_target().libc_directory).glob("libc.so*")))) as buffer:
        data = bytearray(buffer)
    image = read_image(bytes(data), "x")
    needs = planned_needs(read_symbols(bytes(data)).verneeds, ElfEdit())
    struct.pack_into("<Q", data, 40, len(data) - 1)
    assert differences(bytes(data), image, image.segments, needs) == []


def test_tables_inside_of_the_elf_header() -> None:
    """No linker makes them; the bytes of section headers' places are read there like any others."""
    data = bytearray(build(Library(needed=("liba.so",), stack_flags=None)))
    struct.pack_into("<QHHH", data, 40, 0xABCD, 64, 56, 3)
    struct.pack_into("<QH", data, 32, 8, 56)
    struct.pack_into("<H", data, 56, 1)
    image = read_image(bytes(data), "x")
    assert image.segments[0].address == struct.unpack_from("<Q", data, 24)[0]
    assert read_with_pyelftools(bytes(data)).segments == image.segments


def test_nothing_in_a_cut_is_read(tmp_path: Path) -> None:
    """Where it would be, the answer is a difference, not what happens to lie there."""
    source = "const char data[3 << 20] = {1}; int f(void) { return data[5]; }"
    data = shared(tmp_path / "libbig.so", source).read_bytes()
    image = read_image(data, "x")
    gaps = find_gaps(data, image)
    assert gaps
    hollow = bytearray(data)
    for gap in gaps:
        hollow[gap.start : gap.stop] = bytes(len(gap))
    assert (
        differences(
            hollow, image, image.segments, planned_needs(read_symbols(data).verneeds, ElfEdit()), gaps
        )
        == []
    )
    assert read_with_pyelftools(hollow, gaps) == read_with_pyelftools(data)
    with pytest.raises(ElfError, match="in the content of a large section"):
        read_with_pyelftools(data, [range(len(data))])


def test_after_a_real_edit(tmp_path: Path) -> None:
    needed = [shared(tmp_path / "libone.so.1", "int one(void) { return 1; }")]
    path = shared(
        tmp_path / "libuser.so", "extern int one(void); int g(void) { return one(); }", needed=needed
    )
    before = path.read_bytes()
    image: Image = read_image(before, "x")
    edit = ElfEdit("/q:$ORIGIN", "rpath", replace=(("libone.so.1", "libone.so.2"),), add=("libz.so.1",))
    after = apply_edit(path, edit, image, before)
    needs = planned_needs(read_symbols(before).verneeds, edit)
    assert differences(path.read_bytes(), result_of(image, edit), after.segments, needs) == []
    other = replace(edit, add=("liby.so.1",))
    (line,) = differences(path.read_bytes(), result_of(image, other), after.segments, needs)
    assert line.startswith("NEEDED: ")


def test_it_is_not_imported_before_it_is_needed() -> None:
    program = (
        "import sys, relink.cli, relink.runs.relink_wheel, relink.make.second_readers;"
        "print([name for name in sys.modules if name.startswith(('elftools', 'wheel'))])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"[]\n"
