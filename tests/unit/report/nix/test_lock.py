"""The lock of a plan, and what is said where another plan is made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from relink.library import plan
from relink.planning.model.model import Plan
from relink.planning.options import Options
from relink.report.nix.lock import SCHEMA, lock_findings, lock_json
from relink.system.errors import UsageError
from tests.support.works import Works


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that relink takes for the store."""
    monkeypatch.setenv("NIX_STORE_DIR", str(tmp_path / "store"))
    return tmp_path / "store"


def planned(works: Works, store: Path, letter: str, package: str) -> Plan:
    """The plan of a wheel with ROCm in a package of the store."""
    prefix = store / f"{letter * 32}-{package}"
    shutil.copytree(works.prefix, prefix)
    return plan(works.small(store.parent / letter), Options(prefixes=[str(prefix)]))


def test_it_has_no_hash_and_no_version(works: Works, store: Path) -> None:
    first = planned(works, store, "a", "clr-7.2.3")
    data = json.loads(lock_json(first))
    assert data.keys() == {"schema", "rocm", "paths", "files", "stubs"}
    assert data["files"]["demo/a.so"]["path"] == 0
    assert all(entry.startswith("clr/") for entry in data["paths"][0])
    assert lock_json(planned(works, store, "b", "clr-7.2.4")) == lock_json(first)


def test_another_plan_is_told_and_fails_where_strict(works: Works, store: Path, tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    path.write_text(lock_json(planned(works, store, "a", "clr-7.2.3")))
    assert lock_findings(path, planned(works, store, "b", "clr-7.2.4"), strict=True) == ()
    other = planned(works, store, "c", "hip-7.2.4")
    for strict, level in ((False, "warning"), (True, "error")):
        (found,) = lock_findings(path, other, strict=strict)
        assert (found.code, found.level, found.subject) == ("RLK716", level, str(path))
        assert "demo/a.so" in found.message


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"schema": "relink.nix.lock/2"}', "[" * 5000],
)
def test_what_is_no_lock(works: Works, store: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "lock.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="write it anew by relink nix --lock"):
        lock_findings(path, planned(works, store, "a", "clr-7.2.3"), strict=False)


def test_what_somebody_else_wrote_is_another_plan(works: Works, store: Path, tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    made = planned(works, store, "a", "clr-7.2.3")
    for more in (
        {},
        {"files": 1, "paths": 2},
        {"files": {"demo/a.so": 3}},
        {"files": {"demo/a.so": {"path": -1}}},
        {"files": {"demo/a.so": {"path": []}}, "paths": [[]]},
    ):
        path.write_text(json.dumps({"schema": SCHEMA, **more}))
        assert [found.code for found in lock_findings(path, made, strict=False)] == ["RLK716"]
