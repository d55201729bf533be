"""loader.shared_exports: the names that two symbol tables both export, however many tables come later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from relink.elf.symbols import Export, SymbolTable
from relink.loader.shared_exports import SharedExports

PLAIN = Export(None, hidden=False, binding="global", type="func", visibility="default", index=1)


def table(**exports: Export) -> SymbolTable:
    return SymbolTable(exports={name: (export,) for name, export in exports.items()})


class Index:
    """What :class:`relink.loader.tables.Tables` keeps: the tables by the names that they define, in the order of adding."""

    def __init__(self) -> None:
        self.tables: list[SymbolTable] = []
        self.shared = SharedExports(self.owners)

    def owners(self, name: str) -> Sequence[SymbolTable]:
        return [table for table in self.tables if name in table.exports]

    def add(self, *tables: SymbolTable) -> None:
        for table in tables:
            self.tables.append(table)
            self.shared.add(table)

    def names(self) -> Mapping[tuple[int, int], list[str]]:
        """Return what is shared by the places of the tables."""
        places = {id(table): place for place, table in enumerate(self.tables)}
        pairs = self.shared.pairs().items()
        return {(places[first], places[second]): sorted(names.names) for (first, second), names in pairs}


def test_a_table_that_is_added_later() -> None:
    index = Index()
    index.add(table(a=PLAIN, b=PLAIN, _init=PLAIN), table(b=PLAIN, _init=PLAIN))
    assert index.names() == {(0, 1): ["b"]}
    index.add(table(a=PLAIN, b=PLAIN))
    assert index.names() == {(0, 1): ["b"], (0, 2): ["a", "b"], (1, 2): ["b"]}


def test_only_strong_visible_definitions_of_one_version() -> None:
    versioned = replace(PLAIN, version="ONE", index=2)
    index = Index()
    index.add(
        table(a=PLAIN, b=replace(PLAIN, binding="weak"), c=versioned, d=versioned, ONE=versioned),
        table(a=replace(PLAIN, undefined=True), b=PLAIN, c=versioned, d=PLAIN, ONE=versioned),
        table(a=replace(PLAIN, visibility="protected"), c=replace(versioned, version="TWO")),
    )
    assert index.names() == {(0, 1): ["c"]}


def test_three_examples_in_order() -> None:
    index = Index()
    index.add(*(table(**dict.fromkeys("dacb", PLAIN)) for _ in range(2)))
    (found,) = index.shared.pairs().values()
    assert found.examples == ("a", "b", "c")


@given(st.lists(st.lists(st.sampled_from("abcd"), unique=True), max_size=6), st.integers(0, 6))
def test_the_order_of_asking_does_not_matter(rows: list[list[str]], asked: int) -> None:
    index = Index()
    for place, names in enumerate(rows):
        if place == asked:
            index.names()
        index.add(table(**dict.fromkeys(names, PLAIN)))
    both = {pair: sorted({*rows[pair[0]]} & {*rows[pair[1]]}) for pair in combinations(range(len(rows)), 2)}
    assert index.names() == {pair: names for pair, names in both.items() if names}
