"""relink killed at random moments: the output is what was there before or right, and the next run removes what was left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.kills import LONG, Property, run_kills
from tests.support.amount import amount
from tests.support.works import Works


@pytest.mark.slow(reason="ten seconds for two kills")
def test_some_kills(works: Works, tmp_path: Path, record_property: Property) -> None:
    run_kills("killing", works, tmp_path / "scratch", amount(20), record_property)


@pytest.mark.fuzz
def test_many_kills(works: Works, tmp_path: Path, record_property: Property) -> None:
    run_kills("killing", works, tmp_path / "scratch", LONG, record_property)
