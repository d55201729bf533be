"""loader.tables: what one table alone defines needs no search, until another defines it, too; the walk through one scope."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from relink.elf.image import read_image
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import Export, SymbolTable
from relink.loader.closure import LoadedObject
from relink.loader.loading import trace
from relink.loader.search import Environment, FoundBy
from relink.loader.seen_files import Files
from relink.loader.tables import Candidates, Scope, SymbolIndex, Tables, shared_names
from tests.support import elf_builder
from tests.support.effort import lines_run
from tests.support.elf_builder import Library, build
from tests.unit.loader.planted import FIVE, compiled
from tests.unit.loader.symbol_tables import table


def member(name: str) -> LoadedObject:
    """A member of the wheel, as it lies in a closure."""
    return LoadedObject(
        f"/site/{name}", name, read_image(build(Library()), name), ("member", name), FoundBy("root")
    )


def test_tables_over_other_members_share_the_index() -> None:
    before, changed = table(imports="a", exports="b"), table(imports="a", exports="c")
    known = Tables(Files(), {"x.so": before, "y.so": before})
    other = known.over(Files(), {"x.so": before, "y.so": changed})
    assert other.of(member("x.so")) is before
    assert other.of(member("y.so")) is changed
    assert other.index is known.index


def test_two_programs_do_not_share_a_table(environment: Environment, lib: Path) -> None:
    tables = Tables(environment.files, {})
    for name in ("one", "two"):
        path = compiled(lib / f"lib{name}.so", f"int {name}(void) {{ return 1; }}")
        table = tables.of(trace(environment, str(path)).objects[0])
        assert name in table.exports


def test_a_file_that_went_away_has_no_symbols(environment: Environment, lib: Path) -> None:
    path = compiled(lib / "liba.so", FIVE)
    closure = trace(environment, str(path))
    path.unlink()
    assert Tables(environment.files, {}).of(closure.objects[0]) == SymbolTable()


def test_what_members_look_up_is_found_once() -> None:
    """Each defines what all of them look up: a table that came later would change the others' look-ups."""
    members = {f"{number}.so": table(imports="a", exports=f"a b{number}") for number in range(3)}
    tables = Tables(Files(), members)
    first = tables.index.lookups(tables.of(member("0.so")))
    for name in members:
        tables.of(member(name))
    assert tables.index.lookups(members["0.so"]) is first
    assert [*tables.index.owners("a")] == [*members.values()]


PLAIN = Export(None, hidden=False, binding="global", type="func", visibility="default", index=1)


def exporting(**exports: Export) -> SymbolTable:
    return SymbolTable(exports={name: (export,) for name, export in exports.items()})


def test_only_strong_visible_definitions_of_one_version() -> None:
    versioned = replace(PLAIN, version="ONE", index=2)
    one = exporting(a=PLAIN, b=replace(PLAIN, binding="weak"), c=versioned, d=versioned, ONE=versioned)
    two = exporting(a=replace(PLAIN, undefined=True), b=PLAIN, c=versioned, d=PLAIN, ONE=versioned)
    three = exporting(a=replace(PLAIN, visibility="protected"), c=replace(versioned, version="TWO"))
    assert shared_names(one, two) == shared_names(two, one) == {"c"}
    assert not shared_names(one, three)
    assert not shared_names(two, three)


