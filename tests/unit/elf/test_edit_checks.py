"""elf.edit_checks: a good edit passes, and each way to break a file is seen by the check that is there for it."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.elf import edit_checks
from relink.elf.edit import ElfEdit, VersionEdit, find_freed_symbols, predict_edit, read_records
from relink.elf.edit_checks import (
    check_edit,
    check_version_edits,
    new_issues,
    place_headers,
    same_symbols,
)
from relink.elf.image import Image, Section, Segment, read_image, read_sections
from relink.elf.patchelf import find_patchelf
from relink.elf.symbol_reader import read_symbols
from relink.loader.target import find_target
from tests.support import old_kernel
from tests.support.cc import cc, shared
from tests.support.edits import apply_edit
from tests.support.elf_builder import build
from tests.support.old_kernel import KilledError
from tests.support.pyelftools_reader import differences, planned_needs
from tests.unit.elf.test_edit import FREED, RENAMED, USER, edited

PROGRAM_SOURCE = r"""
#include <stdio.h>
static char room[300000]; _Thread_local int local = 40; const char *text = "of the program";
int main(void) { room[7] = 1; printf("%d %s\n", local + room[7] + 1, text); return 0; }
"""
KINDS = {"pie": ("-pie", "-fPIE"), "fixed": ("-no-pie", "-fno-pie")}
LONG = "/" + "long/" * 80


def compile_program(path: Path, kind: str) -> Path:
    return cc(PROGRAM_SOURCE, path, *KINDS[kind])


def edit_program(path: Path, edit: ElfEdit) -> bytes:
    original = path.read_bytes()
    apply_edit(path, edit, read_image(original, path.name), original)
    return path.read_bytes()


def edits() -> dict[str, ElfEdit]:
    return {
        "search path": ElfEdit(LONG, "runpath"),
        "needed": ElfEdit(add=("libm.so.6", "libdl.so.2")),
        "interpreter": ElfEdit(interpreter="/" * 300 + find_target().interpreter.lstrip("/")),
        "all": ElfEdit(LONG, "rpath", add=("libm.so.6",), interpreter="//" + find_target().interpreter),
    }


@pytest.mark.few(2, reason="the same of other values")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["search path", "needed", "interpreter", "all"])
def test_an_edited_executable_runs_here_and_on_an_old_kernel(tmp_path: Path, kind: str, name: str) -> None:
    path = compile_program(tmp_path / "program", kind)
    old_kernel.run(path.read_bytes())
    for _ in range(3):  # each of them grows the file
        data = edit_program(path, edits()[name])
        old_kernel.run(data)
        assert subprocess.check_output([path], text=True) == "42 of the program\n"
    assert (
        read_image(data, "x").header
        == read_image(compile_program(tmp_path / "again", kind).read_bytes(), "x").header
    )


def moved(data: bytes, kind: str) -> bytes:
    """The file with its program headers moved behind the rest, to an address that is not their offset."""
    (at,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    rows = [list(row) for row in struct.iter_unpack("<IIQQQQQQ", data[at : at + 56 * count])]
    end = max(row[3] + row[6] for row in rows if row[0] == 1)
    place, address = -(-len(data) // 4096) * 4096, -(-end // 4096) * 4096
    assert place + (0x400000 if kind == "fixed" else 0) != address
    size = 56 * (count + 1)
    for row in rows:
        if row[0] == 6:
            row[2:7] = place, address, address, size, size
    rows.append([1, 4, place, address, address, size, size, 4096])
    out = (
        bytearray(data) + bytes(place - len(data)) + b"".join(struct.pack("<IIQQQQQQ", *row) for row in rows)
    )
    struct.pack_into("<Q", out, 32, place)
    struct.pack_into("<H", out, 56, count + 1)
    return bytes(out)


@pytest.mark.parametrize("kind", KINDS)
def test_headers_that_were_moved_before_are_put_where_old_kernels_find_them(
    tmp_path: Path, kind: str
) -> None:
    path = compile_program(tmp_path / "program", kind)
    path.write_bytes(moved(path.read_bytes(), kind))
    with pytest.raises(KilledError, match=r"ld\.so"):
        old_kernel.run(path.read_bytes())
    for name in ("search path", "all"):
        old_kernel.run(edit_program(path, edits()[name]))
        assert subprocess.check_output([path], text=True) == "42 of the program\n"


@pytest.mark.parametrize(
    ("place", "value"), [(40, 1 << 62), (40, (1 << 64) - 1), (40, 8 << 30), (48, 1 << 63), (16, 1 << 63)]
)
def test_headers_stay_where_a_segment_would_lead_them_out_of_the_file(
    tmp_path: Path, place: int, value: int
) -> None:
    """p_memsz, p_align or p_vaddr: no file is that large, and nobody wants one of gigabytes."""
    path = compile_program(tmp_path / "program", "pie")
    before = read_image(path.read_bytes(), "x")
    data = bytearray(moved(path.read_bytes(), "pie"))
    (at,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    struct.pack_into("<Q", data, at + 56 * (count - 1) + place, value)
    path.write_bytes(data)
    place_headers(path, before)
    assert path.read_bytes() == data


@pytest.mark.parametrize("kind", KINDS)
def test_what_patchelf_alone_makes_is_judged_as_the_old_kernel_judges_it(tmp_path: Path, kind: str) -> None:
    path = compile_program(tmp_path / "program", kind)
    original, edit = path.read_bytes(), ElfEdit(LONG, "runpath")
    subprocess.run([find_patchelf().path, "--set-rpath", LONG, path], check=True)
    data = path.read_bytes()
    found = check_edit(original, data, read_image(original, "x"), read_image(data, "x"), edit)
    if kind == "fixed":
        assert any("the first LOAD segment is writable" in issue for issue in found)
        with pytest.raises(KilledError, match="writable"):
            old_kernel.run(data)
    else:
        assert not [issue for issue in found if "kernel" in issue]
        old_kernel.run(data)


def changed(image: Image, kind: int, number: int, **fields: int) -> Image:
    """Return the facts with other values in the program header `number` of that type."""
    place = [at for at, one in enumerate(image.segments) if one.type == kind][number]
    segments = list(image.segments)
    segments[place] = replace(segments[place], **fields)
    return replace(image, segments=tuple(segments))


def test_each_rule(tmp_path: Path) -> None:
    data = compile_program(tmp_path / "program", "fixed").read_bytes()
    image = read_image(data, "x")
    first, second = [one for one in image.segments if one.type == 1][:2]
    many = data[:56] + struct.pack("<H", 74) + data[58:]
    broken = {
        "is writable": (data, changed(image, 1, 0, flags=6)),
        "share a page": (data, changed(image, 1, 0, memory_size=second.address - first.address + 1)),
        "is not mapped where": (data, changed(image, 6, 0, address=first.address + 0x1040)),
        "may not map": (data, changed(image, 1, 0, address=0xF000)),
        "is aligned to more": (data, changed(image, 1, 1, align=1 << 21)),
        "has more than 4096 bytes": (many, image),
    }
    assert not list(new_issues(data, data, image, image))
    for words, (other, after) in broken.items():
        assert [one for one in new_issues(data, other, image, after) if words in one], words
        assert not [one for one in new_issues(other, other, after, after) if words in one]
        library = replace(after, interpreter=None)
        assert not list(new_issues(data, other, image, library))


LOAD, DYNAMIC, INTERP, PHDR, TLS, STACK, RELRO = 1, 2, 3, 6, 7, 0x6474E551, 0x6474E552
NEEDED, SONAME, RPATH, RUNPATH, RELASZ, SYMTAB, STRTAB, RELR = 1, 14, 15, 29, 8, 6, 5, 36
VERNEED, GNU_HASH = 0x6FFFFFFE, 0x6FFFFEF5

SOURCE = """
int one(void); int two(void);
int sum(void) { return one() + two(); }
int another(void) { return 3; }
const char text[] = "constant"; const char *pointer = text;
int data = 5; _Thread_local int local = 6; static char room[100]; char *rooms(void) { return room; }
"""
EDIT = ElfEdit("/somewhere/else:$ORIGIN", "rpath", add=("libadded.so.1",))


@dataclass
class Edited:
    """A file before and after an edit by the real patchelf, to be broken by hand."""

    original: bytes
    data: bytearray
    edit: ElfEdit

    @property
    def before(self) -> Image:
        return read_image(self.original, "libuser.so")

    @property
    def after(self) -> Image:
        return read_image(self.data, "libuser.so")

    def issues(self, edit: ElfEdit | None = None, after: Image | None = None) -> list[str]:
        return check_edit(self.original, self.data, self.before, after or self.after, edit or self.edit)

    def section(self, name: str) -> Section:
        return next(one for one in read_sections(self.data, "x") if one.name == name)

    def set_section(self, name: str, field: int, change: Callable[[int], int]) -> None:
        """Change the 64-bit field at `field` of a section's header: 16 sh_addr, 24 sh_offset, 32 sh_size."""
        (start,) = struct.unpack_from("<Q", self.data, 40)
        number = [one.name for one in read_sections(self.data, "x")].index(name)
        self._change("<Q", start + 64 * number + field, change)

    def set_segment(self, index: int, field: int, change: Callable[[int], int]) -> None:
        """Change one field of a program header: 4 flags (32 bits), 8 offset, 16 address, 32 and 40 sizes, 48 alignment."""
        self._change("<I" if field == 4 else "<Q", 64 + 56 * index + field, change)

    def segments(self, kind: int) -> list[tuple[int, Segment]]:
        return [(index, one) for index, one in enumerate(self.after.segments) if one.type == kind]

    def entry(self, tag: int, number: int = 0) -> int:
        """The offset of an entry of the dynamic section."""
        section = self.section(".dynamic")
        found = [
            at
            for at in range(section.offset, section.offset + section.file_size, 16)
            if struct.unpack_from("<q", self.data, at)[0] == tag
        ]
        return found[number]

    def flip(self, offset: int) -> None:
        self.data[offset] ^= 0x55

    def _change(self, form: str, offset: int, change: Callable[[int], int]) -> None:
        (value,) = struct.unpack_from(form, self.data, offset)
        struct.pack_into(form, self.data, offset, change(value))


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("checks")
    script = directory / "versions.map"
    script.write_text("V_1 { *; };\n")
    return [
        shared(
            directory / f"lib{name}.so.1",
            f"int {name}(void) {{ return 1; }}",
            flags=[f"-Wl,--version-script={script}"],
        )
        for name in ("two", "one")
    ]


