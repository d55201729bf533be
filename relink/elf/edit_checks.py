"""What must still be true of an ELF file after an edit. There is a check for each way in which a tool was seen to break one.

The version records must be the planned ones: every byte of them, and every entry of DT_VERSYM.

Executables as kernels map them, and what an edit by patchelf needs so that old kernels still run them.

The kernel maps an executable itself; libraries are mapped by ld.so, which these rules do not concern. The rules are those of
Linux 4.18, fs/binfmt_elf.c (RHEL 8 has that kernel). ``load_elf_phdrs`` refuses a table that is larger than a page.
``load_elf_binary`` maps each PT_LOAD after the first with MAP_FIXED_NOREPLACE, so two of them must not share a page, and sets
``load_addr`` to ``p_vaddr - p_offset`` of the first one. ``create_elf_tables`` passes ``load_addr + e_phoff`` as AT_PHDR: in
the usual file the first segment is at 0, so the table's segment needs ``p_vaddr == p_offset``. Linux 5.18 looks the address up.
That the first PT_LOAD must not be writable was seen on RHEL 8.10 only.

patchelf gives an ET_EXEC file a writable segment in front of the others, and moves the table of a PIE to an address that is not
its offset. So it is given an ET_EXEC file as ET_DYN, and writes what is new behind the rest; and where it moved the table, the
table is moved once more, to where both conditions hold.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from relink.elf import constants as c
from relink.elf.dynamic import Buffer, Memory, Strings, open_memory
from relink.elf.edit import GLOBAL, ElfEdit, edit_needs, find_freed_symbols, predict_edit, read_records
from relink.elf.image import Image, Section, Segment, file_offset, read_sections
from relink.elf.symbol_reader import columns_of, count_symbols, read_version_needs
from relink.elf.symbols import VER_FLG_WEAK, VersionNeed
from relink.system.errors import ElfError

_PF_R, _PF_W = 4, 2
_PAGE = 0x1000
# Bytes from the end of a file to program headers behind it: programs of the small code model span 2 GiB (x86-64 psABI, 3.5.1).
_HOLE = 4 << 30
# vm.mmap_min_addr, as distributions set it.
_LOWEST = 0x10000
_TYPE = 16  # offset of e_type
# Elf64_Phdr: type, flags, offset, vaddr, paddr, filesz, memsz, align.
_PROGRAM = struct.Struct("<IIQQQQQQ")


@contextmanager
def edit_as_library(path: Path, before: Image) -> Iterator[None]:
    """Let the file at `path` say that it is ET_DYN while patchelf edits it, if it is an executable at a fixed address."""
    if before.header.kind != c.ET_EXEC or before.interpreter is None:
        yield
        return
    _write_type(path, before, c.ET_DYN)
    yield
    _write_type(path, before, c.ET_EXEC)


def _write_type(path: Path, before: Image, kind: int) -> None:
    with path.open("r+b") as file:
        file.seek(_TYPE)
        file.write(kind.to_bytes(2, "little" if before.header.little_endian else "big"))


def place_headers(path: Path, before: Image) -> None:
    """Move the program header table of an edited file behind the rest, if no segment or a wrong one has it now.

    An executable's goes to where old kernels find it. patchelf lets the table grow past the end of the segment that was made for
    it, where another tool had moved it before; ld.so reads a library's at PT_PHDR.

    :param before: the facts of the file before it was edited; only files of 64 bits, little-endian, are changed.
    :raises OSError: the file cannot be read or written.
    """
    header = before.header
    if (header.elf_class, header.little_endian) != (64, True):
        return
    with path.open("r+b") as file:
        head = file.read(64)
        if len(head) < 64:
            return
        (at,), (row, count) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<HH", head, 54)
        size = file.seek(0, 2)
        if row != _PROGRAM.size or at + row * count > size:
            # The checks of an edit report this damage.
            return
        file.seek(at)
        rows = [list(fields) for fields in _PROGRAM.iter_unpack(file.read(row * count))]
        segments = [Segment(*segment[:4], *segment[5:]) for segment in rows]
        loads = [segment for segment in segments if segment.type == c.PT_LOAD]
        run = before.interpreter is not None
        if not loads or not (
            "table" in _findings(at, row * count, header.kind, segments)
            if run
            else any(segment.type == c.PT_PHDR for segment in segments)
            and not _covers(loads, at, row * count)
        ):
            return
        align = max(_PAGE, *(segment.align for segment in loads))
        shift = loads[0].address - loads[0].offset
        end = max(segment.address + segment.memory_size for segment in loads)
        # Old kernels take the first segment's distance of address and offset for the table's, too. So the place is behind all
        # segments in memory as well as in the file.
        table_at = _up(max(size, end - shift) if run else size, align)
        address = table_at + shift if run else _up(end, align)
        if table_at - size > _HOLE or not 0 <= address < 1 << 63:
            # Segments that no file has lead there: the table stays, and the checks of an edit say what is wrong with it.
            return
        # One row more: the PT_LOAD that maps the table at its new place.
        length = row * (count + 1)
        fields = [_PF_R, table_at, address, address, length, length]
        for segment in rows:
            if segment[0] == c.PT_PHDR:
                segment[1:7] = fields
        rows.append([c.PT_LOAD, *fields, align])
        file.seek(table_at)
        file.write(b"".join(_PROGRAM.pack(*segment) for segment in rows))
        file.seek(32)
        file.write(struct.pack("<Q", table_at))
        file.seek(56)
        file.write(struct.pack("<H", count + 1))


def new_issues(original: Buffer, edited: Buffer, before: Image, after: Image) -> Iterator[str]:
    """Yield a sentence for each reason why an old kernel would not run an edited executable, if there was none before."""
    if after.interpreter is None:
        return
    known = _issues(original, before)
    for name, text in _issues(edited, after).items():
        if name not in known:
            yield text
    if _largest_align(after) > _largest_align(before):
        yield "a LOAD segment is aligned to more than any was before; older kernels load to page boundaries only"


def _issues(buffer: Buffer, image: Image) -> dict[str, str]:
    order, wide = "<" if image.header.little_endian else ">", image.header.elf_class == 64
    (at,) = struct.unpack_from(f"{order}Q" if wide else f"{order}I", buffer, 32 if wide else 28)
    row, count = struct.unpack_from(f"{order}HH", buffer, 54 if wide else 42)
    return _findings(at, row * count, image.header.kind, image.segments)


def _findings(at: int, size: int, kind: int, segments: Sequence[Segment]) -> dict[str, str]:
    """What the kernel would refuse or get wrong.

    :param at: file offset of the program header table; `size`: its bytes.
    :param kind: e_type.
    """
    issues: dict[str, str] = {}
    loads = [segment for segment in segments if segment.type == c.PT_LOAD]
    if not loads:
        return issues
    # What the kernel passes as AT_PHDR, without the address that all segments are moved by.
    told = at + loads[0].address - loads[0].offset
    covered = any(
        segment.offset <= at
        and at + size <= segment.offset + segment.file_size
        and segment.address + at - segment.offset == told
        for segment in loads
    )
    if not covered or any(segment.type == c.PT_PHDR and segment.address != told for segment in segments):
        issues["table"] = (
            "the program header table is not mapped where older kernels tell the loader that it is"
        )
    if size > _PAGE:
        issues["size"] = f"the program header table has more than {_PAGE} bytes, which the kernel refuses"
    if loads[0].flags & _PF_W:
        issues["writable"] = "the first LOAD segment is writable, which older kernels refuse"
    last = -1
    for load in loads:
        if load.address // _PAGE <= last:
            issues["page"] = "two LOAD segments share a page, which older kernels refuse to map"
        last = max(last, (load.address + max(load.memory_size, 1) - 1) // _PAGE)
    if kind == c.ET_EXEC and min(load.address for load in loads) < _LOWEST:
        issues["low"] = "a LOAD segment is at an address that programs may not map"
    return issues


def _covers(loads: Iterable[Segment], at: int, size: int) -> bool:
    return any(load.offset <= at and at + size <= load.offset + load.file_size for load in loads)


def _up(value: int, align: int) -> int:
    return -(-value // align) * align


def _largest_align(image: Image) -> int:
    return max((segment.align for segment in image.segments if segment.type == c.PT_LOAD), default=0)


_STT_SECTION = 3
_SHF_ALLOC = 2
COMPARED_AT_ONCE = 8 << 20

_REWRITTEN = frozenset({".dynamic", ".dynstr", ".interp", ".gnu.version_r"})
# Tables that only the loader reads, through .dynamic, so they may move; anything else is reached from code.
_TABLES = (".dynsym", ".hash", ".gnu.hash", ".gnu.version", ".gnu.version_d", ".gnu.liblist", ".gnu.conflict")
_RELOCATIONS = (".rela.dyn", ".rel.dyn", ".rela.plt", ".rel.plt", ".relr.dyn")
MOVABLE = _REWRITTEN.union(_TABLES, _RELOCATIONS)
# Segments that move with their contents, or that other checks compare.
_FOLLOWING = frozenset(
    {c.PT_NULL, c.PT_LOAD, c.PT_DYNAMIC, c.PT_INTERP, c.PT_NOTE, c.PT_PHDR, c.PT_GNU_PROPERTY}
)
# Tags of the dynamic array whose values are strings, which :func:`_check_dynamic` compares: NEEDED, SONAME, RPATH, RUNPATH,
# AUXILIARY, FILTER; STRSZ, which grows; and those whose values are addresses of sections that may move: HASH, STRTAB, SYMTAB,
# RELA, REL, JMPREL, RELR, GNU_CONFLICT, GNU_LIBLIST, GNU_HASH, VERSYM, VERDEF, VERNEED (elf/elf.h).
_COMPARED = frozenset({1, 14, 15, 29, 0x7FFFFFFD, 0x7FFFFFFF, 10})
_ADDRESSES = frozenset(
    {4, 5, 6, 7, 17, 23, 36, 0x6FFFFEF8, 0x6FFFFEF9, 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFE}
)


def check_edit(
    original: Buffer,
    edited: Buffer,
    before: Image,
    after: Image,
    edit: ElfEdit,
    gaps: Sequence[range] = (),
) -> list[str]:
    """Compare an edited file with the original and with what was planned; returns a sentence for each defect.

    :param original: the bytes before, `before` their facts.
    :param edited: the bytes after, `after` their facts, re-read from them.
    :param edit: what was planned.
    :param gaps: file offsets at which neither buffer has the bytes; those of the result are the original's at the same offset.
    """
    return [
        *_check_dynamic(after, predict_edit(before, edit)),
        *_check_other_entries(original, edited, before, after, gaps),
        *_check_needed_records(original, edited, before, after),
        *check_version_edits(original, edited, edit),
        *_check_segments(after, len(edited)),
        *new_issues(original, edited, before, after),
        *_check_other_segments(predict_edit(before, edit), after),
        *_check_sections(original, edited, before, after, edit, gaps),
    ]


def _check_dynamic(after: Image, planned: Image) -> Iterator[str]:
    for name in ("needed", "rpath", "runpath", "interpreter", "soname", "flags_1", "header", "filters"):
        got, wanted = getattr(after, name), getattr(planned, name)
        if got != wanted:
            actual, expected = ("none" if value is None else repr(value) for value in (got, wanted))
            yield f"{name} is {actual} where {expected} was planned"


def _check_other_entries(
    original: Buffer, edited: Buffer, before: Image, after: Image, gaps: Sequence[range]
) -> Iterator[str]:
    """Every other entry of the dynamic array says the same: the same number, or the address of the same section.

    patchelf 0.19 moves .relr.dyn and leaves DT_RELR; the table is still there, since old sections are not clobbered.
    """
    (old, old_at), (new, new_at) = _entries(original, before), _entries(edited, after)
    if [tag for tag, _ in old] != [tag for tag, _ in new]:
        yield "entries of the dynamic section are gone, or others are there"
        return
    for (tag, value), (_, other) in zip(old, new, strict=True):
        table, now = old_at.get(value), new_at.get(other)
        if tag not in _ADDRESSES:
            if value != other:
                yield f"entry {tag:#x} of the dynamic section changed from {value:#x} to {other:#x}"
        # `table` is None where the entry was the address of an empty table, which has no meaning.
        elif table is not None and (now is None or now.name != table.name):
            table_at = file_offset(after.segments, other)
            if table_at is None or not equal_bytes(
                original, table.offset, edited, table_at, table.file_size, gaps
            ):
                yield f"entry {tag:#x} of the dynamic section does not lead to {table.name} any more"


def _entries(buffer: Buffer, image: Image) -> tuple[list[tuple[int, int]], dict[int, Section]]:
    """The entries that are compared as they are, and the sections that are not empty by their addresses."""
    sections = read_sections(buffer, image.path)
    with open_memory(buffer) as memory:
        entries = [entry for entry in memory.entries if entry[0] not in _COMPARED]
    allocated = (section for section in sections if section.flags & _SHF_ALLOC and section.size)
    return entries, {section.address: section for section in allocated}


def _check_needed_records(original: Buffer, edited: Buffer, before: Image, after: Image) -> Iterator[str]:
    """ld.so asserts that every file that a version record names is loaded (glibc elf/dl-version.c): it must be NEEDED.

    A record of a file that was not NEEDED before the edit either is no defect of the edit: another object may load the file.
    """
    not_needed_before = {need.file for need in read_version_needs(original) if need.file not in before.needed}
    for need in read_version_needs(edited):
        if need.file not in after.needed and need.file not in not_needed_before:
            yield f"a version record names {need.file}, which is not NEEDED any more; ld.so would abort"


def _check_segments(after: Image, size: int) -> Iterator[str]:
    loads = [segment for segment in after.segments if segment.type == c.PT_LOAD]
    for number, load in enumerate(loads):
        if load.offset + load.file_size > size:
            yield f"LOAD segment {number} ends past the end of the file"
        if load.align > 1 and (load.address - load.offset) % load.align:
            yield f"LOAD segment {number}: address {load.address:#x} and offset {load.offset:#x} differ modulo {load.align:#x}"
        if number and load.address < loads[number - 1].address + loads[number - 1].memory_size:
            yield f"LOAD segment {number} overlaps the one before it or is out of order"
    for segment in after.segments:
        if segment.type == c.PT_DYNAMIC and not any(
            _contains(load, segment) and load.flags & _PF_W for load in loads
        ):
            yield ".dynamic is not inside of a writable LOAD segment; ld.so would crash"
        if segment.type in (c.PT_PHDR, c.PT_INTERP) and not any(_contains(load, segment) for load in loads):
            yield "the program header table or the interpreter's name is not covered by a LOAD segment"


def _contains(load: Segment, inner: Segment) -> bool:
    start, end = inner.address, inner.address + inner.memory_size
    inside = load.address <= start and end <= load.address + load.memory_size
    return inside and load.address - load.offset == inner.address - inner.offset


def _check_other_segments(planned: Image, after: Image) -> Iterator[str]:
    """Thread-local storage, RELRO, the flags of the stack and all other segments are as planned: as before, but for that flag."""

    def facts(image: Image) -> list[tuple[int, int, int, int]]:
        return sorted(
            (segment.type, segment.flags, segment.address, segment.memory_size)
            for segment in image.segments
            if segment.type not in _FOLLOWING
        )

    for kind in sorted({kind for kind, *_ in set(facts(planned)) ^ set(facts(after))}):
        yield f"the segment of type {kind:#x} changed"


def _check_sections(
    original: Buffer, edited: Buffer, before: Image, after: Image, edit: ElfEdit, gaps: Sequence[range]
) -> Iterator[str]:
    """Every allocated section that no edit changes has the same bytes, at the same address unless only ld.so reads it.

    So each device-code wrapper in .hipFatBinSegment still points to its bundle: wrappers, relocations and bundles are the same.
    """
    sections = [section for section in read_sections(original, before.path) if section.flags & _SHF_ALLOC]
    if sum(section.file_size for section in sections) > 2 * len(original):
        # No linker makes such a file, and the time to compare them all would have no bound.
        yield "its sections overlap one another"
        return
    rest: dict[tuple[str, int], deque[Section]] = {}
    for section in read_sections(edited, after.path):
        rest.setdefault((section.name, section.type), deque()).append(section)
    for section in sections:
        candidates = rest.get((section.name, section.type))
        if not candidates:
            yield f"section {section.name} is gone"
            continue
        now = candidates.popleft()
        if (
            now.address != section.address
            and section.name not in MOVABLE
            and not section.name.startswith(".note")
        ):
            yield f"section {section.name} moved from {section.address:#x} to {now.address:#x}"
        if now.file_size and file_offset(after.segments, now.address) != now.offset:
            yield f"section {section.name} is not what is mapped at its address {now.address:#x}"
        if section.name in _REWRITTEN:
            continue
        if now.size != section.size:
            yield f"section {section.name} changed its size from {section.size} to {now.size} bytes"
        elif section.name == ".dynsym":
            # Each symbol has the number of its section, and an edit renumbers the sections.
            if not same_symbols(original, edited, section, now):
                yield "the dynamic symbol table changed"
        elif section.name == ".gnu.version" and any(version.unversioned for version in edit.versions):
            # check_version_edits compares this section with the plan.
            pass
        elif not equal_bytes(original, section.offset, edited, now.offset, section.file_size, gaps):
            yield f"section {section.name} changed its contents"


def same_symbols(original: Buffer, edited: Buffer, old: Section, new: Section) -> bool:
    """Whether two dynamic symbol tables say the same, whatever the numbers of the sections and whatever follows the strings.

    :param old: the table's section in `original`; `new`: in `edited`.
    """
    with open_memory(original) as memory, open_memory(edited) as new_memory:
        fields, offsets = _symbols(memory, original, old)
        new_fields, new_offsets = _symbols(new_memory, edited, new)
        if fields != new_fields:
            return False
        strings, new_strings = Strings(memory), Strings(new_memory)
        if offsets == new_offsets and _names_stay(strings.data, new_strings.data, offsets):
            return True
        return strings.names(offsets) == new_strings.names(new_offsets)


def _names_stay(table: bytes, new_table: bytes, offsets: Sequence[int]) -> bool:
    """Whether it is seen without reading the names one by one that they are the same in two string tables.

    patchelf appends its strings, and writes over those of the search path that was there.
    """
    first = _common_length(table, new_table)
    end = len(table) - _common_length(table[::-1], new_table[: len(table)][::-1])
    # A name that begins before what has changed may reach it.
    changed = range(table.rfind(b"\0", 0, first) + 1, end)
    inside = max(offsets, default=0) < len(table) <= len(new_table)
    return inside and not any(map(changed.__contains__, offsets))


def _common_length(left: bytes, right: bytes) -> int:
    """Return how many bytes are the same at the beginning of both."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _symbols(memory: Memory, buffer: Buffer, table: Section) -> tuple[tuple[object, ...], Sequence[int]]:
    """Return the fields of a section of symbols but for the names, and the offsets of these.

    Of a symbol's section it is said whether it is none, an absolute value, or a section.
    """
    # Whole entries only: an Elf64_Sym has 24 bytes, an Elf32_Sym 16.
    size = table.file_size - table.file_size % (24 if memory.wide else 16)
    data = bytes(buffer[table.offset : table.offset + size])
    columns = columns_of(memory, data, b"")
    for number, info in enumerate(columns.infos):
        # The value of a section's own symbol is the section's address, which may have changed.
        if info & 15 == _STT_SECTION:
            columns.values[number] = 0
    sizes = memory.numbers("Q", data)[2::3] if memory.wide else memory.numbers("I", data)[2::4]
    special = (0, c.SHN_ABS)
    kinds = [section if section in special else 1 for section in columns.sections]
    return (columns.infos, columns.others, columns.values, kinds, sizes), columns.names


