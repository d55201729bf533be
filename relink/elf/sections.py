"""The section headers of one ELF file (gABI, "Section Header").

ld.so does not read them, and stripped or hardened libraries come without them. They are for what needs the names of sections:
the checks of an edit, the comparison of two files, and the search for gaps and for strings.

Library names in a file's read-only data: what it may dlopen. No proof that it does, so callers say how they know.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from relink.elf.constants import SHT_NOBITS
from relink.elf.dynamic import Buffer
from relink.elf.image import DAMAGE, HEADER_SIZE, Header, Image, damage_error, read_header
from relink.system.errors import ElfError

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

    Names that are put together at run time are not found; a file without section headers gives none.
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
_MAX_NAME = 4096  # bytes of one name
# Bytes of the table of names.
_MAX_NAMES = 1 << 20


@dataclass(frozen=True, slots=True)
class Section:
    """One section header. `size` is what it takes in memory; `file_size` is the same, but 0 for SHT_NOBITS."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    file_size: int
    align: int
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
    first = row.unpack_from(buffer, start)
    # What does not fit into the header is in the first entry (gABI, e_shnum and e_shstrndx).
    count = count or first[5]
    index = first[6] if index == _SHN_XINDEX else index
    if count > _MAX_SECTIONS or start + count * size > len(buffer):
        raise ValueError(f"{count} section headers at {start:#x} do not fit into the file")
    rows = list(row.iter_unpack(buffer[start : start + count * size]))
    if index >= max(count, 1):
        raise ValueError(f"the names of {count} sections are in the section of number {index}")
    at, length = rows[index][4:6] if index else (0, 0)
    names = bytes(buffer[at : at + min(length, _MAX_NAMES)])
    known: dict[int, str] = {}
    for name_at, kind, flags, address, offset, length, _, _, alignment, _ in rows:
        name = known.get(name_at)
        if name is None:
            raw, _, _ = names[name_at : name_at + _MAX_NAME].partition(b"\0")
            name = known[name_at] = raw.decode("utf-8", "surrogateescape")
        yield Section(
            name,
            kind,
            flags,
            address,
            offset,
            0 if kind == SHT_NOBITS else length,
            alignment,
            length,
        )