def by_patchelf(path: Path, edit: ElfEdit = EDIT) -> Edited:
    original = path.read_bytes()
    apply_edit(path, edit, read_image(original, path.name), original)
    return Edited(original, bytearray(path.read_bytes()), edit)


@pytest.fixture(scope="module")
def good(stubs: list[Path]) -> Edited:
    flags = ["-Wl,--enable-new-dtags,-rpath,/somewhere"]
    return by_patchelf(shared(stubs[0].parent / "libuser.so", SOURCE, needed=stubs, flags=flags))


@pytest.fixture
def file(good: Edited) -> Edited:
    return Edited(good.original, bytearray(good.data), good.edit)


def test_a_good_edit_has_no_issues(file: Edited) -> None:
    assert file.issues() == []
    assert file.after.needed == ("libtwo.so.1", "libone.so.1", "libadded.so.1")


# As planned


def test_needed_entries_in_another_order(file: Edited) -> None:
    first, second = file.entry(NEEDED, 0), file.entry(NEEDED, 1)
    for offset in range(8, 16):
        data = file.data
        data[first + offset], data[second + offset] = data[second + offset], data[first + offset]
    (issue,) = file.issues()
    assert issue.startswith("needed is ('libone.so.1', 'libtwo.so.1', 'libadded.so.1') where ('libtwo.so.1'")


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (replace(EDIT, add=()), "needed is"),
        (replace(EDIT, search_kind="runpath"), "rpath is"),
        (
            replace(EDIT, search_path="/other"),
            "rpath is '/somewhere/else:$ORIGIN' where '/other' was planned",
        ),
        (replace(EDIT, interpreter="/ld.so"), "interpreter is none where '/ld.so' was planned"),
    ],
)
def test_what_was_not_done(file: Edited, edit: ElfEdit, words: str) -> None:
    issues = file.issues(edit)
    assert issues
    assert issues[0].startswith(words)


