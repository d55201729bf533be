"""What one table alone defines needs no search, until another defines it, too."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relink.elf.symbols import SymbolTable
from relink.loader.symbol_index import DirectBindings, SymbolIndex
from tests.unit.loader.symbol_tables import table

NAMES = st.sampled_from("abcd")


def texts(max_size: int) -> st.SearchStrategy[str]:
    return st.lists(NAMES, max_size=max_size, unique=True).map("".join)


def index_of(tables: Sequence[SymbolTable]) -> SymbolIndex:
    index = SymbolIndex()
    for one in tables:
        index.add(one)
    return index


@given(st.lists(st.builds(table, texts(3), texts(2), texts(2), texts(1)), max_size=6))
def test_what_is_known_is_what_would_be_found_anew(row: list[SymbolTable]) -> None:
    index = SymbolIndex()
    for number, one in enumerate(row, 1):
        index.add(one)
        anew = index_of(row[:number])
        for other in row[:number]:
            assert index.direct_bindings(other) == anew.direct_bindings(other)


@pytest.mark.parametrize(
    ("later", "again"),
    [
        (table(exports="x", imports="ad"), False),
        (table(exports="a"), True),
        (table(exports="d"), True),
        (table(unique="d"), True),
    ],
)
def test_only_names_that_are_looked_up_matter(later: SymbolTable, again: bool) -> None:
    first, owner = table(imports="a", exports="bd", references="d"), table(exports="a")
    index = index_of([first, owner])
    found = index.direct_bindings(first)
    assert found == DirectBindings(((owner, (0,)),), {}, {}, frozenset(), (), ())
    assert index.direct_bindings(first) is found
    index.add(later)
    assert (index.direct_bindings(first) is found) is not again
    assert (index.direct_bindings(first) == found) is not again
    assert index.direct_bindings(first) is index.direct_bindings(first)


def test_a_root_that_interposes_a_name_is_seen_by_itself_alone() -> None:
    library, base = table(imports="ab"), table(exports="ab")
    first, second = table(exports="a"), table(exports="b")
    index = index_of([library, base, first, second])
    places = {id(base): "base", id(first): "first", id(second): "second"}

    def found(*order: SymbolTable) -> dict[str, str]:
        bindings = index.ordered_bindings(library, order, {id(order[0])})
        return {
            library.imports[at].name: places[owner] for owner, ats in bindings.imports.items() for at in ats
        }

    assert found(first, library, base) == {"a": "first", "b": "base"}
    assert found(second, library, base) == {"a": "base", "b": "second"}
    assert found(first, library, base) == {"a": "first", "b": "base"}
