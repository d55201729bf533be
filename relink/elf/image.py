"""One ELF file as facts: header, segments and dynamic section, read through program headers alone.

Section headers are optional in a file that is run (gABI, "Object Files"), and stripped or hardened libraries come without
them; so nothing here depends on them, except :func:`read_sections`, which is for checks that need section names.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any, cast

from elftools.common.exceptions import ELFError as _PyelftoolsError
from elftools.construct.lib.container import Container
from elftools.elf.elffile import ELFFile

from relink.errors import ElfError

__all__ = [
    "EM_AMDGPU",
    "EM_X86_64",
    "Buffer",
    "DlopenNote",
    "Header",
    "Image",
    "Section",
    "Segment",
    "is_elf",
    "machine_name",
    "map_file",
    "read_header",
    "read_image",
    "read_sections",
]

Buffer = bytes | bytearray | memoryview | mmap.mmap
"""The bytes of one ELF file: a member inflated into memory, or a mapped file."""

EM_X86_64 = 62
EM_AMDGPU = 224
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
_PT_NOTE = 4
_DLOPEN_NOTE_TYPE = 0x407C0C0A  # https://uapi-group.org/specifications/specs/elf_dlopen_metadata/
_DF_1_NODEFLIB = 0x800
_DF_1_PIE = 0x08000000
_HEADER_SIZE = 64
_MAX_NEEDED = 65536  # a dynamic section of more entries is damage, not a library


@dataclass(frozen=True, slots=True)
class Header:
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


@dataclass(frozen=True, slots=True)
class Segment:
    """One program header. Offsets, addresses and sizes are bytes."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    align: int


@dataclass(frozen=True, slots=True)
class Section:
    """One section header. `file_size` is 0 for SHT_NOBITS."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    file_size: int
    align: int


@dataclass(frozen=True, slots=True)
class DlopenNote:
    """One entry of a ``.note.dlopen`` section (systemd's ELF dlopen metadata): sonames in order of preference."""

    sonames: tuple[str, ...]
    feature: str
    priority: str


@dataclass(frozen=True, slots=True)
class Image:
    """The facts of one ELF file that the loader and the plan work with.

    :ivar path: where it came from, for messages: a file's path or a member's name.
    :ivar size: of the file, in bytes.
    :ivar interpreter: PT_INTERP, or None for a library.
    :ivar needed: DT_NEEDED strings in their order, duplicates included, as written.
    :ivar rpath: DT_RPATH as written (colon separated, not expanded), or None where there is no such entry.
        ld.so ignores it when `runpath` is there too (glibc elf/get-dynamic-info.h).
    :ivar runpath: DT_RUNPATH likewise.
    :ivar dynamic: whether there is a PT_DYNAMIC at all: without one the loader has nothing to do.
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
    dlopen_notes: tuple[DlopenNote, ...] = field(default=())

    @property
    def nodeflib(self) -> bool:
        """DF_1_NODEFLIB: default directories are not searched for what this object needs (``-z nodeflib``)."""
        return bool(self.flags_1 & _DF_1_NODEFLIB)

    @property
    def is_executable(self) -> bool:
        """Whether a user runs it: it names an interpreter. libc.so.6 does too, but has a soname."""
        return self.interpreter is not None and self.soname is None

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


@contextlib.contextmanager
def map_file(path: str) -> Iterator[Buffer]:
    """Map a file read-only; an empty file gives ``b""``, since mmap refuses those.

    :raises OSError: the file cannot be opened.
    """
    with open(path, "rb") as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            yield b""
            return
    try:
        yield mapped
    finally:
        with contextlib.suppress(
            BufferError
        ):  # a reader still holds a view: the map goes when that view goes
            mapped.close()


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


class _Stream(io.RawIOBase):
    """A seekable file over a buffer without copying it, which is what pyelftools wants to read from."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._size = len(buffer)
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._position + size)
        data = bytes(self._buffer[self._position : end])
        self._position += len(data)
        return data


# pyelftools signals damage by whatever its parser stumbles over; these are the ones seen in fuzzing.
_DAMAGE = (
    _PyelftoolsError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    AssertionError,
    RecursionError,
    MemoryError,
    struct.error,
)


def _damage(path: str, what: str, error: BaseException) -> ElfError:
    return ElfError(f"{path}: damaged {what} ({str(error) or type(error).__name__})")


