"""The program headers of one file, as the loader takes them (see :mod:`relink.loader.scan`)."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from relink.elf.constants import (
    ET_DYN,
    ET_EXEC,
    PT_DYNAMIC,
    PT_INTERP,
    PT_LOAD,
    PT_PHDR,
    PT_TLS,
)
from relink.elf.image import Segment
from relink.loader.scan_relocations import MACHINES, AddressRange, MappedFile, Refusal
from relink.system.errors import ElfError

_MAX_HEADERS, _MAX_LOADS = 4096, 256
# The end of a process's addresses on x86-64, which are 47 bits long.
_HIGHEST = 1 << 47
# The end of a program at fixed addresses. No kernel maps the loader below: its lowest base is a third of 39 bits of addresses.
_HIGHEST_FIXED = 1 << 36
_LARGEST_TLS, _LARGEST_TLS_ALIGN = 1 << 31, 1 << 20
_ONCE = {PT_DYNAMIC: "PT_DYNAMIC", PT_INTERP: "PT_INTERP", PT_PHDR: "PT_PHDR", PT_TLS: "PT_TLS"}
_HEADER = struct.Struct("<16sHHIQQQIHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")


@dataclass(frozen=True, slots=True)
class ProgramHeader(Segment):
    """One program header, with its number."""

    number: int

    @property
    def span(self) -> AddressRange:
        """Its addresses."""
        return self.address, self.address + self.memory_size


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What the loader takes from the ELF header.

    :ivar kind: e_type; `machine`: e_machine.
    :ivar start: the offset of the program headers; `count`: how many there are.
    """

    kind: int
    machine: int
    start: int
    count: int

    @property
    def size(self) -> int:
        """Bytes of the program headers."""
        return self.count * _PROGRAM_HEADER.size


def read_file_header(view: memoryview) -> FileHeader:
    """Read the ELF header.

    :raises ElfError: it is none, or not of a kind whose relocations are known.
    """
    if len(view) < 64 or bytes(view[:4]) != b"\x7fELF":
        raise ElfError("this is not an ELF file")
    ident, kind, machine, _, _, start, _, _, _, size, count = _HEADER.unpack_from(view)
    if ident[4:6] != b"\x02\x01" or machine not in MACHINES:
        raise ElfError(
            f"what the loader writes for machine {machine} is not known: 64-bit x86-64 and AArch64 are"
        )
    if kind not in (ET_EXEC, ET_DYN):
        raise ElfError(f"a file of type {kind} is neither a program nor a library")
    if size != _PROGRAM_HEADER.size or not 0 < count <= _MAX_HEADERS or start + count * size > len(view):
        raise ElfError(f"the {count} program headers of {size} bytes at {start:#x} do not lie in the file")
    return FileHeader(kind, machine, start, count)


def read_segments(view: memoryview, header: FileHeader) -> list[ProgramHeader]:
    """Read the program headers, in their order."""
    rows = _PROGRAM_HEADER.iter_unpack(view[header.start : header.start + header.size])
    return [
        ProgramHeader(kind, flags, offset, address, file_size, memory_size, align, number)
        for number, (kind, flags, offset, address, _, file_size, memory_size, align) in enumerate(rows)
    ]


def wrong_segments(segments: list[ProgramHeader], kind: int, size: int) -> Iterator[Refusal]:
    """Look at the segments that are mapped, and at what there may be only one of.

    All but the first are mapped with MAP_FIXED, in a place that is as large as the last one's end says
    (elf/dl-map-segments.h): one that is out of order or larger in the file than in memory replaces other memory. Two on one
    page would leave the first with the second one's content.
    """
    page = mmap.PAGESIZE
    loads = [segment for segment in segments if segment.type == PT_LOAD]
    if not loads:
        yield Refusal("the program headers", "have no PT_LOAD")
    if len(loads) > _MAX_LOADS:
        yield Refusal("the program headers", f"have more than {_MAX_LOADS} PT_LOAD")
    for kind_once, name in _ONCE.items():
        if sum(segment.type == kind_once for segment in segments) > 1:
            yield Refusal(name, "is there more than once")
    for load in loads:
        where = f"PT_LOAD {load.number}"
        if load.offset + load.file_size > size:
            yield Refusal(where, "ends past the end of the file")
        if load.file_size > load.memory_size:
            yield Refusal(where, "is larger in the file than in memory")
        highest = _HIGHEST_FIXED if kind == ET_EXEC else _HIGHEST
        if load.span[1] > highest:
            yield Refusal(where, f"reaches to {load.span[1]:#x}, which is beyond {highest:#x}")
    for before, after in pairwise(loads):
        if after.address // page * page < -(-before.span[1] // page) * page:
            yield Refusal(f"PT_LOAD {after.number}", "begins before the page on which the one before it ends")


def wrong_places(segments: list[ProgramHeader], header: FileHeader, memory: MappedFile) -> Iterator[Refusal]:
    """Look at the other segments: each must lie in what PT_LOAD maps."""
    page = mmap.PAGESIZE
    for segment in segments:
        start, end = segment.span
        # Numbers, since a bare name in a pattern matches everything: PT_DYNAMIC, PT_INTERP, PT_PHDR, PT_TLS, PT_GNU_RELRO.
        match segment.type:
            case 2 | 3 if segment.file_size:
                name = _ONCE[segment.type]
                if memory.offset(start, max(segment.file_size, 1)) is None:
                    yield Refusal(name, f"{start:#x} is not in the file's part of a segment")
            case 6:
                if memory.offset(start, header.size) != header.start:
                    yield Refusal("PT_PHDR", f"{start:#x} is not where the program headers are mapped")
            case 7 if segment.memory_size:
                if segment.memory_size > _LARGEST_TLS or segment.file_size > segment.memory_size:
                    yield Refusal(
                        "PT_TLS",
                        f"has {segment.file_size} bytes in the file, {segment.memory_size} in memory",
                    )
                elif segment.file_size and memory.offset(start, segment.file_size) is None:
                    yield Refusal("PT_TLS", f"{start:#x} is not in the file's part of a segment")
                if segment.align & (segment.align - 1) or not 0 < segment.align <= _LARGEST_TLS_ALIGN:
                    yield Refusal("PT_TLS", f"has the alignment {segment.align:#x}")
            case 0x6474E552:
                # The loader takes write access from whole pages (elf/dl-reloc.c, _dl_protect_relro).
                low, high = start // page * page, end // page * page
                pages = ((first // page * page, -(-last // page) * page) for first, last in memory.loads)
                if low < high and not any(first <= low and high <= last for first, last in pages):
                    yield Refusal("PT_GNU_RELRO", f"{start:#x} to {end:#x} is not inside of a segment")
    if not any(segment.type == PT_PHDR for segment in segments):
        yield from _wrong_headers(segments, header)


def _wrong_headers(segments: list[ProgramHeader], header: FileHeader) -> Iterator[Refusal]:
    """Without PT_PHDR the loader reads them in the first segment whose pages have them (elf/dl-load.c): not where it clears."""
    page = mmap.PAGESIZE
    end = header.start + header.size
    for load in segments:
        first, last = load.offset // page * page, -(-(load.offset + load.file_size) // page) * page
        if load.type == PT_LOAD and first <= header.start and end <= last:
            cleared = load.memory_size > load.file_size and end > load.offset + load.file_size
            if cleared:
                yield Refusal(f"PT_LOAD {load.number}", "clears the memory in which the program headers lie")
            return
