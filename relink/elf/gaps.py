"""An ELF file without what an edit does not touch: patchelf reads and writes whole files, and most of one is device code.

A *gap* is a range inside of one large section, a multiple of every segment's alignment, that no header points into or ends in.
The *hollow* copy is the file without its gaps: headers follow, addresses stay, so patchelf does to it what it would do to the
whole file. :func:`with_gaps` moves everything back; a gap of the original lies then at the same offset, at the same address, in
the same section. It is never copied: the memory in its place reads as zeros, unless it was told to keep something there.

Only 64-bit little-endian shared objects have gaps: of others patchelf may shift the contents.
"""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import lcm
from typing import Final, TypeAlias

from relink.elf.edit_checks import MOVABLE
from relink.elf.image import Buffer, Image
from relink.elf.renumber import MOST_SECTIONS, SYMBOL
from relink.elf.sections import Section, read_sections
from relink.errors import ElfError

__all__ = [
    "Gap",
    "blank",
    "find_gaps",
    "find_symbols",
    "kept",
    "pages_in",
    "sparse",
    "with_gaps",
    "without_gaps",
]

Gap: TypeAlias = range
"""File offsets that are not touched."""

_UNIT: Final = 1 << 16  # bytes: the largest page of any machine that glibc knows
_PAGE: Final = mmap.PAGESIZE
_WORTH: Final = 1 << 20  # bytes: for less, a hollow copy is not worth its checks
_MOST: Final = 64  # gaps; the largest are taken
_MAX_ALIGN: Final = 1 << 24  # patchelf refuses larger ones
_PROGBITS, _SYMTAB, _STRTAB, _NOBITS, _ALLOC = 1, 2, 3, 8, 2
_PT_LOAD = 1
_ET_DYN = 3
_PROGRAM: Final = struct.Struct("<IIQQQQQQ")  # type, flags, offset, vaddr, paddr, filesz, memsz, align
_SECTION: Final = struct.Struct(
    "<IIQQQQIIQQ"
)  # name, type, flags, addr, offset, size, link, info, addralign, entsize


