"""JSON that relink printed or wrote before becomes a report again; everything else is refused by the file's name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relink.library import plan, relink
from relink.planning.model.model import to_json as plan_json
from relink.report.model import Report, to_json
from relink.report.saved import read_saved
from relink.system.errors import UsageError
from tests.support.works import Works


@pytest.fixture
def report(works: Works, tmp_path: Path) -> Report:
    return relink(works.small(tmp_path), works.options(tmp_path / "out", dry_run=True))


def test_a_report(report: Report) -> None:
    found, is_plan = read_saved(json.dumps(to_json(report)), "a.json")
    assert not is_plan
    assert to_json(found) == to_json(report)


def test_a_plan(works: Works, tmp_path: Path) -> None:
    made = plan(works.small(tmp_path), works.options(tmp_path / "out"))
    found, is_plan = read_saved(json.dumps(plan_json(made)), "a.json")
    assert is_plan
    assert (found.files, found.findings, found.output, found.timings) == (made.files, made.findings, None, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", r"a\.json: this is not JSON"),
        ("[{}, {}]", r"a\.json: 2 reports; a page shows one"),
        ('{"schema": "relink.reports/1", "reports": []}', r"a\.json: 0 reports; a page shows one"),
        ("7", r"a\.json: this is no report of relink"),
        ('{"schema": "relink.report/9"}', r"a\.json: this is no report of relink"),
        ('{"schema": "relink.report/1"}', r"a\.json: "),
    ],
)
def test_what_is_neither(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_saved(text, "a.json")
