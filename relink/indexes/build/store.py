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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from relink.system.errors import RelinkError, UsageError, raise_if_machine_fault
from relink.system.safe_open import hash_pieces

# A result whose `until` is null is the one that holds; another one was superseded then, and its file is listed for a while.
# One that failed holds until the next run begins.
_TABLES = """
create table if not exists results (
    id integer primary key, project text not null, version text not null, filename text not null, target text not null,
    input text, key text not null, relink text not null, rests text, status text not null,
    file_sha256 text, file_name text, allocated real, until real, digest text not null);
create unique index if not exists holding on results (filename, target) where until is null;
create index if not exists by_project on results (project, filename, target);
create table if not exists records (id integer primary key references results on delete cascade, body text not null);
create table if not exists rests (id text primary key, body text not null);
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
"""
_CHANGED = """
insert into changes select ?, json_object('project', project, 'version', version, 'wheel', filename, 'target', target,
    'before', shown.status, 'after', one.status, 'text',
    substr(coalesce(json_extract(body, '$.verdict.text'), json_extract(body, '$.error'), ''), 1, 300))
from results as one join records using (id) left join shown using (filename, target)
where until is null and shown.status is not one.status order by project, version, filename, target
"""
_FORM = 2  # of the tables
_RECORDS = {"records": "body", "rests": "body", "changes": "change", "indexes": "facts"}


