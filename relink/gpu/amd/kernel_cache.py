"""rocFFT's cache of compiled kernels: an SQLite database, which may be damaged or made to harm.

A view, a virtual table, a generated column or a damaged table can let a query run, or grow, without end. So the table must be a
real one whose columns are stored, no function of the schema's is trusted, values have a bound, and the engine stops after a
number of steps (SQLite, "Defense Against The Dark Arts").
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from urllib.parse import quote

from relink.system.safe_open import StrPath, read_start

MAX_ARCHITECTURES = 1000
"""Distinct architectures that are counted. There are some dozens."""
# sqlite.org/fileformat2.html, "The Database Header".
_MAGIC = b"SQLite format 3\0"
# Bytes of one value or row: a compiled kernel has some hundred KiB.
_LENGTH = 16 << 20
# Steps of the engine between two looks, and how many of these: some 500,000 rows.
_STEPS_PER_CHECK, _MAX_CHECKS = (
    10_000,
    500,
)
# Characters of an architecture.
_SHOWN = 100
_ALLOWED = {
    sqlite3.SQLITE_SELECT: None,
    sqlite3.SQLITE_READ: ("cache_v1", "sqlite_master"),
    sqlite3.SQLITE_PRAGMA: ("table_xinfo",),
}


def count_architectures(path: StrPath) -> Counter[str]:
    """Return how many kernels the cache at `path` holds for each architecture, as it is spelled there.

    :raises OSError: it is no regular file, cannot be opened, or has nothing to read yet.
    :raises sqlite3.Error: it is no such cache, or asks for too much.
    """
    # SQLite opens the file again, by its name, and would wait for what /proc/kmsg has to say: read_start does not.
    if read_start(path, len(_MAGIC)) != _MAGIC:
        raise sqlite3.DatabaseError("no SQLite database")
    name = quote(os.path.abspath(os.fspath(path)))
    connection = sqlite3.connect(f"file:{name}?mode=ro&immutable=1", uri=True, timeout=1)
    try:
        for limit, value in (
            (sqlite3.SQLITE_LIMIT_LENGTH, _LENGTH),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        ):
            connection.setlimit(limit, value)
        for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0"):
            connection.execute(f"PRAGMA {pragma}")
        connection.set_authorizer(_allowed)
        checks = iter(range(_MAX_CHECKS))
        connection.set_progress_handler(lambda: next(checks, None) is None, _STEPS_PER_CHECK)
        connection.text_factory = _decode_start
        return _count(connection)
    except UnicodeDecodeError as error:  # in a message of SQLite's, which names what is damaged
        raise sqlite3.DatabaseError("damaged: a name in it is not UTF-8") from error
    except MemoryError as error:  # what Python makes of SQLITE_NOMEM
        raise sqlite3.DatabaseError("asks for too much memory") from error
    finally:
        connection.close()


def _count(connection: sqlite3.Connection) -> Counter[str]:
    master = "SELECT type, rootpage FROM sqlite_master WHERE name = 'cache_v1'"
    rows = connection.execute(master).fetchmany(2)
    if len(rows) != 1 or rows[0][0] != "table" or not isinstance(rows[0][1], int) or rows[0][1] < 1:
        raise sqlite3.DatabaseError("no table cache_v1 in it")
    # The authorizer is not asked about functions in the schema, and one step of the engine may be one of them on megabytes.
    if any(hidden for *_, hidden in connection.execute("PRAGMA table_xinfo(cache_v1)")):
        raise sqlite3.DatabaseError("a column of cache_v1 is computed or hidden")
    found = Counter[str]()
    for (arch,) in connection.execute("SELECT arch FROM cache_v1"):
        text = arch if isinstance(arch, str) else str(arch)[:_SHOWN]
        if text not in found and len(found) >= MAX_ARCHITECTURES:
            raise sqlite3.DatabaseError(f"more than {MAX_ARCHITECTURES} architectures in it")
        found[text] += 1
    return found


def _allowed(action: int, first: str | None, *_: str | None) -> int:
    """Let a query read the one table and list its columns, and nothing else happen: no other table, no function, no recursion."""
    tables = _ALLOWED.get(action, ())
    return sqlite3.SQLITE_OK if tables is None or first in tables else sqlite3.SQLITE_DENY


def _decode_start(text: bytes) -> str:
    return text[:_SHOWN].decode("utf-8", "replace")
