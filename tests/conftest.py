"""For every test: findings are whole sentences with a next step, and a test that is said to trigger a code does."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import relink
from relink.findings import model as findings
from relink.findings.model import RULES, Finding
from relink.sandbox import OFF
from tests.support.triggers import TRIGGERS, printed, same_words, unfinished

# A module that is imported while a test runs would keep what stands in for the class of findings there.
for _module in pkgutil.walk_packages(relink.__path__, "relink."):
    if not _module.name.endswith("__main__"):
        importlib.import_module(_module.name)


@pytest.fixture(autouse=True)
def emitted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Finding]]:
    """Note the findings that are made, and hold each to what ``relink rules`` promises of it."""
    made: list[Finding] = []

    def note(*fields: str | None) -> Finding:
        made.append(Finding(*fields))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(findings, "Finding", note)
    yield made
    assert [found for found in made if unfinished(found)] == []
    for code in (code for code, test in TRIGGERS.items() if test == request.node.nodeid):
        shown = [printed(found) for found in made if found.code == code]
        assert shown, f"{code} is not emitted; name another test of it in tests/support/triggers.py"
        assert any(same_words(RULES[code].example, one) for one in shown), (
            f"the example of {code} is not what relink prints; take this:\n" + "\n".join(shown)
        )


@pytest.fixture
def unconfined(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sandbox, although none is asked for: a shell script that stands for patchelf starts others, which no sandbox allows."""
    monkeypatch.setattr("relink.sandbox._best", lambda: OFF)
