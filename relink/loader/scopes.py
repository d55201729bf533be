"""The scopes of the objects of a process: which objects a symbol is looked up in, in which order (interposition).

Sources: glibc elf/dl-lookup.c (do_lookup_x: the search, as it is since 2.30, where a versioned symbol may have moved to another
library; check_match: what matches, which is :func:`relink.elf.symbols.match`; do_lookup_unique), elf/dl-object.c and
elf/dl-open.c (which scopes an object has, in which order), elf/dl-load.c (DT_SYMBOLIC).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from relink.elf.symbols import SymbolTable, match
from relink.loader.closure import Closure
from relink.loader.object_graph import breadth_first, needed_by, needed_first, objects_by_name
from relink.loader.symbol_index import FEW_OWNERS, Candidates, Lookups, SymbolIndex
from relink.loader.tables import Tables

Reason: TypeAlias = Literal["undefined", "aborts"]
# The glibc whose check_match binds where older ones stop at an assertion.
_ASSERTS_NO_MORE = (2, 41)


@dataclass(slots=True)
class Scope:
    """The objects that a symbol is looked up in, and what was found so far of names that many objects define.

    The first object in `order` with a matching definition wins: it interposes all later ones.

    :ivar order: (index in the closure's `objects`, symbol table), in the order of the look-up.
    :ivar symbols: the index by name over all tables, those of `order` among them.
    :ivar by_name: the objects with a name (:func:`relink.loader.object_graph.objects_by_name`); none where the loader has no
        assertion about a library without versions that a version record names (2.41 and newer; elf/dl-lookup.c, check_match).
    :ivar unique: by name the object whose STB_GNU_UNIQUE definition the process uses; scopes of one process share it.
    :ivar places: by `id` of a table the first place in `order` that has it.
    :ivar own: the object that is searched before all others: that of a DT_SYMBOLIC (elf/dl-load.c).
    :ivar known: the results of :meth:`find`, and `firsts` those of :meth:`first`.
    """

    order: list[tuple[int, SymbolTable]]
    symbols: SymbolIndex
    by_name: Mapping[str, tuple[int, ...]]
    unique: dict[str, int]
    places: dict[int, int] = field(default_factory=dict)
    own: tuple[int, SymbolTable] | None = None
    known: dict[tuple[str, str | None, str | None, bool], tuple[int | None, Reason]] = field(
        default_factory=dict
    )
    firsts: dict[Candidates, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.places:
            # Reversed, so that of several objects with one table the first has the place.
            self.places = {id(table): position for position, (_, table) in reversed([*enumerate(self.order)])}

    def own_first(self, index: int, table: SymbolTable) -> Scope:
        """Return the scope of an object that is searched before the others of this one."""
        return Scope(self.order, self.symbols, self.by_name, self.unique, self.places, (index, table))

    def index(self, table: SymbolTable) -> int | None:
        """Return the first object with this table, or None where none is in the scope."""
        if self.own is not None and self.own[1] is table:
            return self.own[0]
        position = self.places.get(id(table))
        return None if position is None else self.order[position][0]

    def first(self, candidates: Candidates) -> int | None:
        """Return the first object with one of these tables: what a look-up finds that they satisfy."""
        if self.own is not None and id(self.own[1]) in candidates.tables:
            return self.own[0]
        if candidates not in self.firsts:
            places = [self.places[table] for table in self.places.keys() & candidates.tables]
            self.firsts[candidates] = self.order[min(places)][0] if places else None
        return self.firsts[candidates]

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
        for index, table in self._owners(name):
            export = match(table.exports[name], version, exact=exact)
            if export is not None:
                if index in blamed and not (table.verneeds or table.verdefs):
                    # check_match before 2.41 asserts that a library without versions is not the one that the record names.
                    return None, "aborts"
                # do_lookup_unique: the first one found serves the process.
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


class Process:
    """The scopes of a closure's objects.

    The objects that are loaded at the start (the program, its libraries, LD_PRELOAD) have the global scope, breadth first.
    The scope of what is dlopened is the global scope, then the objects of the roots before it, as if these were opened with
    RTLD_GLOBAL (packages do so for libraries that others need), and then the objects of its own root.

    :ivar program: the program and its libraries.
    :ivar own: by object the objects that the root it came with needs, itself included.
    """

    def __init__(self, closure: Closure, tables: Tables) -> None:
        self.closure = closure
        self.needed = needed_by(closure)
        self.by_name = {} if closure.glibc >= _ASSERTS_NO_MORE else objects_by_name(closure)
        self._tables = tables
        self._cached: dict[int, SymbolTable] = {}
        self._unique: dict[str, int] = {}
        preloads = [index for index in closure.roots if closure.objects[index].found_by.rule == "preload"]
        start = breadth_first(self.needed, [0, *preloads])
        self.program = breadth_first(self.needed, [0])
        self.own: dict[int, Collection[int]] = {}
        for index in (0, *preloads):
            self._claim(breadth_first(self.needed, [index]))
        self.groups: list[tuple[list[int], Scope]] = [(list(start), self.scope(start, self._unique))]
        grouped = set(start)
        before = list(start)
        for root in closure.roots:
            if root in (0, *preloads):
                continue
            group = breadth_first(self.needed, [root])
            self._claim(group)
            before = list(dict.fromkeys([*before, *group]))
            new = [index for index in group if index not in grouped]
            grouped.update(new)
            self.groups.append((new, self.scope(before, self._unique)))

    def _claim(self, group: Collection[int]) -> None:
        for index in group:
            self.own.setdefault(index, group)

    def table(self, index: int) -> SymbolTable:
        """Return the symbols of an object."""
        table = self._cached.get(index)
        if table is None:
            table = self._cached[index] = self._tables.of(self.closure.objects[index])
        return table

    def lookups(self, index: int) -> Lookups:
        """Return the look-ups of an object by what can satisfy them."""
        return self._tables.index.lookups(self.table(index))

    def irregular(self, candidates: Candidates) -> AbstractSet[str]:
        """Return the names of which not the first candidate in a scope, but the first look-up in the process decides."""
        return self._tables.index.irregular if candidates.unique else frozenset()

    def scope(self, order: Iterable[int], unique: dict[str, int]) -> Scope:
        """Return a scope of these objects; `unique` is :attr:`Scope.unique`."""
        return Scope(
            [(index, self.table(index)) for index in order], self._tables.index, self.by_name, unique
        )

    def scopes(self) -> Iterator[tuple[int, Scope, Scope]]:
        """Yield every object in the closure's scope with its scope, and with the scope of its root's objects only.

        The order is that of relocation, since the first look-up of an STB_GNU_UNIQUE symbol decides for the process. The loader
        is left out: it relocates itself before everything else.
        """
        wanted = set(self.closure.scope)
        own_scopes: dict[int, Scope] = {}
        for members, scope in self.groups:
            for index in reversed(_sorted(members, self.needed)):
                if index not in wanted or self.closure.objects[index].identity[0] == "loader":
                    continue
                own = self.own[index]
                if id(own) not in own_scopes:
                    own_scopes[id(own)] = self.scope(own, {})
                # DT_SYMBOLIC counts for libraries only, not for the program (elf/dl-load.c).
                if self.table(index).symbolic and index:
                    yield index, scope.own_first(index, self.table(index)), own_scopes[id(own)]
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
