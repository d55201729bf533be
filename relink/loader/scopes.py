"""Who looks where: the scopes of the objects of a process, and the walk through one.

Sources: glibc elf/dl-lookup.c (do_lookup_x: the walk; check_match: what matches, which is :func:`relink.elf.symbols.match`;
do_lookup_unique), elf/dl-object.c and elf/dl-open.c (which scopes an object has, in which order), elf/dl-load.c (DT_SYMBOLIC).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from relink.elf.symbols import SymbolTable, match
from relink.loader.closure import Closure
from relink.loader.tables import Tables, breadth_first, names, needed_by

__all__ = ["Process", "Reason", "Scope"]

Reason: TypeAlias = Literal["undefined", "not in file", "aborts"]


@dataclass(slots=True)
class Scope:
    """The objects that one look-up walks through, and what it found so far."""

    order: list[tuple[int, SymbolTable]]
    answering: Mapping[str, tuple[int, ...]]
    unique: dict[str, int]
    known: dict[tuple[str, str | None, str | None], tuple[int | None, Reason]] = field(default_factory=dict)

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
        for index, table in self.order:
            definitions = table.exports.get(name)
            if definitions is not None:
                export = match(definitions, version, exact=exact)
                if export is not None:
                    if index in blamed and not (table.verneeds or table.verdefs):
                        return None, "aborts"
                    if export.binding == "unique":  # one for the whole process: the first that is found
                        index = self.unique.setdefault(name, index)  # noqa: PLW2901
                    return index, "undefined"
            if index in blamed and table.has_hash:
                return None, "not in file"
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
        self.groups: list[tuple[list[int], Scope]] = [(list(start), self._scope(start))]
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
            self.groups.append((fresh, self._scope(before)))

    def _claim(self, found: Collection[int]) -> None:
        for index in found:
            self.own.setdefault(index, found)

    def table(self, index: int) -> SymbolTable:
        """Return the symbols of an object."""
        table = self._cached.get(index)
        if table is None:
            table = self._cached[index] = self._tables.of(self.closure.objects[index])
        return table

    def _scope(self, order: Collection[int]) -> Scope:
        return Scope([(index, self.table(index)) for index in order], self.answering, self._unique)

    def scopes(self) -> Iterator[tuple[int, Scope, Scope]]:
        """Yield every object that is looked at, with its scope and its scope without what came from outside.

        The loader relocated itself long before; the order is that of relocation, last loaded first.
        """
        wanted = set(self.closure.scope)
        alone: dict[int, Scope] = {}
        for members, scope in self.groups:
            for index in reversed(members):
                if index not in wanted or self.closure.objects[index].identity[0] == "loader":
                    continue
                own = self.own[index]
                if id(own) not in alone:
                    alone[id(own)] = Scope([(i, self.table(i)) for i in own], self.answering, {})
                if self.table(index).symbolic and index:  # not for the program (elf/dl-load.c)
                    mine = [(index, self.table(index)), *scope.order]
                    yield index, Scope(mine, self.answering, self._unique), alone[id(own)]
                else:
                    yield index, scope, alone[id(own)]
