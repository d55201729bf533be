"""What one ELF file imports and exports, and which definition a reference can bind to: facts, without their reading.

The rules are glibc's: ``elf/dl-lookup.c`` (`check_match`, `do_lookup_x`). :mod:`relink.elf.symbol_reader` reads the tables.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import msgspec

VERSYM_HIDDEN: Final = 0x8000
VER_FLG_WEAK: Final = 2

Binding: TypeAlias = Literal["local", "global", "weak", "unique", "other"]

SymbolType: TypeAlias = Literal[
    "notype", "object", "func", "section", "file", "common", "tls", "ifunc", "other"
]

Visibility: TypeAlias = Literal["default", "internal", "hidden", "protected"]


class VersionDef(msgspec.Struct, frozen=True):
    """A version node that the file defines; `base` is the file's own entry, which no reference can match."""

    name: str
    index: int
    base: bool
    weak: bool
    parents: tuple[str, ...]
    hash: int


@dataclass(frozen=True, slots=True)
class VersionRequirement:
    """A version that a file must define; `weak` ones may be missing, `hidden` ones match no unversioned definition.

    :ivar at: the file offset of the entry; `flags` and `name_at` are those that stand there. They do not count in comparisons.
    """

    name: str
    index: int
    weak: bool
    hidden: bool
    hash: int
    flags: int = field(default=0, compare=False, repr=False)
    name_at: int = field(default=0, compare=False, repr=False)
    at: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class VersionNeed:
    """One DT_VERNEED record: the versions required of the library with soname `file`; `at` is its file offset."""

    file: str
    versions: tuple[VersionRequirement, ...]
    at: int = field(default=0, compare=False, repr=False)


class Import(msgspec.Struct, frozen=True):
    """One undefined symbol.

    :ivar version: the name in the version record, or None without a version.
    :ivar file: the soname in the version record (vn_file), or None. The linker found the symbol there; ld.so does not look
        for it there first.
    :ivar index: the version's number.
    :ivar relocated: a relocation names the symbol. ld.so never looks up the others, so they may be missing (since GCC 13 most C++
        libraries have one: _ZSt21ios_base_library_initv).
    """

    name: str
    version: str | None
    file: str | None
    binding: Binding
    type: SymbolType
    index: int
    relocated: bool = True


class Export(msgspec.Struct, frozen=True):
    """The facts of one definition; the name is the key it is found under.

    :ivar version: the version node's name; None where `index` is below 2 or has no record.
    :ivar hidden: bit 15 of the VERSYM entry: only a reference to exactly this version matches (``name@version``, not
        ``name@@version``).
    :ivar index: the version's number in this file: 0 local, 1 base (no version), 2 and up a version node. Without a usable
        version table it is 1 for all, as in ld.so.
    :ivar undefined: the PLT address of a function that an executable imports itself.
    """

    version: str | None
    hidden: bool
    binding: Binding
    type: SymbolType
    visibility: Visibility
    index: int
    undefined: bool = False


class SymbolTable(msgspec.Struct, frozen=True):
    """Imports and exports of one ELF file.

    Version records are in the order of the file.

    :ivar exports: by name the definitions that ld.so can bind to, in the order in which it finds them.
    :ivar rejected: by name the definitions that it skips (hidden visibility, local, no value, a type that is neither code nor
        data, absent from the hash table).
    :ivar has_versym: DT_VERSYM is there and readable.
    :ivar count: symbols in the table, the null symbol included.
    :ivar problems: one sentence for each damage, none for a sound file.
    :ivar unread: those of them that concern what ld.so does not read: sizes, counts, names that nothing looks up.
    :ivar references: name and version of the own definitions that relocations name. ld.so looks these up like imports, and
        another object can interpose them, unless they are protected.
    :ivar copies: variables that an executable copies into itself (copy relocations), looked up everywhere but in it.
    :ivar symbolic: DT_SYMBOLIC or DF_SYMBOLIC: look-ups start in the object itself.
    :ivar static_tls: the names of thread-local variables that relocations place in the static TLS block; an empty one for the
        object's own without a name. `described_tls`: the same of TLS descriptors.
    """

    imports: tuple[Import, ...] = ()
    exports: Mapping[str, tuple[Export, ...]] = msgspec.field(default_factory=dict)
    rejected: Mapping[str, tuple[Export, ...]] = msgspec.field(default_factory=dict)
    has_versym: bool = False
    verdefs: tuple[VersionDef, ...] = ()
    verneeds: tuple[VersionNeed, ...] = ()
    count: int = 0
    problems: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    references: tuple[tuple[str, str | None], ...] = ()
    copies: tuple[Import, ...] = ()
    symbolic: bool = False
    static_tls: frozenset[str] = frozenset()
    described_tls: frozenset[str] = frozenset()

    @property
    def exact(self) -> frozenset[int]:
        """The numbers of the required versions that are `hidden`: a definition without a version does not satisfy them."""
        return frozenset(
            version.index for need in self.verneeds for version in need.versions if version.hidden
        )


def match(definitions: tuple[Export, ...], version: str | None, *, exact: bool = False) -> Export | None:
    """Return the one of a file's `definitions` of a name that a reference to `version` binds to, or None.

    `check_match` and the end of `do_lookup_x` (elf/dl-lookup.c). A versioned reference takes its version, hidden or
    not, or a visible definition without one. An unversioned reference takes the base version or the first node
    (index below 3), else the only visible version. Definitions that are `undefined` are skipped: ld.so uses them
    for references to an address only, and the executable's own import decides what they bind to.

    :param exact: the requirement is `hidden`, so that a definition without a version is none.
    """
    visible: list[Export] = []
    for export in definitions:
        if export.undefined:
            continue
        if version is None:
            # check_match takes 0 (local), 1 (base) and 2 (the first version node) for a reference without a version.
            if export.index < 3:
                return export
            if not export.hidden:
                visible.append(export)
        elif export.version == version or (export.version is None and not export.hidden and not exact):
            return export
    return visible[0] if len(visible) == 1 else None


@functools.lru_cache(maxsize=1024)
def elf_hash(name: str) -> int:
    """Return the hash of a version's name, as the System V ABI computes it (elf/dl-hash.h)."""
    value = 0
    for byte in name.encode("utf-8", "surrogateescape"):
        value = (value << 4) + byte
        value = (value ^ (value >> 24 & 0xF0)) & 0x0FFFFFFF
    return value


def hash_names(names: Iterable[str]) -> frozenset[int]:
    """Return the hashes of names as DT_GNU_HASH has them (elf/dl-lookup.c, dl_new_hash), with the lowest bit and without."""
    texts = (name.encode("utf-8", "surrogateescape") for name in names)
    values = [
        functools.reduce(lambda last, byte: last * 33 + byte & 0xFFFFFFFF, text, 5381) for text in texts
    ]
    return frozenset(number for value in values for number in (value | 1, value & ~1))
