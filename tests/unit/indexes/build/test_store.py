"""index.store: what is noted is on disk, for one process at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relink.indexes.build.store import Store, StoredResult
from relink.system.errors import UsageError

RECORD = {"status": "written", "wheel": {"filename": "x.whl"}, "file": {"sha256": "cd", "filename": "y.whl"}}
RESTS = {"libraries": {"/x": "ab"}}


def kept(
    store: Store, key: str = "key", target: str = "one", rests: dict[str, Any] | None = None, **more: Any
) -> StoredResult:
    return store.keep(key, "input", target, "1.0", RECORD | more, rests, ("x", "1.0", 1))


def test_what_is_noted_is_there_again(tmp_path: Path) -> None:
    with Store(tmp_path / "site") as store:
        first = kept(store, rests=RESTS)
        second = kept(store, "other", "two", status="refused", file=None)
        store.keep_hash("https://x.test/x.whl", "ab")
        store.keep_wheels([("ab", "bad", "2026-01-01T00:00:00Z")])
        store.note_changes(5.0, [("x one", {"after": "written"}), ("x two", {"after": "refused"})], [])
    with Store(tmp_path / "site") as store:
        assert dict(store.results()) == {"key": first, "other": second}
        assert (first.file, first.filename) == (("cd", "y.whl"), "x.whl")
        assert (second.file, second.status) == (None, "refused")
        assert store.record(first) == RECORD
        assert store.rests() == {first.rests: RESTS}
        assert store.wheels() == {"ab": ("bad", "2026-01-01T00:00:00Z")}
        assert store.unhashed() == {"https://x.test/x.whl": "ab"}
        assert store.changes(1) == [(5.0, {"after": "refused"})]
        assert store.shown() == {"x one": "written", "x two": "refused"}
        store.note_changes(6.0, [("x one", {"after": "refused"})], ["x two"])
        assert store.shown() == {"x one": "refused"}
        store.forget([("input", "one")])
        assert (dict(store.results()), store.rests()) == ({"other": second}, {})
        assert store.path_of("abcd", "x.whl") == str(tmp_path / "site.relink/files/ab/abcd/x.whl")


def test_one_result_for_a_wheel_and_target(tmp_path: Path) -> None:
    with Store(tmp_path / "site") as store:
        kept(store)
        kept(store, "new")
        assert list(dict(store.results())) == ["new"]


def test_times_do_not_change_a_digest(tmp_path: Path) -> None:
    with Store(tmp_path / "site") as store:
        found = []
        for more in ({"seconds": 1}, {"seconds": 2, "peak": 3}, {"status": "original"}):
            kept(store, **more)
            found += list(store.digests())
    assert found[0] == found[1] != found[2]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with Store(tmp_path / "site"), pytest.raises(UsageError, match="another `relink index` works on it"):
        Store(tmp_path / "site")
    Store(tmp_path / "site").__exit__(None, None, None)


def test_a_state_that_is_none(tmp_path: Path) -> None:
    directory = tmp_path / "site.relink"
    directory.mkdir()
    (directory / "state.sqlite").write_bytes(b"something else" * 100)
    with pytest.raises(UsageError, match="cannot be used"):
        Store(tmp_path / "site")
    (tmp_path / "other.relink").touch()
    with pytest.raises(UsageError, match="cannot be used"):
        Store(tmp_path / "other")