def test_a_search_path_of_the_other_kind(file: Edited) -> None:
    struct.pack_into("<q", file.data, file.entry(RPATH), RUNPATH)
    assert [issue.split(" is ")[0] for issue in file.issues()] == ["rpath", "runpath"]


def test_another_soname(file: Edited) -> None:
    (value,) = struct.unpack_from("<Q", file.data, file.entry(SONAME) + 8)
    struct.pack_into("<Q", file.data, file.entry(SONAME) + 8, value + 3)
    assert file.issues() == ["soname is 'user.so' where 'libuser.so' was planned"]


def test_another_header(file: Edited) -> None:
    file.data[7] = 3
    assert [issue.split(" is ")[0] for issue in file.issues()] == ["header"]


@pytest.mark.parametrize("tag", [RELASZ, SYMTAB, STRTAB, VERNEED])
def test_another_entry_of_the_dynamic_section(file: Edited, tag: int) -> None:
    """A size, or an address that leads to another section than before."""
    (value,) = struct.unpack_from("<Q", file.data, file.entry(tag) + 8)
    struct.pack_into("<Q", file.data, file.entry(tag) + 8, value - 8)
    words = f"entry {tag:#x} of the dynamic section "
    assert [issue for issue in file.issues() if issue.startswith(words)]


