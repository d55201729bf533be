"""index.work: one task in this process; tests/unit/indexes/build/test_building.py has whole runs."""

from __future__ import annotations

import hashlib
import pickle
import shlex
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
    ForeignPrefixError,
    TargetTask,
    TaskOutcome,
    WheelTask,
    fingerprints,
    numbered,
    record_of,
    record_of_error,
    relink_wheel,
)
from relink.report.model import Report
from relink.system.errors import UsageError, WheelError
from relink.system.findings.model import Finding
from relink.vendors.registry import VENDORS
from relink.wheel.naming import parse_wheel_name, relinked
from tests.support.reports import isa_block, sample_report
from tests.support.works import Works


def copied(value: Any) -> Any:
    """What comes out of another process."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 (relink's own)


def task_of(works: Works, wheel: Path, files: Path) -> WheelTask:
    target = IndexTarget("one", (str(works.prefix),))
    files.mkdir(exist_ok=True)
    listed = ListedWheel(parse_wheel_name(wheel.name), wheel.as_uri())
    own = TargetTask(target, fingerprints((target,), str(files))["one"], 3)
    return WheelTask(listed, (own,), str(files), True, PipSettings(), 1 << 30)


def outcome_of(task: WheelTask) -> TaskOutcome:
    (outcome,) = relink_wheel(task).outcomes.values()
    return outcome


def test_a_task_in_another_process_is_the_same(works: Works, tmp_path: Path) -> None:
    wheel = works.small(tmp_path)
    task = task_of(works, wheel, tmp_path / "files")
    first = relink_wheel(copied(task))
    again = copied(relink_wheel(task))
    assert (first.sha256, first.size) == (
        hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel.stat().st_size,
    )
    one, two = first.outcomes["one"], again.outcomes["one"]
    assert one.status == "written"
    assert one.record["file"]["filename"].startswith("demo-1.0+rocm7.2.4.3-")
    assert one.record["file"] == two.record["file"]
    assert one.rests == two.rests
    assert list((tmp_path / "files").glob(".relink-*")) == []


def test_labels_sort_by_their_number() -> None:
    """All that relink writes into one index: of each release, after whatever label the vendor's wheel has."""
    for release in ("rocm6.4", "rocm7.2.4", "rocm7.14.0", "rocm10.0.0", "relinked"):
        for vendor in ("1.0", "1.0+rocm6.1", "1.0+rocm7.2.4.git12ab", "1.0+cpu", "1!2.0rc1"):
            name = parse_wheel_name(f"demo-{vendor}-py3-none-linux_x86_64.whl")
            plain = relinked(name, local=release, platform="linux_x86_64", replaces=VENDORS[0].version_label)
            versions = [parse_wheel_name(numbered(plain, number)).version for number in range(1, 120)]
            assert sorted(versions, key=lambda version: (version, str(version))) == versions
            assert len(set(versions)) == len(versions)
            assert plain.version < versions[0]
            assert str(versions[9]).startswith(f"{plain.version}")


def test_a_foreign_prefix(works: Works, tmp_path: Path) -> None:
    task = task_of(works, works.small(tmp_path), tmp_path / "files")
    (own,) = task.targets
    with pytest.raises(ForeignPrefixError, match="other content"):
        relink_wheel(replace(task, targets=(replace(own, fingerprint="0" * 64),)))
    gone = replace(own, target=replace(own.target, prefixes=("/nowhere",)))
    with pytest.raises(ForeignPrefixError, match="no such directory"):
        relink_wheel(replace(task, targets=(gone,)))
    said = fingerprints((own.target, gone.target), "/nowhere")
    assert said == {"one": "/nowhere cannot be written here"}


def test_a_wheel_that_is_gone_or_another_one(works: Works, tmp_path: Path) -> None:
    wheel = works.small(tmp_path)
    task = task_of(works, wheel, tmp_path / "files")
    with pytest.raises(FetchError, match="the source says 00"):
        relink_wheel(replace(task, wheel=replace(task.wheel, sha256="00")))
    wheel.write_bytes(b"none")
    assert outcome_of(task).status == "refused"
    wheel.unlink()
    with pytest.raises(FetchError):
        relink_wheel(task)
    for error in (FetchError("x", missing=True), WheelError("x", ["y"])):
        assert str(copied(error)) == str(error)


def test_what_a_machine_cannot_do_is_not_refused(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output that cannot be written (UsageError), a loader that disagrees, a cache that cannot be made."""
    task = task_of(works, works.small(tmp_path), tmp_path / "files")
    with monkeypatch.context() as patch:
        patch.setattr("relink.indexes.build.work.carry_out", full)
        outcome = outcome_of(task)
    assert (outcome.status, outcome.record["error"]) == ("failed", "/out: cannot be written (No space left)")
    with monkeypatch.context() as patch:
        finding = Finding("RLK602", "error", "demo/a.so", "the loader maps another file", "")
        patch.setattr("relink.indexes.build.work.carry_out", partial(disagreeing, finding))
        outcome = outcome_of(task)
    assert outcome.status == "failed"
    assert "the loader maps another file" in outcome.record["error"]
    fetched = replace(task, wheel=replace(task.wheel, url="http://127.0.0.1:1/x.whl"))
    (tmp_path / "no").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no"))
    with pytest.raises(UsageError, match="Not a directory"):
        relink_wheel(fetched)


def full(*_: Any) -> Any:
    raise UsageError("/out: cannot be written (No space left)")


def disagreeing(finding: Finding, _wheel: Any, planned: Any, *_: Any) -> Report:
    return Report((), replace(planned.plan, findings=(finding,)), None, planned.isa)


INPUT = parse_wheel_name("demo-1.0-py3-none-any.whl")
RECORDED = IndexTarget("one", ("/a b", "/c"), interpreter="/ld.so", gpus=("RX 6750 XT",), stub=("auto",))


def test_a_command_to_type() -> None:
    words = shlex.split(record_of(sample_report(), INPUT, RECORDED)["command"])
    assert words[:2] == ["relink", "demo==1.0"]
    assert words[2:] == [
        *("--prefix", "/a b", "--prefix", "/c", "--interpreter", "/ld.so"),
        *("--gpu", "RX 6750 XT", "--stub", "auto"),
    ]


def test_what_is_kept_is_short() -> None:
    block = isa_block()
    block["gpus"] = [{"target": "gfx9", "state": "slow"}]
    record = record_of(replace(sample_report(gone=20), isa=block), INPUT, RECORDED)
    assert record["gpus"] == {"gfx9": "slow"}
    assert all(len(cause["subjects"]) <= 6 for cause in record["causes"])
    assert {cause["level"] for cause in record["causes"]} <= {"error", "warning"}
    shown = record_of_error(WheelError("x" * 9999))
    assert len(shown["verdict"]["text"]) == len(shown["causes"][0]["message"]) == 1200


def test_a_directory_of_a_task_is_not_kept() -> None:
    text = record_of(sample_report(output=True), INPUT, RECORDED)["verdict"]["text"]
    assert "Written to demo-1.0+rocm7.whl" in text
