"""The tasks of one run: what an engine gives back is noted, each result on disk before the next one is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relink import __version__
from relink.indexes.build.engine import Job
from relink.indexes.build.fingerprint import TargetState
from relink.indexes.build.pip_settings import PipSettings
from relink.indexes.build.recipe import IndexTarget, Recipe
from relink.indexes.build.records import record_of_error
from relink.indexes.build.simple_api import ListedWheel
from relink.indexes.build.store import Store, StoredResult
from relink.indexes.build.tasks import PlannedTask, task_key
from relink.indexes.build.work import FetchTask, RelinkTask, TaskOutcome, fetch, relink_wheel
from relink.system.errors import WheelError

__all__ = ["Event", "Run", "Summary"]

_FETCH_MEMORY = 200 << 20  # bytes of a process that fetches and reads a directory of members
_BASE_MEMORY = 500 << 20  # bytes of one that relinks a wheel of small libraries
_SLOWEST = 5  # tasks that are told
_MOST_MEMORY = 2 << 30  # bytes: larger libraries are worked on in a file (docs/large-wheels.md)
_PER_BYTE = 3  # bytes of memory for each byte of the largest library: its content, its edited copy, what patchelf holds


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, for a bar and a log.

    :ivar kind: ``source``, ``note``, ``budget``, ``fetched``, ``result``, ``failure``, ``published``.
    """

    kind: str
    facts: Mapping[str, Any]


@dataclass(slots=True)
class Summary:
    """What a run has done; `refused` and `failed` are of this run, `red` is what the site says of all."""

    wheels: int = 0
    tasks: int = 0
    done_before: int = 0
    fetched: int = 0
    written: int = 0
    original: int = 0
    refused: int = 0
    failed: int = 0
    source_failures: int = 0
    bytes_fetched: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    published: bool = False
    red: int = 0
    slowest: list[tuple[float, str, str]] = field(default_factory=list)

    def sentence(self) -> str:
        """``12 of 30 tasks in 41.2 s: 9 written, …``."""
        did = f"{self.tasks - self.done_before} of {self.tasks} tasks in {self.seconds:.1f} s"
        parts = (
            f"{self.written} written",
            f"{self.original} need no relinking",
            f"{self.refused} refused",
            f"{self.failed} failed",
        )
        state = "the site is new" if self.published else "the site is as it was"
        return f"{did}: {', '.join(parts)}; {state}."

    def ok(self, recipe: Recipe) -> bool:
        """Whether the exit code is 0: everything was tried, and nothing was refused that the recipe wants to fail for."""
        return not (self.failed or self.source_failures or (recipe.refused == "fail" and self.red))


@dataclass(slots=True)
class Run:
    """The state of one run of :func:`relink.indexes.build.building.build`."""

    recipe: Recipe
    store: Store
    states: Mapping[str, TargetState]
    settings: PipSettings
    summary: Summary
    results: dict[tuple[str, str], StoredResult]
    facts: dict[str, dict[str, Any]]
    say: Callable[[Event], None]
    failures: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def fetch_job(self, wheel: ListedWheel) -> Job:
        """Return the job that fetches a wheel."""
        return Job(fetch, FetchTask(wheel, self.settings, self.recipe.cache_size), _FETCH_MEMORY)

    def relink_job(self, wheel: ListedWheel, sha256: str, task: PlannedTask) -> Job:
        """Return the job that relinks a wheel that was fetched, with the memory that its largest library makes it need."""
        largest = int(self.facts[sha256]["largest"])
        work = RelinkTask(
            wheel,
            sha256,
            task.target,
            self.states[task.target.name].fingerprint,
            str(self.store.files.absolute()),
            self.recipe.originals == "mirror",
            self.settings,
            self.recipe.cache_size,
        )
        memory = min(_BASE_MEMORY + _PER_BYTE * largest, _MOST_MEMORY)
        return Job(relink_wheel, work, memory, task.target.name)

    def on_fetched(self, wheel: ListedWheel, found: Any, tasks: Sequence[PlannedTask]) -> Iterator[Job]:
        """Note what a wheel contains; give the tasks that wait for it, less those that are done."""
        damaged = isinstance(found, WheelError) and not isinstance(found.__cause__, OSError)
        if damaged and wheel.sha256:  # the same content will be the same again
            for task in tasks:
                self._keep(wheel, wheel.sha256, task.target, TaskOutcome("refused", record_of_error(found)))
            return
        if isinstance(found, BaseException):
            for task in tasks:
                self.fail(wheel, task.target.name, found)
            return
        sha256 = found["sha256"]
        self.store.keep_wheel(sha256, found, None if wheel.sha256 else wheel.url)
        self.facts[sha256] = found
        self.summary.fetched += 1
        self.summary.bytes_fetched += found["size"]
        self.say(Event("fetched", {"wheel": wheel.filename, **found}))
        for task in tasks:
            if (sha256, task.target.name) not in self.results:
                yield self.relink_job(wheel, sha256, task)

    def on_relinked(self, work: RelinkTask, outcome: Any) -> None:
        """Note what came of a task: an outcome, or the exception that it ended with."""
        if isinstance(outcome, BaseException) or outcome.status == "failed":
            self.fail(work.wheel, work.target.name, outcome)
        else:
            self._keep(work.wheel, work.sha256, work.target, outcome)

    def _keep(self, wheel: ListedWheel, sha256: str, target: IndexTarget, outcome: TaskOutcome) -> None:
        about = {
            "filename": wheel.filename,
            "url": wheel.url,
            "requires_python": wheel.requires_python,
            "yanked": wheel.yanked,
            "size": self.facts.get(sha256, {}).get("size", wheel.size),
        }
        record = {"status": outcome.status, **outcome.record, "wheel": about}
        self.results[sha256, target.name] = self.store.keep(
            task_key(sha256, target), sha256, target.name, __version__, record, outcome.rests
        )
        setattr(self.summary, outcome.status, getattr(self.summary, outcome.status) + 1)
        self.summary.bytes_written += (outcome.record.get("file") or {}).get("size", 0)
        spent = (outcome.record.get("seconds", 0.0), wheel.filename, target.name)
        self.summary.slowest = sorted([*self.summary.slowest, spent], reverse=True)[:_SLOWEST]
        self.say(Event("result", {"wheel": wheel.filename, "target": target.name, **_short(outcome)}))

    def fail(self, wheel: ListedWheel, target: str, reason: Any) -> None:
        """Tell what could not be done; the next run tries it again."""
        text = (
            reason.record["error"]
            if isinstance(reason, TaskOutcome)
            else str(reason) or type(reason).__name__
        )
        self.summary.failed += 1
        self.failures[wheel.sha256 or wheel.url, target] = {"error": text}
        self.say(Event("failure", {"wheel": wheel.filename, "target": target, "error": text}))


def _short(outcome: TaskOutcome) -> dict[str, Any]:
    found = outcome.record.get("verdict", {})
    return {
        "status": outcome.status,
        "seconds": outcome.record.get("seconds"),
        "text": found.get("text"),
        "file": (outcome.record.get("file") or {}).get("filename"),
    }