def equal_bytes(
    left: Buffer, left_at: int, right: Buffer, right_at: int, size: int, gaps: Sequence[range]
) -> bool:
    """Whether two ranges have the same bytes; with a gap in one of them only if both are at the same offset."""
    if left_at != right_at and any(_overlaps(gap, at, size) for gap in gaps for at in (left_at, right_at)):
        return False
    start, end, shift = left_at, left_at + size, right_at - left_at
    # The empty range at the end stands for one more gap, so that what follows the last real gap is compared, too.
    for gap in (*(gap for gap in gaps if _overlaps(gap, left_at, size)), range(end, end)):
        for done in range(start, gap.start, COMPARED_AT_ONCE):
            stop = min(done + COMPARED_AT_ONCE, gap.start)
            if left[done:stop] != right[done + shift : stop + shift]:
                return False
        start = gap.stop
    return True


def _overlaps(gap: range, at: int, size: int) -> bool:
    return at < gap.stop and gap.start < at + size


def check_version_edits(original: Buffer, edited: Buffer, edit: ElfEdit) -> Iterator[str]:
    """Compare the version records of an edited file with the plan; yields a sentence for each defect.

    What is expected follows from `original` and `edit` alone. Names are compared, not their offsets in the string table.
    """
    try:
        before = read_records(original)
    except ElfError as error:
        # Damaged before the edit, too: it is enough that the readable part is unchanged.
        old, new = ([need.versions for need in read_version_needs(buffer)] for buffer in (original, edited))
        if edit.versions or old != new:
            yield f"the version records cannot be read: {error.message}"
        return
    try:
        after = read_records(edited)
    except ElfError as error:
        yield f"the version records cannot be read again: {error.message}"
        return
    try:
        planned = edit_needs(before, dict(edit.replace), edit.versions)
        freed = find_freed_symbols(original, edit.versions) if edit.versions else {}
    except ElfError as error:
        yield f"the version records cannot be edited: {error.message}"
        return
    yield from _differences(planned, after)
    expected = bytearray(_versyms(original))
    for number in freed:
        expected[2 * number : 2 * number + 2] = struct.pack("<H" if original[5] == 1 else ">H", GLOBAL)
    if bytes(expected) != _versyms(edited):
        yield "the version numbers of the symbols are not the planned ones"


def _differences(planned: Sequence[VersionNeed], after: Sequence[VersionNeed]) -> Iterator[str]:
    if [len(need.versions) for need in planned] != [len(need.versions) for need in after]:
        yield "the version records are others, or in another order"
        return
    for wanted, now in zip(planned, after, strict=True):
        if now.file != wanted.file:
            yield f"a version record names {now.file} where {wanted.file} was planned"
        if now.at - after[0].at != wanted.at - planned[0].at:
            yield f"the version record of {wanted.file} is at another place"
        for one, other in zip(wanted.versions, now.versions, strict=True):
            flags = one.flags | (VER_FLG_WEAK if one.weak else 0)
            moved = other.at - now.at != one.at - wanted.at
            if other != one or other.flags != flags or moved:
                yield f"what is required of {wanted.file}, version {one.name}, is not as planned"


def _versyms(buffer: Buffer) -> bytes:
    """Return DT_VERSYM, as many entries as there are symbols; nothing where there is none."""
    with open_memory(buffer) as memory:
        address = memory.dynamic.get(c.DT_VERSYM)
        if not address or not memory.dynamic.get(c.DT_SYMTAB):
            return b""
        return memory.read(address, 2 * count_symbols(memory))
