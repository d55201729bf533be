"""The static symbol table (.symtab) after an edit: section numbers for the entries that patchelf did not see.

patchelf sorts the sections and gives each symbol its section's new number (st_shndx). For that it compares the section's name
with those of all others (src/patchelf.cc, rewriteHeaders): for 40,000 symbols this is most of its time. So it gets a file
without most entries (:func:`relink.elf.gaps.find_symbols`), and relink renumbers these. ld.so does not read this table.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from relink.elf.image import Buffer
from relink.elf.sections import read_sections
from relink.system.errors import ElfError

__all__ = ["MOST_SECTIONS", "SYMBOL", "renumber"]

SYMBOL: Final = 24  # bytes of an Elf64_Sym
MOST_SECTIONS: Final = 256
"""With more, a number takes two bytes, which is rare and not supported."""
_INFO, _SHNDX, _VALUE = 4, 6, 8  # offsets in Elf64_Sym: st_info, st_shndx, st_value (gABI, "Symbol Table")
# Of all values of st_info those whose type (the low four bits) is STT_SECTION, 3.
_STT_SECTION: Final = re.compile(rb"[%s]" % re.escape(bytes(range(3, 256, 16))), re.DOTALL)
_NOT_ZERO: Final = re.compile(rb"[^\0]")


def renumber(file: memoryview, original: Buffer, table: range, left_out: range) -> None:
    """Put symbol table entries that were left out into an edited file, with the numbers that the sections have there.

    :param file: 64-bit and little-endian, of at most :data:`MOST_SECTIONS` sections, and so is `original`.
    :param table: the offsets of the symbol table, in both; all but `left_out` has been edited by patchelf.
    :raises ElfError: patchelf has changed the other entries in another way, so this is not what it would have done.
    """
    sections = read_sections(file, "")
    # patchelf finds a section by its name; of several with one name it finds the first.
    first = {section.name: number for number, section in reversed([*enumerate(sections)][1:])}
    numbers = bytearray(range(256))
    for old, section in enumerate(read_sections(original, "")):
        if old:
            numbers[old] = first.get(section.name, 0)
    entries = bytearray(original[table.start : table.stop - len(table) % SYMBOL])
    # The low and the high byte of every st_shndx (little-endian), so that one translate() renumbers all entries.
    low, high = entries[_SHNDX::SYMBOL], entries[_SHNDX + 1 :: SYMBOL]
    new = low.translate(numbers)
    for found in _NOT_ZERO.finditer(high):  # a reserved value, such as SHN_ABS: not a section's number
        new[found.start()] = low[found.start()]
    entries[_SHNDX::SYMBOL] = new
    # The value of a section symbol is the address of its section.
    for found in _STT_SECTION.finditer(entries[_INFO::SYMBOL]):
        at = found.start()
        if low[at] and not high[at] and new[at] < len(sections):
            struct.pack_into("<Q", entries, at * SYMBOL + _VALUE, sections[new[at]].address)
    # The entries that patchelf has edited show whether it does the same.
    for part in (range(table.start, left_out.start), range(left_out.stop, table.start + len(entries))):
        expected = entries[part.start - table.start : part.stop - table.start]
        if file[part.start : part.stop] != expected:
            raise ElfError("the sections of symbols were not renumbered by their names")
    file[left_out.start : left_out.stop] = entries[left_out.start - table.start : left_out.stop - table.start]
