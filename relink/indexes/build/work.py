"""The tasks of an index: one fetches a wheel, one relinks it for a target. They run in any process that sees the same files.

Tasks and outcomes are plain data. Refused is what the plan of a wheel says, or its reading: the wheel is damaged. Everything else
that keeps a wheel from being written (a full disk, a cache that cannot be used, a loader that disagrees) is ``failed``, and the
next run tries it again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import posixpath
import resource
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from packaging.version import Version

from relink import __version__
from relink.elf.patchelf import find_patchelf
from relink.indexes.build.digests import Digests
from relink.indexes.build.fetching import fetch_wheel
from relink.indexes.build.fingerprint import TargetState, dependencies_of, state_of
from relink.indexes.build.pip_settings import PipSettings
from relink.indexes.build.recipe import IndexTarget
from relink.indexes.build.records import TEXT, record_of, record_of_error
from relink.indexes.build.simple_api import ListedWheel
from relink.indexes.build.web import Web
from relink.indexes.build.wheel_files import METADATA_LIMIT, place_wheel
from relink.planning.contents import Contents
from relink.planning.memory import spool_of
from relink.planning.model.embedded import embedded
from relink.planning.model.model import Plan, plain, to_json
from relink.planning.options import Options
from relink.report.model import Report
from relink.runs.relink_wheel import carry_out, make_plan
from relink.runs.statement import make_statement
from relink.system.atomic import working_directory
from relink.system.errors import RelinkError, WheelError
from relink.system.progress import Clock
from relink.wheel.archive import WheelArchive
from relink.wheel.metadata import read_metadata
from relink.wheel.naming import WheelName

__all__ = [
    "FetchTask",
    "ForeignPrefixError",
    "RelinkTask",
    "TaskOutcome",
    "fetch",
    "fingerprints",
    "relink_wheel",
]


class ForeignPrefixError(RelinkError):
    """The prefix of a target on this worker is another one than the coordinator's."""


@dataclass(frozen=True, slots=True)
class FetchTask:
    """Fetch one wheel."""

    wheel: ListedWheel
    settings: PipSettings
    cache_size: int