def test_an_address_that_leads_nowhere(file: Edited) -> None:
    struct.pack_into("<Q", file.data, file.entry(GNU_HASH) + 8, 1 << 40)
    assert f"entry {GNU_HASH:#x} of the dynamic section does not lead to .gnu.hash any more" in file.issues()


def test_an_entry_of_the_dynamic_section_that_is_gone(file: Edited) -> None:
    struct.pack_into("<q", file.data, file.entry(RELASZ), 0x6FFFFFF9)
    assert file.issues() == ["entries of the dynamic section are gone, or others are there"]


# Version records


def test_patchelf_leaves_the_version_record_of_what_it_removes(stubs: list[Path], tmp_path: Path) -> None:
    """The fault itself, by the patchelf in use: the day that this fails, the rule can go."""
    path = shared(tmp_path / "libuser.so", SOURCE, needed=stubs)
    original = path.read_bytes()
    subprocess.run([find_patchelf().path, "--remove-needed", "libone.so.1", path], check=True)
    broken = Edited(original, bytearray(path.read_bytes()), ElfEdit(remove=("libone.so.1",)))
    assert broken.after.needed == ("libtwo.so.1",)
    assert broken.issues() == [
        "a version record names libone.so.1, which is not NEEDED any more; ld.so would abort"
    ]


def test_a_record_of_a_library_that_was_never_needed_is_not_ours(stubs: list[Path], tmp_path: Path) -> None:
    """The vendor may count on another object to load it; an edit of the search path changes nothing about that."""
    path = shared(tmp_path / "libuser.so", SOURCE, needed=stubs)
    subprocess.run([find_patchelf().path, "--remove-needed", "libone.so.1", path], check=True)
    assert by_patchelf(path, ElfEdit("/p", "rpath")).issues() == []


def test_a_version_record_that_asks_for_something_else(file: Edited) -> None:
    file.flip(file.section(".gnu.version_r").offset + 16)  # vna_hash of the first
    (issue,) = file.issues()
    assert "the version record of 'V_1' has the wrong hash" in issue


# Segments


def last_load(file: Edited) -> int:
    return file.segments(LOAD)[-1][0]


def test_a_segment_that_is_not_congruent(file: Edited) -> None:
    file.set_segment(last_load(file), 48, lambda _: 1 << 30)
    assert [issue for issue in file.issues() if "differ modulo 0x40000000" in issue]


