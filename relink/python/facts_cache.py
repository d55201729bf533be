"""What was read of each source, remembered in the user's cache: an entry holds for a file of the same device, inode, size, times
and Python.

The file is ``$XDG_CACHE_HOME/relink/facts.sqlite``. One that is damaged, or is another user's or may be written by others, is
not read; it may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

_TABLE = "create table if not exists facts (file text primary key, facts blob not null) without rowid"
LIMIT = 256 << 20
"""Bytes of the file: past that, what the process has not used goes. One environment of 4 GB has 42 MB."""
_WAIT = 5.0  # seconds for another process of relink
# What readers make of a file: a new number makes every older entry unknown.
_EDITION = f"16:{sys.version_info[0]}.{sys.version_info[1]}"


def user_cache_directory() -> Path:
    """Return the directory of what relink remembers for this user, which need not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG Base Directory Specification has relative paths ignored.
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "relink")


class FactsCache:
    """Facts of files by what identifies the content; in memory alone without a place."""

    def __init__(self, place: Path | None) -> None:
        # JSON, compressed to an eighth of it, with the sum that zlib checks.
        self._new: dict[str, bytes] = {}
        self._used: set[str] = set()
        self._closing: list[Callable[[], None]] = []
        self._database: sqlite3.Connection | None = None
        if place is not None:
            with contextlib.suppress(OSError, sqlite3.Error):
                place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                if _is_own(place):
                    self._database = sqlite3.connect(place, timeout=_WAIT, check_same_thread=False)
                    self._database.execute(_TABLE)

    def facts(self, kind: str, path: str, read: Callable[[], Mapping[str, Any]]) -> Any:
        """Return the facts of one kind of a file: those that are remembered, or of what `read` returns, JSON data by kind."""
        try:
            status = os.stat(path)
        except OSError:
            return read()[kind]
        key = f"{_EDITION}:{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"
        self._used.add(f"{kind}:{key}")
        facts = self._new.get(f"{kind}:{key}") or self._remembered(f"{kind}:{key}")
        if facts is not None:
            with contextlib.suppress(zlib.error, ValueError, RecursionError):
                return msgspec.json.decode(zlib.decompress(facts))
        found = read()
        for one, data in found.items():
            self._new[f"{one}:{key}"] = zlib.compress(msgspec.json.encode(data), 1)
        return found[kind]

    @property
    def is_kept(self) -> bool:
        """Whether what is remembered here is there for the next process."""
        return self._database is not None

    def recall(self, key: str) -> bytes | None:
        """Return what :meth:`remember` was given; None where that is not known, or damaged."""
        self._used.add(key)
        data = self._new.get(key) or self._remembered(key)
        with contextlib.suppress(zlib.error):
            return None if data is None else zlib.decompress(data)
        return None

    def remember(self, key: str, data: bytes) -> None:
        """Remember bytes by a key; whoever recalls them says whether they still hold."""
        self._new[key] = zlib.compress(data, 1)

    def before_closing(self, function: Callable[[], None]) -> None:
        """Call a function before what is new is written."""
        self._closing.append(function)

    def _remembered(self, key: str) -> bytes | None:
        if self._database is None:
            return None
        with contextlib.suppress(sqlite3.Error):
            row = self._database.execute("select facts from facts where file = ?", (key,)).fetchone()
            return row[0] if row and isinstance(row[0], bytes) else None
        return None

    def close(self) -> None:
        """Remember what is new; a place that cannot be written costs time later and nothing else."""
        for function in self._closing:
            function()
        database, self._database = self._database, None
        if database is None:
            return
        with contextlib.suppress(OSError, sqlite3.Error), contextlib.closing(database):
            with database:
                database.executemany("insert or replace into facts values (?, ?)", self._new.items())
            pages, size = (
                database.execute(f"pragma page_{what}").fetchone()[0] for what in ("count", "size")
            )
            if pages * size > LIMIT:
                with database:
                    database.execute("create temp table used (file text primary key)")
                    used = self._used.union(self._new)
                    database.executemany("insert into used values (?)", ((key,) for key in used))
                    database.execute("delete from facts where file not in (select file from used)")
                database.execute("vacuum")


def _is_own(place: Path) -> bool:
    """Whether a file is this user's alone, or not there yet."""
    try:
        status = place.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
