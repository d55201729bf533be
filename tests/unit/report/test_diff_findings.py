"""Differences that no plan explains, as findings."""

from __future__ import annotations

from relink.report.diff_findings import diff_findings
from tests.unit.report.test_diff_text import compared


def test_each_unexplained_difference_is_a_finding_about_the_new_wheel() -> None:
    found = diff_findings(compared(unexplained=("demo/a.so: changed", "demo/b.so: added")))
    assert [(item.code, item.subject, item.message) for item in found] == [
        ("RLK621", "new.whl", "demo/a.so: changed; no plan explains this difference"),
        ("RLK621", "new.whl", "demo/b.so: added; no plan explains this difference"),
    ]
    assert {item.level for item in found} == {"error"}


def test_an_explained_difference_is_none() -> None:
    assert diff_findings(compared(verdict="only what the plan says", added=("x",))) == ()
