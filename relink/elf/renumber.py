"""The static symbol table of a file that was edited without most of it: what patchelf would have done to the rest.

patchelf sorts the sections, and gives each symbol its section's new number, for which it compares the section's name with those
of all others (src/patchelf.cc, rewriteHeaders): for 40,000 symbols that is most of its time. No program that runs reads them.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from relink.elf.image import Buffer
from relink.elf.sections import read_sections
from relink.errors import ElfError

__all__ = ["MOST_SECTIONS", "SYMBOL", "renumber"]

SYMBOL: Final = 24  # bytes of an Elf64_Sym
MOST_SECTIONS: Final = 256
"""More have numbers of two bytes, which is seldom and not done here."""
_INFO, _NUMBER, _VALUE = 4, 6, 8  # where in one: st_info, st_shndx, st_value (gABI, Symbol Table)
_OF_SECTION: Final = re.compile(rb"[%s]" % re.escape(bytes(range(3, 256, 16))), re.DOTALL)  # STT_SECTION
_HIGH: Final = re.compile(rb"[^\0]")


def renumber(file: memoryview, original: Buffer, table: range, left_out: range) -> None:
    """Put entries that were left out into an edited file, with the numbers that sections have there.

    :param file: 64-bit and little-endian, of at most :data:`MOST_SECTIONS` sections, and so was `original`.
    :param table: the offsets of the symbol table, in both; all but `left_out` has been edited by patchelf.
    :raises ElfError: that is not what is done here, so it cannot be told what patchelf would have done to the rest.
    """
    sections = read_sections(file, "")
    first = {section.name: number for number, section in reversed([*enumerate(sections)][1:])}
    numbers = bytearray(range(256))
    for old, section in enumerate(read_sections(original, "")):
        if old:
            numbers[old] = first.get(section.name, 0)
    entries = bytearray(original[table.start : table.stop - len(table) % SYMBOL])
    low, high = entries[_NUMBER::SYMBOL], entries[_NUMBER + 1 :: SYMBOL]
    new = low.translate(numbers)
    for found in _HIGH.finditer(high):  # what stands for no section, such as SHN_ABS
        new[found.start()] = low[found.start()]
    entries[_NUMBER::SYMBOL] = new
    for found in _OF_SECTION.finditer(entries[_INFO::SYMBOL]):
        at = found.start()
        if low[at] and not high[at] and new[at] < len(sections):
            struct.pack_into("<Q", entries, at * SYMBOL + _VALUE, sections[new[at]].address)
    for part in (range(table.start, left_out.start), range(left_out.stop, table.start + len(entries))):
        ours = entries[part.start - table.start : part.stop - table.start]
        if file[part.start : part.stop] != ours:
            raise ElfError("the sections of symbols were not renumbered by their names")
    file[left_out.start : left_out.stop] = entries[left_out.start - table.start : left_out.stop - table.start]
