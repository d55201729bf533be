"""What is different in an ELF file beyond its bytes: dynamic entries, sections, and the part that each range is in.

Source: System V ABI, "ELF Header" and "Dynamic Section".
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from relink.elf.image import Image
from relink.elf.sections import Section
from relink.report.diff_text import ByteRange, ElfChange, SectionChange
from relink.runs.comparison.content import Ranges, ranges_of

__all__ = ["elf_changes", "named_ranges"]

# Sections are compared up to so many times the file's size: headers may claim any number of sections for the same bytes.
_COMPARED_AT_MOST = 4


def elf_changes(
    contents: tuple[memoryview, memoryview],
    images: tuple[Image, Image],
    sections: tuple[Sequence[Section], Sequence[Section]],
) -> ElfChange:
    """Return the facts that changed."""
    return ElfChange(tuple(_dynamic(*images)), tuple(_sections(*contents, *sections)))


def _dynamic(before: Image, after: Image) -> Iterator[str]:
    """One line for each fact of the dynamic section (and the interpreter) that went or came."""
    old, new = _lines(before), _lines(after)
    yield from (f"- {line}" for line in old if line not in new)
    yield from (f"+ {line}" for line in new if line not in old)
    if before.needed != after.needed and sorted(before.needed) == sorted(after.needed):
        yield f"+ NEEDED in another order: {' '.join(after.needed)}"


def _lines(image: Image) -> dict[str, None]:
    """The facts as lines, in order."""
    lines = [f"NEEDED {soname}" for soname in image.needed]
    for word, value in (
        ("SONAME", image.soname),
        ("RPATH", image.rpath),
        ("RUNPATH", image.runpath),
        ("interpreter", image.interpreter),
        ("FLAGS_1", hex(image.flags_1) if image.flags_1 else None),
    ):
        lines += [f"{word} {value}"] if value is not None else []
    return dict.fromkeys([*lines, *(f"FILTER {name}" for name in image.filters)])


def _sections(
    old: memoryview, new: memoryview, before: Sequence[Section], after: Sequence[Section]
) -> Iterator[SectionChange]:
    olds, news = _by_name(before), _by_name(after)
    bytes_left = _COMPARED_AT_MOST * max(len(old), len(new))
    for name, a in olds.items():
        b = news.get(name)
        if b is None:
            yield SectionChange(name, ("removed",))
            continue
        how = ["moved"] if a.size and (a.offset, a.address) != (b.offset, b.address) else []
        if a.size != b.size:
            how.append("resized")
        elif a.file_size != b.file_size:
            how.append("changed")
        elif a.file_size <= bytes_left:
            bytes_left -= a.file_size
            left = old[a.offset : a.offset + a.file_size]
            if ranges_of(left, new[b.offset : b.offset + b.file_size], 1).found:
                how.append("changed")
        if how:
            yield SectionChange(name, tuple(how))
    yield from (SectionChange(name, ("added",)) for name in news if name not in olds)


def _by_name(sections: Sequence[Section]) -> Mapping[str, Section]:
    """Sections by name; of those with a name in common each but the first gets a number."""
    counts: Counter[str] = Counter()
    named: dict[str, Section] = {}
    for section in sections:
        if section.type:  # not the empty one at the start
            counts[section.name] += 1
            number = counts[section.name]
            named[section.name if number == 1 else f"{section.name}#{number}"] = section
    return named


def named_ranges(
    ranges: Ranges, data: memoryview, image: Image, sections: Sequence[Section]
) -> tuple[ByteRange, ...]:
    """Name the sections and header tables of the new file, `data`, at the start of each range and those that begin in it."""
    parts = [(item.offset, item.offset + item.file_size, item.name) for item in sections if item.file_size]
    parts = sorted([*_tables(data, image), *parts])
    starts = [start for start, _, _ in parts]
    named = []
    for start, stop in ranges.found:
        touched = parts[max(bisect_right(starts, start) - 1, 0) : bisect_left(starts, stop)]
        names = list(dict.fromkeys(name for _, end, name in touched if end > start))
        shown = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
        nowhere = "past the end of the new file" if start >= len(data) else "between sections"
        named.append(ByteRange(start, stop, shown or nowhere))
    return tuple(named)


def _tables(data: memoryview, image: Image) -> list[tuple[int, int, str]]:
    """The extents of the three tables that are in no section: the ELF header and the two header tables."""
    order, wide = "<" if image.header.little_endian else ">", image.header.elf_class == 64
    # Elf64_Ehdr and Elf32_Ehdr: e_phoff and e_shoff; then e_phentsize, e_phnum, e_shentsize, e_shnum
    programs, sections = struct.unpack_from(f"{order}2{'Q' if wide else 'I'}", data, 32 if wide else 28)
    sizes = struct.unpack_from(f"{order}4H", data, 54 if wide else 42)
    return [
        (0, 64 if wide else 52, "the ELF header"),
        (programs, programs + sizes[0] * sizes[1], "program headers"),
        (sections, sections + sizes[2] * sizes[3], "section headers"),
    ]
