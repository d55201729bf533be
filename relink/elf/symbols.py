"""What one ELF file imports and exports, as ld.so sees it: from the dynamic segment alone, never from section
headers.

The rules are glibc's: ``elf/dl-lookup.c`` (`check_match`, `do_lookup_x`: which symbols can satisfy a reference) and
``elf/dl-version.c`` (`_dl_check_map_versions`: how versions are numbered). Damaged tables become entries of
:attr:`SymbolTable.problems`; what can still be read is given.

Speed matters (a ROCm closure has 100,000 symbols): equal facts share one :class:`Export`, so that indexing a symbol
costs one unpacked row, one string and one dictionary entry. Nothing keeps hold of the buffer: an mmap may be closed
afterwards.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from relink.elf.dynamic import (
    DT_RELA,
    DT_RELASZ,
    DT_STRTAB,
    DT_SYMTAB,
    DT_VERSYM,
    HASHED,
    RELOCATED,
    Buffer,
    Memory,
    Row,
    Strings,
    symbol_rows,
)
from relink.elf.versions import (
    VERSYM_HIDDEN,
    VersionDef,
    VersionNeed,
    VersionRequirement,
    version_defs,
    version_needs,
)

__all__ = [
    "Binding",
    "Buffer",
    "Export",
    "Import",
    "SymbolTable",
    "SymbolType",
    "VersionDef",
    "VersionNeed",
    "VersionRequirement",
    "Visibility",
    "match",
    "read_symbols",
]

Binding: TypeAlias = Literal["local", "global", "weak", "unique", "other"]
SymbolType: TypeAlias = Literal[
    "notype", "object", "func", "section", "file", "common", "tls", "ifunc", "other"
]
Visibility: TypeAlias = Literal["default", "internal", "hidden", "protected"]

_BINDINGS: Final[dict[int, Binding]] = {0: "local", 1: "global", 2: "weak", 10: "unique"}
_TYPES: Final[dict[int, SymbolType]] = {
    **dict[int, SymbolType](enumerate(("notype", "object", "func", "section", "file", "common", "tls"))),
    10: "ifunc",
}
_VISIBILITIES: Final[tuple[Visibility, ...]] = ("default", "internal", "hidden", "protected")
_CANDIDATE_TYPES: Final = frozenset({0, 1, 2, 5, 6, 10})  # ALLOWED_STT: not section, file or other
_CANDIDATE_BINDINGS: Final = frozenset({1, 2, 10})
_BINDS_LOCAL: Final = (1, 2)  # internal, hidden: dl_symbol_visibility_binds_local_p
_ABS, _TLS = 0xFFF1, 6  # SHN_ABS; STT_TLS, whose values start at zero
_DT_SYMBOLIC, _DT_DEBUG, _DT_FLAGS, _DF_SYMBOLIC = 16, 21, 30, 2
_R_COPY: Final = {3: 5, 40: 20, 62: 5, 183: 1024, 243: 4}  # by e_machine (elf/elf.h)
_MAX_COPIED: Final = 1 << 16  # bytes of a name
_Records: TypeAlias = Mapping[int, tuple[str, str | None]]  # version number: its name, the file blamed


@dataclass(frozen=True, slots=True)
class Import:
    """One undefined symbol.

    `version` and `file` come from the version record: `file` is the soname it blames (vn_file), which is where the
    linker found the symbol, not a place ld.so is bound to look in. Both are None without a version. `index` is the
    version's number. `relocated`: a relocation names the symbol; ld.so never looks up the others, so that they may
    be missing (C++ has one in most libraries since GCC 13: _ZSt21ios_base_library_initv).
    """

    name: str
    version: str | None
    file: str | None
    binding: Binding
    type: SymbolType
    index: int
    relocated: bool = True


@dataclass(frozen=True, slots=True)
class Export:
    """The facts of one definition; the name is the key it is found under.

    `index` is the version's number in this file: 0 local, 1 base (no version), 2 and up a version node; `version`
    is None below 2 and where the number has no record. `hidden`: bit 15 of the VERSYM entry, only a reference to
    exactly this version matches (``name@version``, not ``name@@version``). `undefined`: an executable's PLT address
    of a function that it imports itself. Without a usable version table every index is 1, as in ld.so.
    """

    version: str | None
    hidden: bool
    binding: Binding
    type: SymbolType
    visibility: Visibility
    index: int
    undefined: bool = False


@dataclass(frozen=True, slots=True)
class SymbolTable:
    """Imports and exports of one ELF file.

    `exports`: name → definitions that ld.so can bind to, in the order in which it meets them. `rejected`:
    definitions that it passes over (hidden visibility, local, no value, a type that is neither code nor data,
    absent from the hash table). `has_versym`: DT_VERSYM is there and readable. `count`: symbols in the table, with
    the null symbol. Version records are in file order. `problems`: one sentence a damage, empty for a sound file.

    `references`: name and version of the own definitions that relocations name: ld.so looks these up like imports, and
    another object can take them over, unless they are protected. `copies`: variables that an executable copies into itself;
    looked up everywhere but in it. `symbolic`: DT_SYMBOLIC or DF_SYMBOLIC, look-ups start in the object itself.
    """

    imports: tuple[Import, ...] = ()
    exports: Mapping[str, tuple[Export, ...]] = field(default_factory=dict)
    rejected: Mapping[str, tuple[Export, ...]] = field(default_factory=dict)
    has_versym: bool = False
    verdefs: tuple[VersionDef, ...] = ()
    verneeds: tuple[VersionNeed, ...] = ()
    count: int = 0
    problems: tuple[str, ...] = ()
    references: tuple[tuple[str, str | None], ...] = ()
    copies: tuple[Import, ...] = ()
    symbolic: bool = False

    @property
    def has_verdef(self) -> bool:
        """Whether the file defines versions (a base entry counts)."""
        return bool(self.verdefs)


def match(definitions: tuple[Export, ...], version: str | None, *, exact: bool = False) -> Export | None:
    """Return the one of a file's `definitions` of a name that a reference to `version` binds to, or None.

    `check_match` and the end of `do_lookup_x` (elf/dl-lookup.c). A versioned reference takes its version, hidden or
    not, or a visible definition without one. An unversioned reference takes the base version or the first node
    (index below 3), else the only visible version. Definitions that are `undefined` are left out: ld.so takes them
    for address references alone, and the executable's own import decides where they lead.

    :param exact: the requirement is `hidden`, so that a definition without a version is none.
    """
    visible: list[Export] = []
    for export in definitions:
        if export.undefined:
            continue
        if version is None:
            if export.index < 3:
                return export
            if not export.hidden:
                visible.append(export)
        elif export.version == version or (export.version is None and not export.hidden and not exact):
            return export
    return visible[0] if len(visible) == 1 else None


def read_symbols(buffer: Buffer) -> SymbolTable:
    """Read the dynamic symbols of the ELF file in `buffer` (the whole file, 32 or 64 bits, either byte order).

    A file without a dynamic segment has an empty table. Time and memory are linear in the size of the tables,
    whatever they say.

    :raises ElfError: this is not ELF, or its program headers lie outside of it.
    """
    with memoryview(buffer) as raw, raw.cast("B") as view:
        memory = Memory(view)
        memory.read_header()
        return _read(memory)


def _read(memory: Memory) -> SymbolTable:
    """Read all tables of `memory`."""
    dynamic = memory.dynamic
    if not dynamic.get(DT_SYMTAB) or not dynamic.get(DT_STRTAB):
        if dynamic:
            memory.problem("the dynamic segment names no symbol table or no string table")
        return SymbolTable(problems=tuple(memory.problems))
    strings = Strings(memory)
    verneeds = version_needs(memory, strings)
    verdefs = version_defs(memory, strings)
    records, highest = _records(verneeds, verdefs)
    symbols, order, flags = symbol_rows(memory)
    address = dynamic.get(DT_VERSYM, 0)
    versyms = memory.words(address, len(symbols), "H") if address else array("H")
    has_versym = bool(versyms)
    if address and len(versyms) < len(symbols):
        memory.problem(f"DT_VERSYM has {len(versyms)} entries for {len(symbols)} symbols")
    if highest and not address:
        memory.problem("there are version records but no DT_VERSYM")
    if beyond := sum((number & ~VERSYM_HIDDEN) > max(highest, 1) for number in versyms):
        memory.problem(f"{beyond} symbols have a version number above the highest record, {highest}")
    versyms = versyms if highest else array("H")
    versyms.extend([1] * (len(symbols) - len(versyms)))
    if order:
        symbols = [symbols[i] for i in order]
        versyms = array("H", [versyms[i] for i in order])
        flags = bytes([flags[i] for i in order])

    copied = _copied(memory)
    if copied and order:
        copied = {place for place, i in enumerate(order) if i in copied}
    imports, exports, rejected, references = _sort(
        memory, strings, zip(symbols, versyms, flags, strict=True), records
    )
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
        copies=_copies(
            strings, records, [(symbols[i], versyms[i]) for i in sorted(copied) if i < len(symbols)]
        ),
        symbolic=_DT_SYMBOLIC in dynamic or bool(dynamic.get(_DT_FLAGS, 0) & _DF_SYMBOLIC),
    )


def _copied(memory: Memory) -> set[int]:
    """Return the symbols with a copy relocation. Only executables have any, and only they have DT_DEBUG."""
    dynamic = memory.dynamic
    kind = _R_COPY.get(memory.machine)
    if kind is None or _DT_DEBUG not in dynamic or not dynamic.get(DT_RELA):
        return set()
    width, letter, shift = (8, "Q", 32) if memory.wide else (4, "I", 8)
    size = min(dynamic.get(DT_RELASZ, 0), memory.room(dynamic[DT_RELA]))
    infos = set(memory.words(dynamic[DT_RELA], size // width, letter)[1::3])
    return {info >> shift for info in infos if info & ((1 << shift) - 1) == kind}


def _copies(strings: Strings, records: _Records, rows: Iterable[tuple[Row, int]]) -> tuple[Import, ...]:
    """Make imports of the symbols that are copied."""
    found = []
    for (start, info, *_), versym in rows:
        name = strings.get(start, _MAX_COPIED)
        if name:
            version, file = records.get(versym & ~VERSYM_HIDDEN, (None, None))
            binding, kind = _BINDINGS.get(info >> 4, "other"), _TYPES.get(info & 15, "other")
            found.append(Import(name, version, file, binding, kind, versym & ~VERSYM_HIDDEN))
    return tuple(found)


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


def _sort(
    memory: Memory,
    strings: Strings,
    symbols: Iterable[tuple[Row, int, int]],
    records: _Records,
) -> tuple[
    tuple[Import, ...],
    dict[str, tuple[Export, ...]],
    dict[str, tuple[Export, ...]],
    tuple[tuple[str, str | None], ...],
]:
    """Sort `symbols` (row, version number with the hidden bit, flags) into imports, exports, what is neither, references."""
    text, plain, proper = strings.text, strings.ascii, strings.proper
    find = text.find
    budget = 4 * len(text) + (
        1 << 20
    )  # names share text by their tails only: this bounds what a hostile table costs
    cut = 0
    imports: list[Import] = []
    exports: dict[str, tuple[Export, ...]] = {}
    rejected: dict[str, tuple[Export, ...]] = {}
    references: list[tuple[str, str | None]] = []
    known: dict[int, tuple[bool, tuple[Export]]] = {}
    for (start, info, other, section, value), versym, flags in symbols:
        end = find("\0", start)
        if end <= start:
            cut += end < 0
            continue
        name = text[start:end] if plain else proper(text[start:end])
        budget -= end - start
        if budget < 0:
            memory.problem(
                "the symbols' names overlap far beyond the size of the string table: the rest is left out"
            )
            break
        if not section:
            if info >> 4 and other & 3 not in _BINDS_LOCAL:
                index = versym & ~VERSYM_HIDDEN
                version, file = records.get(index, (None, None))
                binding, kind = _BINDINGS.get(info >> 4, "other"), _TYPES.get(info & 15, "other")
                imports.append(Import(name, version, file, binding, kind, index, flags > 1))
            if not value or not flags & HASHED:
                continue
        elif flags & RELOCATED and info >> 4 and other & 3 not in _BINDS_LOCAL:
            references.append((name, records.get(versym & ~VERSYM_HIDDEN, (None, None))[0]))
        hashed = flags & HASHED
        valued = value != 0 or section == _ABS or info & 15 == _TLS
        key = versym << 16 | info << 8 | (other & 3) << 3 | hashed << 2 | valued << 1 | (not section)
        if (fact := known.get(key)) is None:
            good = (
                info >> 4 in _CANDIDATE_BINDINGS
                and info & 15 in _CANDIDATE_TYPES
                and other & 3 not in _BINDS_LOCAL
            )
            export = _export(info, other, versym, records, undefined=not section)
            fact = known[key] = bool(hashed and valued and good), (export,)
        target = exports if fact[0] else rejected
        if name in target:
            target[name] += fact[1]
        else:
            target[name] = fact[1]
    if cut:
        memory.problem(f"{cut} symbols have names outside of the string table")
    return tuple(imports), exports, rejected, tuple(references)


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
