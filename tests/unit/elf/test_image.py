"""elf.image against readelf, against headers of every class and byte order, and against files that lie."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import relink.elf.image
from relink.elf.image import (
    DlopenNote,
    Image,
    Section,
    dlopen_notes,
    is_elf,
    library_names,
    machine_name,
    read_header,
    read_image,
    read_sections,
)
from relink.elf.symbol_reader import read_symbols
from relink.loader.target import find_target
from relink.system.errors import ElfError
from relink.system.safe_open import map_file
from tests.support.amount import amount
from tests.support.cc import cc, shared
from tests.support.elf_builder import Export, Library, build

TYPE = 0x407C0C0A


def noted(
    payload: Any, *, kind: int = TYPE, owner: bytes = b"FDO\0", order: str = "<", step: int = 4
) -> bytes:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode() + b"\0"

    def padded(text: bytes) -> bytes:
        return text + bytes(-len(text) % step)

    return struct.pack(f"{order}III", len(owner), len(data), kind) + padded(owner) + padded(data)


def read(data: bytes, *, little: bool = True, align: int = 4) -> list[DlopenNote]:
    return list(dlopen_notes(data, little_endian=little, align=align))


FULL = [{"soname": ["liba.so.2", "liba.so.1"], "feature": "audio", "priority": "suggested"}]
FOUND = [DlopenNote(("liba.so.2", "liba.so.1"), "audio", "suggested")]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("step", [4, 8])
def test_notes_among_others(order: str, step: int) -> None:
    other = noted(b"12345", kind=3, owner=b"GNU\0", order=order, step=step)
    named_so = noted(FULL, kind=3, order=order, step=step)  # the type of another noted
    data = other + noted(FULL, order=order, step=step) + named_so + noted(FULL, order=order, step=step)
    assert read(data, little=order == "<", align=step) == FOUND * 2


def test_what_may_be_left_out() -> None:
    assert read(noted([{"soname": "liba.so"}, {"soname": ["libb.so"], "feature": "f"}])) == [
        DlopenNote(("liba.so",), "", "recommended"),
        DlopenNote(("libb.so",), "f", "recommended"),
    ]


@pytest.mark.parametrize(
    "payload",
    [b"no JSON\0", b"\xff\xfe\0", 7, {"soname": "a"}, [7], [{"feature": "f"}], [{"soname": 7}], b"[" * 5000],
)
def test_damage_in_one_note_leaves_the_others(payload: Any) -> None:
    assert read(noted(payload) + noted(FULL)) == FOUND


def test_entries_before_damage_count() -> None:
    assert read(noted([*FULL, {"soname": None}, *FULL])) == FOUND


@pytest.mark.parametrize("cut", [8, 12, 40])
def test_a_note_that_is_cut_ends_it(cut: int) -> None:
    assert read(noted(FULL) + noted(FULL)[:-cut]) == FOUND
    assert read(noted(FULL)[: 12 - min(cut, 12)]) == []


def test_another_owner() -> None:
    assert read(noted(FULL, owner=b"XDG\0")) == []


NEEDED, STRTAB, STRSZ, SONAME, RPATH, RUNPATH = 1, 5, 10, 14, 15, 29
LOAD, DYNAMIC, INTERP, NOTE = 1, 2, 3, 4


@dataclass(frozen=True)
class Layout:
    """Where things are in a file of one class and byte order."""

    elf_class: int = 64
    order: str = "<"

    @property
    def wide(self) -> bool:
        return self.elf_class == 64

    @property
    def header(self) -> struct.Struct:
        return struct.Struct(self.order + ("16sHHIQQQIHHHHHH" if self.wide else "16sHHIIIIIHHHHHH"))

    @property
    def entry(self) -> struct.Struct:
        return struct.Struct(self.order + ("qQ" if self.wide else "iI"))

    def segment(self, kind: int, flags: int, offset: int, address: int, size: int, align: int = 8) -> bytes:
        fields = (flags, offset, address, address, size, size, align)
        if self.wide:
            return struct.pack(self.order + "IIQQQQQQ", kind, *fields)
        return struct.pack(self.order + "IIIIIIII", kind, offset, address, address, size, size, flags, align)


def craft(
    layout: Layout,
    machine: int,
    entries: list[tuple[int, int]],
    strings: bytes,
    *,
    kind: int = 3,
    more: tuple[bytes, ...] = (),
    base: int = 0x10000,
) -> bytes:
    """One PT_LOAD with strings and a dynamic section; addresses differ from offsets by `base`. STRTAB and STRSZ are added."""
    size = 56 if layout.wide else 32
    count = 2 + len(more)
    start = layout.header.size + count * size
    at = start + len(strings) + -(start + len(strings)) % 8
    table = [(STRTAB, base + start), (STRSZ, len(strings)), *entries, (0, 0)]
    dynamic = b"".join(layout.entry.pack(tag, value) for tag, value in table)
    total = at + len(dynamic)
    ident = b"\x7fELF" + bytes((layout.elf_class // 32, 1 if layout.order == "<" else 2, 1)) + bytes(9)
    head = layout.header.pack(
        ident, kind, machine, 1, 0, layout.header.size, 0, 0, layout.header.size, size, count, 0, 0, 0
    )
    segments = [
        layout.segment(LOAD, 6, 0, base, total, 0x1000),
        layout.segment(DYNAMIC, 6, at, base + at, len(dynamic)),
        *more,
    ]
    return (head + b"".join(segments) + strings).ljust(at, b"\0") + dynamic


STRINGS = b"\0libself.so.1\0liba.so\0libb.so\0$ORIGIN/x:/y\0"
ENTRIES = [
    (NEEDED, STRINGS.index(b"liba")),
    (NEEDED, STRINGS.index(b"libb")),
    (SONAME, 1),
    (RUNPATH, STRINGS.index(b"$O")),
]
NARROW = Layout(32)


# What compilers and linkers write


def facts_of_readelf(path: Path) -> dict[str, object]:
    text = subprocess.run(
        ["readelf", "-d", "-l", "-W", str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={"LC_ALL": "C"},
    ).stdout

    def all_of(tag: str) -> tuple[str, ...]:
        return tuple(re.findall(rf"\({tag}\) .*\[(.*)\]", text))

    def one(tag: str) -> str | None:
        return next(iter(all_of(tag)), None)

    rows = re.findall(
        r"^  (\w+) +(0x\w+) (0x\w+) 0x\w+ (0x\w+) (0x\w+) ([R ][W ][E ]) (0x\w+)$", text, re.MULTILINE
    )
    names = {"LOAD": 1, "DYNAMIC": 2, "INTERP": 3, "NOTE": 4, "PHDR": 6, "TLS": 7, "GNU_EH_FRAME": 0x6474E550}
    names |= {"GNU_STACK": 0x6474E551, "GNU_RELRO": 0x6474E552, "GNU_PROPERTY": 0x6474E553}
    return {
        "needed": all_of("NEEDED"),
        "soname": one("SONAME"),
        "rpath": one("RPATH"),
        "runpath": one("RUNPATH"),
        "interpreter": next(iter(re.findall(r"interpreter: (.*)\]", text)), None),
        "segments": [
            (
                names[name],
                sum(bit for bit, letter in zip((4, 2, 1), flags, strict=True) if letter != " "),
                *(int(x, 16) for x in sizes),
                int(align, 16),
            )
            for name, *sizes, flags, align in rows
        ],
    }


def facts_of(image: Image) -> dict[str, object]:
    return {
        "needed": image.needed,
        "soname": image.soname,
        "rpath": image.rpath,
        "runpath": image.runpath,
        "interpreter": image.interpreter,
        "segments": [
            (one.type, one.flags, one.offset, one.address, one.file_size, one.memory_size, one.align)
            for one in image.segments
        ],
    }


SOURCE = (
    "int f(void) { return 1; } int g = 2; _Thread_local int t = 3; static char room[100]; char *h = room;"
)
DTAGS = "-Wl,--enable-new-dtags"


@pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf to compare with")
@pytest.mark.parametrize(
    "flags",
    [[], [DTAGS, "-Wl,-rpath,$ORIGIN/a:/b"], ["-Wl,--disable-new-dtags", "-Wl,-rpath,/r:"], ["-Wl,-z,now"]],
    ids=["plain", "runpath", "rpath", "now"],
)
def test_a_library_is_what_readelf_says(tmp_path: Path, flags: list[str]) -> None:
    stubs = [shared(tmp_path / name, "int s;") for name in ("libz.so.1", "liba.so.2", "libm-.so")]
    path = shared(tmp_path / "libx.so.3", SOURCE, needed=stubs, flags=flags)
    image = read_image(path.read_bytes(), "libx.so.3")
    assert facts_of(image) == facts_of_readelf(path)
    assert image.needed == ("libz.so.1", "liba.so.2", "libm-.so")  # the linker's order, not the alphabet's
    assert (image.size, image.path, image.dynamic) == (path.stat().st_size, "libx.so.3", True)
    assert not image.is_executable


@pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf to compare with")
@pytest.mark.parametrize("flag", ["-pie", "-no-pie"])
def test_a_program_is_what_readelf_says(tmp_path: Path, flag: str) -> None:
    path = cc("int main(void) { return 0; }", tmp_path / "program", flag)
    image = read_image(path.read_bytes(), "program")
    assert facts_of(image) == facts_of_readelf(path)
    assert image.is_executable
    assert image.header.kind == (3 if flag == "-pie" else 2)


@pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf to compare with")
def test_sections_are_what_readelf_says(tmp_path: Path) -> None:
    path = shared(tmp_path / "libx.so", SOURCE)
    text = subprocess.run(
        ["readelf", "-S", "-W", str(path)], capture_output=True, text=True, check=True, env={"LC_ALL": "C"}
    ).stdout
    rows = re.findall(r"^  \[ *\d+\] (\.\S+) +(\w+) +(\w+) (\w+) (\w+) \w+ +([A-Zo]*) ", text, re.MULTILINE)
    sections = read_sections(path.read_bytes(), "libx.so")[1:]
    assert [(one.name, one.address, one.offset, one.size) for one in sections] == [
        (name, int(address, 16), int(offset, 16), int(size, 16)) for name, _, address, offset, size, _ in rows
    ]
    for section, (_, kind, *_, flags) in zip(sections, rows, strict=True):
        assert section.file_size == (0 if kind == "NOBITS" else section.size)
        assert bool(section.flags & 2) == ("A" in flags)
    assert {"NOBITS", "PROGBITS", "GNU_HASH"} <= {kind for _, kind, *_ in rows}


def test_a_program_with_a_soname_is_a_library_too() -> None:
    program = Library(interpreter="/lib/ld.so", needed=("libc.so.6",))
    image = read_image(build(program), "program")
    assert (image.interpreter, image.is_executable) == ("/lib/ld.so", True)
    image = read_image(build(dataclasses.replace(program, soname="libc.so.6")), "libc.so.6")
    assert (image.interpreter, image.is_executable) == ("/lib/ld.so", False)


def test_what_is_searched_with() -> None:
    both = read_image(build(Library(rpath="/r", runpath="/n")), "x")
    assert (both.rpath, both.runpath, both.search_kind, both.search_path) == ("/r", "/n", "runpath", "/n")
    old = read_image(build(Library(rpath="/r")), "x")
    assert (old.runpath, old.search_kind, old.search_path) == (None, "rpath", "/r")
    empty = read_image(build(Library(runpath="")), "x")
    assert (empty.runpath, empty.search_kind, empty.search_path) == ("", "runpath", "")
    none = read_image(build(Library()), "x")
    assert (none.search_kind, none.search_path) == (None, None)


def test_flags_filters_and_doubled_entries() -> None:
    library = Library(
        needed=("libb.so", "liba.so", "libb.so"),
        filters=("libf.so",),
        auxiliaries=("libg.so",),
        flags_1=0x800,
    )
    image = read_image(build(library), "x")
    assert image.needed == ("libb.so", "liba.so", "libb.so")
    assert image.filters == ("libf.so", "libg.so")
    assert image.nodeflib
    assert not read_image(build(Library(flags_1=0x40)), "x").nodeflib


def test_of_a_tag_that_is_there_twice_the_last_counts() -> None:
    data = craft(
        Layout(), 62, [*ENTRIES, (SONAME, STRINGS.index(b"libb")), (RUNPATH, len(STRINGS) - 2)], STRINGS
    )
    image = read_image(data, "x")
    assert (image.soname, image.runpath) == ("libb.so", "y")


def test_the_dynamic_section_lies_at_its_address_and_the_last_one_counts() -> None:
    """As in ld.so, which never uses p_offset of PT_DYNAMIC, and p_filesz only where it is 0."""
    data = bytearray(craft(Layout(), 62, ENTRIES, STRINGS))
    right = read_image(bytes(data), "x")
    struct.pack_into("<Q", data, 64 + 56 + 8, 0)  # its p_offset
    struct.pack_into("<Q", data, SECOND + 32, 1 << 20)  # its p_filesz
    assert read_image(bytes(data), "x").needed == right.needed == ("liba.so", "libb.so")
    for address in (0x10000, 0x90000):
        first = Layout().segment(DYNAMIC, 6, 0, address, 16)
        data = bytearray(craft(Layout(), 62, ENTRIES, STRINGS, more=(first,)))
        swapped = data[:120] + data[176:232] + data[120:176] + data[232:]
        assert read_image(bytes(swapped), "x").needed == ("liba.so", "libb.so")


def test_names_that_are_not_utf_8_survive() -> None:
    image = read_image(craft(Layout(), 62, [(NEEDED, 1)], b"\0lib\xff\xfe.so\0"), "x")
    assert image.needed[0].encode("utf-8", "surrogateescape") == b"lib\xff\xfe.so"


# Section headers


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    directory = tmp_path_factory.mktemp("image")
    stub = shared(directory / "libstub.so", "int s;")
    return shared(directory / "libx.so", SOURCE, needed=[stub], flags=[DTAGS, "-Wl,-rpath,/b"]).read_bytes()


@pytest.mark.parametrize("where", [0, 1, 1 << 20, (1 << 64) - 1])
def test_section_headers_are_not_needed(compiled: bytes, where: int) -> None:
    """sstrip leaves none, strip of a damaged file leaves an offset that leads nowhere."""
    data = bytearray(compiled)
    struct.pack_into("<Q", data, 40, where)
    assert read_image(data, "x") == read_image(compiled, "x")
    if where == 0:
        assert read_sections(data, "x") == ()
    elif where > len(data):
        with pytest.raises(ElfError, match=r"^x: damaged section headers"):
            read_sections(data, "x")


@pytest.mark.parametrize("offset", [58, 60, 62])
def test_nor_are_their_size_number_and_names(compiled: bytes, offset: int) -> None:
    for value in (0, 1, 0xFFFF):
        data = bytearray(compiled)
        struct.pack_into("<H", data, offset, value)
        assert read_image(data, "x") == read_image(compiled, "x")


def test_a_file_cut_behind_its_segments_is_read(compiled: bytes) -> None:
    whole = read_image(compiled, "x")
    end = max(one.offset + one.file_size for one in whole.segments)
    assert replace(read_image(compiled[:end], "x"), size=whole.size) == whole


def test_section_names_without_a_table_are_empty(compiled: bytes) -> None:
    data = bytearray(compiled)
    struct.pack_into("<H", data, 62, 0)
    assert {section.name for section in read_sections(data, "x")} == {""}


# Other classes, byte orders and machines


@pytest.mark.parametrize(
    ("layout", "machine", "name"),
    [
        (Layout(64, "<"), 62, "x86_64"),
        (Layout(64, "<"), 183, "aarch64"),
        (Layout(64, "<"), 224, "amdgpu"),
        (Layout(64, ">"), 21, "machine 21"),
        (Layout(64, ">"), 22, "machine 22"),
        (Layout(32, "<"), 3, "i386"),
        (Layout(32, "<"), 40, "arm"),
        (Layout(32, ">"), 8, "machine 8"),
    ],
)
def test_every_class_and_byte_order(layout: Layout, machine: int, name: str) -> None:
    image = read_image(craft(layout, machine, ENTRIES, STRINGS), "x")
    assert (image.header.elf_class, image.header.little_endian) == (layout.elf_class, layout.order == "<")
    assert (image.header.machine, machine_name(image.header.machine)) == (machine, name)
    assert (image.needed, image.soname, image.runpath) == (
        ("liba.so", "libb.so"),
        "libself.so.1",
        "$ORIGIN/x:/y",
    )
    assert [one.type for one in image.segments] == [LOAD, DYNAMIC]
    assert (image.segments[0].address, image.segments[0].flags, image.segments[0].align) == (
        0x10000,
        6,
        0x1000,
    )


@pytest.mark.parametrize("kind", [0x70000003, 0x6474E554, 0x6FFFFFF0, 0xFFFFFFFF])
def test_segments_of_any_type_keep_their_number(kind: int) -> None:
    for machine in (62, 8, 40, 183, 243):
        more = Layout().segment(kind, 4, 0, 0, 0)
        image = read_image(craft(Layout(), machine, ENTRIES, STRINGS, more=(more,)), "x")
        assert image.segments[-1].type == kind


def system_files() -> list[Path]:
    libc = Path(find_target().libc_directory)
    found = [Path(sys.executable).resolve(), *sorted(libc.glob("lib[cmpz]*.so.*"))[:12]]
    return [path for path in found if path.is_file()]


@pytest.mark.parametrize("path", system_files(), ids=lambda path: path.name)
def test_headers_are_what_pyelftools_reads(path: Path) -> None:
    data = path.read_bytes()
    image, sections = read_image(data, path.name), read_sections(data, path.name)
    with path.open("rb") as file:
        other = ELFFile(file)
        names = ("p_flags", "p_offset", "p_vaddr", "p_filesz", "p_memsz", "p_align")
        assert [
            (one.flags, one.offset, one.address, one.file_size, one.memory_size, one.align)
            for one in image.segments
        ] == [tuple(segment[name] for name in names) for segment in other.iter_segments()]
        assert [(one.name, one.address, one.offset, one.flags) for one in sections] == [
            (section.name, section["sh_addr"], section["sh_offset"], section["sh_flags"])
            for section in other.iter_sections()
        ]
        dynamic = other.get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        needed = [vars(tag)["needed"] for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"]
        assert list(image.needed) == needed


def test_without_a_dynamic_section() -> None:
    head = Layout().header.pack(b"\x7fELF\2\1\1".ljust(16, b"\0"), 1, 224, 1, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0)
    image = read_image(head, "x")
    assert (image.dynamic, image.needed, image.segments) == (False, (), ())
    assert read_sections(head, "x") == ()


def test_headers_that_are_none() -> None:
    assert is_elf(b"\x7fELF")
    assert not is_elf(b"\x7fEL")
    for head, reason in (
        (b"", r"not an ELF file \(file too short\)"),
        (b"\x7fELF" + bytes(8), r"not an ELF file \(file too short\)"),
        (b"/* GNU ld script */".ljust(64), r"not an ELF file \(no ELF magic\)"),
        (b"\x7fELF\3\1".ljust(64, b"\0"), "class 3, byte order 1"),
        (b"\x7fELF\2\0".ljust(64, b"\0"), "class 2, byte order 0"),
    ):
        with pytest.raises(ElfError, match=f"^x: .*{reason}"):
            read_header(head, "x")
    header = read_header(b"\x7fELF\2\1\1\3\2".ljust(16, b"\0") + struct.pack("<HH", 3, 62), "x")
    assert (header.osabi, header.abi_version, header.kind, header.machine) == (3, 2, 3, 62)


def test_files_are_mapped(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with map_file(str(tmp_path / "empty")) as buffer:
        assert buffer == b""
    (tmp_path / "some").write_bytes(build(Library(needed=("liba.so",))))
    with map_file(str(tmp_path / "some")) as buffer:
        assert read_image(buffer, "x").needed == ("liba.so",)
    with pytest.raises(ValueError, match="closed"):
        buffer[0]
    with pytest.raises(FileNotFoundError), map_file(str(tmp_path / "none")):
        pass


# .note.dlopen (https://uapi-group.org/specifications/specs/elf_dlopen_metadata/)


def note(payload: str, kind: int = 0x407C0C0A, owner: str = "FDO") -> str:
    text = payload.replace("\\", "\\\\").replace('"', '\\"')
    return f"""
        .pushsection .note.dlopen,"a",%note
        .balign 4
        .long 2f-1f, 4f-3f, {kind}
        1: .asciz "{owner}"
        2: .balign 4
        3: .asciz "{text}"
        4: .balign 4
        .popsection
    """


def notes_of(path: Path, *texts: str) -> tuple[DlopenNote, ...]:
    lines = "".join(f"__asm__({quoted(text)});\n" for text in texts)
    return read_image(shared(path, f"int g = 1;\n{lines}").read_bytes(), "x").dlopen_notes


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def test_dlopen_notes(tmp_path: Path) -> None:
    found = notes_of(
        tmp_path / "libx.so",
        note(
            '[{"soname": ["libhip.so.7", "libhip.so.6"], "feature": "gpu", "priority": "required", "description": "d"},'
            ' {"soname": ["libsmi.so.1"]}]'
        ),
        note('[{"soname": ["libother.so"]}]', kind=0xCAFE1A7E),
        note('[{"soname": ["libother.so"]}]', owner="FDX"),
        note('[{"feature": "no soname"}]'),
        note('[{"soname": "libone.so", "priority": "suggested"}]'),
        note("[" * 100_000),
        note("not JSON"),
        note("{}"),
        note("[1, 2]"),
        note('[{"soname": ["liblast.so"]}]'),
    )
    assert found == (
        DlopenNote(("libhip.so.7", "libhip.so.6"), "gpu", "required"),
        DlopenNote(("libsmi.so.1",), "", "recommended"),
        DlopenNote(("libone.so",), "", "suggested"),
        DlopenNote(("liblast.so",), "", "recommended"),
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\1\0\0",
        struct.pack("<III", 4, 1 << 31, 0x407C0C0A) + b"FDO\0[",
        struct.pack("<III", (1 << 32) - 1, 4, 0x407C0C0A) + b"FDO\0[]\0\0",
        struct.pack("<III", 4, 0, 0x407C0C0A) + b"FDO\0",
        struct.pack("<III", 4, 1000, 0x407C0C0A) + b'FDO\0[{"soname": ["libcut.so"]}]\0\0',
    ],
)
def test_damaged_notes_are_no_damage_to_the_file(raw: bytes) -> None:
    strings = STRINGS + raw
    at = Layout().header.size + 3 * 56 + len(STRINGS)
    more = Layout().segment(NOTE, 4, at, 0x10000 + at, len(raw), 4)
    image = read_image(craft(Layout(), 62, ENTRIES, strings, more=(more,)), "x")
    assert (image.dlopen_notes, image.needed) == ((), ("liba.so", "libb.so"))


def with_note(names: int, places: int = 1) -> bytes:
    """A file whose note names `names` libraries, and that looks for them in `places` directories."""
    payload = json.dumps([{"soname": [f"l{number}"]} for number in range(names)]).encode() + b"\0"
    raw = struct.pack("<III", 4, len(payload), 0x407C0C0A) + b"FDO\0" + payload
    entries = [(RUNPATH, 1)]
    strings = b"\0" + b":".join([b"/a"] * places) + b"\0"
    strings += bytes(-len(strings) % 4)
    at = Layout().header.size + 3 * 56 + len(strings)
    more = Layout().segment(NOTE, 4, at, 0x10000 + at, len(raw), 4)
    return bytes(craft(Layout(), 62, entries, strings + raw, more=(more,)))


def test_dlopen_notes_hang() -> None:
    """What notes name is looked for like what is needed: there are as few of them, and as few directories."""
    assert len(read_image(with_note(256), "x").dlopen_notes) == 256
    with pytest.raises(ElfError, match="257 libraries in its dlopen notes"):
        read_image(with_note(257), "x")
    with pytest.raises(ElfError, match="200 libraries needed, each to be looked for in 251 directories"):
        read_image(with_note(200, 251), "x")


# Damage


def test_every_truncation_of_a_loadable_file_is_an_error() -> None:
    for data in (
        build(Library("libx.so", ("liba.so",), runpath="/a", exports=(Export("f", "V1"),))),
        craft(NARROW, 3, ENTRIES, STRINGS),
    ):
        assert read_image(data, "x").needed
        for length in range(len(data)):
            with pytest.raises(ElfError, match=r"^x: (damaged|not an ELF file)"):
                read_image(data[:length], "x")


@pytest.mark.parametrize("at", [0, 63, 64, 120, 176, 1000])
def test_truncations_of_a_compiled_library(compiled: bytes, at: int) -> None:
    with pytest.raises(ElfError, match=r"^x: (damaged|not an ELF file)"):
        read_image(compiled[:at], "x")


Change = Callable[[bytearray], object]


def put(offset: int, form: str, value: int) -> Change:
    return lambda data: struct.pack_into(form, data, offset, value)


def value_of(tag: int, value: int) -> Change:
    """Change the value of one entry of the dynamic section."""

    def change(data: bytearray) -> None:
        (offset,) = struct.unpack_from("<Q", data, 64 + 56 + 8)
        for at in range(offset, len(data), 16):
            if struct.unpack_from("<q", data, at)[0] == tag:
                struct.pack_into("<Q", data, at + 8, value)
                return

    return change


PHNUM, PHENTSIZE, FIRST, SECOND = 56, 54, 64, 64 + 56


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (value_of(NEEDED, 1 << 20), "a string lies outside of DT_STRTAB"),
        (value_of(NEEDED, (1 << 64) - 1), "a string lies outside of DT_STRTAB"),
        (value_of(SONAME, 1 << 40), "a string lies outside of DT_STRTAB"),
        (value_of(RUNPATH, 1 << 20), "a string lies outside of DT_STRTAB"),
        (value_of(STRTAB, 0x10000 + (1 << 20)), "a string lies outside of DT_STRTAB"),
        (value_of(STRTAB, 0), "a string lies outside of DT_STRTAB"),
        (put(FIRST + 32, "<Q", 1 << 20), "PT_LOAD ends past the end of the file"),
        (put(FIRST + 8, "<Q", (1 << 64) - 1), "PT_LOAD ends past the end of the file"),
        (put(SECOND + 16, "<Q", 0x90000), "PT_DYNAMIC lies in no PT_LOAD segment"),
        (put(PHNUM, "<H", 0xFFFF), "65535 program headers at 0x40 do not fit"),
        (put(PHNUM, "<H", 40), "40 program headers at 0x40 do not fit"),
        (put(PHENTSIZE, "<H", 0), "program headers of 0 bytes instead of 56"),
        (put(PHENTSIZE, "<H", 57), "program headers of 57 bytes instead of 56"),
        (put(32, "<Q", 1 << 63), "program headers at 0x8000000000000000 do not fit"),
        (put(5, "<B", 2), "program headers of 14336 bytes"),
    ],
)
def test_damage_is_named(change: Change, reason: str) -> None:
    data = bytearray(craft(Layout(), 62, ENTRIES, STRINGS))
    change(data)
    with pytest.raises(ElfError, match=f"^x: damaged .*{reason}"):
        read_image(data, "x")


@pytest.mark.parametrize("size", [0, 3, len(STRINGS) - 2, 1 << 40])
def test_the_size_of_the_string_table_that_ld_so_does_not_read(size: int) -> None:
    data = bytearray(craft(Layout(), 62, ENTRIES, STRINGS))
    before = read_image(bytes(data), "x")
    value_of(STRSZ, size)(data)
    assert read_image(bytes(data), "x") == before


def test_strings_without_a_table() -> None:
    """What lies at address 0 is the ELF header, whose bytes are no names."""
    data = bytearray(build(Library("libx.so", ("liba.so",))))
    (start,) = (one.offset for one in read_image(bytes(data), "x").segments if one.type == 2)
    at = next(at for at in range(start, len(data), 16) if struct.unpack_from("<Q", data, at)[0] == STRTAB)
    struct.pack_into("<Q", data, at, 0x12345678)
    with pytest.raises(ElfError, match="a string lies outside of DT_STRTAB"):
        read_image(bytes(data), "x")


def test_no_program_headers_fit_anywhere() -> None:
    """The same as pyelftools says, and ld.so then calls it a file without loadable segments (elf/dl-load.c)."""
    data = bytearray(build(Library()))
    struct.pack_into("<Q", data, 32, 1 << 40)
    struct.pack_into("<HH", data, 54, 0, 0)
    assert read_image(bytes(data), "x").segments == ()
    struct.pack_into("<H", data, 56, 1)
    with pytest.raises(ElfError, match="program headers of 0 bytes"):
        read_image(bytes(data), "x")


def test_the_first_interpreter_counts() -> None:
    """As in Linux (fs/binfmt_elf.c, load_elf_binary)."""
    data = bytearray(build(Library(interpreter="/first")))
    number = len(read_image(bytes(data), "x").segments) - 1
    at = len(data)
    struct.pack_into("<IIQQQQQQ", data, 64 + 56 * number, 3, 4, at, at, at, 8, 8, 1)
    image = read_image(bytes(data) + b"/second\0", "x")
    assert [one.type for one in image.segments].count(3) == 2
    assert image.interpreter == "/first"


def test_an_interpreter_past_the_end() -> None:
    more = Layout().segment(INTERP, 4, 0, 0x10000, 1 << 20)
    with pytest.raises(ElfError, match="PT_INTERP ends past the end of the file"):
        read_image(craft(Layout(), 62, ENTRIES, STRINGS, more=(more,)), "x")


def quickly(data: bytes | bytearray) -> None:
    """All readers end within a moment, with facts or an ElfError."""
    start = time.monotonic()
    for read in (lambda: read_image(data, "x"), lambda: read_sections(data, "x"), lambda: read_symbols(data)):
        with contextlib.suppress(ElfError):
            read()
    assert time.monotonic() - start < 5


def test_counts_that_would_keep_a_reader_busy() -> None:
    layout, room = Layout(), bytes(16 << 20)
    many = craft(
        layout, 62, [(NEEDED, offset % 60_000) for offset in range(5000)], bytes(1) + b"a" * 60_000 + b"\0"
    )
    with pytest.raises(ElfError, match="5000 libraries needed"):
        read_image(many, "x")
    long = craft(layout, 62, [(NEEDED, 1)], bytes(1) + b"a" * 4097 + b"\0")
    with pytest.raises(ElfError, match="a string lies outside"):
        read_image(long, "x")
    quickly(craft(layout, 62, [(NEEDED, n) for n in range(1, 4000)], bytes(1) + b"a" * 4095 + b"\0"))
    segments = bytearray(craft(layout, 62, ENTRIES, STRINGS) + room)
    put(PHNUM, "<H", 0xFFFF)(segments)
    with pytest.raises(ElfError, match="65535 program headers"):
        read_image(segments, "x")
    sections = bytearray(segments)
    struct.pack_into("<Q", sections, 40, 4096)  # e_shoff; a count of 0 stands for the size of the first
    struct.pack_into("<HHH", sections, 58, 64, 0, 0)
    struct.pack_into("<Q", sections, 4096 + 32, len(room) // 64 - 4096)
    with pytest.raises(ElfError, match="section headers at 0x1000 do not fit"):
        read_sections(sections, "x")
    struct.pack_into("<HHH", sections, 58, 0, 0xFFFF, 0)
    with pytest.raises(ElfError, match="damaged section headers"):
        read_sections(sections, "x")
    quickly(sections)
    struct.pack_into("<HHH", sections, 58, 72, 1, 0)
    with pytest.raises(ElfError, match="section headers of 72 bytes instead of 64"):
        read_sections(sections, "x")


EDGES = [0, 1, 2, 7, 0x40, 0x1000, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 32, 1 << 63, (1 << 64) - 1]


def test_fields_with_extreme_values(compiled: bytes) -> None:
    """Not noise: whole fields of the headers and of the dynamic section get values at the edges."""
    image = read_image(compiled, "x")
    where = next(one for one in image.segments if one.type == DYNAMIC)
    fields = [*range(16, 64), *range(64, 64 + 56 * len(image.segments), 4)]
    fields += range(where.offset, where.offset + where.file_size, 8)
    edges = st.sampled_from([*EDGES, len(compiled), len(compiled) - 1, where.offset, where.address])

    @settings(max_examples=amount(400), deadline=5000)
    @given(
        st.lists(st.tuples(st.sampled_from(fields), st.sampled_from("BHIQ"), edges), min_size=1, max_size=4)
    )
    def run(changes: list[tuple[int, str, int]]) -> None:
        data = bytearray(compiled)
        for offset, form, value in changes:
            size = struct.calcsize(form)
            struct.pack_into("<" + form, data, offset, value & ((1 << 8 * size) - 1))
        quickly(bytes(data))

    run()


@settings(max_examples=amount(300), deadline=5000)
@given(
    st.sampled_from((Layout(), Layout(64, ">"), NARROW, Layout(32, ">"))),
    st.lists(st.tuples(st.integers(0, 250), st.integers(0, 255)), min_size=1, max_size=5),
    st.integers(0, 300),
)
def test_flipped_bytes_of_every_class_and_order(
    layout: Layout, flips: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(craft(layout, 62, ENTRIES, STRINGS))
    for place, value in flips:
        data[place % len(data)] = value
    quickly(bytes(data[: len(data) - cut if cut < 20 else None]))


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
        monkeypatch.setattr(relink.elf.image, "SEARCHED_AT_ONCE", chunk)
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
            section["sh_size"],
        )
        for section in ELFFile(io.BytesIO(library)).iter_sections()
    ]
    ours = read_sections(library, "x")
    assert [(one.name, one.flags, one.address, one.offset, one.file_size, one.size) for one in ours] == [
        (one.name, one.flags, one.address, one.offset, one.file_size, one.size) for one in theirs
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
    assert names == Section(".names", 3, 0, 0, 52, 8, 8)


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
