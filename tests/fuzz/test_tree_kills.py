"""In-place edits of a tree killed at random moments: what it was before or after, never between.

In one step that holds for what the kill leaves; file by file, for what the next run makes of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.kills import LONG, Property, run_kills
from tests.support.amount import amount
from tests.support.works import Works

WAYS = pytest.mark.parametrize("way", ["one-step", "file-by-file"])


@WAYS
@pytest.mark.slow(reason="several seconds for one kill")
def test_some_kills(works: Works, tmp_path: Path, record_property: Property, way: str) -> None:
    run_kills("tree_killing", works, tmp_path / "scratch", amount(10), record_property, way)


@WAYS
@pytest.mark.fuzz
def test_many_kills(works: Works, tmp_path: Path, record_property: Property, way: str) -> None:
    run_kills("tree_killing", works, tmp_path / "scratch", LONG, record_property, way)
