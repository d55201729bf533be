"""Reading what one ELF file imports and exports, as ld.so sees it: from the dynamic segment alone.

The rules are glibc's: ``elf/dl-lookup.c`` (`check_match`, `do_lookup_x`: which symbols can satisfy a reference) and
``elf/dl-version.c`` (`_dl_check_map_versions`: how versions are numbered). Damaged tables become entries of
:attr:`SymbolTable.problems`; what can still be read is given.

A closure may have 100,000 symbols, so the table is read by columns, and all symbols that differ only in their names share one
:class:`Export`. The result has no reference to the buffer: an mmap may be closed afterwards.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter
from typing import Final, TypeAlias

from relink.elf.constants import (
    DF_SYMBOLIC,
    DT_DEBUG,
    DT_FLAGS,
    DT_RELA,
    DT_RELASZ,
    DT_STRTAB,
    DT_SYMBOLIC,
    DT_SYMTAB,
    DT_VERSYM,
    SHN_ABS,
)
from relink.elf.dynamic import Buffer, Memory, Strings, loaded
from relink.elf.symbol_columns import HASHED, RELOCATED, Columns, symbol_columns
from relink.elf.symbols import Binding, Export, Import, SymbolTable, SymbolType, Visibility
from relink.elf.versions import VERSYM_HIDDEN, VersionDef, VersionNeed, version_defs, version_needs

_BINDINGS: Final[dict[int, Binding]] = {0: "local", 1: "global", 2: "weak", 10: "unique"}
_TYPES: Final[dict[int, SymbolType]] = {
    **dict[int, SymbolType](enumerate(("notype", "object", "func", "section", "file", "common", "tls"))),
    10: "ifunc",
}
_VISIBILITIES: Final[tuple[Visibility, ...]] = ("default", "internal", "hidden", "protected")
# ALLOWED_STT of elf/dl-lookup.c: notype, object, func, common, tls, ifunc.
_CANDIDATE_TYPES: Final = frozenset({0, 1, 2, 5, 6, 10})
_CANDIDATE_BINDINGS: Final = frozenset({1, 2, 10})
# STV_INTERNAL and STV_HIDDEN (dl_symbol_visibility_binds_local_p).
_BINDS_LOCAL: Final = (1, 2)
# STT_TLS: the value is an offset into a thread's block, so that zero is a value (check_match).
_TLS = 6
# By e_machine the type of a copy relocation (elf/elf.h).
_R_COPY: Final = {3: 5, 40: 20, 62: 5, 183: 1024, 243: 4}
# Bytes: of real libraries with version definitions the names take a tenth of it.
MOST_STRINGS: Final = 16 << 20
# By version number its name, and the file that the record blames; None for a version of the file's own.
_Records: TypeAlias = Mapping[int, tuple[str, str | None]]


def read_symbols(buffer: Buffer) -> SymbolTable:
    """Read the dynamic symbols of the ELF file in `buffer` (the whole file, 32 or 64 bits, either byte order).

    A file without a dynamic segment has an empty table. Time and memory are linear in the size of the tables,
    whatever they say.

    :raises ElfError: this is not ELF, or its program headers lie outside of it.
    """
    with loaded(buffer) as memory:
        return _read(memory)


def read_version_needs(buffer: Buffer) -> tuple[VersionNeed, ...]:
    """Read the `verneeds` of :func:`read_symbols` alone.

    :raises ElfError: as there.
    """
    with loaded(buffer) as memory:
        dynamic = memory.dynamic
        has_symbols = dynamic.get(DT_SYMTAB) and dynamic.get(DT_STRTAB)
        return version_needs(memory, Strings(memory)) if has_symbols else ()


def read_version_defs(buffer: Buffer) -> tuple[VersionDef, ...]:
    """Read the `verdefs` of :func:`read_symbols` alone; names past the first 16 MiB of the string table are empty.

    :raises ElfError: as there.
    """
    with loaded(buffer) as memory:
        return version_defs(memory, Strings(memory, MOST_STRINGS))


def _read(memory: Memory) -> SymbolTable:
    dynamic = memory.dynamic
    if not dynamic.get(DT_SYMTAB) or not dynamic.get(DT_STRTAB):
        if dynamic:
            memory.problem("the dynamic segment names no symbol table or no string table")
        return SymbolTable(problems=tuple(memory.problems))
    strings = Strings(memory)
    verneeds = version_needs(memory, strings)
    verdefs = version_defs(memory, strings)
    records, highest = _records(verneeds, verdefs)
    symbols, order = symbol_columns(memory)
    address = dynamic.get(DT_VERSYM, 0)
    versyms = memory.words(address, len(symbols), "H") if address else array("H")
    has_versym = bool(versyms)
    if address and len(versyms) < len(symbols):
        memory.problem(f"DT_VERSYM has {len(versyms)} entries for {len(symbols)} symbols")
    if highest and not address:
        memory.problem("there are version records but no DT_VERSYM")
    most = max(highest, 1)
    unknown = {number for number in {*versyms} if number & ~VERSYM_HIDDEN > most}
    if beyond := sum(map(versyms.count, unknown)):
        memory.problem(f"{beyond} symbols have a version number above the highest record, {highest}")
    # Without version records ld.so does not look at DT_VERSYM (elf/dl-version.c): every symbol then counts as global, 1.
    versyms = versyms if highest else array("H")
    versyms.extend([1] * (len(symbols) - len(versyms)))
    copied = _copied(memory)
    symbolic = DT_SYMBOLIC in dynamic or bool(dynamic.get(DT_FLAGS, 0) & DF_SYMBOLIC)
    if order:
        symbols = symbols.select(order)
        versyms = array("H", map(versyms.__getitem__, order))
        copied = {position for position, i in enumerate(order) if i in copied}
    names, outside = strings.names(symbols.names)
    if outside:
        memory.problem(f"{outside} symbols have names outside of the string table")
    imports, exports, rejected, references = _sort(names, symbols, versyms, records)
    return SymbolTable(
        imports=imports,
        exports=exports,
        rejected=rejected,
        has_versym=has_versym,
        verdefs=verdefs,
        verneeds=verneeds,
        count=len(symbols),
        problems=tuple(memory.problems),
        references=references,
        copies=tuple(
            _import(names[i], symbols.infos[i], versyms[i], records)
            for i in sorted(copied)
            if i < len(symbols) and names[i]
        ),
        symbolic=symbolic,
    )


def _copied(memory: Memory) -> set[int]:
    """Return the symbols with a copy relocation. Only executables have any, and only they have DT_DEBUG."""
    dynamic = memory.dynamic
    kind = _R_COPY.get(memory.machine)
    if kind is None or DT_DEBUG not in dynamic or not dynamic.get(DT_RELA):
        return set()
    width, letter, shift = (8, "Q", 32) if memory.wide else (4, "I", 8)
    size = min(dynamic.get(DT_RELASZ, 0), memory.available(dynamic[DT_RELA]))
    infos = set(memory.words(dynamic[DT_RELA], size // width, letter)[1::3])
    return {info >> shift for info in infos if info & ((1 << shift) - 1) == kind}


def _records(verneeds: Iterable[VersionNeed], verdefs: Iterable[VersionDef]) -> tuple[_Records, int]:
    """Return what dl-version.c keeps as `l_versions`, and the highest version number.

    Requirements come first, definitions over them; a zero hash is no version. The base entry has a number but no name to
    match. Where the highest number is 0, ld.so does not look at DT_VERSYM.
    """
    records: dict[int, tuple[str, str | None]] = {}
    highest = 0
    for need in verneeds:
        for version in need.versions:
            highest = max(highest, version.index)
            if version.hash:
                records[version.index] = (version.name, need.file)
    for node in verdefs:
        highest = max(highest, node.index)
        if node.hash and not node.base:
            records[node.index] = (node.name, None)
    return records, highest


@dataclass(frozen=True, slots=True)
class _Class:
    """How all symbols with the same fields but the name are classified."""

    imported: bool
    referred: bool
    exported: bool
    rejected: bool
    definition: tuple[Export]


class _Classes(dict[tuple[int, int, int, bool, int, int], _Class]):
    """Classes by (st_info, st_other, st_shndx, whether st_value is not 0, version number, flags), made when first needed."""

    def __init__(self, records: _Records) -> None:
        super().__init__()
        self._records = records

    def __missing__(self, row: tuple[int, int, int, bool, int, int]) -> _Class:
        info, other, section, valued, versym, flags = row
        outside = info >> 4 != 0 and other & 3 not in _BINDS_LOCAL
        # Undefined, but with a value: the PLT entry of an executable (do_lookup_x accepts it for references to an address).
        defined = section != 0 or (valued and bool(flags & HASHED))
        exported = (
            bool(flags & HASHED)
            and (valued or section == SHN_ABS or info & 15 == _TLS)
            and info >> 4 in _CANDIDATE_BINDINGS
            and info & 15 in _CANDIDATE_TYPES
            and other & 3 not in _BINDS_LOCAL
        )
        fact = self[row] = _Class(
            imported=not section and outside,
            referred=section != 0 and outside and bool(flags & RELOCATED),
            exported=defined and exported,
            rejected=defined and not exported,
            definition=(_export(info, other, versym, self._records, undefined=not section),),
        )
        return fact


def _sort(
    names: Sequence[str], symbols: Columns, versyms: Sequence[int], records: _Records
) -> tuple[
    tuple[Import, ...],
    dict[str, tuple[Export, ...]],
    dict[str, tuple[Export, ...]],
    tuple[tuple[str, str | None], ...],
]:
    """Divide `symbols` into imports, exports, rejected definitions, and references.

    :param versyms: their version numbers, with the hidden bit.
    """
    rows = zip(
        symbols.infos,
        symbols.others,
        symbols.sections,
        map(bool, symbols.values),
        versyms,
        symbols.flags,
        strict=True,
    )
    facts = [*map(_Classes(records).__getitem__, rows)]
    definitions = [fact.definition for fact in facts]
    imports = tuple(
        _import(names[i], symbols.infos[i], versyms[i], records, relocated=bool(symbols.flags[i] & RELOCATED))
        for i in compress(range(len(facts)), map(attrgetter("imported"), facts))
        if names[i]
    )
    referred = [fact.referred for fact in facts]
    references = tuple(
        (name, definition[0].version)
        for name, definition in zip(compress(names, referred), compress(definitions, referred), strict=True)
        if name
    )
    exports = _by_name(names, definitions, [fact.exported for fact in facts])
    rejected = _by_name(names, definitions, [fact.rejected for fact in facts])
    return imports, exports, rejected, references


def _by_name(
    names: Sequence[str], definitions: Sequence[tuple[Export]], chosen: Sequence[bool]
) -> dict[str, tuple[Export, ...]]:
    """Return the chosen definitions by name, in order; symbols without a name are left out."""
    by_name: dict[str, tuple[Export, ...]] = dict(
        zip(compress(names, chosen), compress(definitions, chosen), strict=True)
    )
    # Fewer names than symbols were chosen: some names have definitions in several versions.
    if len(by_name) < sum(chosen):
        lists: dict[str, list[Export]] = {}
        for name, definition in zip(compress(names, chosen), compress(definitions, chosen), strict=True):
            lists.setdefault(name, []).extend(definition)
        by_name = {name: tuple(exports) for name, exports in lists.items()}
    by_name.pop("", None)
    return by_name


def _import(name: str, info: int, versym: int, records: _Records, *, relocated: bool = True) -> Import:
    index = versym & ~VERSYM_HIDDEN
    version, file = records.get(index, (None, None))
    return Import(
        name,
        version,
        file,
        _BINDINGS.get(info >> 4, "other"),
        _TYPES.get(info & 15, "other"),
        index,
        relocated,
    )


def _export(info: int, other: int, versym: int, records: _Records, *, undefined: bool) -> Export:
    """Spell out the packed facts of a symbol."""
    index = versym & ~VERSYM_HIDDEN
    return Export(
        version=records[index][0] if index in records else None,
        hidden=bool(versym & VERSYM_HIDDEN),
        binding=_BINDINGS.get(info >> 4, "other"),
        type=_TYPES.get(info & 15, "other"),
        visibility=_VISIBILITIES[other & 3],
        index=index,
        undefined=undefined,
    )
