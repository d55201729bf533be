"""What an index remembers between runs: what came of each wheel and target, what sources say, and what happened when.

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
from pathlib import Path
from typing import Any, TypeAlias

from relink.system.errors import RelinkError, UsageError
from relink.system.system_errors import raise_if_machine_fault

# A result whose `until` is null is the one that holds; another one was superseded then, and its file is listed for a while.
_TABLES = """
create table if not exists results (
    id integer primary key, project text not null, version text not null, filename text not null, target text not null,
    input text not null, key text not null, relink text not null, rests text, status text not null,
    file_sha256 text, file_name text, allocated real, until real, digest text not null);
create unique index if not exists holding on results (filename, target) where until is null;
create index if not exists by_project on results (project, filename, target);
create table if not exists records (id integer primary key, body text not null);
create table if not exists rests (id text primary key, body text not null);
create table if not exists failed (
    project text not null, version text not null, filename text not null, target text not null, error text not null,
    primary key (filename, target));
create view if not exists shown_now as
    select project, version, filename, target, status, id from results where until is null
    union all select project, version, filename, target, 'failed', null from failed;
create table if not exists shown (
    filename text not null, target text not null, status text not null, primary key (filename, target));
create table if not exists changes (time real not null, change text not null);
create table if not exists wheels (sha256 text primary key, yanked text, uploaded text, unhashed text);
create table if not exists indexes (target text primary key, facts text not null);
create table if not exists releases (
    project text not null, version text not null, target text not null, number integer not null, time real not null,
    primary key (project, version, target)) without rowid;
create table if not exists names (
    target text not null, filename text not null, number integer not null, primary key (target, filename, number)) without rowid;
create table if not exists site (id text not null);
insert into site select lower(hex(randomblob(16))) where not exists (select 1 from site);
"""
_CHANGED = """
insert into changes select ?, json_object('project', project, 'version', version, 'wheel', filename, 'target', target,
    'before', before, 'after', status, 'text', substr(coalesce(said, ''), 1, 300))
from (
    select one.project, one.version, one.filename, one.target, one.status, shown.status as before,
        coalesce(json_extract(records.body, '$.verdict.text'), failed.error) as said
    from shown_now as one left join shown on shown.filename = one.filename and shown.target = one.target
        left join records on records.id = one.id
        left join failed on failed.filename = one.filename and failed.target = one.target
    where shown.status is not one.status order by one.project, one.version, one.filename, one.target)
