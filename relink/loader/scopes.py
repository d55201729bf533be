"""The scopes of the objects of a process: which objects a symbol is looked up in, in which order (interposition).

Sources: glibc elf/dl-lookup.c (do_lookup_x: the search, as it is since 2.30, where a versioned symbol may have moved to another
library; check_match: what matches, which is :func:`relink.elf.symbols.match`; do_lookup_unique), elf/dl-object.c and
elf/dl-open.c (which scopes an object has, in which order), elf/dl-load.c (DT_SYMBOLIC).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from relink.elf.symbols import SymbolTable, match
from relink.loader.closure import Closure, LoadedObject, Opening, breadth_first, needed_by, needed_first
from relink.loader.tables import FEW_OWNERS, Candidates, Lookups, SymbolIndex, SymbolReference, Tables

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
        if len(self.symbols.owners(name)) <= FEW_OWNERS:
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
                    own_first = replace(scope, own=(index, self.table(index)), known={}, firsts={})
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
