"""index.running: what a summary says. tests/unit/indexes/build/test_building.py has whole runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from relink.indexes.build.recipe import Recipe
from relink.indexes.build.running import Summary

RECIPE = Recipe(Path("x"), (), (), ())


def test_when_all_is_well() -> None:
    assert Summary(red=3, refused=3).ok(RECIPE)
    assert not Summary(red=3).ok(replace(RECIPE, refused="fail"))
    assert Summary().ok(replace(RECIPE, refused="fail"))
    assert not Summary(failed=1).ok(RECIPE)
    assert not Summary(source_failures=1).ok(RECIPE)


def test_the_sentence() -> None:
    said = Summary(
        tasks=7, done_before=4, written=1, original=1, refused=1, seconds=2.04, published=True
    ).sentence()
    assert (
        said == "3 of 7 tasks in 2.0 s: 1 written, 1 need no relinking, 1 refused, 0 failed; the site is new."
    )
