"""What is different in an ELF file beyond its bytes: dynamic entries, and the part that each range is in.

Source: System V ABI, "ELF Header" and "Dynamic Section".
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from relink.elf.image import Image
from relink.elf.sections import Section
from relink.report.diff_text import ByteRange, ElfChange
from relink.runs.comparison.content import Ranges


def elf_changes(before: Image, after: Image) -> ElfChange:
    """Return one line for each fact of the dynamic section (and the interpreter) that went or came."""
    old, new = _lines(before), _lines(after)
    lines = [f"- {line}" for line in old if line not in new] + [
        f"+ {line}" for line in new if line not in old
    ]
    if before.needed != after.needed and sorted(before.needed) == sorted(after.needed):
        lines.append(f"+ NEEDED in another order: {' '.join(after.needed)}")
    return ElfChange(tuple(lines))


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
