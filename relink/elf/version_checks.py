"""Whether the version records of an edited file are the planned ones: every byte of them, and every entry of DT_VERSYM."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from relink.elf.constants import DT_SYMTAB, DT_VERSYM
from relink.elf.dynamic import Buffer, loaded
from relink.elf.edit import ElfEdit
from relink.elf.symbol_columns import symbol_count
from relink.elf.symbol_reader import read_version_needs
from relink.elf.symbols import SymbolTable
from relink.elf.version_edits import (
    GLOBAL,
    VER_FLG_WEAK,
    VersionRecord,
    edited_table,
    freed_symbols,
    read_records,
)
from relink.elf.versions import elf_hash
from relink.system.errors import ElfError

__all__ = ["VersionNumbers", "check_version_edits", "planned_numbers"]

_ENTRY = 16  # bytes of a Verneed and of a Vernaux


@dataclass(frozen=True, slots=True)
class VersionNumbers:
    """The number of symbols in a file, and name and version number of each undefined one."""

    count: int
    imports: tuple[tuple[str, int], ...]


def planned_numbers(table: SymbolTable, edit: ElfEdit) -> VersionNumbers | None:
    """Return the version numbers after an edit of the file with these symbols, or None where it changes none."""
    if not any(version.unversioned for version in edit.versions):
        return None
    after = edited_table(table, dict(edit.replace), edit.versions)
    return VersionNumbers(table.count, tuple((symbol.name, symbol.index) for symbol in after.imports))


def check_version_edits(original: Buffer, edited: Buffer, edit: ElfEdit) -> Iterator[str]:
    """Compare the version records of an edited file with the plan; yields a sentence for each defect.

    Which bytes are expected follows from `original` and `edit` alone. Only where a record is to name another file the string is
    compared, not its offset: patchelf has added it.
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
    yield from _records(original, edited, before, after, edit)
    try:
        freed = freed_symbols(original, edit.versions) if edit.versions else {}
    except ElfError as error:
        yield f"the version records cannot be edited: {error.message}"
        return
    expected = bytearray(_versyms(original))
    for number in freed:
        expected[2 * number : 2 * number + 2] = struct.pack(_endian(original) + "H", GLOBAL)
    if bytes(expected) != _versyms(edited):
        yield "the version numbers of the symbols are not the planned ones"


def _records(
    original: Buffer,
    edited: Buffer,
    before: list[VersionRecord],
    after: list[VersionRecord],
    edit: ElfEdit,
) -> Iterator[str]:
    by_version = {(planned.file, planned.version): planned for planned in edit.versions}
    files = dict(edit.replace) | {planned.file: planned.file_after for planned in edit.versions}
    endian = _endian(original)
    if [len(record.requirements) for record in before] != [len(record.requirements) for record in after]:
        yield "the version records are others, or in another order"
        return
    for old, new in zip(before, after, strict=True):
        expected = bytearray(original[old.place : old.place + _ENTRY])
        file = files.get(old.file, old.file)
        if new.file != file:
            yield f"a version record names {new.file} where {file} was planned"
        elif file != old.file:
            struct.pack_into(endian + "I", expected, 4, new.file_at)
        if bytes(expected) != bytes(edited[new.place : new.place + _ENTRY]):
            yield f"the version record of {file} changed in more than was planned"
        for was, now in zip(old.requirements, new.requirements, strict=True):
            expected = bytearray(original[was.place : was.place + _ENTRY])
            planned = by_version.get((old.file, was.name))
            name = was.name if planned is None else planned.version_after
            if name != was.name:
                skipped = len(was.name.encode("utf-8", "surrogateescape")) - len(
                    name.encode("utf-8", "surrogateescape")
                )
                struct.pack_into(endian + "I", expected, 0, elf_hash(name))
                struct.pack_into(endian + "I", expected, 8, was.name_at + skipped)
            if planned is not None and planned.weak:
                struct.pack_into(endian + "H", expected, 4, was.flags | VER_FLG_WEAK)
            if now.name != name or bytes(expected) != bytes(edited[now.place : now.place + _ENTRY]):
                yield f"what is required of {file}, version {name}, is not as planned"


def _versyms(buffer: Buffer) -> bytes:
    """Return DT_VERSYM, as many entries as there are symbols; nothing where there is none."""
    with loaded(buffer) as memory:
        address = memory.dynamic.get(DT_VERSYM)
        if not address or not memory.dynamic.get(DT_SYMTAB):
            return b""
        return memory.read(address, 2 * symbol_count(memory))


def _endian(buffer: Buffer) -> str:
    return "<" if buffer[5] == 1 else ">"
