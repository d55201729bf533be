"""rocFFT's cache of kernels: an SQLite database that may be made to harm. hostile/test_resources.py has more of these."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from relink.gpu.kernel_cache import MAX_ARCHITECTURES, count_architectures

TABLE = "CREATE TABLE cache_v1 (arch TEXT, code BLOB)"


def database(path: Path, *statements: str, rows: int = 0) -> Path:
    made = sqlite3.connect(path / "it's a cache?.db")
    for statement in statements:
        made.execute(statement)
    if rows:
        values = ((f"gfx{number}",) for number in range(rows))
        made.executemany("INSERT INTO cache_v1 VALUES (?, x'00')", values)
    made.commit()
    made.close()
    return path / "it's a cache?.db"


def test_architectures_are_counted(tmp_path: Path) -> None:
    rows = "INSERT INTO cache_v1 VALUES ('gfx1100', 'a'), ('gfx1100', 'b'), ('gfx90a:xnack-', 'c'), (NULL, ''), (7, '')"
    found = count_architectures(database(tmp_path, TABLE, rows))
    assert found == {"gfx1100": 2, "gfx90a:xnack-": 1, "None": 1, "7": 1}


def test_no_more_than_there_can_be(tmp_path: Path) -> None:
    path = database(tmp_path, TABLE, rows=MAX_ARCHITECTURES)
    assert len(count_architectures(path)) == MAX_ARCHITECTURES
    path.unlink()
    with pytest.raises(sqlite3.DatabaseError, match="more than 1000 architectures"):
        count_architectures(database(tmp_path, TABLE, rows=MAX_ARCHITECTURES + 1))


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["CREATE TABLE other (arch)"], "no table cache_v1"),
        (
            ["CREATE TABLE other (arch)", "CREATE VIEW cache_v1 AS SELECT arch FROM other"],
            "no table cache_v1",
        ),
        (["CREATE TABLE cache_v1 (other)"], "no such column"),
    ],
)
def test_what_is_no_such_cache(tmp_path: Path, statements: list[str], said: str) -> None:
    with pytest.raises(sqlite3.Error, match=said):
        count_architectures(database(tmp_path, *statements))


def test_no_database_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"no database" * 1000)
    with pytest.raises(sqlite3.DatabaseError):
        count_architectures(tmp_path / "a")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a regular file"):
        count_architectures(tmp_path / "fifo")


def test_a_long_name_is_cut(tmp_path: Path) -> None:
    path = database(
        tmp_path, TABLE, "INSERT INTO cache_v1 VALUES (replace(hex(zeroblob(2500)), '0', 'x'), '')"
    )
    assert count_architectures(path) == {"x" * 100: 1}
