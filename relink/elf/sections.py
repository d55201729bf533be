"""The section headers of one ELF file (gABI, "Section Header").

ld.so does not read them, and stripped or hardened libraries come without them. They are for what needs the names of sections:
the checks of an edit, the comparison of two files, and the search for gaps and for strings.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from relink.elf.constants import SHT_NOBITS
from relink.elf.dynamic import Buffer
from relink.elf.image import DAMAGE, HEADER_SIZE, Header, damaged, read_header

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
        raise damaged(path, "section headers", error) from error


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