def test_a_segment_past_the_end_of_the_file(file: Edited) -> None:
    """read_image does not let such a file pass; the check holds for facts from anywhere."""
    after = file.after
    index, load = file.segments(LOAD)[-1]
    segments = list(after.segments)
    segments[index] = replace(
        load, file_size=load.file_size + (1 << 20), memory_size=load.memory_size + (1 << 20)
    )
    number = len(file.segments(LOAD)) - 1
    assert file.issues(after=replace(after, segments=tuple(segments))) == [
        f"LOAD segment {number} ends past the end of the file"
    ]


def test_segments_that_overlap(file: Edited) -> None:
    file.set_segment(file.segments(LOAD)[0][0], 40, lambda size: size + (1 << 20))
    assert file.issues() == ["LOAD segment 1 overlaps the one before it or is out of order"]


def test_a_dynamic_section_that_cannot_be_written(file: Edited) -> None:
    for index, _ in file.segments(LOAD):
        file.set_segment(index, 4, lambda flags: flags & ~2)
    assert file.issues() == [".dynamic is not inside of a writable LOAD segment; ld.so would crash"]


@pytest.mark.parametrize(("kind", "field"), [(TLS, 40), (STACK, 4), (RELRO, 16), (RELRO, 40)])
def test_other_segments(file: Edited, kind: int, field: int) -> None:
    ((index, _),) = file.segments(kind)
    file.set_segment(index, field, lambda value: value ^ 0x1)
    assert file.issues() == [f"the segment of type {kind:#x} changed"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Edited:
    path = cc("int main(void) { return 0; }", tmp_path_factory.mktemp("program") / "program", "-pie")
    return by_patchelf(path, ElfEdit("/p", "rpath", interpreter="/" + "long/" * 50 + "ld.so"))


@pytest.mark.parametrize(
    ("kind", "field", "words"),
    [
        (PHDR, 16, "is not covered by a LOAD segment"),
        (INTERP, 16, "is not covered by a LOAD segment"),
        (PHDR, None, "is not mapped where older kernels tell the loader that it is"),
    ],
)
def test_what_the_kernel_hands_to_the_loader(
    program: Edited, kind: int, field: int | None, words: str
) -> None:
    file = Edited(program.original, bytearray(program.data), program.edit)
    assert file.issues() == []
    ((index, _),) = file.segments(kind)
    if field is not None:
        file.set_segment(index, field, lambda value: value + 0x100000)
    else:  # moved into a segment whose address is not its offset
        load = next(one for _, one in file.segments(LOAD) if one.address != one.offset)
        file.set_segment(index, 8, lambda _: load.offset)
        file.set_segment(index, 16, lambda _: load.address)
        file.set_segment(index, 40, lambda _: 8)
    assert [issue for issue in file.issues() if issue.endswith(words)]


# Sections


def test_a_flipped_byte_in_any_section_that_was_not_to_change(
    file: Edited, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edit_checks, "COMPARED_AT_ONCE", 16)
    rewritten = {".dynamic", ".dynstr", ".interp", ".gnu.version_r"}
    seen = set()
    for section in read_sections(bytes(file.data), "x"):
        if not section.flags & 2 or not section.file_size or section.name in rewritten:
            continue
        symbols = section.name == ".dynsym"
        wanted = f"section {section.name} changed its contents"
        wanted = "the dynamic symbol table changed" if symbols else wanted
        for offset in (section.offset + 28 * symbols, section.offset + section.file_size - 1):
            file.flip(offset)
            assert wanted in file.issues()
            file.flip(offset)
        seen.add(section.name)
    assert {".text", ".data", ".rodata", ".dynsym", ".gnu.hash", ".rela.dyn", ".eh_frame"} <= seen
    assert file.issues() == []


def test_a_section_that_moved(file: Edited) -> None:
    file.set_section(".text", 16, lambda address: address + 16)
    section = file.section(".text")
    assert file.issues() == [
        f"section .text moved from {section.address - 16:#x} to {section.address:#x}",
        f"section .text is not what is mapped at its address {section.address:#x}",
    ]


def test_a_section_that_is_mapped_from_elsewhere(file: Edited) -> None:
    """Headers and contents agree, but the segment takes other bytes of the file to the section's address."""
    index = next(
        index
        for index, one in file.segments(LOAD)
        if one.address <= file.section(".text").address < one.address + one.file_size
    )
    file.set_segment(index, 8, lambda offset: offset - 0x1000)
    issues = file.issues()
    assert f"section .text is not what is mapped at its address {file.section('.text').address:#x}" in issues
    assert not [issue for issue in issues if "contents" in issue]


def test_a_section_of_another_size(file: Edited) -> None:
    size = file.section(".data").size
    file.set_section(".data", 32, lambda value: value + 8)
    assert file.issues() == [f"section .data changed its size from {size} to {size + 8} bytes"]


def test_a_section_of_zeros_of_another_size(file: Edited) -> None:
    size = file.section(".bss").size
    file.set_section(".bss", 32, lambda value: value - 8)
    assert file.issues() == [f"section .bss changed its size from {size} to {size - 8} bytes"]


def test_a_section_that_is_gone(file: Edited) -> None:
    names = file.section(".shstrtab")
    file.data[file.data.index(b".rodata\0", names.offset) + 1] = ord("R")
    assert file.issues() == ["section .rodata is gone"]


@pytest.mark.parametrize("field", [0, 4, 8, 16])
def test_a_symbol_of_another_name_kind_value_or_size(file: Edited, field: int) -> None:
    table = file.section(".dynsym")
    file.flip(table.offset + table.file_size - 24 + field)
    assert file.issues() == ["the dynamic symbol table changed"]


def test_a_name_of_a_symbol_that_changed_in_the_strings(file: Edited) -> None:
    table, strings = file.section(".dynsym"), file.section(".dynstr")
    (name,) = struct.unpack_from("<I", file.data, table.offset + table.file_size - 24)
    file.flip(strings.offset + name)
    assert "the dynamic symbol table changed" in file.issues()


def test_section_numbers_in_symbols_may_change(file: Edited) -> None:
    table = file.section(".dynsym")
    struct.pack_into("<H", file.data, table.offset + table.file_size - 24 + 6, 3)
    assert file.issues() == []


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A file whose search path patchelf has written over in the strings, before and after."""
    source = "int used(void); int one(void) { return used(); } int data = 5; int text(void) { return 3; }"
    path = shared(tmp_path_factory.mktemp("symbols") / "libx.so", source, flags=["-Wl,-rpath,/vendor/lib"])
    before = path.read_bytes()
    apply_edit(path, ElfEdit("/somewhere", "runpath", add=("liby.so.1",)), read_image(before, "x"), before)
    return before, path.read_bytes()


def section_of(data: bytes | bytearray, name: str) -> Section:
    return next(section for section in read_sections(data, "x") if section.name == name)


def same(before: bytes, after: bytes | bytearray) -> bool:
    return same_symbols(before, after, section_of(before, ".dynsym"), section_of(after, ".dynsym"))


@pytest.mark.parametrize("number", [0, 0xFFF1], ids=["undefined", "absolute"])
def test_a_symbol_that_lost_its_section(pair: tuple[bytes, bytes], number: int) -> None:
    before, after = pair[0], bytearray(pair[1])
    table = section_of(after, ".dynsym")
    struct.pack_into("<H", after, table.offset + table.file_size - 24 + 6, number)
    assert not same(before, after)


def test_each_byte_of_each_name_counts(pair: tuple[bytes, bytes]) -> None:
    before, after = pair[0], bytearray(pair[1])
    table, strings = section_of(after, ".dynsym"), section_of(after, ".dynstr")
    assert not after[strings.offset :].startswith(
        before[(old := section_of(before, ".dynstr")).offset :][: old.file_size]
    )
    for at in range(table.offset + 24, table.offset + table.file_size, 24):
        (name,) = struct.unpack_from("<I", after, at)
        end = after.index(0, strings.offset + name)
        for place in (strings.offset + name, end - 1, end):
            after[place] ^= 0x20
            assert not same(before, after), (at, place)
            after[place] ^= 0x20
    assert same(before, after)


def test_symbols_of_32_bit_files(tmp_path: Path) -> None:
    try:
        path = shared(tmp_path / "libuser.so", "int sum(void) { return 1; }", flags=["-m32", "-fno-pic"])
    except RuntimeError:
        pytest.skip("this compiler makes no 32 bit code")
    file = by_patchelf(path)
    assert file.issues() == []
    table = file.section(".dynsym")
    for field in (0, 4, 8, 12):
        file.flip(table.offset + table.file_size - 16 + field)
        assert file.issues() == ["the dynamic symbol table changed"]
        file.flip(table.offset + table.file_size - 16 + field)


# Device code

FAT = """
static const char bundle[8192] __attribute__((section(".hip_fatbin"), aligned(4096), used)) = "__CLANG_OFFLOAD_BUNDLE__";
struct wrapper { unsigned magic, version; const void *bundle; void *reserved; };
static struct wrapper first __attribute__((section(".hipFatBinSegment"), used)) = {0x48495046, 1, bundle, 0};
static struct wrapper second __attribute__((section(".hipFatBinSegment"), used)) = {0x48495046, 1, bundle + 4096, 0};
static struct wrapper other __attribute__((section(".hipFatBinSegment"), used)) = {0x4B504948, 1, bundle, 0};
int f(void) { return 1; }
"""


@pytest.fixture(params=[[], ["-Wl,-z,pack-relative-relocs"]], ids=["rela", "relr"])
def fat(tmp_path: Path, request: pytest.FixtureRequest) -> Edited:
    try:
        path = shared(tmp_path / "libfat.so", FAT, flags=request.param)
    except RuntimeError:
        pytest.skip("this linker does not pack relocations")
    if request.param and not any(one.name == ".relr.dyn" for one in read_sections(path.read_bytes(), "x")):
        pytest.skip("this linker does not pack relocations")
    return by_patchelf(path)


def pointers(file: Edited) -> list[int]:
    """Where in the section the pointers of the two HIP wrappers are; the compiler chooses order and gaps."""
    section = file.section(".hipFatBinSegment")
    magic = b"FPIH\1\0\0\0"
    data = bytes(file.data[section.offset : section.offset + section.file_size])
    return [at + 8 for at in range(0, len(data), 8) if data[at : at + 8] == magic]


def relocation(file: Edited, address: int) -> int | None:
    """The offset of the addend of the relocation at `address`; None where the pointer stands in place."""
    sections = {one.name: one for one in read_sections(file.data, "x")}
    table = sections.get(".rela.dyn")
    for at in range(table.offset, table.offset + table.file_size, 24) if table else ():
        if struct.unpack_from("<Q", file.data, at)[0] == address:
            return at + 16
    return None


def test_device_code_stays_where_it_is(fat: Edited) -> None:
    assert fat.issues() == []
    assert fat.section(".hip_fatbin").address % 4096 == 0


def test_packed_relocations_that_are_overwritten(fat: Edited) -> None:
    """patchelf moves them but not DT_RELR; without --no-clobber-old-sections ld.so would apply its Z's."""
    if b".relr.dyn" not in fat.original:
        pytest.skip("no packed relocations here")
    entry = fat.entry(RELR)
    (address,) = struct.unpack_from("<Q", fat.data, entry + 8)
    old = next(one for one in read_sections(fat.original, "x") if one.name == ".relr.dyn")
    assert address in (old.address, fat.section(".relr.dyn").address)
    struct.pack_into("<Q", fat.data, entry + 8, old.address)
    assert fat.issues() == []
    fat.flip(old.offset)
    assert fat.issues() == ["entry 0x24 of the dynamic section does not lead to .relr.dyn any more"]


@pytest.mark.parametrize("number", [0, 1])
def test_a_pointer_that_left_its_bundle(fat: Edited, number: int) -> None:
    wrappers = fat.section(".hipFatBinSegment")
    where = pointers(fat)
    at = relocation(fat, wrappers.address + where[number])
    if at is None:
        at = wrappers.offset + where[number]
    struct.pack_into("<Q", fat.data, at, struct.unpack_from("<Q", fat.data, at)[0] + 4096)
    changed = {f"section {name} changed its contents" for name in (".hipFatBinSegment", ".rela.dyn")}
    assert changed & {*fat.issues()}


def test_a_bundle_that_is_not_where_it_was(fat: Edited) -> None:
    """What patchelf did to CUDA's: the wrapper is as it was, other bytes are mapped where it points to."""
    start = fat.section(".hip_fatbin").offset
    fat.data[start : start + 4096] = bytes(4096)
    fat.data[start + 4096 : start + 8192] = fat.original[fat_offset(fat) : fat_offset(fat) + 4096]
    issues = fat.issues()
    assert "section .hip_fatbin changed its contents" in issues


def fat_offset(file: Edited) -> int:
    return next(one.offset for one in read_sections(file.original, "x") if one.name == ".hip_fatbin")


EDITS = [(), RENAMED, FREED]


def issues(data: bytearray, edits: tuple[VersionEdit, ...]) -> list[str]:
    return [*check_version_edits(build(USER), data, ElfEdit(versions=edits))]


@pytest.mark.parametrize("edits", EDITS)
def test_a_good_edit_passes(edits: tuple[VersionEdit, ...]) -> None:
    assert issues(edited(edits), edits) == []


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("edits", EDITS)
def test_each_changed_byte_of_an_entry_is_seen(edits: tuple[VersionEdit, ...]) -> None:
    good = edited(edits)
    places = [
        place
        for record in read_records(good)
        for place in (record.at, *(item.at for item in record.versions))
    ]
    for place in places:
        for at in range(place, place + 16):
            for mask in (0x01, 0x02, 0x10, 0x80, 0xFF):
                data = bytearray(good)
                data[at] ^= mask
                assert issues(data, edits), (at - place, mask)


@pytest.mark.parametrize("edits", EDITS)
def test_each_changed_version_number_is_seen(edits: tuple[VersionEdit, ...]) -> None:
    good = edited(edits)
    first = min(find_freed_symbols(build(USER), FREED).values()) - 2
    for number in range(len(USER.imports) + len(USER.exports) + 1):
        for mask in (1, 2, 0x80):
            data = bytearray(good)
            data[first + 2 * number + mask // 0x80] ^= mask
            assert issues(data, edits), (number, mask)


@pytest.mark.parametrize("planned", EDITS)
@pytest.mark.parametrize("made", EDITS)
def test_another_edit_than_was_planned(
    planned: tuple[VersionEdit, ...], made: tuple[VersionEdit, ...]
) -> None:
    assert bool(issues(edited(made), planned)) == (planned != made)


def test_of_a_real_file_that_exports_nothing(tmp_path: Path) -> None:
    """GNU ld's hash table then says nothing of how many symbols there are."""
    script = tmp_path / "v.map"
    script.write_text("AMD_1 { global: one; };")
    old = shared(
        tmp_path / "libold.so.1", "int one(void){return 1;}", flags=[f"-Wl,--version-script={script}"]
    )
    hidden = tmp_path / "hidden.map"
    hidden.write_text("{ local: *; };")
    source = "int one(void); int uses(void){return one();}"
    new = shared(tmp_path / "libnew.so.1", "int one(void){return 1;}")
    user = shared(
        tmp_path / "u.so",
        source,
        needed=[old, new],
        flags=[f"-Wl,--version-script={hidden}", "-Wl,--no-gc-sections"],
    )
    data = user.read_bytes()
    edit = ElfEdit(
        remove=("libold.so.1",),
        versions=(VersionEdit("libold.so.1", "AMD_1", "libnew.so.1", "AMD_1", weak=True, unversioned=True),),
    )
    image, table = read_image(data, "u.so"), read_symbols(data)
    after = apply_edit(user, edit, image, data)
    result = user.read_bytes()
    assert [(symbol.name, symbol.index) for symbol in read_symbols(result).imports] == [("one", 1)]
    needs = planned_needs(table.verneeds, edit)
    assert differences(result, predict_edit(image, edit), after.segments, needs) == []