@given(st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abcd")))
def test_what_every_object_has_is_not_shared(one: set[str], two: set[str]) -> None:
    first, second = (exporting(_init=PLAIN, **dict.fromkeys(names, PLAIN)) for names in (one, two))
    assert shared_names(first, second) == one & two


NAMES = st.sampled_from("abcd")
Said: TypeAlias = tuple[object, ...]


def texts(max_size: int) -> st.SearchStrategy[str]:
    return st.lists(NAMES, max_size=max_size, unique=True).map("".join)


def index_of(tables: Sequence[SymbolTable]) -> SymbolIndex:
    index = SymbolIndex()
    for one in tables:
        index.add(one)
    return index


def said(index: SymbolIndex, one: SymbolTable) -> Said:
    """The look-ups of a table, without the identity of their candidates, which another index does not share."""
    found = index.lookups(one)
    return (
        *(
            tuple((candidates.tables, *items) for candidates, *items in grouped)
            for grouped in (found.imports, found.references)
        ),
        found.searched_imports,
        found.searched_references,
    )


@given(st.lists(st.builds(table, texts(3), texts(2), texts(2), texts(1)), max_size=6))
def test_what_is_known_is_what_would_be_found_anew(row: list[SymbolTable]) -> None:
    index = SymbolIndex()
    for number, one in enumerate(row, 1):
        index.add(one)
        anew = index_of(row[:number])
        for other in row[:number]:
            assert said(index, other) == said(anew, other)


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
    found = index.lookups(first)
    assert said(index, first) == ((({id(owner)}, (0,), (("a", None),)),), (), (), ())
    assert index.lookups(first) is found
    index.add(later)
    assert (index.lookups(first) is found) is not again
    assert index.lookups(first) is index.lookups(first)


def test_look_ups_with_the_same_candidates_are_one_group() -> None:
    library, one, other = (
        table(imports="abc", references="d", exports="d"),
        table(exports="abd"),
        table("", "c"),
    )
    index = index_of([library, one, other])
    (first, places, names), (second, rest, _) = index.lookups(library).imports
    assert (first.tables, places, second.tables, rest) == (
        frozenset({id(one)}),
        (0, 1),
        frozenset({id(other)}),
        (2,),
    )
    assert names == (("a", None), ("b", None))
    ((both, symbols),) = index.lookups(library).references
    assert (both.tables, symbols) == (frozenset({id(library), id(one)}), (("d", None),))


def test_unique_definitions_are_candidates_of_their_own() -> None:
    """The first look-up in the process decides, so they are not in one group with others of the same tables."""
    library, owner = table(imports="ac", unique="b", references="b"), table(exports="a", unique="c")
    index = index_of([library, owner])
    (plain, _, _), (unique, _, _) = index.lookups(library).imports
    assert (plain.tables, plain.unique) == (frozenset({id(owner)}), frozenset())
    assert (unique.tables, unique.unique) == (frozenset({id(owner)}), frozenset({id(owner)}))
    # Its own unique definition, too, though nobody else has one: what is loaded later binds to it.
    ((own, symbols),) = index.lookups(library).references
    assert (own.unique, symbols) == (frozenset({id(library)}), (("b", None),))


def test_what_may_be_unique_in_one_version_is_searched() -> None:
    """A look-up of another version has other candidates, and the first of both decides."""
    library, owner = table(imports="a", references="b", exports="b"), table(unique="ab")
    one = replace(PLAIN, version="ONE", index=2)
    index = index_of([library, owner, exporting(a=one, b=one)])
    found = index.lookups(library)
    assert (found.imports, found.searched_imports) == ((), (0,))
    assert (found.references, found.searched_references) == ((), (("b", None),))


def test_names_that_all_tables_define_are_looked_up_once() -> None:
    """As many tables export the same names and name them in relocations: extension modules that share C++ code."""

    def work(count: int) -> int:
        tables = [table(exports="abcdefgh", references="abcdefgh") for _ in range(count)]
        index = index_of(tables)
        return lines_run(lambda: [index.lookups(one) for one in tables])

    assert work(160) < 3 * work(80)


def indexed(*libraries: Library) -> tuple[SymbolIndex, list[SymbolTable]]:
    index = SymbolIndex()
    return index, [index.add(read_symbols(build(library))) for library in libraries]


def test_the_first_of_equal_definitions_answers() -> None:
    """In the order of the scope, whichever was read first (elf/dl-lookup.c, do_lookup_x)."""
    same = Library("libsame.so", exports=(elf_builder.Export("f"),))
    symbols, found = indexed(same, same, same)
    for order in permutations(range(3)):
        scope = Scope([(index, found[index]) for index in order], symbols, {}, {})
        assert scope.find("f", None, None) == (order[0], "undefined")


def test_an_object_that_is_in_a_scope_twice_counts_where_it_comes_first() -> None:
    """DT_SYMBOLIC puts an object in front of the scope that has it further down, too (elf/dl-load.c)."""
    same = Library("libsame.so", exports=(elf_builder.Export("f"),))
    symbols, (mine, other) = indexed(same, same)
    scope = Scope([(1, other), (2, mine)], symbols, {}, {}, own=(2, mine))
    assert scope.find("f", None, None) == (2, "undefined")
    assert scope.index(mine) == 2
    # One file that is mapped as two objects: the first of them.
    assert Scope([(4, mine), (3, mine)], symbols, {}, {}).index(mine) == 4


def test_what_many_objects_define_is_searched_once() -> None:
    def scope_of(count: int) -> tuple[Scope, Candidates]:
        tables = [table(exports="abcd", references="abcd") for _ in range(count)]
        symbols = SymbolIndex()
        for one in tables:
            symbols.add(one)
        ((candidates, _),) = symbols.lookups(tables[0]).references
        return Scope([*enumerate(tables)], symbols, {}, {}), candidates

    def found(count: int) -> int:
        scope, candidates = scope_of(count)
        assert scope.first(candidates) == 0
        return lines_run(lambda: [scope.find(name, None, None) for name in "abcd" * count])

    def first(count: int) -> int:
        scope, candidates = scope_of(count)
        return lines_run(lambda: [scope.first(candidates) for _ in range(count)])

    for work in (found, first):
        assert work(160) < 3 * work(80)
