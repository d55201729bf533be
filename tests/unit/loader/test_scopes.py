"""The walk through one scope."""

from __future__ import annotations

from itertools import permutations

from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import SymbolTable
from relink.loader.scopes import Scope
from relink.loader.tables import Candidates, SymbolIndex
from tests.support.effort import lines_run
from tests.support.elf_builder import Export, Library, build
from tests.unit.loader.symbol_tables import table


def indexed(*libraries: Library) -> tuple[SymbolIndex, list[SymbolTable]]:
    index = SymbolIndex()
    return index, [index.add(read_symbols(build(library))) for library in libraries]


def test_the_first_of_equal_definitions_answers() -> None:
    """In the order of the scope, whichever was read first (elf/dl-lookup.c, do_lookup_x)."""
    same = Library("libsame.so", exports=(Export("f"),))
    symbols, found = indexed(same, same, same)
    for order in permutations(range(3)):
        scope = Scope([(index, found[index]) for index in order], symbols, {}, {})
        assert scope.find("f", None, None) == (order[0], "undefined")


def test_an_object_that_is_in_a_scope_twice_counts_where_it_comes_first() -> None:
    """DT_SYMBOLIC puts an object in front of the scope that has it further down, too (elf/dl-load.c)."""
    same = Library("libsame.so", exports=(Export("f"),))
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
