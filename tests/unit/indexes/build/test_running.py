"""index.running: what a summary says. tests/unit/indexes/build/test_building.py has whole runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from relink.indexes.build import running
from relink.indexes.build.recipe import Recipe
from relink.indexes.build.running import BuildOptions, Summary
from tests.support.built import ROOT

RECIPE = Recipe(Path("x"), (), (), ())


def test_when_all_is_well() -> None:
    assert Summary(red=3, refused=3).ok("report")
    assert not Summary(red=3).ok("fail")
    assert Summary().ok("fail")
    assert not Summary(failed=1).ok("report")
    assert not Summary(source_failures=1).ok("report")


def test_the_sentence() -> None:
    said = Summary(
        tasks=7, done_before=4, written=1, original=1, refused=1, seconds=2.04, published=True
    ).sentence()
    assert (
        said == "3 of 7 tasks in 2.0 s: 1 written, 1 need no relinking, 1 refused, 0 failed; the site is new."
    )


def test_every_figure_has_its_lines() -> None:
    summary = Summary(wheels=3, tasks=6, seconds=1.5)
    text = summary.metrics(ok=False)
    for block in text.strip().split("# TYPE ")[1:]:
        name = block.split()[0]
        assert re.fullmatch(rf"{name} gauge\n{name} [0-9.]+\n?", block), block
    assert "\nrelink_index_tasks 6\n" in text
    assert "\nrelink_index_ok 0\n" in text
    assert json.loads(json.dumps(summary.data(ok=True)))["ok"] is True


def test_the_document_has_every_figure_and_event() -> None:
    text = (ROOT / "docs" / "index-building.md").read_text()
    names = [*Summary().data(ok=True)]
    source = Path(running.__file__).read_text()
    names += re.findall(r"``(\w+)``", source.partition("Events are")[2].partition('"""')[0])
    assert len(names) > 20
    assert [name for name in names if f"`{name}`" not in text and name != "schema"] == []


def test_nothing_is_said_by_default() -> None:
    assert BuildOptions() == BuildOptions(None, None, None, None)
