"""What relink doctor finds where there is nothing, and that each vendor is asked about its own prefixes."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.planning.checks.machine import check_machine, to_json
from relink.report.doctor_text import doctor_text
from tests.support.works import Works


def test_no_gpu_no_nodes_no_rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relink.planning.checks.machine.find_places", lambda *_: ())
    found = check_machine([], str(tmp_path), {})
    assert {item.code for item in found.findings if item.level == "error"} == {"RLK421", "RLK424"}
    (none,) = (item for item in found.findings if item.code == "RLK421")
    nodes = ("GPU", f"{tmp_path}/dev/kfd", f"{tmp_path}/dev/dri/renderD*")
    assert none.subjects == nodes
    assert "group" not in none.remedy
    text = "\n".join(line.plain for line in doctor_text(found))
    assert "no GPU" in text
    assert "renderD*: not there" in text


def test_the_facts_are_of_the_machine_and_of_each_prefix(works: Works, tmp_path: Path) -> None:
    data = to_json(check_machine([str(works.prefix)], str(tmp_path), {}))
    assert data["schema"] == "relink.doctor/1"
    assert (data["gpus"], data["kfd"]) == ([], False)
    assert [(one["path"], one["rocm_version"]) for one in data["prefixes"]] == [(str(works.prefix), "7.2.4")]