def read_clock() -> float:
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
        try:
            for directory in (self.files, self.sites):
                directory.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            lock = os.open(self.directory / "lock", flags, 0o666)
            self.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._database = sqlite3.connect(self.directory / "state.sqlite")
            self.callback(self._database.close)
            self._database.row_factory = sqlite3.Row
            ((form,),) = self._database.execute("pragma user_version")
            if form != _FORM and list(self._database.execute("select 1 from sqlite_master")):
                raise sqlite3.DatabaseError("another release of relink wrote it; name another site")
            self._database.executescript(f"pragma foreign_keys = on; pragma user_version = {_FORM};{_TABLES}")
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
        with self._written() as database:
            database.executemany(
                "insert or replace into indexes values (?, ?)",
                [(target, json.dumps(facts)) for target, facts in indexes.items()],
            )
            database.execute("delete from results where status = 'failed'")

    def indexes(self) -> dict[str, dict[str, Any]]:
        """Return what each index is for."""
        return {name: self.parsed(facts) for name, facts in self.rows("select * from indexes")}

    def projects(self) -> list[str]:
        """Return the names of all projects, in order."""
        return [name for (name,) in self.rows("select distinct project from results order by project")]

    def results_of(self, project: str) -> list[sqlite3.Row]:
        """Return the results of a project, those that were superseded, too, without what is longer."""
        return list(self.rows("select * from results where project = ?", (project,)))

    def listed(self, project: str, superseded: float) -> list[sqlite3.Row]:
        """Return what a site has of a project: results, with what the source says and their records.

        :param superseded: files that were superseded after this time, too, in seconds since 1970.
        """
        query = (
            "select results.*, yanked, uploaded, body from results join records using (id) "
            "left join wheels on sha256 = input where project = ? and (until is null or until > ?)"
        )
        return list(self.rows(query, (project, superseded)))

    def digest(self, superseded: float) -> str:
        """Return a digest of all that :meth:`listed` gives."""
        query = (
            "select digest, target, until is null, allocated, yanked, uploaded from results left join wheels on sha256 = input "
            "where until is null or until > ? order by project, filename, target, digest"
        )
        return hash_pieces(repr(tuple(row)).encode() for row in self.rows(query, (superseded,))).hex()

    def count(self, *statuses: str) -> int:
        """Return how many of the results that hold have one of these statuses."""
        rows = self.rows("select status, count(*) from results where until is null group by status")
        return sum(number for status, number in rows if status in statuses)

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

    def record_result(
        self, facts: Mapping[str, Any], number: int, record: Mapping[str, Any], rests: Any
    ) -> None:
        """Note the result of a task, on disk when this returns. What its index has had of this wheel is superseded.

        :param facts: the columns `project`, `version`, `filename`, `target`, `input`, `key`, `relink` and `status`.
        :param number: that the version of the file ends in.
        :param record: JSON data: see :mod:`relink.indexes.build.work`.
        :param rests: what it rests on, as JSON data; None where it rests on the wheel alone.
        """
        file, body, said = record.get("file") or {}, json.dumps(record), json.dumps(rests)
        row = {
            **facts,
            "rests": None if rests is None else hashlib.sha256(said.encode()).hexdigest(),
            "file_sha256": file.get("sha256"),
            "file_name": file.get("filename"),
            "digest": hashlib.sha256(body.encode()).hexdigest(),
        }
        listed = (row["file_name"] or row["filename"]) if row["status"] in ("written", "original") else None
        values = row | {"listed": listed, "now": read_clock(), "number": number, "said": said}
        same = "where project = :project and filename = :filename and target = :target"
        with self._written() as database:
            if rests is not None:
                database.execute("insert or ignore into rests values (:rests, :said)", values)
            # A name has one content: what had the same goes, as what has no file.
            database.execute(
                f"delete from results {same} and (status = 'refused' or coalesce(file_name, filename) = :listed)",  # noqa: S608
                values,
            )
            database.execute(f"update results set until = :now {same} and until is null", values)  # noqa: S608
            if row["status"] == "written":
                database.execute("insert or ignore into names values (:target, :filename, :number)", values)
            added = database.execute(
                f"insert into results ({', '.join(row)}, allocated) values ({', '.join(f':{name}' for name in row)}, "  # noqa: S608
                "(select time from releases where project = :project and version = :version and target = :target))",
                values,
            )
            database.execute("insert into records values (?, ?)", (added.lastrowid, body))

    def supersede(self, results: Iterable[int]) -> None:
        """Note that results, by id, do not hold any more."""
        with self._written() as database:
            query = "update results set until = ? where id = ? and until is null"
            database.executemany(query, ((read_clock(), number) for number in results))
            database.execute(
                "delete from rests where id not in (select rests from results where rests is not null)"
            )

    def drop(self, results: Iterable[int]) -> None:
        """Remove results, by id."""
        with self._written() as database:
            database.executemany("delete from results where id = ?", ((number,) for number in results))

    def number(self, project: str, version: str, target: str, filenames: Iterable[str]) -> tuple[int, bool]:
        """Return the number of a release for wheels that are to be made, and whether it is a new one.

        It is the one that the release has, unless an index has ever had a file of that number made of a wheel of these names.
        """
        query = "select number from releases where project = ? and version = ? and target = ?"
        known = next((number for (number,) in self.rows(query, (project, version, target))), 0)
        query = "select 1 from names where target = ? and filename = ? and number = ?"
        taken = any(list(self.rows(query, (target, filename, known))) for filename in filenames)
        return (known + 1, True) if taken or not known else (known, False)

    def allocate(self, releases: Iterable[tuple[str, str, str, int]]) -> None:
        """Note the numbers that versions of this run end in: project, version, target, number."""
        with self._written() as database:
            query = "insert or replace into releases values (?, ?, ?, ?, ?)"
            database.executemany(query, ((*release, read_clock()) for release in releases))

    def files_of(self, superseded: float = 0) -> list[tuple[int, str, str]]:
        """Return the id of the result, SHA-256 and name of all files; those superseded before a time are removed."""
        with self._written() as database:
            database.execute("delete from results where until <= ?", (superseded,))
        query = "select id, file_sha256, file_name from results where file_sha256 is not null"
        return [tuple(row) for row in self.rows(query)]

    def keep_wheels(self, wheels: Iterable[tuple[str, str | None, str | None, str | None]]) -> None:
        """Note what sources say of wheels, by SHA-256: why it is yanked, and when it was uploaded.

        :param wheels: with the address of each whose source says no SHA-256: it is as it was when it was fetched.
        """
        query = (
            "insert into wheels values (?, ?, ?, ?) on conflict(sha256) do update set yanked = excluded.yanked, "
            "uploaded = excluded.uploaded where (yanked, uploaded) is not (excluded.yanked, excluded.uploaded)"
        )
        with self._written() as database:
            database.executemany(query, wheels)

    def note_changes(self) -> None:
        """Note what is shown now and was not when this was called last."""
        with self._written() as database:
            database.execute(_CHANGED, (read_clock(),))
            database.execute("delete from shown")
            database.execute(
                "insert into shown select filename, target, status from results where until is null"
            )

    def changes(self, most: int) -> list[dict[str, Any]]:
        """Return the last changes of the site, the newest first, each with its `time` in seconds since 1970."""
        rows = self.rows("select time, change from changes order by rowid desc limit ?", (most,))
        return [{"time": time, **self.parsed(change)} for time, change in rows]

    def repair(self) -> int:
        """Remove records that are damaged; returns how many. What they were of is done again."""
        with self._written() as database:
            removed = sum(
                database.execute(f"delete from {table} where not json_valid({column})").rowcount  # noqa: S608 (constants)
                for table, column in _RECORDS.items()
            )
            database.execute(
                "delete from results where rests is not null and rests not in (select id from rests)"
            )
            database.execute("delete from results where id not in (select id from records)")
        return removed

    def rows(self, query: str, values: Sequence[Any] = ()) -> Iterator[sqlite3.Row]:
        """Yield what a query gives, of which there may be much."""
        try:
            yield from self._database.execute(query, values)
        except sqlite3.Error as error:
            raise _failed(self.directory, error) from error

    @contextlib.contextmanager
    def _written(self) -> Iterator[sqlite3.Connection]:
        """A transaction, on disk at its end."""
        try:
            with self._database as database:
                yield database
        except sqlite3.Error as error:
            raise _failed(self.directory, error) from error


def _failed(directory: Path, error: OSError | sqlite3.Error | ValueError) -> RelinkError:
    raise_if_machine_fault(error, str(directory))
    reason = error.strerror if isinstance(error, OSError) else str(error)
    # A record that is damaged can be taken out; a database that is none, or is another release's, cannot.
    repair = f"; `relink index check {directory.with_suffix('')} --repair` takes out what is damaged"
    hint = repair if isinstance(error, ValueError) else ""
    return UsageError(f"{directory}: the state of the index cannot be used ({reason}){hint}")
