"""What `make bench-check` calls a regression, on the ratios that are recorded."""

from __future__ import annotations

import json

import pytest

from benchmarks.check import RECORDED, Ratio, regressions

KINDS = ("processor", "wall")


@pytest.fixture
def recorded() -> dict[str, Ratio]:
    return {kind: Ratio(**value) for kind, value in json.loads(RECORDED.read_text()).items()}


def test_what_was_recorded_is_no_regression(recorded: dict[str, Ratio]) -> None:
    assert set(recorded) == set(KINDS)
    assert regressions(recorded, recorded) == []
    assert regressions(recorded, {kind: Ratio(ratio.limit, 0) for kind, ratio in recorded.items()}) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_ratio_that_doubles_is_a_regression(recorded: dict[str, Ratio], kind: str) -> None:
    """So the spread that is recorded is not wide enough to hide that."""
    slower = recorded | {kind: Ratio(2 * recorded[kind].median, 0)}
    (line,) = regressions(recorded, slower)
    assert line.startswith(f"{kind} time")


def test_one_slow_turn_is_none() -> None:
    recorded = {"wall": Ratio.of([0.20, 0.21, 0.22])}
    assert regressions(recorded, {"wall": Ratio.of([0.21, 0.21, 0.9])}) == []
    assert regressions(recorded, {"wall": Ratio.of([0.21, 0.8, 0.9])})
