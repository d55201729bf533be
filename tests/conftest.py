"""For every test: findings are whole sentences with a next step, and a test that is said to trigger a code does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relink.plan import findings
from relink.plan.findings import Finding
from tests.support.triggers import unfinished


@pytest.fixture(autouse=True)
def emitted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Finding]]:
    """Note the findings that are made, and hold each to what ``relink rules`` promises of it."""
    made: list[Finding] = []

    def note(*fields: str) -> Finding:
        made.append(Finding(*fields))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(findings, "Finding", note)
    yield made
    if request.node.get_closest_marker("made_up_findings") is None:
        assert [found for found in made if unfinished(found)] == []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "made_up_findings: makes findings that relink itself would not")
