"""What is to change in one ELF file, what its facts are then, and the arguments by which patchelf changes it.

Edits of version records in place: what an object requires of a library, renamed, made weak, moved or let go. patchelf renames the
file that a record (Verneed) names where it replaces that NEEDED, and changes nothing else of the records.
Here the rest is a few bytes of what is there: a version (Vernaux) gets another name, which is a suffix of the old one and so
needs no new string; VER_FLG_WEAK, after which ld.so says that the version is not found and goes on (glibc elf/dl-version.c,
match_symbol); and its entries of DT_VERSYM become VER_NDX_GLOBAL, after which its symbols are looked up without a version. The
record of a library that is not NEEDED any more names another one that is, since ld.so asserts that it is loaded.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from relink.elf.constants import DT_NEEDED, DT_VERSYM, PT_GNU_STACK
from relink.elf.dynamic import Buffer, Memory, Strings, open_memory
from relink.elf.image import Image
from relink.elf.symbol_reader import symbol_columns, version_needs
from relink.elf.symbols import VER_FLG_WEAK, Import, SymbolTable, VersionNeed, elf_hash
from relink.system.errors import EditError, ElfError

GLOBAL: Final = 1
"""VER_NDX_GLOBAL: a symbol without a version."""
# The bits of a DT_VERSYM entry that are the version's number; the one above them hides the symbol.
_INDEX: Final = 0x7FFF
_MAX_NAME: Final = 1 << 10


class VersionEdit(msgspec.Struct, frozen=True):
    """What becomes of one version that a file requires of a library.

    :ivar file: the soname in the record before the edit, `file_after` after it: one that is NEEDED then.
    :ivar version: the version's name before, `version_after` after: the same, or a suffix of it.
    :ivar weak: it gets VER_FLG_WEAK.
    :ivar unversioned: the symbols that ask for it ask for no version afterwards.
    :ivar evidence: why that is right, one sentence a fact.
    """

    file: str
    version: str
    file_after: str
    version_after: str
    weak: bool = False
    unversioned: bool = False
    evidence: tuple[str, ...] = ()


def edit_needs(
    needs: Iterable[VersionNeed], replaced: Mapping[str, str], edits: Iterable[VersionEdit]
) -> tuple[VersionNeed, ...]:
    """Return the version needs that a file has after an edit.

    :param replaced: NEEDED entries that are replaced, whose records patchelf renames.
    """
    by_version = _by_version(edits)
    files = {edit.file: edit.file_after for edit in by_version.values()}
    return tuple(
        dataclasses.replace(
            need,
            file=files.get(need.file, replaced.get(need.file, need.file)),
            versions=tuple(
                version
                if (edit := by_version.get((need.file, version.name))) is None
                else dataclasses.replace(
                    version,
                    name=edit.version_after,
                    weak=version.weak or edit.weak,
                    hash=version.hash if edit.version_after == version.name else elf_hash(edit.version_after),
                )
                for version in need.versions
            ),
        )
        for need in needs
    )


def edit_symbols(
    table: SymbolTable, replaced: Mapping[str, str], edits: Sequence[VersionEdit]
) -> SymbolTable:
    """Return the symbols that a file has after an edit: what the simulation binds is what the loader will read."""
    if not replaced and not edits:
        return table
    by_version = _by_version(edits)

    def imported(symbol: Import) -> Import:
        if symbol.file is None or symbol.version is None:
            return symbol
        edit = by_version.get((symbol.file, symbol.version))
        if edit is None:
            return replace(symbol, file=replaced.get(symbol.file, symbol.file))
        if edit.unversioned:
            return replace(symbol, version=None, file=None, index=GLOBAL)
        return replace(symbol, version=edit.version_after, file=edit.file_after)

    return replace(
        table,
        imports=tuple(map(imported, table.imports)),
        copies=tuple(map(imported, table.copies)),
        verneeds=edit_needs(table.verneeds, replaced, edits),
    )


def read_records(buffer: Buffer) -> tuple[VersionNeed, ...]:
    """Read the version records of a file that is to be edited.

    :raises ElfError: they are damaged: such a file is not edited.
    """
    with open_memory(buffer) as memory:
        return _records(memory)


def _records(memory: Memory) -> tuple[VersionNeed, ...]:
    strings = Strings(memory)
    known = len(memory.problems)
    needs = version_needs(memory, strings)
    if len(memory.problems) > known:
        raise ElfError(memory.problems[known])
    return needs


def find_freed_symbols(buffer: Buffer, edits: Iterable[VersionEdit]) -> dict[int, int]:
    """Return the DT_VERSYM entries that the edits set to :data:`GLOBAL`: number of the symbol → file offset of its entry.

    :param buffer: the file before or after patchelf, whose version numbers are the same; `edits` name what was before.
    :raises ElfError: a definition has such a version, or a version that stays has the same number.
    """
    with open_memory(buffer) as memory:
        return _freed(memory, _records(memory), _by_version(edits))


def write_versions(buffer: memoryview | bytearray, original: Buffer, edits: Sequence[VersionEdit]) -> None:
    """Edit the version records of a file in place.

    :param buffer: the file as patchelf left it, writable: it has the records of `original`, at other places perhaps.
    :raises ElfError: the file has no such version, no string for a new name, or damaged records; nothing is published then.
    """
    if not edits:
        return
    by_version = _by_version(edits)
    before = read_records(original)
    with open_memory(buffer) as memory:
        records = _records(memory)
        if [len(now.versions) for now in records] != [len(now.versions) for now in before]:
            raise ElfError("the version records are not those of before")
        known = {(old.file, now.name) for old in before for now in old.versions}
        if unknown := by_version.keys() - known:
            file, version = min(unknown)
            raise ElfError(f"no version record of {file} names {version}")
        freed = _freed(memory, before, by_version)
        for old, new in zip(before, records, strict=True):
            for was, now in zip(old.versions, new.versions, strict=True):
                edit = by_version.get((old.file, was.name))
                if edit is None:
                    continue
                digest, name_at = now.hash, now.name_at
                if edit.version_after != was.name:
                    digest, name_at = elf_hash(edit.version_after), name_at + _suffix(edit)
                # Vernaux of 32 and of 64 bits: vna_hash, vna_flags, vna_other, vna_name, vna_next. vn_file is at 4 of Verneed.
                flags = now.flags | (VER_FLG_WEAK if edit.weak else 0)
                struct.pack_into(memory.endian + "IH", memory.view, now.at, digest, flags)
                struct.pack_into(memory.endian + "I", memory.view, now.at + 8, name_at)
                if new.file != edit.file_after:
                    at = _needed_at(memory, edit.file_after)
                    struct.pack_into(memory.endian + "I", memory.view, new.at + 4, at)
        for entry_at in freed.values():
            struct.pack_into(memory.endian + "H", memory.view, entry_at, GLOBAL)


def _by_version(edits: Iterable[VersionEdit]) -> dict[tuple[str, str], VersionEdit]:
    """Return the edits by what they are about.

    :raises ElfError: two say different things.
    """
    by_version: dict[tuple[str, str], VersionEdit] = {}
    files: dict[str, str] = {}
    for edit in edits:
        if by_version.setdefault((edit.file, edit.version), edit) != edit:
            raise ElfError(f"two edits of version {edit.version} of {edit.file}")
        if files.setdefault(edit.file, edit.file_after) != edit.file_after:
            raise ElfError(f"the version record of {edit.file} cannot name two libraries")
    return by_version


def _suffix(edit: VersionEdit) -> int:
    """Return where the new name begins in the old one, in bytes.

    :raises ElfError: it is none of its suffixes, so there may be no such string.
    """
    old, new = (name.encode("utf-8", "surrogateescape") for name in (edit.version, edit.version_after))
    if not new or not old.endswith(new):
        raise ElfError(f"the string table has {edit.version}, and {edit.version_after} is no suffix of it")
    return len(old) - len(new)


def _freed(
    memory: Memory, records: Iterable[VersionNeed], by_version: Mapping[tuple[str, str], VersionEdit]
) -> dict[int, int]:
    free: set[int] = set()
    kept: set[int] = set()
    for record in records:
        for version in record.versions:
            edit = by_version.get((record.file, version.name))
            (free if edit is not None and edit.unversioned else kept).add(version.index)
    if not free:
        return {}
    if free & kept:
        raise ElfError(f"version {min(free & kept)} is that of a record that stays, too")
    symbols, _ = symbol_columns(memory)
    address = memory.dynamic.get(DT_VERSYM, 0)
    entries = memory.words(address, len(symbols), "H") if address else ()
    if len(entries) < len(symbols):
        raise ElfError(f"DT_VERSYM has {len(entries)} entries for {len(symbols)} symbols")
    start = memory.offset(address)
    places = {number: start + 2 * number for number, entry in enumerate(entries) if entry & _INDEX in free}
    if any(symbols.sections[number] for number in places):
        raise ElfError("a definition has the version of a record")
    return places


def _needed_at(memory: Memory, soname: str) -> int:
    """Return the offset of a NEEDED's name in DT_STRTAB.

    :raises ElfError: it is not NEEDED.
    """
    strings = Strings(memory)
    for tag, value in memory.entries:
        if tag == DT_NEEDED and strings.get(value, _MAX_NAME) == soname:
            return value
    raise ElfError(f"a version record is to name {soname}, which is not NEEDED")


class ElfEdit(msgspec.Struct, frozen=True):
    """What is to change in one ELF file; what is None or empty stays.

    :ivar search_path: the new RPATH or RUNPATH as one string; the empty string removes the entry.
    :ivar search_kind: ``runpath`` or ``rpath``; goes with a search path that is not empty.
    :ivar replace: pairs of sonames (old, new); the version records that name the old one follow.
    :ivar remove: sonames whose NEEDED entry goes. The version record of such a library must be among `versions`.
    :ivar add: sonames that are added behind the image's own, in this order.
    :ivar versions: what becomes of version records, besides that they follow `replace`. patchelf has no part in it.
    :ivar clear_stack: PT_GNU_STACK, which the file has, asks for an executable stack no longer.
    """

    search_path: str | None = None
    search_kind: str | None = None
    replace: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    interpreter: str | None = None
    versions: tuple[VersionEdit, ...] = ()
    clear_stack: bool = False

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return self != ElfEdit()


def predict_edit(image: Image, edit: ElfEdit) -> Image:
    """Return the facts that `image` will have after `edit`. What the plan simulates and what is re-read must equal this."""
    renamed, removed = dict(edit.replace), frozenset(edit.remove)
    kept = [renamed.get(soname, soname) for soname in image.needed if soname not in removed]
    known = frozenset(kept)
    needed = [*kept, *(soname for soname in dict.fromkeys(edit.add) if soname not in known)]
    facts: dict[str, Any] = {"needed": tuple(needed)}
    if edit.search_path is not None:
        is_rpath = edit.search_kind == "rpath"
        facts["rpath"] = edit.search_path if edit.search_path and is_rpath else None
        facts["runpath"] = edit.search_path if edit.search_path and not is_rpath else None
    if edit.interpreter is not None:
        facts["interpreter"] = edit.interpreter
    if edit.clear_stack:
        facts["segments"] = tuple(
            replace(segment, flags=segment.flags & ~1) if segment.type == PT_GNU_STACK else segment
            for segment in image.segments
        )
    return replace(image, **facts)


def argument_lists(image: Image, edit: ElfEdit) -> list[list[str]]:
    """Return the arguments of each call: one, and one before it where a file has a DT_RPATH and a DT_RUNPATH.

    None where only version records change.
    """
    arguments = []
    for soname in edit.remove:
        arguments += ["--remove-needed", soname]
    for old, new in edit.replace:
        arguments += ["--replace-needed", old, new]
    kept = predict_edit(image, replace(edit, add=())).needed
    for soname in edit.add:
        if soname not in kept:
            arguments += ["--add-needed", soname]
    if edit.interpreter is not None:
        arguments += ["--set-interpreter", edit.interpreter]
    if edit.search_path == "":
        arguments += ["--remove-rpath"]
    elif edit.search_path is not None:
        # Without --force-rpath patchelf turns a DT_RPATH into DT_RUNPATH, and with it the other way round.
        force = ["--force-rpath"] if edit.search_kind == "rpath" else []
        arguments += [*force, "--set-rpath", edit.search_path]
    if edit.clear_stack:
        arguments += ["--clear-execstack"]
    # patchelf changes one of two search path entries and leaves the other, so a call before removes both.
    both = image.rpath is not None and image.runpath is not None
    first = [["--remove-rpath"]] if both and edit.search_path else []
    # Old sections keep their bytes: patchelf 0.19 moves .relr.dyn, and DT_RELR still leads to the old table.
    return [["--no-clobber-old-sections", *call] for call in (*first, arguments) if call]


def refuse_names(image: Image, edit: ElfEdit) -> None:
    """Refuse names that patchelf would not read as names, and version records of what is not NEEDED.

    A hostile wheel or prefix may have such names.

    :raises EditError: there are such names; `issues` has each.
    """
    pairs = [name for pair in edit.replace for name in pair]
    names = [*edit.remove, *pairs, *edit.add, edit.search_path or "", edit.interpreter or ""]
    issues = [f"{name!r}: patchelf would read a file of that name" for name in names if name.startswith("@")]
    issues += ["an empty soname" for name in (*edit.remove, *pairs, *edit.add) if not name]
    needed = predict_edit(image, edit).needed
    issues += [
        f"{version.file_after!r}: a version record is to name it, and it is not NEEDED"
        for version in edit.versions
        if version.file_after not in needed
    ]
    texts = [
        text
        for version in edit.versions
        for text in (version.file, version.version, version.file_after, version.version_after)
    ]
    issues += [
        f"{text!r}: no file has a string of these characters"
        for text in (*names, *texts)
        if not _can_be_in_a_file(text)
    ]
    if issues:
        raise EditError(f"{image.path}: the edit has names that no library can have", issues)


def _can_be_in_a_file(text: str) -> bool:
    """Whether bytes can be read as `text`: a saved plan may have surrogates that stand for none."""
    try:
        return b"\0" not in text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
