"""The symbol tables of the objects of closures, each read once, with an index by name over all of them.

Which definitions match a look-up is a fact of the tables alone. A scope then only says which of the tables with such a
definition comes first. So the closures of many roots share all that is found here, and a scope looks at tables, not at symbols.
The rules are those of glibc's elf/dl-lookup.c (do_lookup_x, check_match, do_lookup_unique, _dl_lookup_symbol_x).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from relink.elf.image import DLOPEN, Image, library_names
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import Export, SymbolTable, match
from relink.loader.closure import LoadedObject, file_of
from relink.loader.seen_files import Files
from relink.system.errors import ElfError, raise_if_machine_fault
from relink.system.safe_open import map_file

# Every object may bring its own of these (crti.o, the linkers' scripts).
_COMMON = frozenset(
    {"_init", "_fini", "__bss_start", "_edata", "_end", "__end", "_bss_end__", "__bss_end__", "__data_start"}
    | {
        "_start",
        "main",
        "data_start",
        "_IO_stdin_used",
        "__dso_handle",
        "__gmon_start__",
        "end",
        "edata",
        "etext",
    }
)


def shared_names(first: SymbolTable, second: SymbolTable) -> frozenset[str]:
    """Return the names that both tables export as strong, default-visible symbols of one version."""
    return frozenset(
        name
        for name in (first.exports.keys() & second.exports.keys()) - _COMMON
        if _of_one_version(name, first.exports[name], second.exports[name])
    )


def _of_one_version(name: str, first: Sequence[Export], second: Sequence[Export]) -> bool:
    """Whether both have a strong definition of one version.

    The linker exports the name of every version node as a symbol of that version; nothing refers to those.
    """
    versions = {export.version for export in first if _strong(export)} - {name}
    return any(_strong(export) and export.version in versions for export in second)


def _strong(export: Export) -> bool:
    return export.binding == "global" and export.visibility == "default" and not export.undefined


FEW_OWNERS: Final = 8
"""What a look-up of a name with so many owners finds is found again each time; with more, all look-ups of it share the result."""
SymbolReference: TypeAlias = tuple[str, str | None]
"""Name and version of an import, or of an own definition that relocations name."""


class Candidates(msgspec.Struct, frozen=True, eq=False):
    """The tables with a definition that a look-up matches. What it finds in a scope is the first of them that is there.

    An index has one object for each set of tables, so that look-ups with the same candidates are grouped by it.

    :ivar tables: the `id` of each; `unique`: of those whose definition is STB_GNU_UNIQUE.
    """

    tables: frozenset[int]
    unique: frozenset[int]


class Lookups(msgspec.Struct, frozen=True):
    """The look-ups of a table, by what can satisfy them. ld.so looks up only what relocations name.

    :ivar imports: for each set of candidates, the indices in `SymbolTable.imports` of the imports that have it, and these.
    :ivar references: for each set of candidates, the own definitions that another one of these tables may interpose.
    :ivar searched_imports: the indices of the imports at which the loader may abort, and of those with an STB_GNU_UNIQUE
        candidate where several tables define the name, in versions: the first look-up in the process decides, and another
        version may have other candidates.
    :ivar searched_references: the own definitions that are protected, that no look-up matches, or with such candidates.
    """

    imports: tuple[tuple[Candidates, tuple[int, ...], tuple[SymbolReference, ...]], ...]
    references: tuple[tuple[Candidates, tuple[SymbolReference, ...]], ...]
    searched_imports: tuple[int, ...]
    searched_references: tuple[SymbolReference, ...]


class SymbolIndex:
    """Which symbol tables define which names.

    Tables are only added. What was found for a table is found again after a table was added that changes it.
    """

    def __init__(self) -> None:
        self._tables: list[SymbolTable] = []
        # By id(), which no other object gets as long as the table is here.
        self._listed: set[int] = set()
        self._owners: dict[str, tuple[SymbolTable, ...]] = {}
        self._shared: dict[tuple[int, int], frozenset[str]] = {}
        # By `id` of a table: how many tables there were, its look-ups then, and the names of its imports.
        self._lookups: dict[int, tuple[int, Lookups, frozenset[str]]] = {}
        self._candidates: dict[tuple[frozenset[int], frozenset[int]], Candidates] = {}
        self._matched: dict[
            tuple[str, str | None, bool], tuple[Sequence[SymbolTable], Candidates, bool, bool]
        ] = {}

    def add(self, table: SymbolTable) -> SymbolTable:
        """Add a table, unless it is there, and return it."""
        if id(table) not in self._listed:
            self._listed.add(id(table))
            self._tables.append(table)
            shared = {name: self._owners[name] for name in table.exports.keys() & self._owners.keys()}
            self._owners.update(dict.fromkeys(table.exports, (table,)))
            # Many names have the same owners, and share one tuple of these.
            longer = {id(others): (*others, table) for others in shared.values()}
            self._owners.update({name: longer[id(others)] for name, others in shared.items()})
        return table

    def owners(self, name: str) -> Sequence[SymbolTable]:
        """Return the tables with definitions of a name, in the order in which they were added."""
        return self._owners.get(name, ())

    def shared(self, first: SymbolTable, second: SymbolTable) -> frozenset[str]:
        """Return the names that two of these tables export (:mod:`relink.loader.tables`)."""
        pair = (id(first), id(second))
        names = self._shared.get(pair)
        if names is None:
            names = self._shared[pair] = shared_names(first, second)
        return names

    def lookups(self, table: SymbolTable) -> Lookups:
        """Return the look-ups of a table by their candidates.

        What was found before is valid until a table is listed that defines a name that this one looks up.
        """
        known = self._lookups.get(id(table))
        names = known[2] if known else frozenset(wanted.name for wanted in table.imports)
        if known is not None and all(
            other.exports.keys().isdisjoint(names) and other.exports.keys().isdisjoint(table.exports.keys())
            for other in self._tables[known[0] :]
        ):
            lookups = known[1]
        else:
            lookups = self._find_lookups(table)
        self._lookups[id(table)] = len(self._tables), lookups, names
        return lookups

    def _find_lookups(self, table: SymbolTable) -> Lookups:
        imports: dict[Candidates, list[int]] = {}
        searched_imports = []
        exact = table.exact
        for number, wanted in enumerate(table.imports):
            if not wanted.relocated:
                continue
            exactly = wanted.index in exact
            candidates, apart, unversioned = self._match(wanted.name, wanted.version, exact=exactly)
            # An older loader aborts where the library that a version record names has no versions (check_match): search for that.
            if apart or (unversioned and wanted.version is not None):
                searched_imports.append(number)
            else:
                imports.setdefault(candidates, []).append(number)
        references: dict[Candidates, list[SymbolReference]] = {}
        searched_references = []
        for symbol in self._not_only_its_own(table):
            candidates, apart, _ = self._match(*symbol)
            if not apart and _may_be_interposed(table, *symbol):
                references.setdefault(candidates, []).append(symbol)
            else:
                searched_references.append(symbol)
        return Lookups(
            tuple(
                (
                    candidates,
                    tuple(places),
                    tuple((table.imports[number].name, table.imports[number].version) for number in places),
                )
                for candidates, places in imports.items()
            ),
            tuple((candidates, tuple(symbols)) for candidates, symbols in references.items()),
            tuple(searched_imports),
            tuple(searched_references),
        )

    def _not_only_its_own(self, table: SymbolTable) -> list[SymbolReference]:
        """Return the own definitions that relocations name, without those that bind to the table itself in every scope.

        STB_GNU_UNIQUE ones stay: their look-up decides for what is loaded later, too.
        """
        owners = self._owners
        # By `id` of the definitions, which many names share.
        finds: dict[tuple[int, str | None], bool] = {}
        left = []
        for symbol in table.references:
            name, version = symbol
            definitions = table.exports.get(name)
            if definitions is not None and len(owners[name]) == 1:
                key = (id(definitions), version)
                if key not in finds:
                    found = match(definitions, version)
                    finds[key] = found is not None and found.binding != "unique"
                if finds[key]:
                    continue
            left.append(symbol)
        return left

    def _match(self, name: str, version: str | None, *, exact: bool = False) -> tuple[Candidates, bool, bool]:
        """Return what a look-up matches in all tables, and two facts about the matches.

        The first: one is unique, and look-ups of the name in other versions may match others.
        The second: a table has no versions.
        """
        owners, key = self.owners(name), (name, version, exact)
        known = self._matched.get(key)
        if known is not None and known[0] is owners:
            return known[1:]
        matched = [
            (owner, export)
            for owner in owners
            if (export := match(owner.exports[name], version, exact=exact)) is not None
        ]
        tables = frozenset(id(owner) for owner, _ in matched)
        unique = frozenset(id(owner) for owner, export in matched if export.binding == "unique")
        candidates = self._candidates.setdefault((tables, unique), Candidates(tables, unique))
        apart = (
            bool(unique)
            and len(owners) > 1
            and any(export.version is not None for owner in owners for export in owner.exports[name])
        )
        unversioned = any(not (owner.verneeds or owner.verdefs) for owner, _ in matched)
        if len(owners) > FEW_OWNERS:
            self._matched[key] = owners, candidates, apart, unversioned
        return candidates, apart, unversioned


def _may_be_interposed(table: SymbolTable, name: str, version: str | None) -> bool:
    """Whether a look-up finds the table's own definition, unless another one comes before it.

    ld.so binds a protected definition to the object itself (elf/dl-lookup.c, _dl_lookup_symbol_x).
    """
    own = (*table.rejected.get(name, ()), *table.exports.get(name, ()))
    return match(table.exports.get(name, ()), version) is not None and all(
        export.visibility != "protected" for export in own if export.version == version
    )


def read_table(files: Files, path: str) -> SymbolTable:
    """Read the symbols of a file on disk; that of a file that cannot be read is empty."""
    try:
        with map_file(files.host(path)) as buffer:
            return read_symbols(buffer)
    except OSError as error:
        raise_if_machine_fault(error, path)
    except ElfError:
        pass
    return SymbolTable()


class Tables:
    """The symbol tables of the objects of closures, read once each.

    :param members: tables of the wheel's members, which are not on disk, by the identity that :class:`Files` gives them.
    :ivar index: of the members' tables, and of those that :meth:`of` has returned so far.
    :ivar known: tables of files on disk that somebody else has read, by path.
    """

    def __init__(self, files: Files, members: Mapping[str, SymbolTable]) -> None:
        self.files = files
        self.index = SymbolIndex()
        self._members = dict(members)
        self._indexed = False
        self._read: dict[tuple[object, ...], SymbolTable] = {}
        self._dlopened: dict[tuple[object, ...], tuple[str, ...]] = {}
        self.known: Mapping[str, SymbolTable] = {}

    def over(self, files: Files, members: Mapping[str, SymbolTable]) -> Tables:
        """Return tables for other files and members, which share what was read from the disk and the index.

        What was computed for a table here counts there where it is a member's, too.
        """
        other = Tables(files, members)
        other.index, other._read, other._dlopened = self.index, self._read, self._dlopened
        return other

    def replace(self, identity: str, table: SymbolTable) -> None:
        """Take another table for a member, by the identity that :class:`Files` gives it."""
        self._members[identity] = self.index.add(table) if self._indexed else table

    def member(self, identity: str) -> SymbolTable | None:
        """Return the table of a member, by the identity that :class:`Files` gives it."""
        return self._members.get(identity)

    def of(self, loaded: LoadedObject) -> SymbolTable:
        """Return the table of one loaded object; that of a file that cannot be read any more is empty."""
        identity = file_of(loaded)
        if identity[0] == "member":
            if not self._indexed:
                # All at once: what a table looks up is found again where one is added that defines a name of it.
                self._indexed = True
                for table in self._members.values():
                    self.index.add(table)
            return self.index.add(self._members[str(identity[1])])
        # By the path of the image: the path that the loader took may lead through a link.
        return self.index.add(self.read(identity, loaded.image.path))

    def read(self, identity: tuple[object, ...], path: str) -> SymbolTable:
        """Return the table of a file on disk; that of a file that cannot be read is empty."""
        if identity not in self._read:
            self._read[identity] = self.known.get(path) or read_table(self.files, path)
        return self._read[identity]

    def dlopened(self, identity: tuple[object, ...], image: Image) -> tuple[str, ...]:
        """Return the names that a file on disk may dlopen (:func:`relink.elf.image.library_names`).

        None of them if it does not import dlopen or dlmopen, or cannot be read.
        """
        path = image.path
        names = self._dlopened.get(identity)
        if names is None:
            names = ()
            if any(entry.name in DLOPEN for entry in self.read(identity, path).imports):
                try:
                    with map_file(self.files.host(path)) as buffer:
                        names = library_names(buffer, image)
                except OSError as error:
                    raise_if_machine_fault(error, path)
                except ElfError:
                    pass
            self._dlopened[identity] = names
        return names
