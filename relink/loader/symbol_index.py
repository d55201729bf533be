"""The index by name of the symbol tables of a process, and the look-ups that the index alone decides.

A process may have hundreds of objects and 100,000 symbols, and relink binds it several times, with one object changed. So the
index says which tables define a symbol, and what does not depend on the rest of a scope is computed once a table. The rules are
those of glibc's elf/dl-lookup.c (do_lookup_x, check_match, _dl_lookup_symbol_x).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from relink.elf.symbols import SymbolTable, match
from relink.loader.shared_exports import SharedExports, SharedNames

__all__ = ["DirectBindings", "OrderedBindings", "SymbolIndex"]

SymbolReference: TypeAlias = tuple[str, str | None]
"""Name and version of an own definition that relocations name."""


@dataclass(frozen=True, slots=True)
class DirectBindings:
    """How the look-ups of a table find what they bind to, as far as the index by name tells.

    ld.so looks up only what relocations name.

    :ivar imports: tables that are the only ones with a definition of a name, in the right version, each with the indices in
        `SymbolTable.imports` of these imports. In every scope with that table they bind to it, whatever the order.
    :ivar ordered_imports: by name the indices of the imports that bind to the first table with a definition that matches.
    :ivar ordered_references: by name the own definitions that another table with a definition may interpose, if it comes before.
    :ivar owners: `id` of each table that defines a name of these two.
    :ivar searched: the indices of the other imports: a definition is STB_GNU_UNIQUE, so that the first look-up in the process
        decides, or the loader may abort.
    :ivar references: the other own definitions that relocations name and that another object may interpose.
    :ivar ordered: what was found for `ordered_imports` and `ordered_references`, by the order of the `owners`.
    """

    imports: tuple[tuple[SymbolTable, tuple[int, ...]], ...]
    ordered_imports: Mapping[str, tuple[int, ...]]
    ordered_references: Mapping[str, tuple[SymbolReference, ...]]
    owners: frozenset[int]
    searched: tuple[int, ...]
    references: tuple[SymbolReference, ...]
    ordered: dict[tuple[int, ...], OrderedBindings] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class OrderedBindings:
    """What the look-ups of a table give in every scope that has the tables with such definitions in one order.

    :ivar imports: by `id` of the table that they bind to, the indices of imports in `SymbolTable.imports`.
    :ivar unbound: the indices of the imports that no table satisfies.
    :ivar interposed: by `id` of the table that interposes them, own definitions.
    """

    imports: Mapping[int, tuple[int, ...]]
    unbound: tuple[int, ...]
    interposed: Mapping[int, tuple[SymbolReference, ...]]


class SymbolIndex:
    """Which symbol tables define which names.

    Tables are only added. What was computed for a table is computed again after a table was added that changes it.
    """

    def __init__(self) -> None:
        # By id(), which no other object gets as long as the table is here.
        self._listed: dict[int, SymbolTable] = {}
        self._owners: dict[str, tuple[SymbolTable, ...]] = {}
        self._shared = SharedExports(self.owners)
        self._direct: dict[int, tuple[int, DirectBindings]] = {}

    def add(self, table: SymbolTable) -> SymbolTable:
        """Add a table, unless it is there, and return it."""
        if id(table) not in self._listed:
            self._listed[id(table)] = table
            shared = {name: self._owners[name] for name in table.exports.keys() & self._owners.keys()}
            self._owners.update(dict.fromkeys(table.exports, (table,)))
            self._owners.update({name: (*others, table) for name, others in shared.items()})
            self._shared.add(table)
        return table

    def owners(self, name: str) -> Sequence[SymbolTable]:
        """Return the tables with definitions of a name, in the order in which they were added."""
        return self._owners.get(name, ())

    def shared_exports(self) -> Mapping[tuple[int, int], SharedNames]:
        """Return the names that two of these tables export, by the `id` of both (:mod:`relink.loader.shared_exports`)."""
        return self._shared.pairs()

    def direct_bindings(self, table: SymbolTable) -> DirectBindings:
        """Return which look-ups of a table the index of :meth:`owners` alone decides.

        What was found before is valid until a table is listed that defines a name that this one looks up.
        """
        count, found = self._direct.get(id(table), (0, None))
        if found is None or not self._unaffected(table, count):
            found = self._find_direct(table)
        self._direct[id(table)] = len(self._listed), found
        return found

    def _unaffected(self, table: SymbolTable, count: int) -> bool:
        """Whether no table that was listed after the first `count` defines a name that `table` looks up."""
        later = [*islice(self._listed.values(), count, None)]
        names = {item.name for item in table.imports} if later else set()
        return all(
            other.exports.keys().isdisjoint(names) and other.exports.keys().isdisjoint(table.exports.keys())
            for other in later
        )

    def _find_direct(self, table: SymbolTable) -> DirectBindings:
        imports: dict[int, list[int]] = {}
        searched = []
        exact = table.exact
        for place, item in enumerate(table.imports):
            if not item.relocated:
                continue
            owner = self._sole_owner(item.name, item.version, exact=item.index in exact)
            # Of a library without versions that a version record names, the loader aborts (elf/dl-lookup.c, check_match): search.
            if owner is None or (item.version is not None and not (owner.verneeds or owner.verdefs)):
                searched.append(place)
            else:
                imports.setdefault(id(owner), []).append(place)
        ordered: dict[str, list[int]] = {}
        others = []
        for place in searched:
            item = table.imports[place]
            if self._order_decides(item.name, item.version):
                ordered.setdefault(item.name, []).append(place)
            else:
                others.append(place)
        references: dict[str, list[SymbolReference]] = {}
        other_references = []
        for symbol in table.references:
            if self._sole_owner(*symbol) is table:
                continue
            if self._order_decides(symbol[0], None) and _may_be_interposed(table, *symbol):
                references.setdefault(symbol[0], []).append(symbol)
            else:
                other_references.append(symbol)
        return DirectBindings(
            tuple((self._listed[owner], tuple(places)) for owner, places in imports.items()),
            {name: tuple(places) for name, places in ordered.items()},
            {name: tuple(symbols) for name, symbols in references.items()},
            frozenset(
                id(owner) for name in ordered.keys() | references.keys() for owner in self.owners(name)
            ),
            tuple(others),
            tuple(other_references),
        )

    def _order_decides(self, name: str, version: str | None) -> bool:
        """Whether the order of the tables in a scope alone decides which definition a look-up finds."""
        return all(
            (version is None or owner.verneeds or owner.verdefs)
            and all(export.binding != "unique" for export in owner.exports[name])
            for owner in self.owners(name)
        )

    def ordered_bindings(
        self, table: SymbolTable, order: Sequence[SymbolTable], roots: Collection[int]
    ) -> OrderedBindings:
        """Return what the ordered look-ups of a table give in a scope.

        Only the order of the tables with a definition counts. Closures of many roots differ in the roots alone, so what is found
        without the roots is computed once, and only the names that a root defines are looked up anew.

        :param order: the tables of the scope.
        :param roots: `id` of the tables in which other closures may differ from this one.
        """
        direct = self.direct_bindings(table)
        relevant = [other for other in order if id(other) in direct.owners]
        shared = [other for other in relevant if id(other) not in roots]
        key = tuple(map(id, shared))
        found = direct.ordered.get(key)
        if found is None:
            names = direct.ordered_imports.keys() | direct.ordered_references.keys()
            nothing = OrderedBindings({}, (), {})
            found = direct.ordered[key] = self._look_up(table, direct, shared, names, nothing)
        if len(shared) == len(relevant):
            return found
        there = {id(other): other for other in relevant if id(other) in roots}
        looked_up = direct.ordered_imports.keys() | direct.ordered_references.keys()
        names = {name for other in there.values() for name in looked_up & other.exports.keys()}
        return self._look_up(table, direct, relevant, names, found)

    def _look_up(
        self,
        table: SymbolTable,
        direct: DirectBindings,
        order: Sequence[SymbolTable],
        names: Collection[str],
        known: OrderedBindings,
    ) -> OrderedBindings:
        """Return `known` with these names looked up anew."""
        places = {id(other): place for place, other in reversed([*enumerate(order)])}
        imports: dict[int | None, list[int]] = {}
        interposed: dict[int, list[SymbolReference]] = {}
        exact = table.exact
        for name in names:
            owners = [
                order[place] for place in sorted(places[id(o)] for o in self.owners(name) if id(o) in places)
            ]
            for at in direct.ordered_imports.get(name, ()):
                item = table.imports[at]
                first = _first(owners, name, item.version, exact=item.index in exact)
                imports.setdefault(None if first is None else id(first), []).append(at)
            for symbol in direct.ordered_references.get(name, ()):
                first = _first(owners, *symbol)
                if first is not None and first is not table:
                    interposed.setdefault(id(first), []).append(symbol)
        if not known.imports and not known.unbound and not known.interposed:
            return OrderedBindings(
                {owner: tuple(found) for owner, found in imports.items() if owner is not None},
                tuple(imports.get(None, ())),
                {owner: tuple(found) for owner, found in interposed.items()},
            )
        anew = {at for name in names for at in direct.ordered_imports.get(name, ())}
        again = {symbol for name in names for symbol in direct.ordered_references.get(name, ())}
        bound = {
            owner: (*(at for at in found if at not in anew), *imports.pop(owner, ()))
            for owner, found in known.imports.items()
        }
        kept = {
            owner: (*(symbol for symbol in found if symbol not in again), *interposed.pop(owner, ()))
            for owner, found in known.interposed.items()
        }
        unbound = (*(at for at in known.unbound if at not in anew), *imports.pop(None, ()))
        return OrderedBindings(
            {**bound, **{owner: tuple(found) for owner, found in imports.items() if owner is not None}},
            unbound,
            {**kept, **{owner: tuple(found) for owner, found in interposed.items()}},
        )

    def _sole_owner(self, name: str, version: str | None, *, exact: bool = False) -> SymbolTable | None:
        """Return the only table with definitions of a name, if a look-up of `version` matches one.

        None for STB_GNU_UNIQUE: the first definition in the process counts, which another scope may have found.
        """
        owners = self._owners.get(name, ())
        if len(owners) != 1:
            return None
        export = match(owners[0].exports[name], version, exact=exact)
        return None if export is None or export.binding == "unique" else owners[0]


def _first(
    owners: Sequence[SymbolTable], name: str, version: str | None, *, exact: bool = False
) -> SymbolTable | None:
    """Return the first of these tables with a definition that matches."""
    return next((owner for owner in owners if match(owner.exports[name], version, exact=exact)), None)


def _may_be_interposed(table: SymbolTable, name: str, version: str | None) -> bool:
    """Whether a look-up finds the table's own definition, unless another one comes before it.

    ld.so binds a protected definition to the object itself (elf/dl-lookup.c, _dl_lookup_symbol_x).
    """
    own = (*table.rejected.get(name, ()), *table.exports.get(name, ()))
    return match(table.exports.get(name, ()), version) is not None and all(
        export.visibility != "protected" for export in own if export.version == version
    )