def _open(buffer: Buffer, path: str) -> ELFFile:
    read_header(bytes(buffer[:_HEADER_SIZE]), path)  # cheap and with a clear message
    try:
        return ELFFile(cast("IO[bytes]", _Stream(buffer)))
    except _DAMAGE as error:
        raise _damage(path, "ELF header", error) from error


def read_image(buffer: Buffer, path: str) -> Image:
    """Read the facts of one ELF file.

    :param buffer: the whole file.
    :param path: named in the result and in errors.
    :raises ElfError: it is not ELF, or its headers point outside of the file.
    """
    header = read_header(bytes(buffer[:_HEADER_SIZE]), path)
    elf = _open(buffer, path)
    try:
        return _read(elf, buffer, path, header)
    except _DAMAGE as error:
        raise _damage(path, "ELF file", error) from error


def _read(elf: ELFFile, buffer: Buffer, path: str, header: Header) -> Image:
    segments: list[Segment] = []
    interpreter: str | None = None
    dynamic: dict[str, Any] | None = None
    notes: list[DlopenNote] = []
    size = len(buffer)
    for index in range(elf.num_segments()):
        entry = elf._get_segment_header(index)  # noqa: SLF001  (get_segment would already follow PT_DYNAMIC's pointers)
        segment = _segment(entry)
        segments.append(segment)
        inside = segment.offset + segment.file_size <= size
        if entry["p_type"] in ("PT_INTERP", "PT_DYNAMIC", "PT_LOAD") and not inside:
            raise ElfError(
                f"{path}: damaged ELF file: {entry['p_type']} ends past the end of the file ({size} bytes)"
            )
        if entry["p_type"] == "PT_INTERP":
            raw = bytes(buffer[segment.offset : segment.offset + segment.file_size])
            interpreter = raw.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        elif entry["p_type"] == "PT_NOTE" and inside:
            notes.extend(_dlopen_notes(buffer, segment, header))
    for segment in segments:
        if segment.type == 2:  # PT_DYNAMIC
            dynamic = _dynamic(buffer, segment, segments, header, path)
            break
    facts = dynamic or {}
    return Image(
        path=path,
        size=size,
        header=header,
        segments=tuple(segments),
        interpreter=interpreter,
        dynamic=dynamic is not None,
        dlopen_notes=tuple(notes),
        **facts,
    )


_SEGMENT_TYPES = {
    "PT_NULL": 0, "PT_LOAD": 1, "PT_DYNAMIC": 2, "PT_INTERP": 3, "PT_NOTE": 4, "PT_SHLIB": 5, "PT_PHDR": 6, "PT_TLS": 7,
    "PT_GNU_EH_FRAME": 0x6474E550, "PT_GNU_STACK": 0x6474E551, "PT_GNU_RELRO": 0x6474E552, "PT_GNU_PROPERTY": 0x6474E553,
}  # fmt: skip


def _segment(entry: Container) -> Segment:
    kind = entry["p_type"]
    number = kind if isinstance(kind, int) else _SEGMENT_TYPES.get(kind, -1)
    return Segment(
        number,
        entry["p_flags"],
        entry["p_offset"],
        entry["p_vaddr"],
        entry["p_filesz"],
        entry["p_memsz"],
        entry["p_align"],
    )


# gABI "Dynamic Section"; DT_AUXILIARY and DT_FILTER name libraries too (glibc elf/dl-deps.c loads them).
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 5, 10, 14, 15, 29
_DT_FLAGS_1, _DT_AUXILIARY, _DT_FILTER = 0x6FFFFFFB, 0x7FFFFFFD, 0x7FFFFFFF


def file_offset(segments: tuple[Segment, ...] | list[Segment], address: int) -> int | None:
    """Return the file offset that PT_LOAD maps at virtual `address`, or None where the file holds no byte for it."""
    for segment in segments:
        if segment.type == 1 and segment.address <= address < segment.address + segment.file_size:
            return address - segment.address + segment.offset
    return None


