"""Where the contents of two members differ: ranges of bytes, lines of text, dynamic entries and sections of ELF files.

Source: System V ABI, "ELF Header" and "Dynamic Section".
"""

from __future__ import annotations

import contextlib
import re
import struct
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from relink.elf.image import Image
from relink.elf.sections import Section
from relink.report.diff_text import ByteRange, ElfChange
from relink.system.errors import RelinkError
from relink.system.spool import Spool, release_pages
from relink.wheel.archive import WheelArchive

# Bytes compared at a time.
_PIECE: Final = 1 << 20
# Bytes; of these a piece that differs is made, so that most of it is only compared.
_BLOCK: Final = 4096
_NEAR: Final = 16
# Differing bytes with fewer equal ones between them count as one range.
_DIFFERING: Final = re.compile(rb"[^\0]+(?:\0{1,15}[^\0]+)*", re.DOTALL)
# Bytes of a text whose lines are compared.
_LINES_LIMIT: Final = 4 << 20
# Differences of one text that are shown.
_TEXTS: Final = 20
# Characters of one that are shown.
_LONG: Final = 500
# What is larger lies in a file that is mapped, so that two versions of the largest library do not have to fit into memory.
_SPOOL: Final = Spool(whole=16 << 20)


@dataclass(slots=True)
class Ranges:
    """The places at which two contents differ, in order, and how many bytes they have.

    :ivar most: how many ranges are kept apart; beyond that the last one reaches to the last difference.
    """

    most: int
    found: list[tuple[int, int]] = field(default_factory=list)
    differing: int = 0

    def add(self, start: int, stop: int) -> None:
        """Add a range that begins behind all others."""
        self.differing += stop - start
        if self.found and (start - self.found[-1][1] < _NEAR or len(self.found) >= self.most):
            self.found[-1] = (self.found[-1][0], stop)
        else:
            self.found.append((start, stop))


def ranges_of(old: memoryview, new: memoryview, most: int) -> Ranges:
    """Compare two contents; what only the longer one has differs."""
    ranges = Ranges(most)
    common = min(len(old), len(new))
    for start in range(0, common, _PIECE):
        a, b = (bytes(content[start : min(start + _PIECE, common)]) for content in (old, new))
        for content in (old, new):
            release_pages(content)
        if a == b:
            continue
        for at in range(0, len(a), _BLOCK):
            left, right = a[at : at + _BLOCK], b[at : at + _BLOCK]
            if left != right:
                mask = int.from_bytes(left, "little") ^ int.from_bytes(right, "little")
                for match in _DIFFERING.finditer(mask.to_bytes(len(left), "little")):
                    ranges.add(start + at + match.start(), start + at + match.end())
    if len(old) != len(new):
        ranges.add(common, max(len(old), len(new)))
    return ranges


@contextlib.contextmanager
def open_both(
    before: WheelArchive, after: WheelArchive, old: str, new: str
) -> Iterator[tuple[memoryview, memoryview]]:
    """Give both contents of a member as buffers.

    :raises RelinkError: there is not that much memory, or no room on the disk.
    """
    try:
        with before.read_into(old, spool=_SPOOL) as left, after.read_into(new, spool=_SPOOL) as right:
            yield left, right
    except (OSError, OverflowError) as error:
        raise RelinkError(f"{new}: it does not fit into memory ({error})") from error


def is_packed_alike(before: WheelArchive, after: WheelArchive, old: str, new: str) -> bool:
    """Whether the compressed bytes are the same; then so is the content."""
    a, b = before.member(old), after.member(new)
    if (a.crc, a.size, a.method, a.compressed_size) != (b.crc, b.size, b.method, b.compressed_size):
        return False
    return all(left == right for left, right in zip(before.raw(old), after.raw(new), strict=True))


def text_differences(old: memoryview, new: memoryview) -> tuple[str, ...]:
    """Return how two texts differ: the first of the lines that went and came; nothing where one is no text."""
    if max(len(old), len(new)) > _LINES_LIMIT:
        return ()
    try:
        before, after = str(old, "utf-8"), str(new, "utf-8")
    except UnicodeDecodeError:
        return ()
    lines = [*islice(_line_differences(before.splitlines(), after.splitlines()), _TEXTS + 1)]
    if not lines:
        return ("the same lines in another order, or with other ends",)
    return (*(line[:_LONG] for line in lines[:_TEXTS]), *(["and more"] if lines[_TEXTS:] else []))


def _line_differences(before: list[str], after: list[str]) -> Iterator[str]:
    went, came = Counter(before) - Counter(after), Counter(after) - Counter(before)
    yield from (f"- {line}" for line in went.elements())
    for number, line in enumerate(after, 1):
        if came[line] > 0:
            came[line] -= 1
            yield f"+ line {number}: {line}"


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
    facts = (
        *(("NEEDED", soname) for soname in image.needed),
        ("SONAME", image.soname),
        ("RPATH", image.rpath),
        ("RUNPATH", image.runpath),
        ("interpreter", image.interpreter),
        ("FLAGS_1", hex(image.flags_1) if image.flags_1 else None),
        *(("FILTER", name) for name in image.filters),
    )
    return dict.fromkeys(f"{word} {value}" for word, value in facts if value is not None)


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
