"""Plans in files: written with digests of whole libraries, read again, and what cannot be written or read."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path

import pytest

from relink.library import plan as make_plan
from relink.planning.model.model import Plan
from relink.system.errors import UsageError
from tests.support.works import Works


@pytest.fixture
def planned(works: Works, tmp_path: Path) -> Plan:
    return make_plan(works.small(tmp_path), works.options(tmp_path / "out"))


def test_a_plan_comes_back_with_digests_of_its_libraries(works: Works, planned: Plan, tmp_path: Path) -> None:
    planned.save(tmp_path / "plan.json")
    found = Plan.load(tmp_path / "plan.json")
    assert found.files == planned.files
    assert found.basis is not None
    hip = str(works.prefix / "lib/libhip.so.7")
    digests = {library.path: library.sha256 for library in found.basis.libraries}
    assert digests[hip] == sha256(Path(hip).read_bytes()).hexdigest()
    assert None not in digests.values()


def test_what_lies_there_is_replaced_and_not_opened(planned: Plan, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "plan.json")
    planned.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").files == planned.files


def test_where_it_cannot_be_written(planned: Plan, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="the plan cannot be written"):
        planned.save(tmp_path / "file" / "plan.json")


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.json: the plan cannot be read"):
        Plan.load(tmp_path / "gone.json")
    (tmp_path / "a.json").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="the plan cannot be read"):
        Plan.load(tmp_path / "a.json")
    (tmp_path / "b.json").write_text(json.dumps({"schema": "other"}))
    with pytest.raises(UsageError):
        Plan.load(tmp_path / "b.json")
