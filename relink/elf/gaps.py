"""A copy of an ELF file without the ranges that an edit does not change: patchelf reads and writes whole files.

A *gap* is a range inside of one large section (most of a file may be device code). Its size is a multiple of the alignment of
every segment, and no header points into it or to its end. :func:`without_gaps` gives a short copy of the file: the offsets in the
headers are lower, the addresses are the same, so patchelf does to it what it would do to the whole file. :func:`with_gaps` gives
the edited short copy its gaps back: each is at the same offset, at the same address and in the same section as in the original.
The content of a gap is never copied: the memory at its place reads as zeros, but for the ranges that the caller wants to keep.

Only 64-bit little-endian libraries have gaps: in others patchelf may move the contents of sections.
"""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from relink.elf.constants import ET_DYN, PT_LOAD
from relink.elf.dynamic import Buffer
from relink.elf.edit_checks import MOVABLE
from relink.elf.image import Image, Section, read_sections
from relink.system.errors import ElfError
from relink.system.spool import NO_RESERVE, release_pages

Gap: TypeAlias = range
"""File offsets whose content an edit does not change."""

# Bytes: the largest page of any machine that glibc knows.
_UNIT: Final = 1 << 16
_PAGE: Final = mmap.PAGESIZE
# Bytes of all gaps together: below that a short copy costs more checks than it saves.
MIN_TOTAL: Final = 1 << 20
_MAX_GAPS: Final = 64  # the largest are chosen
# Alignment of a segment in bytes; patchelf refuses a larger one.
MAX_ALIGN: Final = 1 << 24
_PROGBITS, _STRTAB, _NOBITS, _ALLOC = 1, 3, 8, 2
# Elf64_Phdr: type, flags, offset, vaddr, paddr, filesz, memsz, align.
_PROGRAM: Final = struct.Struct("<IIQQQQQQ")
# Elf64_Shdr: name, type, flags, addr, offset, size, link, info, addralign, entsize.
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")


