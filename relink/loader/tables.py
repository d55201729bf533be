"""The symbol tables of the objects of closures, each read once, with an index by name over all of them; and the scopes in which
symbols are looked up in them, in which order (interposition).

Which definitions match a look-up is a fact of the tables alone. A scope then only says which of the tables with such a
definition comes first. So the closures of many roots share all that is found here, and a scope looks at tables, not at symbols.
The rules are those of glibc's elf/dl-lookup.c (do_lookup_x: the search, as it is since 2.30, where a versioned symbol may have
moved to another library; check_match: what matches, which is :func:`relink.elf.symbols.match`; do_lookup_unique,
_dl_lookup_symbol_x), elf/dl-object.c and elf/dl-open.c (which scopes an object has, in which order), elf/dl-load.c (DT_SYMBOLIC).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from typing import Final, Literal, TypeAlias

import msgspec

from relink.elf.image import DLOPEN, Image, library_names
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import Export, SymbolTable, match
from relink.loader.closure import (
    Closure,
    LoadedObject,
    Opening,
    breadth_first,
    file_of,
    needed_by,
    needed_first,
)
from relink.loader.seen_files import Files
from relink.system.errors import ElfError
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


_FEW_OWNERS: Final = 8
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


_NOTHING: Final = Candidates(frozenset(), frozenset())


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
        # By `id` of a table, tables that together have all that it looks up; itself is one of them.
        self.servers: dict[int, frozenset[int]] = {}
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

    def note_served(self, table: SymbolTable, scope: Scope) -> None:
        """Note tables of a scope that together have all that a table looks up, where nothing of that is missing."""
        found, places, chosen = self.lookups(table), scope.places, {id(table)}
        searched = [table.imports[number] for number in found.searched_imports]
        groups = [self._match(one.name, one.version, exact=one.index in table.exact)[0] for one in searched]
        groups += [self._match(*symbol)[0] for symbol in found.searched_references]
        groups += [*(one[0] for one in found.imports), *(one[0] for one in found.references)]
        for group in groups:
            if chosen.isdisjoint(group.tables):
                chosen.update(sorted(group.tables & places.keys(), key=places.__getitem__)[:1])
        self.servers[id(table)] = frozenset(chosen)

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
        if not owners:
            return _NOTHING, False, False
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


def read_table(files: Files, path: str, hashes: Collection[int] = ()) -> SymbolTable:
    """Read the symbols of a file on disk as :func:`read_symbols` does; that of a file that cannot be read is empty."""
    try:
        with map_file(files.host(path)) as buffer:
            return read_symbols(buffer, hashes)
    except (OSError, ElfError):
        return SymbolTable()


class Tables:
    """The symbol tables of the objects of closures, read once each.

    :ivar members: tables of the wheel's members, which are not on disk, by the identity that :class:`Files` gives them.
    :ivar index: of the members' tables, and of those that :meth:`of` has returned so far.
    """

    def __init__(self, files: Files, members: Mapping[str, SymbolTable] | None = None) -> None:
        self.files = files
        self.index = SymbolIndex()
        self.members = dict(members or {})
        self._indexed = False
        self._read: dict[tuple[object, ...], SymbolTable] = {}
        self._dlopened: dict[tuple[object, ...], tuple[str, ...]] = {}

    def over(self, files: Files, members: Mapping[str, SymbolTable]) -> Tables:
        """Return tables for other files and members, which share what was read from the disk and the index.

        What was computed for a table here counts there where it is a member's, too.
        """
        other = Tables(files, members)
        other.index, other._read, other._dlopened = self.index, self._read, self._dlopened
        return other

    def replace(self, identity: str, table: SymbolTable) -> None:
        """Take another table for a member, by the identity that :class:`Files` gives it."""
        self.members[identity] = self.index.add(table) if self._indexed else table

    def of(self, loaded: LoadedObject) -> SymbolTable:
        """Return the table of one loaded object; that of a file that cannot be read any more is empty."""
        identity = file_of(loaded)
        if identity[0] == "member":
            if not self._indexed:
                # All at once: what a table looks up is found again where one is added that defines a name of it.
                self._indexed = True
                for table in self.members.values():
                    self.index.add(table)
            return self.index.add(self.members[str(identity[1])])
        # By the path of the image: the path that the loader took may lead through a link.
        return self.index.add(self.read(identity, loaded.image.path))

    def read(self, identity: tuple[object, ...], path: str, content: memoryview | None = None) -> SymbolTable:
        """Return the table of a file on disk; that of a file that cannot be read is empty.

        :param content: the file's, where the caller has it.
        """
        if identity not in self._read:
            self._read[identity] = read_table(self.files, path) if content is None else read_symbols(content)
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
                with suppress(OSError, ElfError), map_file(self.files.host(path)) as buffer:
                    names = library_names(buffer, image)
            self._dlopened[identity] = names
        return names


Reason: TypeAlias = Literal["undefined", "aborts"]
# The glibc whose check_match binds where older ones stop at an assertion.
_ASSERTS_NO_MORE = (2, 41)


class Scope(msgspec.Struct):
    """The objects that a symbol is looked up in, and what was found so far of names that many objects define.

    The first object in `order` with a matching definition wins: it interposes all later ones.

    :ivar order: (index in the closure's `objects`, symbol table), in the order of the look-up.
    :ivar symbols: the index by name over all tables, those of `order` among them.
    :ivar by_name: the objects with a name (:attr:`relink.loader.closure.Closure.names`); none where the loader has no
        assertion about a library without versions that a version record names (2.41 and newer; elf/dl-lookup.c, check_match).
    :ivar unique: by name the object whose STB_GNU_UNIQUE definition the process uses; scopes of one process share it.
    :ivar places: by `id` of a table the first place in `order` that has it.
    :ivar own: the object that is searched before all others: that of a DT_SYMBOLIC (elf/dl-load.c).
    :ivar known: the results of :meth:`find`, and `firsts` those of :meth:`_first`.
    """

    order: list[tuple[int, SymbolTable]]
    symbols: SymbolIndex
    by_name: Mapping[str, tuple[int, ...]]
    unique: dict[str, int]
    places: dict[int, int] = msgspec.field(default_factory=dict)
    own: tuple[int, SymbolTable] | None = None
    known: dict[tuple[str, str | None, str | None, bool], tuple[int | None, Reason]] = msgspec.field(
        default_factory=dict
    )
    firsts: dict[Candidates, tuple[int, bool] | None] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.places:
            # Reversed, so that of several objects with one table the first has the place.
            self.places = {id(table): position for position, (_, table) in reversed([*enumerate(self.order)])}

    def index(self, table: SymbolTable) -> int | None:
        """Return the first object with this table, or None where none is in the scope."""
        if self.own is not None and self.own[1] is table:
            return self.own[0]
        position = self.places.get(id(table))
        return None if position is None else self.order[position][0]

    def first(self, candidates: Candidates) -> int | None:
        """Return the first object with one of these tables: what a look-up finds that they satisfy."""
        first = self._first(candidates)
        return None if first is None else first[0]

    def _first(self, candidates: Candidates) -> tuple[int, bool] | None:
        """Return the first object with one of these tables, and whether its definition is STB_GNU_UNIQUE."""
        if self.own is not None and (table := id(self.own[1])) in candidates.tables:
            return self.own[0], table in candidates.unique
        if candidates not in self.firsts:
            places = [(self.places[table], table) for table in self.places.keys() & candidates.tables]
            place, table = min(places, default=(-1, 0))
            self.firsts[candidates] = (self.order[place][0], table in candidates.unique) if places else None
        return self.firsts[candidates]

    def find_decided(self, candidates: Candidates, symbols: Iterable[SymbolReference]) -> set[str]:
        """Return the names that another object serves than the first one in the scope, since they were looked up before.

        Only names of STB_GNU_UNIQUE definitions are (:meth:`_search`); what is looked up first here is decided by that.
        """
        first = self._first(candidates)
        if first is None or not first[1]:
            return set()
        decide = self.unique.setdefault
        return {name for name, _ in symbols if decide(name, first[0]) != first[0]}

    def find(
        self, name: str, version: str | None, file: str | None, *, exact: bool = False
    ) -> tuple[int | None, Reason]:
        """Look a symbol up.

        :param file: the soname that the version record names.
        :param exact: only a definition in this version matches (`VersionRequirement.hidden`).
        :return: the index of the object that defines it, or None and the reason.
        """
        if len(self.symbols.owners(name)) <= _FEW_OWNERS:
            return self._search(name, version, file, exact=exact)
        key = (name, version, file, exact)
        if key not in self.known:
            self.known[key] = self._search(name, version, file, exact=exact)
        return self.known[key]

    def _search(
        self, name: str, version: str | None, file: str | None, *, exact: bool
    ) -> tuple[int | None, Reason]:
        blamed = self.by_name.get(file, ()) if version is not None and file is not None else ()
        # elf/dl-lookup.c, _dl_lookup_symbol_x and do_lookup_x:
        # > /* Search the relevant loaded objects for a definition.  */
        # > for (size_t start = i; *scope != NULL; start = 0, ++scope)
        # > […] while (++i < n);
        for index, table in self._owners(name):
            export = match(table.exports[name], version, exact=exact)
            if export is not None:
                if index in blamed and not (table.verneeds or table.verdefs):
                    # check_match before 2.41 asserts that a library without versions is not the one that the record names.
                    return None, "aborts"
                # do_lookup_unique: the first one found serves the process.
                # > /* We have to determine whether we already found a symbol with this
                # >    name before.  If not then we have to add it to the search table.
                # >    If we already found a definition we have to use it.  */
                if export.binding == "unique":
                    return self.unique.setdefault(name, index), "undefined"
                return index, "undefined"
        return None, "undefined"

    def _owners(self, name: str) -> Sequence[tuple[int, SymbolTable]]:
        """Return the objects that define a name, in order: either few objects do so, or few are in the scope."""
        own = [self.own] if self.own is not None and name in self.own[1].exports else []
        owners = self.symbols.owners(name)
        if len(owners) > len(self.order):
            return [*own, *((index, table) for index, table in self.order if name in table.exports)]
        places = sorted(position for table in owners if (position := self.places.get(id(table))) is not None)
        return [*own, *(self.order[position] for position in places)]


class Scopes:
    """The scopes of the objects of a process.

    The objects that are loaded at the start (the program, its libraries, LD_PRELOAD) have the global scope, breadth first.
    The scope of what is dlopened is the global scope, as it is then, and the objects of its own root.

    :ivar program: the program and its libraries.
    :ivar own: by object the objects that the root it came with needs, itself included.
    :ivar unique: by name the object whose STB_GNU_UNIQUE definition the process uses.
    """

    def __init__(self, closure: Closure, tables: Tables) -> None:
        self.objects: Sequence[LoadedObject] = closure.objects
        self.needed = needed_by(closure)
        self.by_name = {} if closure.glibc >= _ASSERTS_NO_MORE else closure.names
        self.unique: dict[str, int] = {}
        self.own: dict[int, Collection[int]] = {}
        self._tables = tables
        self.read: dict[int, SymbolTable] = {}
        self.global_scope: dict[int, None] = {}
        start = closure.openings[0]
        self.program = breadth_first(self.needed, [0])
        for root in start.roots:
            self._claim(breadth_first(self.needed, [root]))
        self.groups = [self.group(opening) for opening in closure.openings]

    def _claim(self, group: Collection[int]) -> None:
        for index in group:
            self.own.setdefault(index, group)

    def group(self, opening: Opening) -> tuple[Opening, Scope]:
        """Return one dlopen with the scope of what it mapped."""
        # elf/dl-object.c, _dl_new_object:
        # > /* Add the global scope.  */
        # > new->l_scope[idx++] = &GL(dl_ns)[nsid]._ns_loaded->l_searchlist;
        # > […] /* Determine the local scope.  */
        # > while (loader->l_loader != NULL)
        # >   loader = loader->l_loader;
        # > […] if ((mode & RTLD_DEEPBIND) != 0 && idx != 0)
        # >   new->l_scope[1] = new->l_scope[0];
        # > new->l_scope[idx] = &loader->l_searchlist;
        parts = (self.global_scope, opening.scope)
        first, second = reversed(parts) if opening.flags & os.RTLD_DEEPBIND else parts
        scope = self.scope(dict.fromkeys([*first, *second]))
        self._claim(opening.scope)
        # elf/dl-open.c, add_to_global_update, after what is opened has been relocated:
        # > if (map->l_global == 0)
        # >   map->l_global = 1;
        # >   ns->_ns_main_searchlist->r_list[new_nlist++] = map;
        if opening.flags & os.RTLD_GLOBAL:
            self.global_scope.update(dict.fromkeys(opening.scope))
        return opening, scope

    def with_dlopen(self, closure: Closure) -> Scopes:
        """Return the scopes after one more dlopen, the last one of `closure`, with what it mapped and its edges."""
        scopes = copy(self)
        scopes.objects = closure.objects
        scopes.by_name = {} if closure.glibc >= _ASSERTS_NO_MORE else closure.names
        scopes.needed = {**self.needed, **needed_by(closure)}
        scopes.unique, scopes.own, scopes.global_scope = {**self.unique}, {**self.own}, {**self.global_scope}
        scopes.read = {**self.read}
        scopes.groups = [scopes.group(closure.openings[-1])]
        return scopes

    def table(self, index: int) -> SymbolTable:
        """Return the symbols of an object."""
        table = self.read.get(index)
        if table is None:
            table = self.read[index] = self._tables.of(self.objects[index])
        return table

    def lookups(self, index: int) -> Lookups:
        """Return the look-ups of an object by what can satisfy them."""
        return self._tables.index.lookups(self.table(index))

    def is_served(self, index: int, scope: Scope) -> bool:
        """Whether what served such an object before is there, and no other definition at which the loader stops."""
        table = self.table(index)
        blamed = (self.table(one) for need in table.verneeds for one in self.by_name.get(need.file, ()))
        servers = scope.symbols.servers.get(id(table), {-1})
        return servers <= scope.places.keys() and all(one.verneeds or one.verdefs for one in blamed)

    def scope(self, order: Iterable[int], unique: dict[str, int] | None = None) -> Scope:
        """Return a scope of these objects; `unique` is :attr:`Scope.unique` where it is not that of the process."""
        return Scope(
            [(index, self.table(index)) for index in order],
            self._tables.index,
            self.by_name,
            self.unique if unique is None else unique,
        )

    def of_objects(self) -> Iterator[tuple[int, Scope, Scope]]:
        """Yield every object with its scope, and with the scope of its root's objects only.

        The order is that of relocation, since the first look-up of an STB_GNU_UNIQUE symbol decides for the process. The loader
        is left out: it relocates itself before everything else.
        """
        own_scopes: dict[int, Scope] = {}
        for opening, scope in self.groups:
            for index in reversed(_sorted(opening.mapped, self.needed)):
                if self.objects[index].identity[0] == "loader":
                    continue
                own = self.own[index]
                if id(own) not in own_scopes:
                    own_scopes[id(own)] = self.scope(own, {})
                # elf/dl-load.c, _dl_map_object_from_fd:
                # > /* If this object has DT_SYMBOLIC set modify now its scope.  We don't
                # >    have to do this for the main map.  */
                # > if ((mode & RTLD_DEEPBIND) == 0
                # > […] l->l_scope[0] = &l->l_symbolic_searchlist;
                if self.table(index).symbolic and index and not opening.flags & os.RTLD_DEEPBIND:
                    first = index, self.table(index)
                    own_first = Scope(
                        scope.order, scope.symbols, scope.by_name, scope.unique, scope.places, first
                    )
                    yield index, own_first, own_scopes[id(own)]
                else:
                    yield index, scope, own_scopes[id(own)]


def _sorted(members: Sequence[int], needed: Mapping[int, Sequence[int]]) -> list[int]:
    """Sort objects so that each comes before those that it needs; the first stays first (elf/dl-sort-maps.c, dfs_traversal).

    What needs the program (0) does not lead there: `l_main_map`. Where libraries need each other in a cycle, loaders differ:
    glibc 2.35 has another algorithm than older ones.
    """
    among = set(members)
    ordered = needed_first(
        reversed(members),
        lambda index: (other for other in needed.get(index, ()) if other and other in among),
    )
    return [*members[:1], *(index for index in reversed(ordered) if index != members[0])]