@dataclass(frozen=True, slots=True)
class RelinkTask:
    """Relink one wheel for one target.

    :ivar sha256: of the wheel.
    :ivar fingerprint: the target's, where the coordinator runs.
    :ivar files: the directory that published wheels lie in.
    :ivar mirror: a wheel that needs no relinking is copied there.
    """

    wheel: ListedWheel
    sha256: str
    target: IndexTarget
    fingerprint: str
    files: str
    mirror: bool
    settings: PipSettings
    cache_size: int


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What came of a relink task.

    :ivar status: ``original``: it loads as it is; ``refused``: its plan has errors; ``failed``: this machine could not do it.
    :ivar record: JSON data for the site and the matrix.
    :ivar rests: what it rests on, as JSON data; None where it rests on the wheel alone.
    """

    status: Literal["written", "original", "refused", "failed"]
    record: dict[str, Any]
    rests: dict[str, Any] | None = None


@functools.cache
def _web(settings: PipSettings) -> Web:
    return Web(settings)


@functools.cache
def _digests() -> Digests:
    return Digests()


def fingerprints(targets: tuple[IndexTarget, ...], files: str) -> dict[str, str]:
    """Return the fingerprint of each target as this process sees it, or the reason why it cannot be used here.

    :param files: the directory that results go to; a worker that does not see it cannot be used for anything.
    """
    if not os.access(files, os.W_OK):
        return dict.fromkeys((target.name for target in targets), f"{files} cannot be written here")
    found = {}
    for target in targets:
        try:
            found[target.name] = _state(target).fingerprint
        except RelinkError as error:
            found[target.name] = str(error)
    _digests().save()
    return found


def _state(target: IndexTarget) -> TargetState:
    return state_of(target, _digests())


def fetch(task: FetchTask) -> dict[str, Any]:
    """Fetch a wheel and look into it; returns its facts: sha256, size, largest library (bytes), requires_python, seconds.

    :raises RelinkError: it cannot be fetched, or is none.
    """
    start = time.monotonic()
    cached = fetch_wheel(task.wheel, _web(task.settings), task.cache_size)
    with WheelArchive(cached.path) as archive:
        metadata = read_metadata(archive.read(f"{archive.dist_info}/METADATA", METADATA_LIMIT))
        sizes = [member.size for name, member in archive.members.items() if ".so" in posixpath.basename(name)]
        return {
            "sha256": cached.sha256,
            "size": cached.path.stat().st_size,
            "largest": max(sizes, default=0),
            "requires_python": metadata.requires_python,
            "seconds": round(time.monotonic() - start, 3),
        }


def relink_wheel(task: RelinkTask) -> TaskOutcome:
    """Relink a wheel for a target, and put the result where the site's files lie.

    :raises ForeignPrefixError: the prefix here is not the coordinator's.
    """
    start = time.monotonic()
    try:
        state = _state(task.target)
    except RelinkError as error:
        raise ForeignPrefixError(str(error)) from error
    if state.fingerprint != task.fingerprint:
        raise ForeignPrefixError(f"the prefix of {task.target.name} has other content on this machine")
    try:
        status, record, report = _relinked(task, state)
    except (RelinkError, OSError, MemoryError) as error:
        return TaskOutcome("failed", {"error": str(error)[:TEXT] or type(error).__name__})
    rests = plain(dependencies_of(report, state, _digests())) if report else None
    _digests().save()
    return TaskOutcome(status, record | _spent(start), rests)


def _relinked(
    task: RelinkTask, state: TargetState
) -> tuple[Literal["written", "original", "refused"], dict[str, Any], Report | None]:
    """:raises RelinkError: this machine could not do it."""
    cached = fetch_wheel(replace(task.wheel, sha256=task.sha256), _web(task.settings), task.cache_size)
    with working_directory(Path(task.files)) as place:
        options = task.target.options(place)
        clock = Clock()
        with contextlib.ExitStack() as stack:
            try:
                contents = stack.enter_context(
                    Contents(cached.path, None, reuse=True, spool=spool_of(options))
                )
                wheel, planned = make_plan(contents, options, clock)
            except WheelError as error:
                if isinstance(error.__cause__, OSError):  # the disk, and not what is on it
                    raise
                return "refused", record_of_error(error), None
            report = Report((), planned.plan, None, planned.isa, timings=clock.timings)
            if planned.plan.ok and not planned.plan.empty:
                name = _named(planned.output, task.target.name, _digest_of(planned.plan, state, options))
                planned = replace(planned, plan=replace(planned.plan, output=name.filename))
                report = carry_out(wheel, planned, options, clock)
        record = record_of(report, task.wheel.name, task.target)
        if not planned.plan.ok:
            return "refused", record, report
        if not report.ok:
            raise RelinkError(record["verdict"]["text"], (cause["message"] for cause in record["causes"]))
        if planned.plan.empty:
            if task.mirror:
                record["file"] = place_wheel(cached.path, Path(task.files), place, None)
            return "original", record, report
        assert report.output is not None  # noqa: S101 (it is ok, and its plan is not empty)
        known = {os.path.realpath(path): digest for path, digest in state.libraries.items()}
        statement = make_statement(
            report, options, lambda path: known.get(path) or _digests().sha256(os.path.realpath(path))
        )
        record["file"] = place_wheel(Path(report.output.path), Path(task.files), place, statement)
        return "written", record, report


def _named(name: WheelName, target: str, digest: str) -> WheelName:
    """The name with the target and the plan in its version: two prefixes of one release never give one name for two contents."""
    local = ".".join(filter(None, (name.version.local, target, f"p{digest[:10]}")))
    version = Version(f"{name.version.public}+{local}")
    return replace(name, version=version, version_text=str(version))


def _digest_of(plan: Plan, state: TargetState, options: Options) -> str:
    """A digest of all that the bytes of the output depend on."""
    facts = {
        "plan": to_json(embedded(replace(plan, output=""))),
        "relink": __version__,
        "patchelf": str(find_patchelf().version),
        "compress": options.compress,
        "libraries": sorted(
            (path, state.libraries.get(path, "")) for file in plan.files for _, path in file.closure
        ),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _spent(start: float) -> dict[str, Any]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return {"seconds": round(time.monotonic() - start, 3), "peak": peak}
