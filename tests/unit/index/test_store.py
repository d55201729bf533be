"""index.store: what is noted is on disk, for one process at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.errors import UsageError
from relink.index.store import Store, StoredResult

RESULT = StoredResult("key", "input", "one", "1.0", "rests", {"status": "written"})


def test_what_is_noted_is_there_again(tmp_path: Path) -> None:
    with Store(tmp_path / "site") as store:
        store.keep(RESULT, {"libraries": {}})
        store.keep(StoredResult("other", "input", "two", "1.0", None, {}), None)
        store.keep_wheel("ab", {"size": 7}, "https://x.test/x.whl")
        store.note_changes(5.0, [{"after": "written"}, {"after": "refused"}], {"x one": "written"})
    with Store(tmp_path / "site") as store:
        assert {result.key: result for result in store.results()}["key"] == RESULT
        assert store.rests() == {"rests": {"libraries": {}}}
        assert (store.wheels(), store.unhashed()) == ({"ab": {"size": 7}}, {"https://x.test/x.whl": "ab"})
        assert store.changes(1) == [(5.0, {"after": "refused"})]
        assert store.shown() == {"x one": "written"}
        store.forget(["key"])
        assert ([result.key for result in store.results()], store.rests()) == (["other"], {})
        assert store.path_of("abcd", "x.whl") == tmp_path / "site.relink/files/ab/abcd/x.whl"


def test_one_result_for_a_wheel_and_target(tmp_path: Path) -> None:
    with Store(tmp_path / "site") as store:
        store.keep(RESULT, {})
        store.keep(StoredResult("new", "input", "one", "1.0", None, {}), None)
        assert [result.key for result in store.results()] == ["new"]


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