def _dynamic(
    buffer: Buffer, where: Segment, segments: list[Segment], header: Header, path: str
) -> dict[str, Any]:
    entry = struct.Struct(("<" if header.little_endian else ">") + ("qQ" if header.elf_class == 64 else "iI"))
    raw = bytes(buffer[where.offset : where.offset + where.file_size - where.file_size % entry.size])
    found: list[tuple[int, int]] = []
    for tag, value in entry.iter_unpack(raw):
        if tag == 0:
            break
        found.append((tag, value))
    last = dict(found)  # of a tag that is there twice, ld.so keeps the last (glibc elf/get-dynamic-info.h)
    table = file_offset(segments, last.get(_DT_STRTAB, -1))
    if table is None and not {_DT_NEEDED, *_STRINGS.values()}.isdisjoint(last):
        raise ElfError(f"{path}: damaged dynamic section: DT_STRTAB points outside of the file")
    strings = b"" if table is None else bytes(buffer[table : table + last.get(_DT_STRSZ, 0)])

    def text(offset: int) -> str:
        end = strings.find(b"\0", offset)
        if end < 0:
            raise ElfError(f"{path}: damaged dynamic section: a string lies outside of DT_STRTAB")
        return strings[offset:end].decode("utf-8", "surrogateescape")

    needed = [value for tag, value in found if tag == _DT_NEEDED]
    if len(needed) > _MAX_NEEDED:
        raise ElfError(f"{path}: damaged dynamic section: {len(needed)} NEEDED entries")
    optional = {key: text(last[tag]) if tag in last else None for key, tag in _STRINGS.items()}
    return {
        **optional,
        "needed": tuple(text(offset) for offset in needed),
        "flags_1": last.get(_DT_FLAGS_1, 0),
        "filters": tuple(text(value) for tag, value in found if tag in (_DT_AUXILIARY, _DT_FILTER)),
    }


_STRINGS = {"soname": _DT_SONAME, "rpath": _DT_RPATH, "runpath": _DT_RUNPATH}


def _dlopen_notes(buffer: Buffer, segment: Segment, header: Header) -> Iterator[DlopenNote]:
    """Walk one PT_NOTE segment for dlopen metadata; a damaged note ends the walk, since notes are advice."""
    order = "<" if header.little_endian else ">"
    data = bytes(buffer[segment.offset : segment.offset + min(segment.file_size, 1 << 20)])
    step = 8 if segment.align == 8 else 4
    position = 0
    while position + 12 <= len(data):
        name_size, size, kind = struct.unpack_from(order + "III", data, position)
        name_start = position + 12
        start = name_start + -(-name_size // step) * step
        if start + size > len(data):
            return
        name = data[name_start : name_start + name_size].rstrip(b"\0")
        if kind == _DLOPEN_NOTE_TYPE and name == b"FDO":
            yield from _parse_dlopen_note(data[start : start + size])
        position = start + -(-size // step) * step


def _parse_dlopen_note(payload: bytes) -> Iterator[DlopenNote]:
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        for entry in json.loads(payload.rstrip(b"\0")):
            sonames = tuple(str(name) for name in entry["soname"])
            yield DlopenNote(
                sonames, str(entry.get("feature", "")), str(entry.get("priority", "recommended"))
            )


def read_sections(buffer: Buffer, path: str) -> tuple[Section, ...]:
    """Read the section headers; a file without any gives ``()``.

    :raises ElfError: the table points outside of the file.
    """
    elf = _open(buffer, path)
    try:
        if elf["e_shoff"] == 0:
            return ()
        headers = [elf._get_section_header(index) for index in range(elf.num_sections())]  # noqa: SLF001
        name = functools.partial(_section_name, elf)
        return tuple(_section(name(header), header) for header in headers)
    except _DAMAGE as error:
        raise _damage(path, "section headers", error) from error


def _section_name(elf: ELFFile, header: Container) -> str:
    return str(elf._get_section_name(header))  # noqa: SLF001


def _section(name: str, header: Container) -> Section:
    kind: int | str = header["sh_type"]  # pyelftools gives a word for those it knows
    nobits = kind == "SHT_NOBITS"
    return Section(
        name,
        kind if isinstance(kind, int) else _SECTION_TYPES.get(kind, -1),
        header["sh_flags"],
        header["sh_addr"],
        header["sh_offset"],
        0 if nobits else header["sh_size"],
        header["sh_addralign"],
    )


_SECTION_TYPES = {
    "SHT_NULL": 0,
    "SHT_PROGBITS": 1,
    "SHT_STRTAB": 3,
    "SHT_DYNAMIC": 6,
    "SHT_NOTE": 7,
    "SHT_NOBITS": 8,
}
