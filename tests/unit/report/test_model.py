"""A report goes to JSON and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relink.library import plan, relink
from relink.planning.model import to_json as plan_json
from relink.report.model import Report, from_json, read_saved, to_json
from relink.system.errors import UsageError
from relink.system.findings.model import finding
from tests.support.plans import replanned
from tests.support.reports import sample_report
from tests.support.works import Works


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
    with pytest.raises(UsageError, match=f"^report: Object missing required field `{key}`"):
        from_json(data)


def test_an_error_decides() -> None:
    report = replanned(sample_report(), findings=(finding("RLK712", "x", "y"),))
    assert report.ok
    assert not replanned(report, findings=(*report.findings, finding("RLK101", "x", "y"))).ok
    assert sample_report().path is None
    written = sample_report(output=True)
    assert written.output is not None
    assert written.path == written.output.path


@pytest.fixture
def made(works: Works, tmp_path: Path) -> Report:
    return relink(works.small(tmp_path), works.options(tmp_path / "out", dry_run=True))


def test_a_saved_report(made: Report) -> None:
    found, is_plan = read_saved(json.dumps(to_json(made)), "a.json")
    assert not is_plan
    assert to_json(found) == to_json(made)


def test_a_saved_plan(works: Works, tmp_path: Path) -> None:
    made = plan(works.small(tmp_path), works.options(tmp_path / "out"))
    found, is_plan = read_saved(json.dumps(plan_json(made)), "a.json")
    assert is_plan
    assert (found.files, found.findings, found.output, found.timings) == (made.files, made.findings, None, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", r"a\.json: this is not JSON"),
        ("[{}, {}]", r"a\.json has 2 reports, and a page shows one"),
        ('{"schema": "relink.reports/1", "reports": []}', r"a\.json has 0 reports, and a page shows one"),
        ("7", r"a\.json: this is no report of relink"),
        ('{"schema": "relink.report/9"}', r"a\.json: this is no report of relink"),
        ('{"schema": "relink.report/1"}', r"a\.json: "),
    ],
)
def test_what_is_neither_a_report_nor_a_plan(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_saved(text, "a.json")
