"""index.work: one task in this process; tests/unit/indexes/build/test_building.py has whole runs."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from relink.indexes.build.pip_settings import PipSettings
from relink.indexes.build.recipe import IndexTarget
from relink.indexes.build.simple_api import ListedWheel
from relink.indexes.build.web import FetchError
from relink.indexes.build.work import (
    FetchTask,
    ForeignPrefixError,
    RelinkTask,
    fetch,
    fingerprints,
    relink_wheel,
)
from relink.report.model import Report
from relink.system.errors import UsageError, WheelError
from relink.system.findings.model import Finding
from relink.wheel.naming import parse_wheel_name
from tests.support.works import Works


def copied(value: Any) -> Any:
    """What comes out of another process."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 (relink's own)


def task_of(works: Works, wheel: Path, files: Path) -> RelinkTask:
    target = IndexTarget("one", (str(works.prefix),))
    files.mkdir(exist_ok=True)
    listed = ListedWheel(parse_wheel_name(wheel.name), wheel.as_uri())
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    expected = fingerprints((target,), str(files))["one"]
    return RelinkTask(listed, sha256, target, expected, str(files), True, PipSettings(), 1 << 30)


def test_a_task_in_another_process_is_the_same(works: Works, tmp_path: Path) -> None:
    task = task_of(works, works.small(tmp_path), tmp_path / "files")
    first = relink_wheel(copied(task))
    again = copied(relink_wheel(task))
    assert first.status == "written"
    assert again.record["file"] == first.record["file"]
    assert again.rests == first.rests
    assert list((tmp_path / "files").glob(".relink-*")) == []


def test_a_foreign_prefix(works: Works, tmp_path: Path) -> None:
    task = task_of(works, works.small(tmp_path), tmp_path / "files")
    with pytest.raises(ForeignPrefixError, match="other content"):
        relink_wheel(replace(task, fingerprint="0" * 64))
    gone = replace(task, target=replace(task.target, prefixes=("/nowhere",)))
    with pytest.raises(ForeignPrefixError, match="no such directory"):
        relink_wheel(gone)
    said = fingerprints((task.target, gone.target), "/nowhere")
    assert said == {"one": "/nowhere cannot be written here"}


def test_a_wheel_that_is_gone_is_not_refused(works: Works, tmp_path: Path) -> None:
    wheel = works.small(tmp_path)
    task = task_of(works, wheel, tmp_path / "files")
    wheel.unlink()
    assert relink_wheel(task).status == "failed"


def test_what_a_machine_cannot_do_is_not_refused(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output that cannot be written (UsageError), a cache that cannot be made, a loader that disagrees."""
    task = task_of(works, works.small(tmp_path), tmp_path / "files")
    with monkeypatch.context() as patch:
        patch.setattr("relink.indexes.build.work.carry_out", full)
        outcome = relink_wheel(task)
    assert (outcome.status, outcome.record["error"]) == ("failed", "/out: cannot be written (No space left)")
    with monkeypatch.context() as patch:
        finding = Finding("RLK602", "error", "demo/a.so", "the loader maps another file", "")
        patch.setattr("relink.indexes.build.work.carry_out", partial(disagreeing, finding))
        outcome = relink_wheel(task)
    assert outcome.status == "failed"
    assert "the loader maps another file" in outcome.record["error"]
    fetched = replace(task, wheel=replace(task.wheel, url="http://127.0.0.1:1/x.whl"))
    (tmp_path / "no").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no"))
    outcome = relink_wheel(fetched)
    assert outcome.status == "failed"
    assert "Not a directory" in outcome.record["error"]


def full(*_: Any) -> Any:
    raise UsageError("/out: cannot be written (No space left)")


def disagreeing(finding: Finding, _wheel: Any, planned: Any, *_: Any) -> Report:
    return Report((), replace(planned.plan, findings=(finding,)), None, planned.isa)


def test_fetching_looks_into_it(works: Works, tmp_path: Path) -> None:
    wheel = works.small(tmp_path)
    listed = ListedWheel(parse_wheel_name(wheel.name), wheel.as_uri())
    facts = fetch(FetchTask(listed, PipSettings(), 1 << 30))
    assert facts["largest"] == works.library.stat().st_size
    assert facts["sha256"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    wheel.write_bytes(b"none")
    with pytest.raises(WheelError):
        fetch(FetchTask(listed, PipSettings(), 1 << 30))
    with pytest.raises(FetchError):
        fetch(FetchTask(replace(listed, sha256="00"), PipSettings(), 1 << 30))
    for error in (FetchError("x", missing=True), WheelError("x", ["y"])):
        assert str(copied(error)) == str(error)
