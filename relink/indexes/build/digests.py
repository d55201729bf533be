"""SHA-256 of files that hardly ever change (libraries of a prefix, wheels of a directory), each content read once.

What is remembered, in ``$XDG_CACHE_HOME/relink/digests.sqlite``, holds for a file of the same device, inode, size and times; the
time of the last change of its inode (ctime) cannot be set back. So a file is known by its content, and one that was only
touched is read again and has the same one.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from relink.indexes.install.cache import LARGEST, cache_directory
from relink.system.errors import UsageError
from relink.system.safe_open import file_sha256
from relink.system.system_errors import raise_if_machine_fault

__all__ = ["Digests"]

_WAIT = 30  # seconds for another process that writes
_TABLE = (
    "create table if not exists digests (path text primary key, status text not null, sha256 text not null)"
)


class Digests:
    """Digests of files, remembered on this machine; in memory alone where there is no place for them.

    :param place: the file that they are remembered in.
    """

    def __init__(self, place: Path | None = None) -> None:
        self._place = place or cache_directory().parent / "digests.sqlite"
        self._known: dict[str, tuple[str, str]] = {}
        self._new: dict[str, tuple[str, str]] = {}
        with self._database() as database:
            rows = database.execute("select path, status, sha256 from digests") if database else ()
            self._known = {path: (status, sha256) for path, status, sha256 in rows}

    def sha256(self, path: str) -> str:
        """Return the digest of a file's content, in hex.

        :raises UsageError: it cannot be read, or is no regular file.
        """
        try:
            before = _status(path)
            known = self._known.get(path)
            if known is not None and known[0] == before:
                return known[1]
            found = file_sha256(path, LARGEST)
            if _status(path) == before:
                self._known[path] = self._new[path] = (before, found)
        except OSError as error:
            raise_if_machine_fault(error, path)
            raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
        return found

    def save(self) -> None:
        """Remember what is new; a place that cannot be written costs time later and nothing else."""
        with self._database() as database:
            if database and self._new:
                rows = [(path, status, sha256) for path, (status, sha256) in self._new.items()]
                database.executemany("insert or replace into digests values (?, ?, ?)", rows)
                database.commit()
        self._new.clear()

    @contextlib.contextmanager
    def _database(self) -> Iterator[sqlite3.Connection | None]:
        database = None
        with contextlib.suppress(OSError, sqlite3.Error):
            self._place.parent.mkdir(parents=True, exist_ok=True)
            database = sqlite3.connect(self._place, timeout=_WAIT)
            database.execute(_TABLE)
        try:
            with contextlib.suppress(sqlite3.Error):
                yield database
        finally:
            if database is not None:
                database.close()


def _status(path: str) -> str:
    """What changes when a file's content does."""
    found = os.stat(path)
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"
