"""rocFFT's cache of kernels: an SQLite database that may be made to harm. hostile/test_resources.py has more of these."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from relink.gpu.amd.kernel_cache import MAX_ARCHITECTURES, count_architectures

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


WRITABLE = "PRAGMA writable_schema=ON"
VIRTUAL = {
    "fts3": ("fts3(arch)", "('gfx90a')"),
    "fts5": ("fts5(arch)", "('gfx90a')"),
    "rtree": ("rtree(arch, low, high)", "(7, 1, 2)"),
}


@pytest.mark.parametrize("module", VIRTUAL)
def test_a_virtual_table_reads_no_other_table(tmp_path: Path, module: str) -> None:
    """Its module reads tables of its own, whose content is hostile, too. In the schema it is a table, its root any page."""
    declared, row = VIRTUAL[module]
    create = f"CREATE VIRTUAL TABLE cache_v1 USING {declared}"
    try:
        with contextlib.closing(sqlite3.connect(":memory:")) as memory:
            memory.execute(create)
    except sqlite3.OperationalError as error:
        pytest.skip(str(error))
    insert = f"INSERT INTO cache_v1 VALUES {row}"  # noqa: S608 - a row of VIRTUAL
    root = "UPDATE sqlite_master SET rootpage = 2 WHERE name = 'cache_v1'"
    path = database(tmp_path, create, insert, WRITABLE, root)
    opened = sqlite3.connect(path)
    assert len(opened.execute("SELECT arch FROM cache_v1").fetchall()) == 1  # SQLite itself takes it
    opened.close()
    with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|constructor failed|computed or hidden"):
        count_architectures(path)


@pytest.mark.parametrize("kind", ["VIRTUAL", "STORED"])
@pytest.mark.parametrize("column", ["arch", "other"])
def test_a_computed_column(tmp_path: Path, kind: str, column: str) -> None:
    """A row of it is a few steps to the engine, and as much work as the function takes: 80 ms for 16 MB of hex digits."""
    first = "n" if column == "arch" else "n, arch"
    schema = f"CREATE TABLE cache_v1 ({first}, {column} TEXT AS (hex(zeroblob(n))) {kind})"
    insert = "INSERT INTO cache_v1 (n) VALUES (1000)"
    with pytest.raises(sqlite3.DatabaseError, match="a column of cache_v1 is computed or hidden"):
        count_architectures(database(tmp_path, schema, insert))


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


@pytest.mark.skipif(not os.access("/proc/kmsg", os.R_OK), reason="/proc/kmsg is for root")
def test_a_file_that_has_nothing_to_read_yet(tmp_path: Path) -> None:
    """It is a regular file to stat(2), and SQLite would wait for the kernel's next message; a process of its own can be ended."""
    (tmp_path / "rocfft_kernel_cache.db").symlink_to("/proc/kmsg")
    code = (
        "import sys; from relink.gpu.amd.kernel_cache import count_architectures as count; count(sys.argv[1])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "rocfft_kernel_cache.db")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 1
    assert "Resource temporarily unavailable" in ended.stderr or "no SQLite database" in ended.stderr


@pytest.mark.parametrize("content", [b"", b"SQLite format 2\0", b"SQLite format 3"])
def test_what_does_not_begin_like_a_database(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.db").write_bytes(content)
    with pytest.raises(sqlite3.DatabaseError, match="no SQLite database"):
        count_architectures(tmp_path / "x.db")
