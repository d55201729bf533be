"""Who looks where: the scopes of the objects of a process, and the walk through one.

Sources: glibc elf/dl-lookup.c (do_lookup_x: the walk, as it is since 2.30, where a versioned symbol may have moved to another
library; check_match: what matches, which is :func:`relink.elf.symbols.match`; do_lookup_unique), elf/dl-object.c and
elf/dl-open.c (which scopes an object has, in which order), elf/dl-load.c (DT_SYMBOLIC).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from relink.elf.symbols import SymbolTable, match
from relink.loader.closure import Closure
from relink.loader.tables import DirectBindings, Tables, breadth_first, names, needed_by

__all__ = ["Process", "Reason", "Scope"]

Reason: TypeAlias = Literal["undefined", "aborts"]


@dataclass(slots=True)
class Scope:
    """The objects that one look-up walks through, and what it found so far.

    :ivar tables: where the symbols of `order` come from.
    """

    order: list[tuple[int, SymbolTable]]
    tables: Tables
    answering: Mapping[str, tuple[int, ...]]
    unique: dict[str, int]
    known: dict[tuple[str, str | None, str | None], tuple[int | None, Reason]] = field(default_factory=dict)
    _places: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self._places = {id(table): place for place, (_, table) in reversed([*enumerate(self.order)])}

    def index(self, table: SymbolTable) -> int | None:
        """Return the first object with this table, or None where none is in the scope."""
        place = self._places.get(id(table))
        return None if place is None else self.order[place][0]

    def find(
        self, name: str, version: str | None, file: str | None, *, exact: bool = False
    ) -> tuple[int | None, Reason]:
        """Return the index of the object that defines a symbol, or None and why."""
        if exact:
            return self._walk(name, version, file, exact=True)
        key = (name, version, file)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._walk(name, version, file, exact=False)
        return found

    def _walk(
        self, name: str, version: str | None, file: str | None, *, exact: bool
    ) -> tuple[int | None, Reason]:
        blamed = self.answering.get(file, ()) if version is not None and file is not None else ()
        # Few objects define a name, so these are asked, and not all that are in the scope.
        owners = self.tables.owners(name)
        if len(owners) == 1:
            places = [self._places.get(id(owners[0]), -1)]
        else:
            places = sorted(self._places.get(id(table), -1) for table in owners)
        for place in places:
            if place < 0:
                continue
            index, table = self.order[place]
            export = match(table.exports[name], version, exact=exact)
            if export is not None:
                if index in blamed and not (table.verneeds or table.verdefs):
                    return None, "aborts"
                if export.binding == "unique":  # one for the whole process: the first that is found
                    index = self.unique.setdefault(name, index)
                return index, "undefined"
        return None, "undefined"


class Process:
    """The scopes of a closure's objects.

    The objects that are there from the start (the program, its libraries, LD_PRELOAD) look through one list, breadth first. What
    is dlopened looks through that list, then through those of the roots before it, which are taken to be opened with
    RTLD_GLOBAL as packages open what others shall find, and then through that of its own root.
    """

    def __init__(self, closure: Closure, tables: Tables) -> None:
        self.closure = closure
        self.needed = needed_by(closure)
        self.answering = names(closure)
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
        taken = set(start)
        before = list(start)
        for root in closure.roots:
            if root in (0, *preloads):
                continue
            found = breadth_first(self.needed, [root])
            self._claim(found)
            before = list(dict.fromkeys([*before, *found]))
            fresh = [index for index in found if index not in taken]
            taken.update(fresh)
            self.groups.append((fresh, self.scope(before, self._unique)))

    def _claim(self, found: Collection[int]) -> None:
        for index in found:
            self.own.setdefault(index, found)

    def table(self, index: int) -> SymbolTable:
        """Return the symbols of an object."""
        table = self._cached.get(index)
        if table is None:
            table = self._cached[index] = self._tables.of(self.closure.objects[index])
        return table

    def settled(self, index: int) -> DirectBindings:
        """Return which look-ups of an object need no walk."""
        return self._tables.settled(self.table(index))

    def scope(self, order: Iterable[int], unique: dict[str, int]) -> Scope:
        """Return a scope of these objects, with what is known to be unique."""
        return Scope([(index, self.table(index)) for index in order], self._tables, self.answering, unique)

    def scopes(self) -> Iterator[tuple[int, Scope, Scope]]:
        """Yield every object that is looked at, with its scope and its scope without what came from outside.

        The loader relocated itself long before. The order is that of relocation, which tells what is unique.
        """
        wanted = set(self.closure.scope)
        alone: dict[int, Scope] = {}
        for members, scope in self.groups:
            for index in reversed(_sorted(members, self.needed)):
                if index not in wanted or self.closure.objects[index].identity[0] == "loader":
                    continue
                own = self.own[index]
                if id(own) not in alone:
                    alone[id(own)] = self.scope(own, {})
                if self.table(index).symbolic and index:  # not for the program (elf/dl-load.c)
                    mine = [index, *(other for other, _ in scope.order)]
                    yield index, self.scope(mine, self._unique), alone[id(own)]
                else:
                    yield index, scope, alone[id(own)]


def _sorted(members: Sequence[int], needed: Mapping[int, Sequence[int]]) -> list[int]:
    """Put what needs before what is needed, the first one first in any case (elf/dl-sort-maps.c, dfs_traversal).

    Where libraries need each other in a circle, the loaders themselves differ (glibc 2.35 has another algorithm than before).
    """
    among = set(members)
    visited: set[int] = set()
    found: list[int] = []
    for start in reversed(members):
        path = [(start, iter(needed.get(start, ())))] if start not in visited else []
        visited.add(start)
        while path:
            index, left = path[-1]
            step = next((other for other in left if other in among and other not in visited), None)
            if step is None:
                found.append(index)
                path.pop()
            else:
                visited.add(step)
                path.append((step, iter(needed.get(step, ()))))
    found.reverse()
    return [*members[:1], *(index for index in found if index != members[0])]
