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
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from relink.system.errors import RelinkError, UsageError
from relink.system.system_errors import raise_if_machine_fault

__all__ = ["Store", "StoredFile", "StoredResult", "now"]

_TABLES = """
create table if not exists results (
    input text not null, target text not null, key text not null, relink text not null, rests text, status text not null,
    filename text not null, file_sha256 text, file_name text, digest text not null, record text not null,
    primary key (input, target));
create table if not exists rests (id text primary key, body text not null);
create table if not exists wheels (sha256 text primary key, yanked text, uploaded text);
create table if not exists unhashed (url text primary key, sha256 text not null);
create table if not exists indexes (target text primary key, release text not null);
create table if not exists releases (
    project text not null, version text not null, target text not null, number integer not null, time real not null,
    primary key (project, version, target)) without rowid;
create table if not exists names (
    target text not null, filename text not null, number integer not null, primary key (target, filename, number)) without rowid;
create table if not exists files (
    project text not null, target text not null, name text not null, input text not null, filename text not null,
    until real, facts text not null, primary key (project, target, name)) without rowid;
create index if not exists files_by_filename on files (target, filename);
create index if not exists files_by_input on files (input, target);
create table if not exists site (id text not null);
create table if not exists changes (time real not null, change text not null);
create table if not exists shown (what text primary key, status text not null);
"""
_RECORDS = (("results", "record"), ("rests", "body"), ("files", "facts"), ("changes", "change"))
_PASSING = ("seconds", "peak")  # of a record: two runs that give the same differ in these