def find_gaps(buffer: Buffer, image: Image) -> tuple[Gap, ...]:
    """Return what can be left out of the file when it is edited, in order; none where that saves little or cannot be done.

    :param image: the facts of `buffer`.
    :raises ElfError: the section headers point outside of the file.
    """
    unit = _unit(image)
    if unit is None:
        return ()
    sections = read_sections(buffer, image.path)
    boundaries = _boundaries(buffer, image, sections)
    names = struct.unpack_from("<H", buffer, 62)[0]
    gaps = []
    for number, section in enumerate(sections):
        text = section.type == _STRTAB and not section.flags & _ALLOC and number != names
        if not (section.type == _PROGBITS or text) or section.name in MOVABLE:
            continue
        # The first and the last byte stay: an offset in a header that equals an end of the gap could belong to either side.
        start = -(-(section.offset + 1) // _PAGE) * _PAGE
        size = (section.offset + section.file_size - 1 - start) // unit * unit
        gap = range(start, start + size)
        # A section of a damaged file may end past the end of the file.
        inside = section.offset + section.file_size <= image.size
        # No boundary is in the gap or at its ends.
        free = bisect_left(boundaries, gap.start) == bisect_left(boundaries, gap.stop + 1)
        if inside and gap and free:
            gaps.append(gap)
    gaps = sorted(sorted(gaps, key=len)[-_MAX_GAPS:], key=lambda gap: gap.start)
    if any(left.stop >= right.start for left, right in pairwise(gaps)) or sum(map(len, gaps)) < MIN_TOTAL:
        return ()
    return tuple(gaps)


def _unit(image: Image) -> int | None:
    """Return what the sizes of gaps are multiples of; None if the file can have none."""
    header = image.header
    # An executable has no gaps: its headers may have to move to the end of the file.
    library = image.interpreter is None
    if (header.elf_class, header.little_endian, header.kind, library) != (64, True, ET_DYN, True):
        return None
    unit = max(_UNIT, *(segment.align for segment in image.segments if segment.type == PT_LOAD), 0)
    return None if unit & (unit - 1) or unit > MAX_ALIGN else unit


def _boundaries(buffer: Buffer, image: Image, sections: Sequence[Section]) -> list[int]:
    """Return the offsets at which a header table, a section or a segment begins or ends, in order."""
    programs, headers = struct.unpack_from("<QQ", buffer, 32)
    _, count = struct.unpack_from("<HH", buffer, 54)
    offsets = {
        0,
        programs,
        programs + _PROGRAM.size * count,
        headers,
        headers + _SECTION.size * len(sections),
        image.size,
    }
    for part in sections:
        offsets |= {part.offset, part.offset + part.file_size}
    for segment in image.segments:
        offsets |= {segment.offset, segment.offset + segment.file_size}
    return sorted(offsets)


def ranges_between(gaps: Iterable[Gap], size: int) -> Iterator[range]:
    """Yield the ranges between gaps, of a file of `size` bytes."""
    start = 0
    for gap in gaps:
        yield range(start, gap.start)
        start = gap.stop
    yield range(start, size)


def release_gaps(memory: mmap.mmap, gaps: Iterable[Gap], kept_ranges: Iterable[range] = ()) -> None:
    """Give the memory of gaps back to the kernel; they read as zeros afterwards (madvise(2), MADV_DONTNEED).

    :param memory: private and anonymous.
    :param kept_ranges: ranges in gaps, of whole pages (:func:`pages_in`), that remain readable.
    """
    kept = sorted(kept_ranges, key=lambda part: part.start)
    for gap in gaps:
        at = gap.start
        for part in kept:
            if gap.start <= part.start < gap.stop:
                if part.start > at:
                    memory.madvise(mmap.MADV_DONTNEED, at, part.start - at)
                at = part.stop
        if at < gap.stop:
            memory.madvise(mmap.MADV_DONTNEED, at, gap.stop - at)


def pages_in(gaps: Iterable[Gap], parts: Iterable[range]) -> tuple[range, ...]:
    """Return the pages of gaps that `parts` touch, in order."""
    pages = sorted({page for part in parts for page in range(part.start // _PAGE, -(-part.stop // _PAGE))})
    return tuple(
        range(page * _PAGE, min((page + 1) * _PAGE, gap.stop))
        for gap in gaps
        for page in pages[bisect_left(pages, gap.start // _PAGE) : bisect_left(pages, gap.stop // _PAGE)]
    )


def sparse(size: int) -> memoryview:
    """Return `size` bytes of zeros that take memory only where something is written."""
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE))


def _move_headers(file: bytearray | memoryview, gaps: Sequence[Gap], *, to_short: bool) -> None:
    """Rewrite every offset and size in the file's headers, which are where the ELF header says after the move.

    :raises ElfError: the tables are outside of the file.
    """

    def move(offset: int) -> int:
        if to_short:
            return offset - sum(len(gap) for gap in gaps if gap.start < offset)
        for gap in gaps:
            if gap.start < offset:
                offset += len(gap)
        return offset

    programs, sections = (move(offset) for offset in struct.unpack_from("<QQ", file, 32))
    struct.pack_into("<QQ", file, 32, programs, sections)
    program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", file, 54)
    if (program_size, section_size) != (_PROGRAM.size, _SECTION.size):
        raise ElfError("headers of another size than before")
    if max(programs + program_size * program_count, sections + section_size * section_count) > len(file):
        raise ElfError("headers past the end of the file")
    for at in range(programs, programs + program_size * program_count, program_size):
        kind, flags, offset, *addresses, size, memory, align = _PROGRAM.unpack_from(file, at)
        new, length = _map_range(move, offset, size)
        if kind == PT_LOAD and not to_short and length > memory:
            raise ElfError("a segment has more bytes in the file than in memory")
        _PROGRAM.pack_into(file, at, kind, flags, new, *addresses, length, memory, align)
    for at in range(sections, sections + section_size * section_count, section_size):
        name, kind, flags, address, offset, size, *rest = _SECTION.unpack_from(file, at)
        new, length = _map_range(move, offset, 0 if kind == _NOBITS else size)
        _SECTION.pack_into(
            file, at, name, kind, flags, address, new, size if kind == _NOBITS else length, *rest
        )


def _map_range(move: Callable[[int], int], offset: int, size: int) -> tuple[int, int]:
    """Return the new offset and size of a range: one with a gap in it has another size."""
    start = move(offset)
    return start, move(offset + size) - start


def without_gaps(buffer: Buffer, gaps: Sequence[Gap]) -> bytearray:
    """Return the file without its gaps, with the offsets in its headers changed accordingly."""
    with memoryview(buffer) as view:
        file = bytearray().join(view[part.start : part.stop] for part in ranges_between(gaps, len(view)))
    _move_headers(file, gaps, to_short=True)
    return file


def with_gaps(
    file: Buffer, gaps: Sequence[Gap], original: Buffer, kept_ranges: Iterable[range] = ()
) -> memoryview:
    """Return an edited short copy with its gaps, whose memory reads as zeros.

    :param original: the file before, with or without its gaps.
    :param kept_ranges: ranges inside of gaps that are copied from `original`.
    :raises ElfError: a section with a gap is not where it was, or the headers are damaged.
    """
    whole = sparse(len(file) + sum(map(len, gaps)))
    if len(whole) < len(original):
        raise ElfError("it is smaller than before")
    with memoryview(file) as view:
        at = 0
        for part in ranges_between(gaps, len(whole)):
            whole[part.start : part.stop] = view[at : at + len(part)]
            at += len(part)
    for part in kept_ranges:
        whole[part.start : part.stop] = original[part.start : part.stop]
    if isinstance(original, memoryview):
        release_pages(original)
    try:
        _move_headers(whole, gaps, to_short=False)
    except struct.error as error:
        raise ElfError(f"damaged headers ({error})") from error
    # Where patchelf has written new section headers elsewhere it leaves the old ones of a whole file; no header points there.
    (old,), (new,) = (struct.unpack_from("<Q", file, 40) for file in (original, whole))
    size = _SECTION.size * struct.unpack_from("<H", original, 60)[0]
    if old != new and old + size <= min(new, len(whole)):
        whole[old : old + size] = original[old : old + size]
    if _sections_with_gaps(original, gaps) != _sections_with_gaps(whole, gaps):
        raise ElfError("a section with a gap moved")
    return whole


def _sections_with_gaps(buffer: Buffer, gaps: Sequence[Gap]) -> list[tuple[str, int, int, int]]:
    """Return the sections that gaps are in."""
    starts = [gap.start for gap in gaps]
    return sorted(
        (section.name, section.address, section.offset, section.file_size)
        for section in read_sections(buffer, "")
        if bisect_left(starts, section.offset) != bisect_left(starts, section.offset + section.file_size)
    )
