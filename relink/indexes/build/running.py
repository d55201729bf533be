"""The tasks of one run: what an engine gives back is noted, each result on disk before the next one is looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relink import __version__
from relink.indexes.build.engine import Job
from relink.indexes.build.fingerprint import TargetState
from relink.indexes.build.pip_settings import PipSettings
from relink.indexes.build.recipe import IndexTarget, Recipe
from relink.indexes.build.simple_api import ListedWheel
from relink.indexes.build.store import Store, StoredResult
from relink.indexes.build.tasks import task_key
from relink.indexes.build.work import TargetTask, TaskOutcome, WheelOutcome, WheelTask, relink_wheel

__all__ = ["Event", "Run", "Summary"]

_BASE_MEMORY = 500 << 20  # bytes of a process that relinks a wheel of small libraries
_SLOWEST = 5  # tasks that are told
_MOST_MEMORY = 2 << 30  # bytes: larger libraries are worked on in a file (docs/large-wheels.md)
_PER_BYTE = 12  # bytes of memory for each of a wheel: a library of it, four times as large, its edited copy, what patchelf holds


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
    results: dict[tuple[str, str], StoredResult]
    say: Callable[[Event], None]
    summary: Summary = field(default_factory=Summary)
    failures: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def job(self, wheel: ListedWheel, targets: Sequence[tuple[IndexTarget, int]]) -> Job:
        """Return the job that relinks a wheel for targets, with the memory that its size makes it need."""
        work = WheelTask(
            wheel,
            tuple(
                TargetTask(target, self.states[target.name].fingerprint, number) for target, number in targets
            ),
            str(self.store.files.absolute()),
            self.recipe.originals == "mirror",
            self.settings,
            self.recipe.cache_size,
        )
        memory = _BASE_MEMORY + _PER_BYTE * wheel.size if wheel.size is not None else _MOST_MEMORY
        return Job(relink_wheel, work, min(memory, _MOST_MEMORY))

    def on_done(self, job: Job, result: Any) -> None:
        """Note what came of a job: an outcome, or the exception that it ended with."""
        task: WheelTask = job.task
        if isinstance(result, BaseException):
            for own in task.targets:
                self.fail(task.wheel, own.target.name, result)
            return
        if task.wheel.sha256 is None:
            self.store.keep_hash(task.wheel.url, result.sha256)
            self.store.keep_wheels([(result.sha256, task.wheel.yanked, task.wheel.uploaded)])
        if not task.wheel.url.startswith("file:"):
            self.summary.fetched += 1
            self.summary.bytes_fetched += result.size
        facts = {"wheel": task.wheel.filename, "sha256": result.sha256, "size": result.size}
        self.say(Event("fetched", facts))
        for own in task.targets:
            outcome = result.outcomes[own.target.name]
            if outcome.status == "failed":
                self.fail(task.wheel, own.target.name, outcome)
            else:
                self._keep(task.wheel, result, own, outcome)

    def _keep(self, wheel: ListedWheel, result: WheelOutcome, own: TargetTask, outcome: TaskOutcome) -> None:
        name, sha256 = wheel.name, result.sha256
        about = {
            "filename": wheel.filename,
            "url": wheel.url,
            "requires_python": wheel.requires_python,
            "size": result.size,
        }
        record = {"status": outcome.status, **outcome.record, "wheel": about}
        release = (name.canonical, str(name.version), own.number)
        self.results[sha256, own.target.name] = self.store.keep(
            task_key(sha256, own.target), sha256, own.target.name, __version__, record, outcome.rests, release
        )
        setattr(self.summary, outcome.status, getattr(self.summary, outcome.status) + 1)
        self.summary.bytes_written += (outcome.record.get("file") or {}).get("size", 0)
        spent = (outcome.record.get("seconds", 0.0), wheel.filename, own.target.name)
        self.summary.slowest = sorted([*self.summary.slowest, spent], reverse=True)[:_SLOWEST]
        self.say(Event("result", {"wheel": wheel.filename, "target": own.target.name, **_short(outcome)}))

    def fail(self, wheel: ListedWheel, target: str, reason: Any) -> None:
        """Tell what could not be done; the next run tries it again."""
        text = (
            reason.record["error"]
            if isinstance(reason, TaskOutcome)
            else str(reason) or type(reason).__name__
        )
        self.summary.failed += 1
        self.failures[wheel.sha256 or wheel.url, target] = {"error": text, "filename": wheel.filename}
        self.say(Event("failure", {"wheel": wheel.filename, "target": target, "error": text}))


def _short(outcome: TaskOutcome) -> dict[str, Any]:
    found = outcome.record.get("verdict", {})
    return {
        "status": outcome.status,
        "seconds": outcome.record.get("seconds"),
        "text": found.get("text"),
        "file": (outcome.record.get("file") or {}).get("filename"),
    }
