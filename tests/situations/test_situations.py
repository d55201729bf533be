"""Each situation is answered truly, and what is printed for it leads out of it; docs/situations.md is the table."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.situations.cases import SITUATIONS
from tests.situations.scene import Check, Scene, grade
from tests.support.elf_builder import SUPPORTED, WHY_NOT

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


@pytest.mark.slow(reason="several processes of relink, pip and Python for each")
@pytest.mark.parametrize("name", SITUATIONS)
def test_it_is_answered(name: str, tmp_path: Path) -> None:
    _, situation = SITUATIONS[name]
    checks = list(situation(Scene(tmp_path / "scene", (sys.executable, "-m", "relink"))))
    assert len(checks) > 0
    assert grade(checks) == "good", [text for _, ok, text in checks if not ok]


def test_the_page_has_each() -> None:
    page = Path("docs/situations.md").read_text()
    for report, situation in SITUATIONS.values():
        assert f"| {' '.join((situation.__doc__ or '').split())} | {report} | " in page


def test_grades() -> None:
    true: Check = ("answer", True, "")
    untrue: Check = ("answer", False, "")
    no_way: Check = ("way out", False, "")
    assert grade([true]) == "good"
    assert grade([true, no_way]) == "partly"
    assert grade([true, no_way, untrue]) == "wrong"
