"""index.store: what is noted is on disk, for one process at a time."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from relink.indexes.build.store import Store
from relink.system.errors import UsageError

FILE = {"sha256": "cd", "filename": "y.whl"}
RESTS = {"libraries": {"/x": "ab"}}


def kept(store: Store, target: str = "one", file: Any = FILE, rests: Any = None, **more: Any) -> None:
    facts = {
        "project": "x",
        "version": "1.0",
        "filename": "x.whl",
        "target": target,
        "input": "input",
        "key": "key",
    }
    record = {"verdict": {"text": "t"}, "wheel": {}, "file": file}
    store.record_result({**facts, "relink": "1.0", "status": "written", **more}, 1, record, rests)


def holding(store: Store) -> list[Any]:
    return list(store.rows("select * from results where until is null order by id"))


def failed(store: Store) -> None:
    facts = {"project": "a", "version": "1", "filename": "a.whl", "target": "one", "input": None, "key": ""}
    store.record_result({**facts, "relink": "1.0", "status": "failed"}, 1, {"error": "full"}, None)


def test_what_is_noted_is_there_again(tmp_path: Path) -> None:
    with Store(tmp_path / "site") as store:
        store.begin({"one": {"release": "rocm7"}})
        store.allocate([("x", "1.0", "one", 1)])
        kept(store, rests=RESTS)
        kept(store, "two", None, status="refused")
        failed(store)
        store.keep_wheels([("input", "bad", "2026-01-01T00:00:00Z", "https://x.test/x.whl")])
        store.note_changes()
    with Store(tmp_path / "site") as store:
        one, two, _ = holding(store)
        assert (one["file_sha256"], one["file_name"], one["key"], one["relink"]) == (
            "cd",
            "y.whl",
            "key",
            "1.0",
        )
        assert (two["file_name"], two["status"], two["rests"]) == (None, "refused", None)
        assert [*map(tuple, store.rows("select * from rests"))] == [(one["rests"], json.dumps(RESTS))]
        assert store.results_of("x") == [one, two]
        assert store.projects() == ["a", "x"]
        (listed, _) = store.listed("x", 0)
        assert (listed["yanked"], listed["uploaded"]) == ("bad", "2026-01-01T00:00:00Z")
        assert store.parsed(listed["body"])["file"] == FILE
        assert store.parsed(store.listed("a", 0)[0]["body"]) == {"error": "full"}
        assert [
            (change["wheel"], change["target"], change["after"], change["text"])
            for change in store.changes(9)
        ] == [
            ("x.whl", "two", "refused", "t"),
            ("x.whl", "one", "written", "t"),
            ("a.whl", "one", "failed", "full"),
        ]
        assert store.files_of() == [(one["id"], "cd", "y.whl")]
        store.note_changes()
        assert len(store.changes(9)) == 3
        store.begin({"one": {"release": "rocm7"}})
        assert store.count("failed") == 0
        store.supersede([one["id"]])
        assert (holding(store), len(store.listed("x", 0)), len(list(store.rows("select * from rests")))) == (
            [two],
            2,
            1,
        )
        store.files_of(2e10)
        store.supersede([])
        assert list(store.rows("select * from rests")) == []
        store.drop([two["id"]])
        assert store.projects() == []
        assert store.path_of("abcd", "x.whl") == str(tmp_path / "site.relink/files/ab/abcd/x.whl")


def test_one_result_for_a_wheel_and_target(tmp_path: Path) -> None:
    """What had a file of another name is superseded, and what had none or one of this name is gone."""
    refused: dict[str, Any] = {"file": None, "status": "refused"}
    other: dict[str, Any] = {"file": FILE | {"filename": "z.whl"}}
    with Store(tmp_path / "site") as store:
        for more, listed in (({}, 1), ({"key": "new"}, 1), (refused, 2), (other, 2)):
            kept(store, **more)
            assert (len(holding(store)), len(store.listed("x", 0))) == (1, listed)


def test_a_digest_is_of_what_is_listed(tmp_path: Path) -> None:
    with Store(tmp_path / "site") as store:
        found = []
        for more in ({}, {"key": "other"}, {"file": FILE | {"size": 2}}):
            kept(store, **more)
            found.append(store.digest(0))
        store.keep_wheels([("input", "bad", None, None)])
        found.append(store.digest(0))
        failed(store)
        found.append(store.digest(0))
    assert found[0] == found[1]
    assert len(set(found)) == 4


def test_a_number_is_never_used_twice_for_a_wheel(tmp_path: Path) -> None:
    release = ("x", "1.0", "one")
    with Store(tmp_path / "site") as store:
        assert store.number(*release, ["x.whl"]) == (1, True)
        store.allocate([(*release, 1)])
        assert store.number(*release, ["x.whl"]) == (1, False)
        kept(store)
        assert store.number(*release, ["other.whl"]) == (1, False)
        store.drop(row["id"] for row in holding(store))
        assert store.number(*release, ["other.whl", "x.whl"]) == (2, True)


def test_a_repair_leaves_what_rests_on_the_wheel_alone(tmp_path: Path) -> None:
    with Store(tmp_path / "site") as store:
        kept(store)
        assert (store.repair(), len(holding(store))) == (0, 1)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with Store(tmp_path / "site"), pytest.raises(UsageError, match="another `relink index` works on it"):
        Store(tmp_path / "site")
    Store(tmp_path / "site").close()


def test_a_state_that_is_none(tmp_path: Path) -> None:
    directory = tmp_path / "site.relink"
    directory.mkdir()
    (directory / "state.sqlite").write_bytes(b"something else" * 100)
    with pytest.raises(UsageError, match="cannot be used"):
        Store(tmp_path / "site")
    with Store(tmp_path / "old") as store:
        assert holding(store) == []
    with closing(sqlite3.connect(tmp_path / "old.relink" / "state.sqlite")) as database:
        database.execute("pragma user_version = 7")
        database.commit()
    with pytest.raises(UsageError, match="another release of relink wrote it"):
        Store(tmp_path / "old")
    (tmp_path / "other.relink").touch()
    with pytest.raises(UsageError, match="cannot be used"):
        Store(tmp_path / "other")
