"""loader.tables: what one table alone defines needs no search, until another defines it, too."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relink.elf.image import read_image
from relink.elf.symbols import Export, Import, SymbolTable
from relink.loader.closure import LoadedObject
from relink.loader.files import Files
from relink.loader.search import FoundBy
from relink.loader.symbol_index import DirectBindings, SymbolIndex
from relink.loader.tables import Tables
from tests.support.elf_builder import Library, build

NAMES = st.sampled_from("abcd")


def export(binding: str = "global") -> tuple[Export]:
    return (Export(None, False, binding, "func", "default", 1),)  # type: ignore[arg-type]


def table(imports: str = "", exports: str = "", references: str = "", unique: str = "") -> SymbolTable:
    return SymbolTable(
        imports=tuple(Import(name, None, None, "global", "func", 1) for name in imports),
        exports={name: export() for name in exports} | {name: export("unique") for name in unique},
        references=tuple((name, None) for name in references),
    )


def member(name: str) -> LoadedObject:
    """A member of the wheel, as it lies in a closure."""
    return LoadedObject(
        f"/site/{name}", name, read_image(build(Library()), name), ("member", name), FoundBy("root")
    )


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


def test_an_equal_table_of_a_member_is_replaced_by_the_known_one() -> None:
    before, changed = table(imports="a", exports="b"), table(imports="a", exports="c")
    known = Tables(Files(), {"x.so": before, "y.so": before})
    other = known.over(Files(), {"x.so": table(imports="a", exports="b"), "y.so": changed})
    assert other.of(member("x.so")) is before
    assert other.of(member("y.so")) is changed


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