def find_gaps(buffer: Buffer, image: Image) -> tuple[Gap, ...]:
    """Return what can be left out of the file when it is edited, in order; nothing where that does not pay or cannot be done.

    :param image: the facts of `buffer`.
    :raises ElfError: the section headers point outside of the file.
    """
    unit = _unit(image)
    if unit is None:
        return ()
    sections = read_sections(buffer, image.path)
    edges = _edges(buffer, image, sections)
    names = struct.unpack_from("<H", buffer, 62)[0]
    gaps = []
    for number, section in enumerate(sections):
        text = section.type == _STRTAB and not section.flags & _ALLOC and number != names
        if not (section.type == _PROGBITS or text) or section.name in MOVABLE:
            continue
        # The first and the last bytes stay, so that no offset in a header can be on either side of the gap.
        start = -(-(section.offset + 1) // _PAGE) * _PAGE
        size = (section.offset + section.file_size - 1 - start) // unit * unit
        gap = range(start, start + size)
        if section.offset + section.file_size <= image.size and _free(gap, edges):
            gaps.append(gap)
    gaps = sorted(sorted(gaps, key=len)[-_MOST:], key=lambda gap: gap.start)
    if any(left.stop >= right.start for left, right in pairwise(gaps)) or sum(map(len, gaps)) < _WORTH:
        return ()
    return tuple(gaps)


def find_symbols(buffer: Buffer, image: Image, gaps: Sequence[Gap]) -> tuple[Section, Gap] | None:
    """Return the static symbol table, and those entries that can be left out, too, as long as they are renumbered afterwards.

    :param gaps: those of :func:`find_gaps`, which stay apart from it.
    :raises ElfError: as for :func:`find_gaps`.
    """
    unit = _unit(image)
    sections = read_sections(buffer, image.path)
    table = next((section for section in sections if section.type == _SYMTAB), None)
    if unit is None or table is None or len(sections) > MOST_SECTIONS:
        return None
    # As above, and whole entries, since patchelf looks at the others.
    start = table.offset + SYMBOL
    step = lcm(unit, SYMBOL)
    gap = range(start, start + (table.file_size - 2 * SYMBOL) // step * step)
    apart = all(gap.stop < other.start or other.stop < gap.start for other in gaps)
    return (table, gap) if apart and _free(gap, _edges(buffer, image, sections)) else None


def _unit(image: Image) -> int | None:
    """Return what the sizes of gaps are multiples of; None if the file can have none."""
    header = image.header
    if (header.elf_class, header.little_endian, header.kind) != (64, True, _ET_DYN):
        return None
    unit = max(_UNIT, *(segment.align for segment in image.segments if segment.type == _PT_LOAD), 0)
    return None if unit & (unit - 1) or unit > _MAX_ALIGN else unit


def _free(gap: Gap, edges: Sequence[int]) -> bool:
    """Whether there is something in a gap, and no edge, nor at its ends."""
    return len(gap) > 0 and bisect_left(edges, gap.start) == bisect_left(edges, gap.stop + 1)


def _edges(buffer: Buffer, image: Image, sections: Sequence[Section]) -> list[int]:
    """The offsets at which something begins or ends."""
    programs, headers = struct.unpack_from("<QQ", buffer, 32)
    _, count = struct.unpack_from("<HH", buffer, 54)
    found = {
        0,
        programs,
        programs + _PROGRAM.size * count,
        headers,
        headers + _SECTION.size * len(sections),
        image.size,
    }
    for part in sections:
        found |= {part.offset, part.offset + part.file_size}
    for segment in image.segments:
        found |= {segment.offset, segment.offset + segment.file_size}
    return sorted(found)


def kept(gaps: Iterable[Gap], size: int) -> Iterator[range]:
    """Yield the ranges between gaps, of a file of `size` bytes."""
    start = 0
    for gap in gaps:
        yield range(start, gap.start)
        start = gap.stop
    yield range(start, size)


def blank(memory: mmap.mmap, gaps: Iterable[Gap], keep: Iterable[range] = ()) -> None:
    """Give the memory of gaps back to the system; they read as zeros then.

    :param memory: private and anonymous.
    :param keep: ranges in gaps, of whole pages (:func:`pages_in`), that stay readable nevertheless.
    """
    stay = sorted(keep, key=lambda part: part.start)
    for gap in gaps:
        at = gap.start
        for part in stay:
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
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


class _Moved:
    """Offsets in the whole file against offsets in the hollow one."""

    def __init__(self, gaps: Sequence[Gap]) -> None:
        self.gaps = gaps
        self.starts: list[int] = []  # where each gap was, in the hollow file
        gone = 0
        for gap in gaps:
            self.starts.append(gap.start - gone)
            gone += len(gap)

    def down(self, offset: int) -> int:
        """From the whole file to the hollow one."""
        return offset - sum(len(gap) for gap in self.gaps if gap.start < offset)

    def up(self, offset: int) -> int:
        """From the hollow file to the whole one."""
        return offset + sum(
            len(gap) for gap, start in zip(self.gaps, self.starts, strict=True) if start < offset
        )


def _move_headers(file: bytearray | memoryview, source: _Moved, *, down: bool) -> None:
    """Rewrite every offset and size in the file's headers, which lie where the file header says after the move.

    :raises ElfError: the tables lie outside of the file.
    """
    move = source.down if down else source.up
    programs, sections = (move(offset) for offset in struct.unpack_from("<QQ", file, 32))
    struct.pack_into("<QQ", file, 32, programs, sections)
    program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", file, 54)
    if (program_size, section_size) != (_PROGRAM.size, _SECTION.size):
        raise ElfError("headers of another size than before")
    if max(programs + program_size * program_count, sections + section_size * section_count) > len(file):
        raise ElfError("headers past the end of the file")
    for at in range(programs, programs + program_size * program_count, program_size):
        kind, flags, offset, *addresses, size, memory, align = _PROGRAM.unpack_from(file, at)
        moved, length = _moved(move, offset, size)
        if kind == _PT_LOAD and not down and length > memory:
            raise ElfError("a segment has more bytes in the file than in memory")
        _PROGRAM.pack_into(file, at, kind, flags, moved, *addresses, length, memory, align)
    for at in range(sections, sections + section_size * section_count, section_size):
        name, kind, flags, address, offset, size, *rest = _SECTION.unpack_from(file, at)
        moved, length = _moved(move, offset, 0 if kind == _NOBITS else size)
        _SECTION.pack_into(
            file, at, name, kind, flags, address, moved, size if kind == _NOBITS else length, *rest
        )


def _moved(move: Callable[[int], int], offset: int, size: int) -> tuple[int, int]:
    start = move(offset)
    return start, move(offset + size) - start


def without_gaps(buffer: Buffer, gaps: Sequence[Gap]) -> bytearray:
    """Return the file without its gaps, its headers moved accordingly."""
    with memoryview(buffer) as view:
        file = bytearray().join(view[part.start : part.stop] for part in kept(gaps, len(view)))
    _move_headers(file, _Moved(gaps), down=True)
    return file


def with_gaps(file: Buffer, gaps: Sequence[Gap], original: Buffer, stay: Iterable[range] = ()) -> memoryview:
    """Put the gaps back into an edited hollow file, as memory that reads as zeros there.

    :param original: the file before, with or without its gaps.
    :param stay: ranges inside of gaps that are copied from there.
    :raises ElfError: a section with a gap is not where it was, or the headers are not sound.
    """
    whole = sparse(len(file) + sum(map(len, gaps)))
    if len(whole) < len(original):
        raise ElfError("it is smaller than before")
    with memoryview(file) as view:
        at = 0
        for part in kept(gaps, len(whole)):
            whole[part.start : part.stop] = view[at : at + len(part)]
            at += len(part)
    for part in stay:
        whole[part.start : part.stop] = original[part.start : part.stop]
    try:
        _move_headers(whole, _Moved(gaps), down=False)
    except struct.error as error:
        raise ElfError(f"damaged headers ({error})") from error
    _leave_old_headers(whole, original)
    if _holders(original, gaps) != _holders(whole, gaps):
        raise ElfError("a section with a gap moved")
    return whole


def _leave_old_headers(whole: memoryview, original: Buffer) -> None:
    """Where patchelf moved the section headers, nobody reads the old ones any more; they stay what they were all the same."""
    (old,), (new,) = (struct.unpack_from("<Q", file, 40) for file in (original, whole))
    size = _SECTION.size * struct.unpack_from("<H", original, 60)[0]
    if old != new and old + size <= min(new, len(whole)):
        whole[old : old + size] = original[old : old + size]


def _holders(buffer: Buffer, gaps: Sequence[Gap]) -> list[tuple[str, int, int, int]]:
    """The sections that gaps lie in."""
    starts = [gap.start for gap in gaps]
    return sorted(
        (section.name, section.address, section.offset, section.file_size)
        for section in read_sections(buffer, "")
        if bisect_left(starts, section.offset) != bisect_left(starts, section.offset + section.file_size)
    )
