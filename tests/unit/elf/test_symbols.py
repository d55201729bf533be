"""Which definition a reference to a version takes."""

from __future__ import annotations

import pytest

from relink.elf.symbols import Export, match
from tests.unit.elf.handmade import ONE, TWO

BASE = Export(None, False, "global", "func", "default", 1)
FOUR = Export("FOUR", False, "global", "func", "default", 4)
OLD = Export("OLD", True, "global", "func", "default", 3)


@pytest.mark.parametrize(
    ("definitions", "version", "found"),
    [
        pytest.param((ONE, TWO), "ONE", ONE, id="hidden by exact version"),
        pytest.param((ONE, TWO), "TWO", TWO, id="default by exact version"),
        pytest.param((ONE, TWO), "NONE", None, id="no such version"),
        pytest.param((BASE,), "ANY", BASE, id="unversioned definition serves any version"),
        pytest.param(
            (Export(None, True, "global", "func", "default", 1),), "ANY", None, id="unless it is hidden"
        ),
        pytest.param((BASE,), None, BASE, id="no versions at all"),
        pytest.param((ONE, TWO), None, ONE, id="unversioned reference: the first node, even hidden"),
        pytest.param((TWO,), None, TWO, id="unversioned reference: the only visible one"),
        pytest.param((TWO, FOUR), None, None, id="unversioned reference: ambiguous"),
        pytest.param((OLD, FOUR), None, FOUR, id="unversioned reference: hidden ones do not count"),
        pytest.param((OLD,), None, None, id="unversioned reference: hidden alone"),
        pytest.param((TWO, FOUR, BASE), None, BASE, id="unversioned reference: base wins"),
        pytest.param((), None, None, id="nothing"),
    ],
)
def test_match(definitions: tuple[Export, ...], version: str | None, found: Export | None) -> None:
    assert match(definitions, version) == found
