"""The static scan: what a file must not have before the real loader maps it, even for a dry run (:mod:`relink.loader.dryrun`).

With LD_TRACE_LOADED_OBJECTS, LD_WARN and LD_BIND_NOW no initialiser and no IFUNC resolver runs (glibc since 2.15: elf/rtld.c
passes __RTLD_NOIFUNC), but the loader still maps the file, reads its tables and applies its relocations, and it checks no
address of these: a hostile file can name an audit library, whose code runs, or overwrite the loader's own memory. The scan
refuses what could do either. docs/scan.md is the table of tags and verdicts.

Three rules:

- nothing names code that the loader would run in a dry run;
- every write of the loader stays inside of the object's own segments, and does not change what later writes depend on;
- every table lies in the part of a segment that comes from the file, so that what is scanned here is what the loader reads.

What only makes the loader read elsewhere (a chain of version records, a symbol's index, a hash bucket) is not looked at: the
loader may die of it, which is then said of that file.

Sources: glibc elf/dl-load.c (_dl_map_object_from_fd), elf/dl-map-segments.h, elf/get-dynamic-info.h, elf/dynamic-link.h,
elf/do-rel.h, elf/rtld.c (rtld_setup_main_map, dl_main), elf/dl-reloc.c, sysdeps/x86_64 and sysdeps/aarch64 dl-machine.h.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from relink.elf import constants as c
from relink.elf.dynamic import Buffer, count_mapped
from relink.elf.image import Segment
from relink.loader.scan_relocations import (
    MACHINES,
    AddressRange,
    MappedFile,
    Refusal,
    RelocationTable,
    refused_writes,
)
from relink.system.errors import ElfError

_MAX_HEADERS, _MAX_LOADS = 4096, 256
# The end of a process's addresses on x86-64, which are 47 bits long.
_HIGHEST = 1 << 47
# The end of a program at fixed addresses. No kernel maps the loader below: its lowest base is a third of 39 bits of addresses.
_HIGHEST_FIXED = 1 << 36
_LARGEST_TLS, _LARGEST_TLS_ALIGN = 1 << 31, 1 << 20
# Of several PT_TLS the last one that is not empty counts, in each release (elf/dl-load.c, elf/rtld.c: glibc 2.17 to 2.42).
_ONCE = {c.PT_DYNAMIC: "PT_DYNAMIC", c.PT_INTERP: "PT_INTERP", c.PT_PHDR: "PT_PHDR"}
_HEADER = struct.Struct("<16sHHIQQQIHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")


class ProgramHeader(Segment, frozen=True):
    """One program header, with its number."""

    number: int

    @property
    def span(self) -> AddressRange:
        """Its addresses."""
        return self.address, self.address + self.memory_size


class FileHeader(msgspec.Struct, frozen=True):
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
    if kind not in (c.ET_EXEC, c.ET_DYN):
        raise ElfError(f"a file of type {kind} is neither a program nor a library")
    if size != _PROGRAM_HEADER.size or not 0 < count <= _MAX_HEADERS or start + count * size > len(view):
        raise ElfError(f"the {count} program headers of {size} bytes at {start:#x} do not lie in the file")
    return FileHeader(kind, machine, start, count)


def wrong_segments(segments: list[ProgramHeader], kind: int, size: int) -> Iterator[Refusal]:
    """Look at the segments that are mapped, and at what there may be only one of.

    All but the first are mapped with MAP_FIXED, in a place that is as large as the last one's end says
    (elf/dl-map-segments.h): one that is out of order or larger in the file than in memory replaces other memory. Two on one
    page would leave the first with the second one's content, which is its own where both map the same page of the file.
    """
    page = mmap.PAGESIZE
    loads = [segment for segment in segments if segment.type == c.PT_LOAD]
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
        # Whole pages are mapped; the kernel refuses a program with such a segment.
        mapped = -(-load.span[1] // page) * page
        if load.file_size > load.memory_size and (
            kind == c.ET_EXEC or load.address + load.file_size > mapped
        ):
            yield Refusal(where, "is larger in the file than in memory")
        highest = _HIGHEST_FIXED if kind == c.ET_EXEC else _HIGHEST
        if load.span[1] > highest:
            yield Refusal(where, f"reaches to {load.span[1]:#x}, which is beyond {highest:#x}")
    for before, after in pairwise(loads):
        end = max(before.span[1], before.address + before.file_size)
        same = after.address - after.offset == before.address - before.offset
        is_next = same and after.address >= end and before.memory_size <= before.file_size
        if after.address // page * page < -(-end // page) * page and not is_next:
            yield Refusal(f"PT_LOAD {after.number}", "begins before the page on which the one before it ends")


def wrong_places(segments: list[ProgramHeader], header: FileHeader, memory: MappedFile) -> Iterator[Refusal]:
    """Look at the other segments: each must lie in what PT_LOAD maps."""
    page = mmap.PAGESIZE
    for segment in segments:
        start, end = segment.span
        # Numbers, since a bare name in a pattern matches everything: PT_DYNAMIC, PT_INTERP, PT_PHDR, PT_TLS, PT_GNU_RELRO.
        # PT_DYNAMIC has no end but its DT_NULL (elf/get-dynamic-info.h), which `_dynamic` looks for.
        match segment.type:
            case 2 if segment.file_size and memory.offset(start, 1) is None:
                yield Refusal("PT_DYNAMIC", f"{start:#x} is not in the file's part of a segment")
            case 3 if segment.file_size and memory.offset(start, segment.file_size) is None:
                yield Refusal("PT_INTERP", f"{start:#x} is not in the file's part of a segment")
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
                elif segment.file_size and not start:
                    # elf/dl-load.c adds the load address to l_tls_initimage unless that is NULL; the image is read there.
                    yield Refusal("PT_TLS", "has its image at the address 0, which the loader takes for none")
                if not 0 < segment.align <= _LARGEST_TLS_ALIGN:
                    yield Refusal("PT_TLS", f"has the alignment {segment.align:#x}")
            case 0x6474E552:
                # The loader takes write access from whole pages (elf/dl-reloc.c, _dl_protect_relro).
                low, high = start // page * page, end // page * page
                pages = ((first // page * page, -(-last // page) * page) for first, last in memory.loads)
                if low < high and not any(first <= low and high <= last for first, last in pages):
                    yield Refusal("PT_GNU_RELRO", f"{start:#x} to {end:#x} is not inside of a segment")
    if not any(segment.type == c.PT_PHDR for segment in segments):
        yield from _wrong_headers(segments, header)


def _wrong_headers(segments: list[ProgramHeader], header: FileHeader) -> Iterator[Refusal]:
    """Without PT_PHDR the loader reads them in the first segment whose pages have them (elf/dl-load.c): not where it clears."""
    page = mmap.PAGESIZE
    end = header.start + header.size
    for load in segments:
        first, last = load.offset // page * page, -(-(load.offset + load.file_size) // page) * page
        if load.type == c.PT_LOAD and first <= header.start and end <= last:
            cleared = load.memory_size > load.file_size and end > load.offset + load.file_size
            if cleared:
                yield Refusal(f"PT_LOAD {load.number}", "clears the memory in which the program headers lie")
            return


# Refusals of one file that are reported: the first ones say enough.
MOST_REFUSALS = 8
_MAX_DYNAMIC = 1 << 16  # entries

_CODE = {
    0x6FFFFEFA: ("DT_CONFIG", "names a configuration file for the loader"),
    0x6FFFFEFB: ("DT_DEPAUDIT", "names a library whose code the loader runs at once, even in a dry run"),
    0x6FFFFEFC: ("DT_AUDIT", "names a library whose code the loader runs at once, even in a dry run"),
    0x6FFFFEF8: ("DT_GNU_CONFLICT", "is a table of writes to other objects (prelink)"),
    0x7FFFFFFD: ("DT_AUXILIARY", "names a library that the loader maps before any that relink knows of"),
    0x7FFFFFFF: ("DT_FILTER", "names a library that the loader maps before any that relink knows of"),
}
"""Tags that are refused, whatever their value is."""
# By tag: name, tag of its size in bytes, size of an entry, tag of that size.
_TABLES = {
    7: ("DT_RELA", 8, 24, 9),
    17: ("DT_REL", 18, 16, 19),
    23: ("DT_JMPREL", 2, 24, None),
    36: ("DT_RELR", 35, 8, 37),
    25: ("DT_INIT_ARRAY", 27, 8, None),
    26: ("DT_FINI_ARRAY", 28, 8, None),
    32: ("DT_PREINIT_ARRAY", 33, 8, None),
}
_SIZED = {8: "DT_RELASZ", 18: "DT_RELSZ", 2: "DT_PLTRELSZ", 35: "DT_RELRSZ", 27: "DT_INIT_ARRAYSZ",
          28: "DT_FINI_ARRAYSZ", 33: "DT_PREINIT_ARRAYSZ"}  # fmt: skip
_RELOCATIONS = (7, 23, 36)
# By tag: name, bytes that the loader reads at least.
_READ = {
    5: ("DT_STRTAB", 1),
    6: ("DT_SYMTAB", 24),
    4: ("DT_HASH", 8),
    0x6FFFFEF5: ("DT_GNU_HASH", 16),
    0x6FFFFFF0: ("DT_VERSYM", 2),
    0x6FFFFFFC: ("DT_VERDEF", 20),
    0x6FFFFFFE: ("DT_VERNEED", 16),
}
# By tag: name, bytes that the loader writes there when it binds lazily.
_WRITTEN = {
    3: ("DT_PLTGOT", 24),
    0x6FFFFEF7: ("DT_TLSDESC_GOT", 8),
}
_RUN = {12: "DT_INIT", 13: "DT_FINI", 0x6FFFFEF6: "DT_TLSDESC_PLT"}


def scan(buffer: Buffer) -> tuple[Refusal, ...]:
    """Return why a file must not be given to the real loader, at most eight reasons; nothing where it may.

    Takes a time that is linear in the size of the relocation tables, some 70 ms for a million relocations.

    :param buffer: the whole file, as the loader will map it: a 64-bit little-endian one for x86-64 or AArch64.
    """
    try:
        with memoryview(buffer) as raw, raw.cast("B") as view:
            refusals = []
            for refusal in _refusals(view):
                refusals.append(refusal)
                if len(refusals) == MOST_REFUSALS:
                    break
            return tuple(refusals)
    except ElfError as error:
        return (Refusal("the ELF header", error.message),)


def _refusals(view: memoryview) -> Iterator[Refusal]:
    header = read_file_header(view)
    rows = _PROGRAM_HEADER.iter_unpack(view[header.start : header.start + header.size])
    segments = [
        ProgramHeader(kind, flags, offset, address, file_size, memory_size, align, number)
        for number, (kind, flags, offset, address, _, file_size, memory_size, align) in enumerate(rows)
    ]
    wrong = [*wrong_segments(segments, header.kind, len(view))]
    yield from wrong
    if wrong:
        # With such segments no address means anything.
        return
    loads = [segment for segment in segments if segment.type == c.PT_LOAD]
    # How many bytes of each come from the file.
    sizes = [
        min(count_mapped(load.address, load.file_size, load.memory_size), len(view) - load.offset)
        for load in loads
    ]
    memory = MappedFile(
        view,
        tuple(
            (load.address, load.address + size, load.offset) for load, size in zip(loads, sizes, strict=True)
        ),
        tuple(load.span for load in loads if load.flags & 2),
        tuple(load.span for load in loads if load.flags & 1),
        tuple(load.span for load in loads),
    )
    wrong = [*wrong_places(segments, header, memory)]
    yield from wrong
    dynamic = next((part for part in segments if part.type == c.PT_DYNAMIC and part.file_size), None)
    if wrong or dynamic is None:
        return
    entries, count = _dynamic(memory, dynamic)
    if entries is None:
        yield Refusal("PT_DYNAMIC", "has no end inside of the file's part of its segment")
        return
    wrong = [*_wrong_entries(entries, memory)]
    yield from wrong
    if not wrong:
        array = dynamic.address, dynamic.address + 16 * count
        yield from _wrong_relocations(entries, memory, header, segments, array)


def _dynamic(memory: MappedFile, segment: ProgramHeader) -> tuple[dict[int, int] | None, int]:
    """Return of each tag the last value (elf/get-dynamic-info.h), and the number of entries with the DT_NULL."""
    entries: dict[int, int] = {}
    data = memory.read(segment.address, 16 * _MAX_DYNAMIC)
    for count, (tag, value) in enumerate(struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]), 1):
        if tag == 0:
            return entries, count
        entries[tag] = value
    return None, 0


def _wrong_entries(entries: dict[int, int], memory: MappedFile) -> Iterator[Refusal]:
    """Look at the dynamic entries, each by itself."""
    for tag, (name, reason) in _CODE.items():
        if tag in entries:
            yield Refusal(name, reason)
    for tag, (name, size_tag, entry, entry_tag) in _TABLES.items():
        yield from _wrong_table(entries, memory, tag, name, size_tag, entry, entry_tag)
    for tag, (name, least) in _READ.items():
        if tag in entries and memory.offset(entries[tag], least) is None:
            yield Refusal(name, f"{entries[tag]:#x} is not in the file's part of a segment")
    for tag, (name, least) in _WRITTEN.items():
        if tag in entries and not _within(memory.loads, entries[tag], least):
            yield Refusal(name, f"{entries[tag]:#x} is not inside of a segment")
    for tag, name in _RUN.items():
        if entries.get(tag, 0) and not _within(memory.executable, entries[tag], 1):
            yield Refusal(name, f"{entries[tag]:#x} is not in an executable segment")
    size = entries.get(8, 0)
    if entries.get(c.DT_RELACOUNT, 0) * 24 > _read_size(size, 24):
        yield Refusal(
            "DT_RELACOUNT", f"{entries[c.DT_RELACOUNT]} entries are more than the table has room for"
        )
    # The loader adds DT_JMPREL to what lies before it, and goes on with the entries of that (elf/dynamic-link.h).
    if size % 24 and entries.get(c.DT_RELA, 0) + size == entries.get(c.DT_JMPREL):
        yield Refusal("DT_RELASZ", f"{size} is not a multiple of 24, and DT_JMPREL follows")
    if c.DT_JMPREL in entries and entries.get(c.DT_PLTREL) != c.DT_RELA:
        yield Refusal("DT_PLTREL", "is not DT_RELA, the only kind of this machine")
    if c.DT_PLTREL in entries and c.DT_JMPREL not in entries:
        yield Refusal("DT_PLTREL", "there is no DT_JMPREL to it")
    if entries.get(18, 0):
        yield Refusal("DT_REL", "is not a kind of relocation of this machine")
    yield from _wrong_hashes(entries, memory)


def _wrong_table(
    entries: dict[int, int],
    memory: MappedFile,
    tag: int,
    name: str,
    size_tag: int,
    entry: int,
    entry_tag: int | None,
) -> Iterator[Refusal]:
    address, size = entries.get(tag, 0), entries.get(size_tag)
    if tag not in entries or (not address and size == 0):
        return
    if size is None:
        # The loader passes over a DT_RELA of address 0 that has no size.
        if address or tag != c.DT_RELA:
            yield Refusal(name, f"there is no {_SIZED[size_tag]} to it")
    elif size and tag in (25, 26, 32):
        if not _within(memory.loads, address, size):
            yield Refusal(name, f"its {size} bytes at {address:#x} are not inside of a segment")
    elif size and memory.offset(address, size := _read_size(size, entry)) is None:
        yield Refusal(name, f"its {size} bytes at {address:#x} are not in the file's part of a segment")
    if size and entry_tag is not None and entries.get(entry_tag) != entry:
        yield Refusal(name, f"has entries of {entries.get(entry_tag, 0)} bytes instead of {entry}")


def _read_size(size: int, entry: int) -> int:
    """Return how many bytes of a table of relocations the loader reads: whole entries (elf/do-rel.h)."""
    return -(-size // entry) * entry


def _wrong_hashes(entries: dict[int, int], memory: MappedFile) -> Iterator[Refusal]:
    """The sizes that the hash tables give themselves must not lead outside of the segment."""
    at = entries.get(c.DT_HASH)
    if at is not None and c.DT_GNU_HASH not in entries and (data := memory.read(at, 8)):
        buckets = struct.unpack_from("<I", data)[0]
        if memory.offset(at, 8 + 4 * buckets) is None:
            yield Refusal("DT_HASH", f"its {buckets} buckets are not in the segment")
    at = entries.get(c.DT_GNU_HASH)
    if at is not None and len(data := memory.read(at, 16)) == 16:
        buckets, _, bloom, _ = struct.unpack("<4I", data)
        if memory.offset(at, 16 + 8 * bloom + 4 * buckets) is None:
            yield Refusal(
                "DT_GNU_HASH", f"its {bloom} filter words and {buckets} buckets are not in the segment"
            )


def _wrong_relocations(
    entries: dict[int, int],
    memory: MappedFile,
    header: FileHeader,
    segments: list[ProgramHeader],
    dynamic: AddressRange,
) -> Iterator[Refusal]:
    """Look at where the relocations write: not outside of the object, and not on what the loader has yet to read."""
    count = entries.get(c.DT_RELACOUNT, 0)
    tables = [
        RelocationTable(
            name,
            entries[tag],
            entries[tag] + _read_size(size, entry),
            count if tag == c.DT_RELA else 0,
        )
        for tag, (name, size_tag, entry, _) in _TABLES.items()
        if tag in _RELOCATIONS and tag in entries and (size := entries.get(size_tag))
    ]
    kept: list[AddressRange] = [dynamic, *((table.start, table.end) for table in tables)]
    for table in tables:
        # The loader adds the load address to some of the dynamic entries (elf/get-dynamic-info.h).
        if table.start < dynamic[1] and dynamic[0] < table.end:
            yield Refusal(table.name, "overlaps the dynamic array, which the loader changes")
            return
    headers = next(
        (segment.address for segment in segments if segment.type == c.PT_PHDR), memory.address(header.start)
    )
    if headers is not None:
        kept.append((headers, headers + header.size))
    # With DT_TEXTREL the loader makes all segments writable while it relocates, by the program headers (elf/dl-reloc.c).
    textrel = c.DT_TEXTREL in entries or entries.get(c.DT_FLAGS, 0) & c.DF_TEXTREL
    yield from refused_writes(
        memory,
        MACHINES[header.machine],
        tables,
        memory.loads if textrel else memory.writable,
        kept,
        entries.get(c.DT_SYMTAB),
    )


def _within(spans: tuple[AddressRange, ...], address: int, size: int) -> bool:
    return any(start <= address and address + size <= end for start, end in spans)
