"""Facts that are remembered: until the file changes, and only if the cache is this user's and whole."""

from __future__ import annotations

import os
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from relink.python import facts_cache
from relink.python.facts_cache import FactsCache


def facts_of(place: Path, path: Path, found: list[str]) -> object:
    cache = FactsCache(place)

    def read() -> dict[str, object]:
        found.append("read")
        return {"first": ["facts", 1], "second": 2}

    facts = cache.facts("first", str(path), read)
    cache.close()
    return facts


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.py"
    path.write_text("import x\n")
    return path


def test_facts_are_read_once(tmp_path: Path, source: Path) -> None:
    place, found = tmp_path / "cache" / "sources.sqlite", list[str]()
    assert facts_of(place, source, found) == facts_of(place, source, found) == ["facts", 1]
    assert found == ["read"]
    with closing(FactsCache(place)) as cache:
        assert cache.facts("second", str(source), dict) == 2
    os.utime(source, ns=(1, 1))
    facts_of(place, source, found)
    assert found == ["read", "read"]


def test_without_a_place_facts_are_kept_in_memory(source: Path) -> None:
    cache = FactsCache(None)
    assert (
        cache.facts("a", str(source), lambda: {"a": 1})
        == cache.facts("a", str(source), lambda: {"a": 2})
        == 1
    )


@pytest.mark.parametrize("damage", ["sum", "text", "null", "file", "mode", "link"])
def test_a_damaged_or_foreign_cache_is_not_read(tmp_path: Path, source: Path, damage: str) -> None:
    place, found = tmp_path / "sources.sqlite", list[str]()
    facts_of(place, source, found)
    if damage == "file":
        place.write_bytes(b"no database" * 100)
    elif damage == "mode":
        place.chmod(0o666)
    elif damage == "link":
        place.rename(tmp_path / "other")
        place.symlink_to(tmp_path / "other")
    else:
        other = zlib.compress(b'["other"]')
        damaged = {"sum": other[:-1] + bytes([other[-1] ^ 1]), "text": '["other"]', "null": b""}[damage]
        with closing(sqlite3.connect(place)) as database, database:
            database.execute("update facts set facts = ?", (damaged,))
    assert facts_of(place, source, found) == ["facts", 1]
    assert found == ["read", "read"]


def test_a_place_that_cannot_be_written_costs_nothing(source: Path) -> None:
    assert facts_of(Path("/proc/relink/sources.sqlite"), source, []) == ["facts", 1]


def test_a_file_that_is_gone_is_asked_for_again(tmp_path: Path) -> None:
    assert FactsCache(None).facts("a", str(tmp_path / "absent"), lambda: {"a": 3}) == 3


def test_what_is_not_used_goes_once_there_is_too_much(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, other, read = tmp_path / "cache/sources.sqlite", tmp_path / "other.py", list[str]()
    other.write_text("")
    facts_of(place, other, read)
    facts_of(place, source, read)
    facts_of(place, other, read)
    assert read == ["read", "read"]
    monkeypatch.setattr(facts_cache, "LIMIT", 1)
    facts_of(place, source, read)
    monkeypatch.undo()
    facts_of(place, source, read)
    facts_of(place, other, read)
    assert read == ["read", "read", "read"]
