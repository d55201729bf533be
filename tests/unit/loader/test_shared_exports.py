"""loader.shared_exports: the names that two symbol tables both export."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from relink.elf.symbols import Export, SymbolTable
from relink.loader.shared_exports import shared_names

PLAIN = Export(None, hidden=False, binding="global", type="func", visibility="default", index=1)


def table(**exports: Export) -> SymbolTable:
    return SymbolTable(exports={name: (export,) for name, export in exports.items()})


def test_only_strong_visible_definitions_of_one_version() -> None:
    versioned = replace(PLAIN, version="ONE", index=2)
    one = table(a=PLAIN, b=replace(PLAIN, binding="weak"), c=versioned, d=versioned, ONE=versioned)
    two = table(a=replace(PLAIN, undefined=True), b=PLAIN, c=versioned, d=PLAIN, ONE=versioned)
    three = table(a=replace(PLAIN, visibility="protected"), c=replace(versioned, version="TWO"))
    assert shared_names(one, two) == shared_names(two, one) == {"c"}
    assert not shared_names(one, three)
    assert not shared_names(two, three)


@given(st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abcd")))
def test_what_every_object_has_is_not_shared(one: set[str], two: set[str]) -> None:
    first, second = (table(_init=PLAIN, **dict.fromkeys(names, PLAIN)) for names in (one, two))
    assert shared_names(first, second) == one & two
