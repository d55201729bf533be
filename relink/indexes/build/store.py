"""What an index remembers between runs: results by task, what wheels contain, and what happened when.

It lies beside the site, in ``SITE.relink``: ``state.sqlite``, which one process at a time writes, and ``files``, in which each
wheel lies in a directory that is called by its SHA-256. A wheel is there before its result is noted, and a result before a site
names it. So a process that is killed at any moment leaves work that is done again, and nothing that is wrong.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from relink.system.errors import RelinkError, UsageError
from relink.system.system_errors import raise_if_machine_fault

__all__ = ["Store", "StoredResult"]

_TABLES = """
create table if not exists results (
    input text not null, target text not null, key text not null, relink text not null, rests text, status text not null,
    filename text not null, file_sha256 text, file_name text, digest text not null, record text not null,
    primary key (input, target));
create table if not exists rests (id text primary key, body text not null);
create table if not exists wheels (sha256 text primary key, facts text not null);
create table if not exists unhashed (url text primary key, sha256 text not null);
create table if not exists changes (time real not null, change text not null);
create table if not exists shown (what text primary key, status text not null);
"""
_PASSING = ("seconds", "peak")  # of a record: two runs that give the same differ in these


@dataclass(frozen=True, slots=True)
class StoredResult:
    """What came of one task; its record, which is longer, stays on disk: see :meth:`Store.record`.

    :ivar rests: the id of what it rests on, see :meth:`Store.rests`; None where it rests on the input alone.
    :ivar filename: of the input.
    :ivar file: SHA-256 and name of the wheel of the site; None where there is none.
    """

    input: str
    target: str
    relink: str
    rests: str | None
    status: str
    filename: str
    file: tuple[str, str] | None


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

    def path_of(self, sha256: str, filename: str) -> str:
        """Return where a wheel of the site lies."""
        return f"{self.files}/{sha256[:2]}/{sha256}/{filename}"

    # Results

    def results(self) -> Iterator[tuple[str, StoredResult]]:
        """Yield all results, each after the identity of its task."""
        same: dict[str, str] = {}  # texts that many results have
        columns = "key, input, target, relink, rests, status, filename, file_sha256, file_name"
        for key, *texts, sha256, name in self._each(f"select {columns} from results"):  # noqa: S608 (a constant)
            wheel, target, relink, rests, status, filename = (
                text and same.setdefault(text, text) for text in texts
            )
            file = None if sha256 is None else (sha256, name)
            yield key, StoredResult(wheel, target, relink, rests, status, filename, file)

    def record(self, result: StoredResult) -> dict[str, Any]:
        """Return the JSON data of a result: see :mod:`relink.indexes.build.records`."""
        query = "select record from results where input = ? and target = ?"
        ((record,),) = self._rows(query, (result.input, result.target))
        found: dict[str, Any] = json.loads(record)
        return found

    def digests(self) -> Iterator[tuple[str, str, str]]:
        """Yield the input, the target and a digest of the record of each result, in a fixed order."""
        yield from self._each("select input, target, digest from results order by input, target")

    def rests(self) -> dict[str, dict[str, Any]]:
        """Return what results rest on, by id; many rest on the same."""
        return {name: json.loads(body) for name, body in self._rows("select id, body from rests")}

    def keep(
        self,
        key: str,
        sha256: str,
        target: str,
        relink: str,
        record: Mapping[str, Any],
        rests: Mapping[str, Any] | None,
    ) -> StoredResult:
        """Note the result of a task, on disk when this returns.

        :param key: the task's identity.
        :param sha256: of the input.
        :param relink: the release that made it.
        :param record: JSON data: see :mod:`relink.indexes.build.records`.
        :param rests: what it rests on, as JSON data.
        """
        file = record.get("file")
        result = StoredResult(
            sha256,
            target,
            relink,
            None if rests is None else _digest(rests),
            record["status"],
            record["wheel"]["filename"],
            file and (file["sha256"], file["filename"]),
        )
        digest = _digest({name: value for name, value in record.items() if name not in _PASSING})
        with self._written():
            if rests is not None:
                row = (result.rests, json.dumps(rests))
                self._database.execute("insert or ignore into rests values (?, ?)", row)
            values = (sha256, target, key, relink, result.rests, result.status, result.filename,
                      *(result.file or (None, None)), digest, json.dumps(record))  # fmt: skip
            self._database.execute(
                f"insert or replace into results values ({', '.join('?' * len(values))})",  # noqa: S608 (as above)
                values,
            )
        return result

    def forget(self, results: Iterable[tuple[str, str]]) -> None:
        """Remove results, by input and target, and what nothing rests on any more."""
        with self._written():
            self._database.executemany("delete from results where input = ? and target = ?", results)
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
        self, time: float, changes: Iterable[tuple[str, Mapping[str, Any]]], gone: Iterable[str]
    ) -> None:
        """Note what has changed, which becomes what is shown.

        :param changes: what has changed, and how: ``after`` is its status now.
        :param gone: what is not shown any more.
        """
        with self._written():
            for what, change in changes:
                self._database.execute("insert into changes values (?, ?)", (time, json.dumps(change)))
                row = (what, change["after"])
                self._database.execute("insert or replace into shown values (?, ?)", row)
            self._database.executemany("delete from shown where what = ?", ((what,) for what in gone))

    def _each(self, query: str) -> Iterator[Any]:
        """Yield rows, of which there may be many."""
        try:
            yield from self._database.execute(query)
        except sqlite3.Error as error:
            raise _failed(self.directory, error) from error

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


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _failed(directory: Path, error: OSError | sqlite3.Error) -> RelinkError:
    if isinstance(error, OSError):
        raise_if_machine_fault(error, str(directory))
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return UsageError(f"{directory}: the state of the index cannot be used ({reason})")
