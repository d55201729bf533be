"""One ELF file as facts: header, segments and dynamic section, read by way of the program headers alone.

Section headers are optional in a file that is run (gABI, "Object Files"), and stripped or hardened libraries come without
them. So no :class:`Image` depends on them; :func:`read_sections` is for what needs the names of sections: the checks of an edit,
and the search for gaps and for strings. The dynamic array and its strings are read in :mod:`relink.elf.dynamic`, for these facts
and for symbols.

``.note.dlopen`` says what a file may dlopen (https://uapi-group.org/specifications/specs/elf_dlopen_metadata/). The notes are
advice, so damage in them is no error.
"""

from __future__ import annotations

import contextlib
import mmap
import re
import struct
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from relink.elf import constants as c
from relink.elf.dynamic import Buffer, Memory, Strings, open_memory
from relink.system.bounded_json import parse_json
from relink.system.errors import ElfError
from relink.system.spool import fill, take

_NOTE_TYPE = 0x407C0C0A
_NOTE_OWNER = b"FDO"


class DlopenNote(msgspec.Struct, frozen=True):
    """One entry of a ``.note.dlopen`` section (systemd's ELF dlopen metadata): sonames in order of preference."""

    sonames: tuple[str, ...]
    feature: str
    priority: str


def dlopen_notes(data: bytes, *, little_endian: bool, align: int) -> Iterator[DlopenNote]:
    """Yield the dlopen metadata among the notes of one PT_NOTE segment (gABI, "Note Section"); a damaged note ends the walk.

    :param data: the content of the segment.
    :param align: its p_align. Notes are padded to 8 bytes where it is 8, else to 4.
    """
    order = "<" if little_endian else ">"
    step = 8 if align == 8 else 4
    position = 0
    while position + 12 <= len(data):
        name_size, size, kind = struct.unpack_from(order + "III", data, position)
        name_start = position + 12
        start = name_start + -(-name_size // step) * step
        if start + size > len(data):
            return
        name = data[name_start : name_start + name_size].rstrip(b"\0")
        if kind == _NOTE_TYPE and name == _NOTE_OWNER:
            yield from _parse(data[start : start + size])
        position = start + -(-size // step) * step


def _parse(payload: bytes) -> Iterator[DlopenNote]:
    """Yield the entries of one note; what is not as the specification says ends it, without harm to the rest."""
    with contextlib.suppress(ValueError, AttributeError, TypeError, KeyError):
        for entry in parse_json(payload.split(b"\0", 1)[0].decode()):
            sonames = entry["soname"]
            names = (sonames,) if isinstance(sonames, str) else tuple(str(name) for name in sonames)
            yield DlopenNote(names, str(entry.get("feature", "")), str(entry.get("priority", "recommended")))


_MACHINES = {
    3: "i386",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    224: "amdgpu",
    243: "riscv",
    247: "bpf",
    258: "loongarch",
}
HEADER_SIZE = 64
"""Bytes of Elf64_Ehdr, the larger of the two ELF headers."""
# More than these is damage, or meant to take long: real files have at most some 300, 10 and 30.
_MAX_NEEDED, _MAX_SEGMENTS, _MAX_DLOPENED = 1024, 4096, 256
# Look-ups: libraries (NEEDED, filters, dlopen notes) times directories of the search path; Nix has the most, some hundreds.
_MAX_LOOKUPS = 50_000
# NT_GNU_PROPERTY_TYPE_0, and GNU_PROPERTY_X86_ISA_1_NEEDED in it (elf/elf.h).
_PROPERTIES, _ISA_NEEDED = 5, 0xC0008002
# Bytes that are read of all PT_NOTE segments together: many may overlap.
_MAX_NOTES = 1 << 20
# Bytes of a soname, or of a section's name: PATH_MAX, so ld.so could not open a longer one.
_MAX_NAME = 4096
# Bytes of a search path or an interpreter's name.
_MAX_PATH = 1 << 20


class Header(msgspec.Struct, frozen=True):
    """What ld.so checks first (glibc elf/dl-load.c, open_verify).

    :ivar elf_class: 32 or 64 (bits).
    :ivar little_endian: EI_DATA is ELFDATA2LSB.
    :ivar machine: e_machine as a number; :func:`machine_name` gives a word for it.
    :ivar kind: e_type as a number: 2 is ET_EXEC, 3 is ET_DYN.
    """

    elf_class: int
    little_endian: bool
    osabi: int
    abi_version: int
    kind: int
    machine: int


class Segment(msgspec.Struct, frozen=True):
    """One program header. Offsets, addresses and sizes are bytes."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    align: int


class Image(msgspec.Struct, frozen=True):
    """The facts of one ELF file that the loader and the plan work with.

    :ivar path: where it came from, for messages: a file's path or a member's name.
    :ivar size: of the file, in bytes.
    :ivar interpreter: the first PT_INTERP, or None for a library.
    :ivar needed: DT_NEEDED strings in their order, duplicates included, as written.
    :ivar rpath: DT_RPATH as written (colon separated, not expanded), or None where there is no such entry.
        ld.so ignores it when `runpath` is there too (glibc elf/get-dynamic-info.h).
    :ivar runpath: DT_RUNPATH likewise.
    :ivar dynamic: whether there is a PT_DYNAMIC at all: without one the loader has nothing to do.
    :ivar isa_needed: the bits of GNU_PROPERTY_X86_ISA_1_NEEDED; 0 where there are none.
    """

    path: str
    size: int
    header: Header
    segments: tuple[Segment, ...]
    interpreter: str | None = None
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    flags_1: int = 0
    dynamic: bool = False
    filters: tuple[str, ...] = ()
    dlopen_notes: tuple[DlopenNote, ...] = msgspec.field(default=())
    isa_needed: int = 0

    @property
    def nodeflib(self) -> bool:
        """DF_1_NODEFLIB: default directories are not searched for what this object needs (``-z nodeflib``)."""
        return bool(self.flags_1 & c.DF_1_NODEFLIB)

    @property
    def is_executable(self) -> bool:
        """Whether a user runs it: it names an interpreter. libc.so.6 does too, but has a soname."""
        return self.interpreter is not None and self.soname is None

    @property
    def is_static_program(self) -> bool:
        """Whether the kernel starts it without a loader (``-static``, ``-static-pie``), so that none can load it."""
        fixed = self.header.kind == c.ET_EXEC or bool(self.flags_1 & c.DF_1_PIE)
        return fixed and self.interpreter is None and not self.needed

    @property
    def search_kind(self) -> str | None:
        """``"runpath"``, ``"rpath"`` or None: which entry ld.so will use for this object."""
        if self.runpath is not None:
            return "runpath"
        return "rpath" if self.rpath is not None else None

    @property
    def search_path(self) -> str | None:
        """The string of that entry, as written."""
        return self.runpath if self.runpath is not None else self.rpath


def machine_name(machine: int) -> str:
    """Return the usual word for an e_machine number: ``x86_64`` for 62, ``machine 999`` for one without a word."""
    return _MACHINES.get(machine, f"machine {machine}")


def is_elf(head: bytes) -> bool:
    """Tell whether a file that starts with `head` (4 bytes are enough) claims to be ELF."""
    return head[:4] == b"\x7fELF"


def read_header(head: bytes, path: str) -> Header:
    """Read the ELF header from the first 64 bytes of a file (52 are enough for ELFCLASS32).

    :raises ElfError: too short, not ELF, or of a class or byte order that does not exist.
    """
    if len(head) < 20 or not is_elf(head):
        reason = "file too short" if is_elf(head) or not head else "no ELF magic"
        raise ElfError(f"{path}: not an ELF file ({reason})")
    elf_class = {1: 32, 2: 64}.get(head[4])
    order = {1: "<", 2: ">"}.get(head[5])
    if elf_class is None or order is None:
        raise ElfError(f"{path}: damaged ELF header (class {head[4]}, byte order {head[5]})")
    kind, machine = struct.unpack_from(order + "HH", head, 16)
    return Header(elf_class, order == "<", head[7], head[8], kind, machine)


DAMAGE: Final = (ValueError, IndexError, OverflowError, struct.error)
"""What reading a damaged file raises, as a rule by unpacking past its end."""


def damage_error(path: str, what: str, error: BaseException) -> ElfError:
    """Return the error for `what` of a damaged file: ``PATH: damaged WHAT (reason)``."""
    return ElfError(f"{path}: damaged {what} ({str(error) or type(error).__name__})")


def read_image(buffer: Buffer, path: str) -> Image:
    """Read the facts of one ELF file.

    :param buffer: the whole file.
    :param path: named in the result and in errors.
    :raises ElfError: it is not ELF, or its headers point outside of the file.
    """
    header = read_header(bytes(buffer[:HEADER_SIZE]), path)
    try:
        return _read(buffer, path, header)
    except DAMAGE as error:
        raise damage_error(path, "ELF file", error) from error


def _read(buffer: Buffer, path: str, header: Header) -> Image:
    size = len(buffer)
    segments = tuple(_segments(buffer, header))
    interpreter: str | None = None
    notes: list[DlopenNote] = []
    left, isa_needed = _MAX_NOTES, 0
    for segment in segments:
        inside = segment.offset + segment.file_size <= size
        # Of PT_DYNAMIC ld.so takes the address alone (elf/dl-load.c).
        if not inside and segment.type in (c.PT_LOAD, c.PT_INTERP):
            kind = {c.PT_LOAD: "PT_LOAD", c.PT_INTERP: "PT_INTERP"}[segment.type]
            raise ElfError(f"{path}: damaged ELF file: {kind} ends past the end of the file ({size} bytes)")
        # Of several PT_INTERP Linux takes the first (fs/binfmt_elf.c).
        if segment.type == c.PT_INTERP and interpreter is None:
            raw = take(buffer, segment.offset, segment.offset + min(segment.file_size, _MAX_PATH))
            interpreter = raw.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        elif segment.type == c.PT_NOTE and inside:
            data = take(buffer, segment.offset, segment.offset + min(segment.file_size, left))
            notes.extend(dlopen_notes(data, little_endian=header.little_endian, align=segment.align))
            left -= min(left, segment.file_size)
    # elf/dl-load.c reads them from the last one on, and the first note with properties counts (sysdeps/x86/dl-prop.h).
    left = _MAX_NOTES
    for segment in reversed(segments):
        if (
            header.machine == c.EM_X86_64
            and segment.type in (c.PT_NOTE, c.PT_GNU_PROPERTY)
            and not isa_needed
        ):
            data = take(buffer, segment.offset, segment.offset + min(segment.file_size, left))
            isa_needed = _isa_needed(data, segment.align)
            left -= len(data)
    if len(notes) > _MAX_DLOPENED:
        raise ElfError(f"{path}: damaged ELF file: {len(notes)} libraries in its dlopen notes")
    return Image(
        path=path,
        size=size,
        header=header,
        segments=segments,
        interpreter=interpreter,
        dynamic=any(segment.type == c.PT_DYNAMIC for segment in segments),
        dlopen_notes=tuple(notes),
        isa_needed=isa_needed,
        **_dynamic(buffer, segments, path, len(notes)),
    )


def _isa_needed(data: bytes, align: int) -> int:
    """Return what the first note with GNU properties says of the processor (glibc sysdeps/x86/dl-prop.h)."""
    position = 0
    while align == 8 and position + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("<III", data, position)
        start = position + 12 + -(-name_size // 4) * 4
        end = min(start + size, len(data))
        position = -(-(start + size) // 8) * 8
        if (name_size, kind) != (4, _PROPERTIES) or data[start - 4 : start] != b"GNU\0":
            continue
        while start + 8 <= end:
            kind, size = struct.unpack_from("<II", data, start)
            if kind >= _ISA_NEEDED:
                sound = kind == _ISA_NEEDED and size == 4 and start + 12 <= end
                return int(struct.unpack_from("<I", data, start + 8)[0]) if sound else 0
            start += 8 + -(-size // 8) * 8
        break
    return 0


def _segments(buffer: Buffer, header: Header) -> Iterator[Segment]:
    """Yield the program headers (gABI "Program Header"). Their number is e_phnum as it stands: ld.so knows no PN_XNUM."""
    order, wide = "<" if header.little_endian else ">", header.elf_class == 64
    start, size, count = struct.unpack_from(
        order + ("Q14xHH" if wide else "I10xHH"), buffer, 32 if wide else 28
    )
    layout = struct.Struct(order + ("IIQQQQQQ" if wide else "8I"))
    if not count:
        # Without program headers e_phoff and e_phentsize mean nothing.
        return
    if size != layout.size:
        raise ValueError(f"program headers of {size} bytes instead of {layout.size}")
    if count > _MAX_SEGMENTS or start + count * size > len(buffer):
        raise ValueError(f"{count} program headers at {start:#x} do not fit into the file")
    for entry in layout.iter_unpack(take(buffer, start, start + count * size)):
        kind, flags, offset, address, _, file_size, memory_size, align = (
            entry if wide else (entry[0], entry[6], *entry[1:6], entry[7])
        )
        yield Segment(kind, flags, offset, address, file_size, memory_size, align)


# By the field of an Image: the tag of the string (gABI, "Dynamic Section"), and how many bytes it may have.
_STRINGS = {
    "soname": (c.DT_SONAME, _MAX_NAME),
    "rpath": (c.DT_RPATH, _MAX_PATH),
    "runpath": (c.DT_RUNPATH, _MAX_PATH),
}


def file_offset(segments: tuple[Segment, ...] | list[Segment], address: int) -> int | None:
    """Return the file offset that PT_LOAD maps at virtual `address`, or None where the file has no byte for it."""
    for segment in segments:
        if segment.type == c.PT_LOAD and segment.address <= address < segment.address + segment.file_size:
            return address - segment.address + segment.offset
    return None


def _dynamic(buffer: Buffer, segments: tuple[Segment, ...], path: str, dlopened: int) -> dict[str, Any]:
    """Return those fields of an :class:`Image` that the dynamic array gives.

    :param dlopened: how many libraries its notes name besides.
    Unlike symbols, these decide what is loaded at all: where one cannot be read, nothing can be said about the file.
    """
    with open_memory(buffer) as memory:
        last = next((segment for segment in reversed(segments) if segment.type == c.PT_DYNAMIC), None)
        if last is not None and last.file_size and not memory.read(last.address, 1):
            raise ElfError(f"{path}: damaged ELF file: PT_DYNAMIC lies in no PT_LOAD segment")
        return _read_entries(memory, path, dlopened)


def _read_entries(memory: Memory, path: str, dlopened: int) -> dict[str, Any]:
    entries, strings = memory.entries, Strings(memory)
    known: dict[int, str] = {}

    def text(offset: int, longest: int) -> str:
        if offset not in known:
            string = strings.get(offset, longest)
            if string is None:
                raise ElfError(f"{path}: damaged dynamic section: a string lies outside of DT_STRTAB")
            known[offset] = string
        return known[offset]

    needed = [value for tag, value in entries if tag == c.DT_NEEDED]
    # DT_AUXILIARY and DT_FILTER name libraries, too (glibc elf/dl-deps.c loads them).
    filters = [value for tag, value in entries if tag in (c.DT_AUXILIARY, c.DT_FILTER)]
    if len(needed) + len(filters) > _MAX_NEEDED:
        raise ElfError(f"{path}: damaged dynamic section: {len(needed) + len(filters)} libraries needed")
    facts = {
        key: text(memory.dynamic[tag], longest)
        for key, (tag, longest) in _STRINGS.items()
        if tag in memory.dynamic
    }
    places = 1 + max(facts.get(kind, "").count(":") for kind in ("rpath", "runpath"))
    libraries = len(needed) + len(filters) + dlopened
    if libraries * places > _MAX_LOOKUPS:
        raise ElfError(
            f"{path}: damaged dynamic section: {libraries} libraries needed, "
            f"each to be looked for in {places} directories"
        )
    return {
        **facts,
        "needed": tuple(text(offset, _MAX_NAME) for offset in needed),
        "flags_1": memory.dynamic.get(c.DT_FLAGS_1, 0),
        "filters": tuple(text(offset, _MAX_NAME) for offset in filters),
    }


DLOPEN = frozenset({"dlopen", "dlmopen"})
"""The functions that a library is opened with; what imports none of them opens nothing."""

# Bytes looked at in one section: libLLVM has the largest .rodata seen, 63 MB.
_MAX_SEARCHED = 64 << 20
# Bytes of a mapped file that are in memory at one time.
SEARCHED_AT_ONCE = 1 << 20
# Bytes of the longest name that is looked for, its NUL included.
_LONGEST = 127
# The NUL before a name is not part of the pattern: the search is fast only where its first byte is rare.
_LIB = re.compile(rb"lib")
_NAME = re.compile(rb"(lib[\w+.-]{1,100}?\.so(?:\.[0-9]+)*)\0")


def library_names(buffer: Buffer, image: Image) -> tuple[str, ...]:
    """Return the sonames that stand as whole strings in ``.rodata``, in the order of the file, the file's own left out.

    The file may dlopen these. That is no proof that it does, so callers say how they know. Names that are put together at run
    time are not found; a file without section headers gives none.
    """
    try:
        sections = [
            section for section in read_sections(buffer, image.path) if section.name.startswith(".rodata")
        ]
    except ElfError:
        return ()
    names: dict[str, None] = {}
    for section in sections:
        low, end = section.offset, min(section.offset + min(section.file_size, _MAX_SEARCHED), len(buffer))
        for start in range(low, end, SEARCHED_AT_ONCE):
            stop = min(start + SEARCHED_AT_ONCE, end)
            fill(buffer, start, min(stop + _LONGEST, end))
            # Two bytes more, for a name whose first three letters lie across the end of this part.
            for hit in _LIB.finditer(buffer, start, min(stop + 2, end)):
                at = hit.start()
                if at == low or not buffer[at - 1]:
                    name = _NAME.match(buffer, at, min(at + _LONGEST, end))
                    if name:
                        names[name[1].decode("ascii")] = None
            # The pages that were searched need not stay in memory.
            if isinstance(buffer, mmap.mmap):
                page = start // mmap.PAGESIZE * mmap.PAGESIZE
                buffer.madvise(mmap.MADV_DONTNEED, page, stop - page)
    own = {image.soname, *image.needed}
    return tuple(name for name in names if name not in own)


_SHN_XINDEX = 0xFFFF
# Section headers; more is damage, or meant to take long: real files have some 100.
_MAX_SECTIONS = 1 << 16
# Bytes of the table of names.
_MAX_NAMES = 1 << 20


class Section(msgspec.Struct, frozen=True):
    """One section header. `size` is what it takes in memory; `file_size` is the same, but 0 for SHT_NOBITS."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    file_size: int
    size: int


def read_sections(buffer: Buffer, path: str) -> tuple[Section, ...]:
    """Read the section headers; a file without any gives ``()``.

    :raises ElfError: the table points outside of the file.
    """
    head = bytes(buffer[:HEADER_SIZE])
    header = read_header(head, path)
    try:
        return tuple(_sections(buffer, head, header))
    except DAMAGE as error:
        raise damage_error(path, "section headers", error) from error


def _sections(buffer: Buffer, head: bytes, header: Header) -> Iterator[Section]:
    """Read the table that e_shoff, e_shentsize, e_shnum and e_shstrndx describe (elf(5))."""
    order, wide = "<" if header.little_endian else ">", header.elf_class == 64
    start = struct.unpack_from(f"{order}Q" if wide else f"{order}I", head, 40 if wide else 32)[0]
    if not start:
        return
    size, count, index = struct.unpack_from(f"{order}3H", head, 58 if wide else 46)
    # name, type, flags, address, offset, size, link, info, alignment, entry size
    row = struct.Struct(f"{order}IIQQQQIIQQ" if wide else f"{order}10I")
    if size != row.size:
        raise ValueError(f"section headers of {size} bytes instead of {row.size}")
    first = row.unpack(take(buffer, start, start + size))
    # What does not fit into the header is in the first entry (gABI, e_shnum and e_shstrndx).
    count = count or first[5]
    index = first[6] if index == _SHN_XINDEX else index
    if count > _MAX_SECTIONS or start + count * size > len(buffer):
        raise ValueError(f"{count} section headers at {start:#x} do not fit into the file")
    rows = list(row.iter_unpack(take(buffer, start, start + count * size)))
    if index >= max(count, 1):
        raise ValueError(f"the names of {count} sections are in the section of number {index}")
    at, length = rows[index][4:6] if index else (0, 0)
    names = take(buffer, at, at + min(length, _MAX_NAMES))
    known: dict[int, str] = {}
    for name_at, kind, flags, address, offset, length, *_ in rows:
        name = known.get(name_at)
        if name is None:
            raw, _, _ = names[name_at : name_at + _MAX_NAME].partition(b"\0")
            name = known[name_at] = raw.decode("utf-8", "surrogateescape")
        file_size = 0 if kind == c.SHT_NOBITS else length
        yield Section(name, kind, flags, address, offset, file_size, length)
