"""Whether the dynamic symbol table of an ELF file says the same after an edit.

patchelf sorts the sections, so each symbol's section has another number (st_shndx): two tables never have the same bytes. They
are compared by columns; where that does not show that they are the same, symbol by symbol, each by its name.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from array import array

from relink.elf.constants import SHN_ABS
from relink.elf.dynamic import Buffer
from relink.elf.image import Image
from relink.elf.sections import Section, read_sections

__all__ = ["same_symbols"]

_BLOCK = 1 << 14  # bytes of strings compared at a time


def same_symbols(
    original: Buffer, old: Section, before: Image, edited: Buffer, new: Section, after: Image
) -> bool:
    """Whether two dynamic symbol tables say the same.

    :param old: the table's section in `original`, of which `before` has the facts; `new` and `after` are those of `edited`.
    """
    (names, rows), (new_names, new_rows) = _symbols(original, old, before), _symbols(edited, new, after)
    if _same_names(names, new_names, rows, before) and _same_but_sections(rows, new_rows, before):
        return True
    return _digest(names, rows, before) == _digest(new_names, new_rows, after)


def _same_but_sections(rows: bytes, new_rows: bytes, image: Image) -> bool:
    """Whether two tables are the same but for st_shndx, and that says of each symbol the same as :func:`_digest` reads in it."""
    size, place = (24, 6) if image.header.elf_class == 64 else (16, 14)  # of a symbol, of st_shndx in it
    if len(rows) != len(new_rows) or len(rows) % size:
        return False
    absolute = int.from_bytes(
        SHN_ABS.to_bytes(2, "little" if image.header.little_endian else "big"), sys.byteorder
    )
    tables = [bytearray(rows), bytearray(new_rows)]
    numbers = [memoryview(table).cast("H")[place // 2 :: size // 2].tolist() for table in tables]
    alone = (0, absolute)
    if any(old != new and (old in alone or new in alone) for old, new in {*zip(*numbers, strict=True)}):
        return False
    for table in tables:
        for at in (place, place + 1):
            table[at::size] = bytes(len(table) // size)
    return tables[0] == tables[1]


def _same_names(names: bytes, new_names: bytes, rows: bytes, image: Image) -> bool:
    """Whether every name of a symbol table ends inside of its strings, and is the same in others.

    patchelf appends its strings, and writes over those of the search path that was there.
    """
    words = array("I")
    words.frombytes(rows[: len(rows) // words.itemsize * words.itemsize])
    if image.header.little_endian != (sys.byteorder == "little"):
        words.byteswap()
    places = words[:: 6 if image.header.elf_class == 64 else 4]
    if not names.endswith(b"\0") or len(new_names) < len(names) or max(places, default=0) >= len(names):
        return False
    changed = _differing(names, new_names)
    first = names.rfind(b"\0", 0, changed.start) + 1  # a name that begins before reaches what has changed
    return not changed or not any(first <= place < changed.stop for place in places)


def _differing(left: bytes, right: bytes) -> range:
    """Return the range outside of which `right` begins with `left`."""
    blocks = range(0, len(left), _BLOCK)
    wrong = [at for at in blocks if left[at : at + _BLOCK] != right[at : min(at + _BLOCK, len(left))]]
    places = [
        place
        for at in {*wrong[:1], *wrong[-1:]}
        for place in range(at, min(at + _BLOCK, len(left)))
        if left[place] != right[place]
    ]
    return range(min(places), max(places) + 1) if places else range(0)


def _symbols(buffer: Buffer, table: Section, image: Image) -> tuple[bytes, bytes]:
    """Return the strings and the dynamic symbol table of a file."""
    found = next((found for found in read_sections(buffer, image.path) if found.name == ".dynstr"), None)
    names = b"" if found is None else bytes(buffer[found.offset : found.offset + found.file_size])
    return names, bytes(buffer[table.offset : table.offset + table.file_size])


def _digest(names: bytes, rows: bytes, image: Image) -> bytes:
    """Return a digest of the dynamic symbols by name, without their section index, which an edit may renumber."""
    digest = hashlib.sha256()
    wide = image.header.elf_class == 64
    row = struct.Struct(("<" if image.header.little_endian else ">") + ("IBBHQQ" if wide else "IIIBBH"))
    for fields in row.iter_unpack(rows[: len(rows) - len(rows) % row.size]):
        name, info, other, index, value, size = fields if wide else (fields[0], *fields[3:], *fields[1:3])
        kind = index if index in (0, SHN_ABS) else 1
        address = 0 if info & 15 == 3 else value  # STT_SECTION: its section may be at another address
        digest.update(struct.pack("<BBHQQ", info, other, kind, address, size))
        digest.update(names[name : names.find(b"\0", name) + 1])
    return digest.digest()
