"""A report goes to JSON and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relink.report.model import from_json, to_json
from relink.system.errors import UsageError
from relink.system.findings.model import finding
from tests.support.plans import replanned
from tests.support.reports import sample_report


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(to_json(sample_report(output=True))))
    return found


def test_a_report_comes_back() -> None:
    report = sample_report(output=True)
    again = from_json(document())
    assert to_json(again) == to_json(report)
    assert (again.findings, again.loads, again.files) == (report.findings, report.loads, report.files)


def test_what_a_newer_relink_adds_is_passed_over() -> None:
    newer = document() | {"more": 1, "plan": {}, "options": {"of": "a newer one"}}
    newer["wheel"]["more"] = 2
    assert to_json(from_json(newer)) == document()


def test_another_kind_is_refused() -> None:
    for schema in ("relink.report/2", "relink.plan/1", None):
        with pytest.raises(UsageError, match="not a report of the kind"):
            from_json(document() | {"schema": schema})


def test_the_place_of_what_is_wrong_is_named() -> None:
    wrong = document()
    wrong["wheel"]["name"] = 7
    with pytest.raises(UsageError, match=r"report\.wheel\.name"):
        from_json(wrong)


@pytest.mark.parametrize("key", ["command", "wheel", "output", "target", "providers", "files", "findings"])
def test_what_a_report_must_have(key: str) -> None:
    data = document()
    del data[key]
    with pytest.raises(UsageError, match=f"report: .*missing keys .'{key}'"):
        from_json(data)


def test_an_error_decides() -> None:
    report = replanned(sample_report(), findings=(finding("RLK710", "x", "y"),))
    assert report.ok
    assert not replanned(report, findings=(*report.findings, finding("RLK101", "x", "y"))).ok
    assert sample_report().path is None
    written = sample_report(output=True)
    assert written.output is not None
    assert written.path == written.output.path