_Run: TypeAlias = Callable[..., sqlite3.Cursor]


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


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that an index lists: the newest of its wheel, or one that a newer one has superseded.

    :ivar input: SHA-256 of the wheel that it was made of; `filename` is that wheel's.
    :ivar facts: JSON: `status`, `wheel` and `file` as in a record, and `time`, when its number was allocated.
    """

    project: str
    target: str
    name: str
    input: str
    filename: str
    facts: str


def now() -> float:
    """Return the time that is noted, in seconds since 1970: SOURCE_DATE_EPOCH (reproducible-builds.org) where it is set."""
    said = os.environ.get("SOURCE_DATE_EPOCH", "")
    return float(said) if said.isascii() and said.isdigit() else time.time()


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
        """Return the JSON data of a result: see :mod:`relink.indexes.build.records`.

        :raises UsageError: it is damaged.
        """
        query = "select record from results where input = ? and target = ?"
        ((record,),) = self._rows(query, (result.input, result.target))
        return self.parsed(record)

    def parsed(self, text: str) -> dict[str, Any]:
        """Return JSON of the store as data.

        :raises UsageError: it is damaged.
        """
        try:
            found = json.loads(text)
        except ValueError as error:
            raise _failed(self.directory, error) from error
        if not isinstance(found, dict):
            raise _failed(self.directory, ValueError("a record is no table"))
        return found

    def digests(self) -> Iterator[tuple[str, str, str]]:
        """Yield the input, the target and a digest of the record of each result, in a fixed order."""
        yield from self._each("select input, target, digest from results order by input, target")

    def rests(self) -> dict[str, dict[str, Any]]:
        """Return what results rest on, by id; many rest on the same."""
        return {name: self.parsed(body) for name, body in self._rows("select id, body from rests")}

    def keep(
        self,
        key: str,
        sha256: str,
        target: str,
        relink: str,
        record: Mapping[str, Any],
        rests: Mapping[str, Any] | None,
        release: tuple[str, str, int],
    ) -> StoredResult:
        """Note the result of a task, on disk when this returns. What its index has had of this wheel is superseded.

        :param key: the task's identity.
        :param sha256: of the input.
        :param relink: the release that made it.
        :param record: JSON data: see :mod:`relink.indexes.build.records`.
        :param rests: what it rests on, as JSON data.
        :param release: the project, its version, and the number that the version of the file ends in.
        """
        file, filename, (project, version, number) = record.get("file"), record["wheel"]["filename"], release
        result = StoredResult(
            sha256,
            target,
            relink,
            None if rests is None else _digest(rests),
            record["status"],
            filename,
            file and (file["sha256"], file["filename"]),
        )
        digest = _digest({name: value for name, value in record.items() if name not in _PASSING})
        with self._written() as run:
            if rests is not None:
                run("insert or ignore into rests values (?, ?)", (result.rests, json.dumps(rests)))
            values = (sha256, target, key, relink, result.rests, result.status, result.filename,
                      *(result.file or (None, None)), digest, json.dumps(record))  # fmt: skip
            run("insert or replace into results values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            name = "" if result.status == "refused" else file["filename"] if file else filename
            run(
                "update files set until = ? where target = ? and filename = ? and name <> ? and until is null",
                (now(), target, filename, name),
            )
            if result.status == "written":
                run("insert or ignore into names values (?, ?, ?)", (target, filename, number))
            if name:
                facts = {field: record.get(field) for field in ("status", "wheel", "file")}
                query = "select time from releases where project = ? and version = ? and target = ?"
                facts["time"] = next((time for (time,) in run(query, (project, version, target))), None)
                row = (project, target, name, sha256, filename, None, json.dumps(facts))
                run("insert or replace into files values (?, ?, ?, ?, ?, ?, ?)", row)
        return result

    def forget(self, results: Iterable[tuple[str, str]]) -> None:
        """Remove results, by input and target, and what nothing rests on any more; their files are superseded."""
        with self._written() as run:
            for key in results:
                run("delete from results where input = ? and target = ?", key)
                run(
                    "update files set until = ? where input = ? and target = ? and until is null",
                    (now(), *key),
                )
            run("delete from rests where id not in (select rests from results where rests is not null)")

    def drop(self, wheels: Iterable[tuple[str, str]]) -> int:
        """Remove results and files, by the target and the name of the input; returns how many results."""
        removed = 0
        with self._written() as run:
            for wheel in wheels:
                removed += run("delete from results where target = ? and filename = ?", wheel).rowcount
                run("delete from files where target = ? and filename = ?", wheel)
        return removed

    def begin(self, target: str, release: str) -> None:
        """Note the release of the libraries that an index is for.

        :raises UsageError: it was another one.
        """
        with self._written() as run:
            run("insert or ignore into indexes values (?, ?)", (target, release))
        ((known,),) = self._rows("select release from indexes where target = ?", (target,))
        if known != release:
            raise UsageError(
                f"the index of {target} is for {known}, and its prefixes have {release} now. An index is for one release, since "
                f"versions of two do not sort (10.0 is below 7.2): name another target [targets.{target}x] for this one"
            )

    def number(self, project: str, version: str, target: str, filenames: Iterable[str]) -> tuple[int, bool]:
        """Return the number of a release for wheels that are to be made, and whether it is a new one.

        It is the one that the release has, unless an index has ever had a file of that number made of a wheel of these names.
        """
        query = "select number from releases where project = ? and version = ? and target = ?"
        known = next((number for (number,) in self._rows(query, (project, version, target))), 0)
        query = "select 1 from names where target = ? and filename = ? and number = ?"
        taken = any(self._rows(query, (target, filename, known)) for filename in filenames)
        return (known + 1, True) if taken or not known else (known, False)

    def allocate(self, releases: Iterable[tuple[str, str, str, int]]) -> None:
        """Note the numbers that versions of this run end in: project, version, target, number."""
        with self._written() as run:
            for release in releases:
                run("insert or replace into releases values (?, ?, ?, ?, ?)", (*release, now()))

    def listed(self, superseded: float) -> Iterator[StoredFile]:
        """Yield all files that indexes list, in the order of projects, targets and names.

        :param superseded: those that were superseded after this time, too, in seconds since 1970.
        """
        columns = "project, target, name, input, filename, facts"
        query = f"select {columns} from files where until is null or until > ? order by project, target, name"  # noqa: S608
        for row in self._each(query, (superseded,)):
            yield StoredFile(*row)

    def all_files(self, superseded: float = 0) -> list[tuple[str, str, str, str]]:
        """Return target, name of the input, and SHA-256 and name of all files; those superseded before a time are removed."""
        with self._written() as run:
            run("delete from files where until <= ?", (superseded,))
        sha256, name = "json_extract(facts, '$.file.sha256')", "json_extract(facts, '$.file.filename')"
        return self._rows(f"select target, filename, {sha256}, {name} from files where {sha256} is not null")  # noqa: S608

    def wheels(self) -> dict[str, tuple[str | None, str | None]]:
        """Return what sources say of input wheels, by SHA-256: why it is yanked, and when it was uploaded."""
        return {sha256: (yanked, uploaded) for sha256, yanked, uploaded in self._each("select * from wheels")}

    def keep_wheels(self, wheels: Iterable[tuple[str, str | None, str | None]]) -> None:
        """Note what sources say, as :meth:`wheels` gives it: it holds until they say something else."""
        with self._written() as run:
            for wheel in wheels:
                run("insert or replace into wheels values (?, ?, ?)", wheel)

    def unhashed(self) -> dict[str, str]:
        """Return the SHA-256 of wheels whose source says none, by address, as they were when they were fetched."""
        return dict(self._rows("select url, sha256 from unhashed"))

    def keep_hash(self, url: str, sha256: str) -> None:
        """Note the SHA-256 of a wheel whose source says none."""
        with self._written() as run:
            run("insert or replace into unhashed values (?, ?)", (url, sha256))

    @property
    def site_id(self) -> str:
        """A UUID of the site, made when it is asked for first."""
        with self._written() as run:
            run("insert into site select ? where not exists (select 1 from site)", (str(uuid.uuid4()),))
        ((found,),) = self._rows("select id from site")
        return str(found)

    def changes(self, most: int) -> list[tuple[float, dict[str, Any]]]:
        """Return the last changes of the site, the newest first, with their times in seconds since 1970."""
        rows = self._rows("select time, change from changes order by rowid desc limit ?", (most,))
        return [(time, self.parsed(change)) for time, change in rows]

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
        with self._written() as run:
            for what, change in changes:
                run("insert into changes values (?, ?)", (time, json.dumps(change)))
                run("insert or replace into shown values (?, ?)", (what, change["after"]))
            for what in gone:
                run("delete from shown where what = ?", (what,))

    def repair(self) -> int:
        """Remove records that are damaged; returns how many. What they were of is done again."""
        removed = 0
        with self._written() as run:
            for table, column in _RECORDS:
                removed += run(f"delete from {table} where not json_valid({column})").rowcount  # noqa: S608 (constants)
            run("delete from results where rests is not null and rests not in (select id from rests)")
            run(
                "delete from results where status <> 'refused' and not exists (select 1 from files "
                "where files.input = results.input and files.target = results.target and until is null)"
            )
        return removed

    def _each(self, query: str, values: tuple[Any, ...] = ()) -> Iterator[Any]:
        """Yield rows, of which there may be many."""
        try:
            yield from self._database.execute(query, values)
        except sqlite3.Error as error:
            raise _failed(self.directory, error) from error

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return list(self._each(query, values))

    @contextlib.contextmanager
    def _written(self) -> Iterator[_Run]:
        try:
            with self._database:
                yield self._database.execute
        except sqlite3.Error as error:
            raise _failed(self.directory, error) from error


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _failed(directory: Path, error: OSError | sqlite3.Error | ValueError) -> RelinkError:
    if isinstance(error, OSError):
        raise_if_machine_fault(error, str(directory))
    reason = error.strerror if isinstance(error, OSError) else str(error)
    repair = f"; `relink index check {directory.with_suffix('')} --repair` takes out what is damaged"
    more = repair if isinstance(error, ValueError) else ""
    return UsageError(f"{directory}: the state of the index cannot be used ({reason}){more}")
