"""index.metrics: a run as JSON and as Prometheus reads it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from relink.indexes.build.metrics import metrics_text, summary_json, write_metrics
from relink.indexes.build.running import Event, Summary
from relink.system.errors import UsageError
from tests.support.built import ROOT


def test_every_figure_has_its_lines(tmp_path: Path) -> None:
    summary = Summary(wheels=3, tasks=6, seconds=1.5, slowest=[(1.0, "x.whl", "one")])
    text = metrics_text(summary, 5.0, ok=False)
    for block in text.strip().split("# HELP ")[1:]:
        name = block.split()[0]
        assert re.fullmatch(rf"{name} .+\n# TYPE {name} gauge\n{name} [0-9.]+\n?", block), block
    assert "\nrelink_index_tasks 6\n" in text
    assert "\nrelink_index_ok 0\n" in text
    write_metrics(summary, tmp_path / "x.prom", ok=True)
    assert "\nrelink_index_ok 1\n" in (tmp_path / "x.prom").read_text()
    with pytest.raises(UsageError, match="cannot be written"):
        write_metrics(summary, tmp_path / "none" / "x.prom", ok=True)
    data = json.loads(json.dumps(summary_json(summary, ok=True)))
    assert (data["ok"], data["slowest"]) == (True, [{"seconds": 1.0, "wheel": "x.whl", "target": "one"}])


def test_the_document_has_every_figure_and_event() -> None:
    text = (ROOT / "docs" / "index-building.md").read_text()
    names = [*summary_json(Summary(), ok=True)]
    names += re.findall(r"``(\w+)``", Event.__doc__ or "")
    assert len(names) > 20
    assert [name for name in names if f"`{name}`" not in text and name != "schema"] == []
