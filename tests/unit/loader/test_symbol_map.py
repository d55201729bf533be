"""A mapping of symbols to objects, whose groups become a dictionary on demand."""

from __future__ import annotations

import pytest

from relink.elf.symbols import Import
from relink.loader.symbol_map import SymbolMap

IMPORTS = [
    Import(name, version, None, "global", "func", 1)
    for name, version in (("a", "V1"), ("b", None), ("c", "V2"))
]


def test_groups_and_single_symbols_are_one_mapping() -> None:
    found = SymbolMap()
    found.add_imports(0, IMPORTS, [0, 2], 5)
    found.add((1, "d", None), 6)
    assert dict(found) == {(0, "a", "V1"): 5, (0, "c", "V2"): 5, (1, "d", None): 6}
    assert len(found) == 3
    assert found[0, "a", "V1"] == 5
    with pytest.raises(KeyError):
        found[0, "b", None]  # its index was not among the places


def test_what_is_added_after_it_was_asked_counts() -> None:
    found = SymbolMap()
    found.add((0, "a", None), 1)
    assert dict(found) == {(0, "a", None): 1}
    found.add_imports(0, IMPORTS, [1], 2)
    assert found[0, "b", None] == 2
    found.add((0, "b", None), 3)
    assert found[0, "b", None] == 3


def test_groups() -> None:
    found = SymbolMap()
    found.add((1, "d", None), 6)
    found.add_imports(0, IMPORTS, [0, 1], 5)
    said = [(requester, target, list(names)) for requester, target, names in found.groups()]
    assert said == [(0, 5, [("a", "V1"), ("b", None)]), (1, 6, [("d", None)])]
