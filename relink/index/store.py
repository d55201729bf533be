"""What an index remembers between runs: results by task, what wheels contain, and what happened when.

It lies beside the site, in ``SITE.relink``: ``state.sqlite``, which one process at a time writes, and ``files``, in which each
wheel lies in a directory that is called by its SHA-256. A wheel is there before its result is noted, and a result before a site
names it. So a process that is killed at any moment leaves work that is done again, and nothing that is wrong.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from relink.errors import RelinkError, UsageError
from relink.system_errors import raise_trouble

__all__ = ["Store", "StoredResult"]

_TABLES = """
create table if not exists results (
    key text not null, input text not null, target text not null, relink text not null, rests text, record text not null,
    primary key (input, target));
create table if not exists rests (id text primary key, body text not null);
create table if not exists wheels (sha256 text primary key, facts text not null);
create table if not exists unhashed (url text primary key, sha256 text not null);
create table if not exists changes (time real not null, change text not null);
create table if not exists shown (what text primary key, status text not null);
"""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """What came of one task.

    :ivar rests: the id of what it rests on, see :meth:`Store.rests`; None where it rests on the input alone.
    :ivar record: JSON data: see :mod:`relink.index.work`.
    """

    key: str
    input: str
    target: str
    relink: str
    rests: str | None
    record: Mapping[str, Any]


class Store:
    """The state of one index; open in one process at a time.

    :param site: the site, as the user names it.
    """

    def __init__(self, site: Path) -> None:
        self.directory = site.parent / f"{site.name}.relink"
        self.files = self.directory / "files"
        self.sites = self.directory / "sites"
        self._lock = -1
        try:
            for directory in (self.files, self.sites):
                directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(
                self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666
            )
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._database = sqlite3.connect(self.directory / "state.sqlite")
            self._database.executescript(_TABLES)
        except BlockingIOError as error:
            self._unlock()
            raise UsageError(f"{site}: another `relink index` works on it; wait for it to end") from error
        except (OSError, sqlite3.Error) as error:
            self._unlock()
            raise _failed(self.directory, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)

    def path_of(self, sha256: str, filename: str) -> Path:
        """Return where a wheel of the site lies."""
        return self.files / sha256[:2] / sha256 / filename

    # Results

    def results(self) -> Iterator[StoredResult]:
        """Yield all results."""
        rows = self._rows("select key, input, target, relink, rests, record from results")
        for key, wheel, target, relink, rests, record in rows:
            yield StoredResult(key, wheel, target, relink, rests, json.loads(record))

    def rests(self) -> dict[str, dict[str, Any]]:
        """Return what results rest on, by id; many rest on the same."""
        return {name: json.loads(body) for name, body in self._rows("select id, body from rests")}

    def keep(self, result: StoredResult, rests: Mapping[str, Any] | None) -> None:
        """Note one result, on disk when this returns."""
        with self._written():
            if result.rests is not None:
                self._database.execute(
                    "insert or ignore into rests values (?, ?)", (result.rests, json.dumps(rests))
                )
            row = (
                result.key,
                result.input,
                result.target,
                result.relink,
                result.rests,
                json.dumps(result.record),
            )
            self._database.execute("insert or replace into results values (?, ?, ?, ?, ?, ?)", row)

    def forget(self, keys: Iterable[str]) -> None:
        """Remove results, and what nothing rests on any more."""
        with self._written():
            self._database.executemany("delete from results where key = ?", [(key,) for key in keys])
            self._database.execute(
                "delete from rests where id not in (select rests from results where rests is not null)"
            )

    # Wheels

    def wheels(self) -> dict[str, dict[str, Any]]:
        """Return what is known of input wheels, by SHA-256."""
        return {sha256: json.loads(facts) for sha256, facts in self._rows("select sha256, facts from wheels")}

    def unhashed(self) -> dict[str, str]:
        """Return the SHA-256 of wheels whose source says none, by address, as they were when they were fetched."""
        return dict(self._rows("select url, sha256 from unhashed"))

    def keep_wheel(self, sha256: str, facts: Mapping[str, Any], url: str | None) -> None:
        """Note what a wheel contains; with its address where the source says no hash."""
        with self._written():
            self._database.execute("insert or replace into wheels values (?, ?)", (sha256, json.dumps(facts)))
            if url is not None:
                self._database.execute("insert or replace into unhashed values (?, ?)", (url, sha256))

    # Changes

    def changes(self, most: int) -> list[tuple[float, dict[str, Any]]]:
        """Return the last changes of the site, the newest first, with their times in seconds since 1970."""
        rows = self._rows("select time, change from changes order by rowid desc limit ?", (most,))
        return [(time, json.loads(change)) for time, change in rows]

    def shown(self) -> dict[str, str]:
        """Return the status of each wheel and target when changes were noted last."""
        return dict(self._rows("select what, status from shown"))

    def note_changes(
        self, time: float, changes: Iterable[Mapping[str, Any]], shown: Mapping[str, str]
    ) -> None:
        """Note what has changed, and what is shown now."""
        with self._written():
            self._database.executemany(
                "insert into changes values (?, ?)", [(time, json.dumps(one)) for one in changes]
            )
            self._database.execute("delete from shown")
            self._database.executemany("insert into shown values (?, ?)", shown.items())

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self._database.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise _failed(self.directory, error) from error

    @contextlib.contextmanager
    def _written(self) -> Iterator[None]:
        try:
            with self._database:
                yield
        except sqlite3.Error as error:
            raise _failed(self.directory, error) from error


def _failed(directory: Path, error: OSError | sqlite3.Error) -> RelinkError:
    if isinstance(error, OSError):
        raise_trouble(error, str(directory))
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return UsageError(f"{directory}: the state of the index cannot be used ({reason})")
