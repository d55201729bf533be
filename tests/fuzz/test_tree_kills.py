"""Relinks of a tree killed at random moments: the copy is whole or not there, and the tree is what it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.kills import LONG, Property, run_kills
from tests.support.amount import amount
from tests.support.works import Works


@pytest.mark.slow(reason="several seconds for one kill")
def test_some_kills(works: Works, tmp_path: Path, record_property: Property) -> None:
    run_kills("tree_killing", works, tmp_path / "scratch", amount(10), record_property)


@pytest.mark.fuzz
def test_many_kills(works: Works, tmp_path: Path, record_property: Property) -> None:
    run_kills("tree_killing", works, tmp_path / "scratch", LONG, record_property)
