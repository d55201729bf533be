"""Whether the version records of an edited file are the planned ones: every byte of them, and every entry of DT_VERSYM."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from relink.elf.constants import DT_SYMTAB, DT_VERSYM
from relink.elf.dynamic import Buffer, loaded
from relink.elf.edit import ElfEdit
from relink.elf.symbol_columns import symbol_count
from relink.elf.symbol_reader import read_version_needs
from relink.elf.version_edits import GLOBAL, edited_needs, freed_symbols, read_records
from relink.elf.versions import VER_FLG_WEAK, VersionNeed
from relink.system.errors import ElfError


def check_version_edits(original: Buffer, edited: Buffer, edit: ElfEdit) -> Iterator[str]:
    """Compare the version records of an edited file with the plan; yields a sentence for each defect.

    What is expected follows from `original` and `edit` alone. Names are compared, not their offsets in the string table.
    """
    try:
        before = read_records(original)
    except ElfError as error:
        # Damaged before: the file loads, or not, as before if what can be read of its records is the same.
        old, new = ([need.versions for need in read_version_needs(buffer)] for buffer in (original, edited))
        if edit.versions or old != new:
            yield f"the version records cannot be read: {error.message}"
        return
    try:
        after = read_records(edited)
    except ElfError as error:
        yield f"the version records cannot be read again: {error.message}"
        return
    try:
        planned = edited_needs(before, dict(edit.replace), edit.versions)
        freed = freed_symbols(original, edit.versions) if edit.versions else {}
    except ElfError as error:
        yield f"the version records cannot be edited: {error.message}"
        return
    yield from _differences(planned, after)
    expected = bytearray(_versyms(original))
    for number in freed:
        expected[2 * number : 2 * number + 2] = struct.pack(_endian(original) + "H", GLOBAL)
    if bytes(expected) != _versyms(edited):
        yield "the version numbers of the symbols are not the planned ones"


def _differences(planned: Sequence[VersionNeed], after: Sequence[VersionNeed]) -> Iterator[str]:
    if [len(need.versions) for need in planned] != [len(need.versions) for need in after]:
        yield "the version records are others, or in another order"
        return
    for wanted, now in zip(planned, after, strict=True):
        if now.file != wanted.file:
            yield f"a version record names {now.file} where {wanted.file} was planned"
        if now.at - after[0].at != wanted.at - planned[0].at:
            yield f"the version record of {wanted.file} is at another place"
        for one, other in zip(wanted.versions, now.versions, strict=True):
            flags = one.flags | (VER_FLG_WEAK if one.weak else 0)
            moved = other.at - now.at != one.at - wanted.at
            if other != one or other.flags != flags or moved:
                yield f"what is required of {wanted.file}, version {one.name}, is not as planned"


def _versyms(buffer: Buffer) -> bytes:
    """Return DT_VERSYM, as many entries as there are symbols; nothing where there is none."""
    with loaded(buffer) as memory:
        address = memory.dynamic.get(DT_VERSYM)
        if not address or not memory.dynamic.get(DT_SYMTAB):
            return b""
        return memory.read(address, 2 * symbol_count(memory))


def _endian(buffer: Buffer) -> str:
    return "<" if buffer[5] == 1 else ">"