"""
_FORM = 1  # of the tables
_RECORDS = {"records": "body", "rests": "body", "changes": "change", "indexes": "facts"}


_Run: TypeAlias = Callable[..., sqlite3.Cursor]


def now() -> float:
    """Return the time that is noted, in seconds since 1970: SOURCE_DATE_EPOCH (reproducible-builds.org) where it is set."""
    said = os.environ.get("SOURCE_DATE_EPOCH", "")
    return float(said) if said.isascii() and said.isdigit() else time.time()


class Store(contextlib.ExitStack):
    """The state of one index; open in one process at a time. Rows have the columns of the tables.

    :param site: the site, as the user names it.
    """

    def __init__(self, site: Path) -> None:
        super().__init__()
        self.directory = site.parent / f"{site.name}.relink"
        self.files = self.directory / "files"
        self.sites = self.directory / "sites"
        place = self.directory / "lock"
        try:
            for directory in (self.files, self.sites):
                directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            self.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._database = sqlite3.connect(self.directory / "state.sqlite")
            self.callback(self._database.close)
            self._database.row_factory = sqlite3.Row
            ((form,),) = self._database.execute("pragma user_version")
            if form != _FORM and list(self._database.execute("select 1 from sqlite_master")):
                raise sqlite3.DatabaseError("another release of relink wrote it; name another site")
            self._database.executescript(f"pragma user_version = {_FORM};{_TABLES}")
        except BlockingIOError as error:
            self.close()
            raise UsageError(f"{site}: another `relink index` works on it; wait for it to end") from error
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise _failed(self.directory, error) from error

    def path_of(self, sha256: str, filename: str) -> str:
        """Return where a wheel of the site lies."""
        return f"{self.files}/{sha256[:2]}/{sha256}/{filename}"

    def begin(self, indexes: Mapping[str, Mapping[str, Any]]) -> None:
        """Note what each index is for, as the matrix says it; no failure of an earlier run counts any more.

        :param indexes: JSON data by target: `release`, that of the libraries, and more.
        :raises UsageError: one was for another release.
        """
        known = self.indexes()
        for target, facts in indexes.items():
            if (release := known.get(target, facts)["release"]) != facts["release"]:
                raise UsageError(
                    f"the index of {target} is for {release}, and its prefixes have {facts['release']} now. An index is for one "
                    "release, since versions of two do not sort (10.0 is below 7.2): name another target "
                    f"[targets.{target}x] for this one"
                )
        with self._written() as run:
            for target, facts in indexes.items():
                run("insert or replace into indexes values (?, ?)", (target, json.dumps(facts)))
            run("delete from failed")

    def indexes(self) -> dict[str, dict[str, Any]]:
        """Return what each index is for."""
        return {name: self.parsed(facts) for name, facts in self._each("select * from indexes")}

    def holding(self) -> Iterator[sqlite3.Row]:
        """Yield the results that hold, without what is longer."""
        return self._each("select * from results where until is null")

    def of_wheel(self, filename: str) -> dict[str, sqlite3.Row]:
        """Return the results of a wheel that hold, by target."""
        rows = self._each("select * from results where filename = ? and until is null", (filename,))
        return {row["target"]: row for row in rows}

    def projects(self) -> list[str]:
        """Return the names of all projects, in order."""
        query = "select project from results union select project from failed order by project"
        return [name for (name,) in self._each(query)]

    def wheels_of(self, project: str) -> list[sqlite3.Row]:
        """Return target and name of each wheel of a project, those that were superseded, too, with the status where it holds."""
        query = "select target, filename, case when until is null then status end as status from results where project = ?"
        return list(self._each(query, (project,)))

    def listed(self, project: str, superseded: float) -> list[sqlite3.Row]:
        """Return what a site has of a project: results, with what the source says and their records, and failures.

        :param superseded: files that were superseded after this time, too, in seconds since 1970.
        """
        query = (
            "select version, filename, target, input, status, until, allocated, yanked, uploaded, body as record "
            "from results join records using (id) left join wheels on sha256 = input "
            "where project = ? and (until is null or until > ?) union all "
            "select version, filename, target, null, 'failed', null, null, null, null, json_object('error', error) "
            "from failed where project = ?"
        )
        return list(self._each(query, (project, superseded, project)))

    def digest(self, superseded: float) -> str:
        """Return a digest of all that :meth:`listed` gives."""
        digest = hashlib.sha256()
        columns = "digest, target, until is null, allocated, yanked, uploaded"
        results = (
            f"select {columns} from results left join wheels on sha256 = input "  # noqa: S608 (a constant)
            "where until is null or until > ? order by project, filename, target, digest"
        )
        failed = "select filename, target, error from failed where ? is not null order by filename, target"
        for query in (results, failed):
            for row in self._each(query, (superseded,)):
                digest.update(repr(tuple(row)).encode())
        return digest.hexdigest()

    def count(self, *statuses: str) -> int:
        """Return how many wheels and targets have one of these statuses."""
        query = f"select count(*) from shown_now where status in ({', '.join('?' * len(statuses))})"  # noqa: S608 (marks)
        ((number,),) = self._each(query, statuses)
        return int(number)

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

    def rests(self) -> dict[str, dict[str, Any]]:
        """Return what results rest on, by id; many rest on the same."""
        return {name: self.parsed(body) for name, body in self._each("select id, body from rests")}

    def keep(self, facts: Mapping[str, Any], number: int, record: Mapping[str, Any], rests: Any) -> None:
        """Note the result of a task, on disk when this returns. What its index has had of this wheel is superseded.

        :param facts: the columns `project`, `version`, `filename`, `target`, `input`, `key`, `relink` and `status`.
        :param number: that the version of the file ends in.
        :param record: JSON data: see :mod:`relink.indexes.build.work`.
        :param rests: what it rests on, as JSON data; None where it rests on the wheel alone.
        """
        file, body = record["file"] or {}, json.dumps(record)
        row = {
            **facts,
            "rests": None if rests is None else hashlib.sha256(json.dumps(rests).encode()).hexdigest(),
            "file_sha256": file.get("sha256"),
            "file_name": file.get("filename"),
            "digest": hashlib.sha256(body.encode()).hexdigest(),
        }
        same = (row["filename"], row["target"])
        with self._written() as run:
            if rests is not None:
                run("insert or ignore into rests values (?, ?)", (row["rests"], json.dumps(rests)))
            # A name has one content: what had the same goes, as what has no file.
            listed = None if row["status"] == "refused" else row["file_name"] or row["filename"]
            query = (
                "select id from results where filename = ? and target = ? "
                "and (status = 'refused' or coalesce(file_name, filename) = ?)"
            )
            self._remove(run, run(query, (*same, listed)).fetchall())
            run(
                "update results set until = ? where filename = ? and target = ? and until is null",
                (now(), *same),
            )
            if row["status"] == "written":
                run("insert or ignore into names values (?, ?, ?)", (*reversed(same), number))
            query = "select time from releases where project = ? and version = ? and target = ?"
            times = run(query, (row["project"], row["version"], row["target"])).fetchall()
            row["allocated"] = times[0][0] if times else None
            columns, marks = ", ".join(row), ", ".join(f":{name}" for name in row)
            added = run(f"insert into results ({columns}) values ({marks})", row)  # noqa: S608 (names of columns)
            run("insert into records values (?, ?)", (added.lastrowid, body))

    def fail(self, facts: Mapping[str, str]) -> None:
        """Note what this run could not do: `project`, `version`, `filename`, `target` and `error`."""
        with self._written() as run:
            run(
                "insert or replace into failed values (:project, :version, :filename, :target, :error)", facts
            )

    def supersede(self, results: Iterable[int]) -> None:
        """Note that results, by id, do not hold any more."""
        with self._written() as run:
            for number in results:
                run("update results set until = ? where id = ? and until is null", (now(), number))
            run("delete from rests where id not in (select rests from results where rests is not null)")

    def drop(self, wheels: Iterable[tuple[str, str]]) -> int:
        """Remove the results of wheels, by target and name; returns how many held."""
        removed = 0
        with self._written() as run:
            for wheel in wheels:
                rows = run(
                    "select id, until from results where target = ? and filename = ?", wheel
                ).fetchall()
                removed += sum(row["until"] is None for row in rows)
                self._remove(run, rows)
                run("delete from failed where target = ? and filename = ?", wheel)
        return removed

    def _remove(self, run: _Run, rows: Iterable[sqlite3.Row]) -> None:
        for row in rows:
            for table in ("records", "results"):
                run(f"delete from {table} where id = ?", (row["id"],))  # noqa: S608 (constants)

    def number(self, project: str, version: str, target: str, filenames: Iterable[str]) -> tuple[int, bool]:
        """Return the number of a release for wheels that are to be made, and whether it is a new one.

        It is the one that the release has, unless an index has ever had a file of that number made of a wheel of these names.
        """
        query = "select number from releases where project = ? and version = ? and target = ?"
        known = next((number for (number,) in self._each(query, (project, version, target))), 0)
        query = "select 1 from names where target = ? and filename = ? and number = ?"
        taken = any(list(self._each(query, (target, filename, known))) for filename in filenames)
        return (known + 1, True) if taken or not known else (known, False)

    def allocate(self, releases: Iterable[tuple[str, str, str, int]]) -> None:
        """Note the numbers that versions of this run end in: project, version, target, number."""
        with self._written() as run:
            for release in releases:
                run("insert or replace into releases values (?, ?, ?, ?, ?)", (*release, now()))

    def all_files(self, superseded: float = 0) -> list[tuple[str, str, str, str]]:
        """Return target, name of the input, and SHA-256 and name of all files; those superseded before a time are removed."""
        with self._written() as run:
            self._remove(run, run("select id from results where until <= ?", (superseded,)).fetchall())
        query = "select target, filename, file_sha256, file_name from results where file_sha256 is not null"
        return [tuple(row) for row in self._each(query)]

    def keep_wheels(self, wheels: Iterable[tuple[str, str | None, str | None, str | None]]) -> None:
        """Note what sources say of wheels, by SHA-256: why it is yanked, and when it was uploaded.

        :param wheels: with the address of each whose source says no SHA-256: it is as it was when it was fetched.
        """
        with self._written() as run:
            for wheel in wheels:
                run(
                    "insert into wheels values (?, ?, ?, ?) on conflict(sha256) do update set yanked = excluded.yanked, "
                    "uploaded = excluded.uploaded where (yanked, uploaded) is not (excluded.yanked, excluded.uploaded)",
                    wheel,
                )

    def unhashed(self) -> dict[str, str]:
        """Return the SHA-256 of wheels whose source says none, by address."""
        query = "select unhashed, sha256 from wheels where unhashed is not null"
        return dict(map(tuple, self._each(query)))

    def site_id(self) -> uuid.UUID:
        """Return what this site has and no other one."""
        ((found,),) = self._each("select id from site")
        return uuid.UUID(found)

    def note_changes(self) -> None:
        """Note what is shown now and was not when this was called last."""
        with self._written() as run:
            run(_CHANGED, (now(),))
            run("delete from shown where (filename, target) not in (select filename, target from shown_now)")
            run("insert or replace into shown select filename, target, status from shown_now")

    def changes(self, most: int) -> list[dict[str, Any]]:
        """Return the last changes of the site, the newest first, each with its `time` in seconds since 1970."""
        rows = self._each("select time, change from changes order by rowid desc limit ?", (most,))
        return [{"time": time, **self.parsed(change)} for time, change in rows]

    def repair(self) -> int:
        """Remove records that are damaged; returns how many. What they were of is done again."""
        removed = 0
        with self._written() as run:
            for table, column in _RECORDS.items():
                removed += run(f"delete from {table} where not json_valid({column})").rowcount  # noqa: S608 (constants)
            run("delete from results where rests is not null and rests not in (select id from rests)")
            run("delete from results where id not in (select id from records)")
            run("delete from records where id not in (select id from results)")
        return removed

    def _each(self, query: str, values: tuple[Any, ...] = ()) -> Iterator[sqlite3.Row]:
        """Yield rows, of which there may be many."""
        try:
            yield from self._database.execute(query, values)
        except sqlite3.Error as error:
            raise _failed(self.directory, error) from error

    @contextlib.contextmanager
    def _written(self) -> Iterator[_Run]:
        try:
            with self._database:
                yield self._database.execute
        except sqlite3.Error as error:
            raise _failed(self.directory, error) from error


def _failed(directory: Path, error: OSError | sqlite3.Error | ValueError) -> RelinkError:
    if isinstance(error, OSError):
        raise_if_machine_fault(error, str(directory))
    reason = error.strerror if isinstance(error, OSError) else str(error)
    # A record that is damaged can be taken out; a database that is none, or is another release's, cannot.
    site = directory.with_suffix("")
    hint = (
        f"; `relink index check {site} --repair` takes out what is damaged"
        if isinstance(error, ValueError)
        else ""
    )
    return UsageError(f"{directory}: the state of the index cannot be used ({reason}){hint}")
