"""`relink index build`: ask the sources, see what is done, fetch and relink the rest, publish.

Everything that is decided stands in the store (:mod:`relink.indexes.build.store`) before the next step relies on it, so a run
that was killed goes on where it was.

Work that rests on the same things is never done again.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from relink import __version__
from relink.indexes.build.build_options import BuildOptions
from relink.indexes.build.cluster import ClusterEngine
from relink.indexes.build.engine import Engine, Job, LocalEngine, drive
from relink.indexes.build.fingerprint import Digests, TargetState, hold, state_of
from relink.indexes.build.pip_settings import PipSettings, pip_settings
from relink.indexes.build.pruning import named_wheels
from relink.indexes.build.publishing import check_place
from relink.indexes.build.recipe import IndexTarget, Recipe
from relink.indexes.build.running import Event, Summary
from relink.indexes.build.simple_api import ListedWheel
from relink.indexes.build.site import publish_site
from relink.indexes.build.sources import find_wheels, fits
from relink.indexes.build.store import Store
from relink.indexes.build.web import Web
from relink.indexes.build.work import TargetTask, WheelTask, relink_wheel
from relink.indexes.install.cache import cached_sha256s
from relink.system.errors import UsageError

_BASE_MEMORY = 500 << 20  # bytes of a process that relinks a wheel of small libraries
_MOST_MEMORY = 2 << 30  # bytes: larger libraries are worked on in a file (docs/large-wheels.md)
_PER_BYTE = 12  # bytes of memory for each of a wheel: a library of it, four times as large, its edited copy, what patchelf holds


def build(recipe: Recipe, site: Path, options: BuildOptions, say: Callable[[Event], None]) -> Summary:
    """Bring a site up to date with a recipe.

    :param say: called with everything that happens, on this thread.
    :raises UsageError: another run works on the same site, or it is for another release; nothing was begun then.
    :raises RelinkError: a source of files, a target, the cluster or the disk cannot be used.
    """
    start = time.monotonic()
    check_place(site)
    with Store(site) as store:
        digests = Digests()
        states = {target.name: state_of(target, digests) for target in recipe.targets}
        store.begin({name: state.facts for name, state in states.items()})
        for requirement in recipe.deny:
            store.drop(named_wheels(store, requirement))
        run = _Run(recipe, store, states, _settings(recipe), say)
        wheels = run.ask_sources(digests)
        stale = stale_results(store, recipe, states, digests, options.since)
        digests.save()
        store.supersede(stale)
        plan = plan_tasks(store, wheels, recipe, states)
        run.begin(plan, wheels)
        if jobs := [run.job(wheel, targets) for wheel, targets in plan.todo.items()]:
            with run.engine(options, max(map(_memory, plan.todo))) as engine:
                drive(engine, jobs, run.on_done)
        summary = run.summary
        rows = (row for wheel in wheels for row in store.of_wheel(wheel.filename).values())
        if recipe.refused == "fail" and (refused := sum(row["status"] == "refused" for row in rows)):
            summary.red = refused
            text = "the site stays as it is: a wheel was refused, and the recipe says fail"
            say(Event("note", {"text": text}))
        else:
            summary.published = publish_site(store, site, recipe)
            summary.red = store.count("refused", "failed")
        summary.seconds = round(time.monotonic() - start, 3)
        say(Event("published", {"changed": summary.published, "seconds": summary.seconds}))
        return summary


def _settings(recipe: Recipe) -> PipSettings:
    """What pip is configured for, where an index may be asked."""
    asks_pip = any(source.kind != "directory" for source in recipe.sources)
    settings = pip_settings() if asks_pip else PipSettings()
    addresses = (source.place for source in recipe.sources if source.kind == "index")
    return replace(settings, addresses=(*settings.indexes, *addresses))


def _memory(wheel: ListedWheel) -> int:
    """Bytes that relinking a wheel may take."""
    return min(_MOST_MEMORY, _MOST_MEMORY if wheel.size is None else _BASE_MEMORY + _PER_BYTE * wheel.size)


@dataclass(slots=True)
class _Run:
    """One run: what an engine gives back is noted, each result on disk before the next one is looked at."""

    recipe: Recipe
    store: Store
    states: Mapping[str, TargetState]
    settings: PipSettings
    say: Callable[[Event], None]
    summary: Summary = field(default_factory=Summary)

    def ask_sources(self, digests: Digests) -> list[ListedWheel]:
        """Return the wheels of the sources, and note what these say, so that it holds where they cannot be reached, too."""
        machines = [state.machine for state in self.states.values()]
        listing = find_wheels(self.recipe, Web(self.settings), digests, self.settings, machines)
        for kind, texts in (("note", listing.notes), ("source", listing.failures)):
            for text in texts:
                self.say(Event(kind, {"text": text}))
        self.summary.source_failures = len(listing.failures)
        known = self.store.unhashed()  # of wheels that were fetched, and whose source says no hash
        wheels = [
            wheel if wheel.sha256 else replace(wheel, sha256=known.get(wheel.url)) for wheel in listing.wheels
        ]
        self.store.keep_wheels(
            (wheel.sha256, wheel.yanked, wheel.uploaded, None) for wheel in wheels if wheel.sha256
        )
        return wheels

    def begin(self, plan: TaskPlan, wheels: Sequence[ListedWheel]) -> None:
        """Tell what is to be done, and note it as far as it has to be noted before."""
        cached = cached_sha256s()
        fetched = [
            wheel for wheel in plan.todo if not wheel.url.startswith("file:") and wheel.sha256 not in cached
        ]
        facts = {
            "wheels": len(wheels),
            "tasks": plan.tasks,
            "done": plan.tasks - sum(map(len, plan.todo.values())),
            "fetches": len(fetched),
            "download": sum(wheel.size or 0 for wheel in fetched),
            "unknown": sum(wheel.size is None for wheel in fetched),
        }
        self.summary.wheels, self.summary.tasks, self.summary.done_before = list(facts.values())[:3]
        self.say(Event("budget", facts))
        self.store.allocate(plan.releases)
        self.store.supersede(plan.again)

    def engine(self, options: BuildOptions, need: int) -> AbstractContextManager[Engine]:
        """Return where tasks run.

        :param need: bytes that one task may take.
        """
        if options.scheduler is None:
            return LocalEngine(need, options.workers, options.memory)
        return ClusterEngine(
            options.scheduler,
            self.recipe.targets,
            {name: state.fingerprint for name, state in self.states.items()},
            str(self.store.files.absolute()),
            need,
            lambda text: self.say(Event("note", {"text": text})),
        )

    def job(self, wheel: ListedWheel, targets: Sequence[tuple[IndexTarget, int]]) -> Job:
        """Return the job that relinks a wheel for targets."""
        own = tuple(
            TargetTask(target, self.states[target.name].fingerprint, number) for target, number in targets
        )
        mirror, size = self.recipe.originals == "mirror", self.recipe.cache_size
        files = str(self.store.files.absolute())
        return Job(relink_wheel, WheelTask(wheel, own, files, mirror, self.settings, size))

    def on_done(self, job: Job, result: Any) -> None:
        """Note what came of a job: an outcome, or the exception that it ended with."""
        task: WheelTask = job.task
        wheel = task.wheel
        if isinstance(result, BaseException):
            for own in task.targets:
                self._fail(wheel, own.target.name, str(result) or type(result).__name__)
            return
        if wheel.sha256 is None:
            self.store.keep_wheels([(result.sha256, wheel.yanked, wheel.uploaded, wheel.url)])
        if not wheel.url.startswith("file:"):
            self.summary.fetched += 1
            self.summary.bytes_fetched += result.size
        self.say(Event("fetched", {"wheel": wheel.filename, "sha256": result.sha256, "size": result.size}))
        for own in task.targets:
            outcome = result.outcomes[own.target.name]
            if outcome.status == "failed":
                self._fail(wheel, own.target.name, outcome.record["error"])
                continue
            about = {"url": wheel.url, "requires_python": wheel.requires_python, "size": result.size}
            record = {"file": None, **outcome.record, "wheel": about}
            facts = {
                **_names(wheel, own.target.name),
                "input": result.sha256,
                "key": task_key(result.sha256, own.target),
                "relink": __version__,
                "status": outcome.status,
            }
            self.store.keep(facts, own.number, record, outcome.rests)
            setattr(self.summary, outcome.status, getattr(self.summary, outcome.status) + 1)
            file = record["file"] or {}
            self.summary.bytes_written += file.get("size", 0)
            said = {
                "wheel": wheel.filename,
                "target": own.target.name,
                "status": outcome.status,
                "seconds": outcome.seconds,
                "text": record["verdict"]["text"],
                "file": file.get("filename"),
            }
            self.say(Event("result", said))

    def _fail(self, wheel: ListedWheel, target: str, error: str) -> None:
        """Tell what could not be done; the next run tries it again."""
        self.summary.failed += 1
        self.store.fail({**_names(wheel, target), "error": error})
        self.say(Event("failure", {"wheel": wheel.filename, "target": target, "error": error}))


def _names(wheel: ListedWheel, target: str) -> dict[str, str]:
    name = wheel.name
    return {
        "project": name.canonical,
        "version": str(name.version),
        "filename": wheel.filename,
        "target": target,
    }


@dataclass(slots=True)
class TaskPlan:
    """What is to be done.

    :ivar tasks: how many there are, with those that are done.
    :ivar todo: each wheel with its targets, and the number that the version ends in there.
    :ivar releases: project, version, target and number, where the number is new.
    :ivar again: ids of results that do not hold any more.
    """

    tasks: int = 0
    todo: dict[ListedWheel, list[tuple[IndexTarget, int]]] = field(default_factory=dict)
    releases: list[tuple[str, str, str, int]] = field(default_factory=list)
    again: list[int] = field(default_factory=list)


def task_key(sha256: str, target: IndexTarget) -> str:
    """Return the identity of a task: the wheel's content and everything that the recipe says of the target."""
    return hashlib.sha256(f"{sha256} {_said(target)}".encode()).hexdigest()


@functools.lru_cache
def _said(target: IndexTarget) -> str:
    return json.dumps(asdict(target), sort_keys=True)


def stale_results(
    store: Store, recipe: Recipe, states: Mapping[str, TargetState], digests: Digests, since: str | None
) -> list[int]:
    """Return the ids of results that do not hold any more: of another relink, or of something that has changed.

    :param states: of the recipe's targets, by name.
    :param since: the oldest release of relink whose results are kept; None for this one alone.
    :raises UsageError: `since` is no version.
    """
    try:
        oldest = since and Version(since)
    except InvalidVersion as error:
        raise UsageError(
            f"--since {since}: no version of relink; write it like --since {__version__}"
        ) from error
    targets = {target.name: target for target in recipe.targets}
    rests = store.rests()

    @functools.cache
    def unchanged(rests_on: str, target: str) -> bool:
        return hold(rests[rests_on], states[target], digests)

    @functools.cache
    def counts(relink: str) -> bool:
        return Version(relink) >= oldest if oldest else relink == __version__

    def holds(row: Any) -> bool:
        target = targets.get(row["target"])
        if target is None or row["key"] != task_key(row["input"], target) or not counts(row["relink"]):
            return False
        if row["file_sha256"] is None and row["status"] == "original" and recipe.originals == "mirror":
            return False
        if row["file_sha256"] and not os.path.exists(store.path_of(row["file_sha256"], row["file_name"])):
            return False
        return row["rests"] is None or unchanged(row["rests"], row["target"])

    return [row["id"] for row in store.holding() if not holds(row)]


def plan_tasks(
    store: Store, wheels: Sequence[ListedWheel], recipe: Recipe, states: Mapping[str, TargetState]
) -> TaskPlan:
    """Return every wheel with every target on whose machine one of the recipe's Pythons installs it, but for what is done.

    All wheels of one release have one number in an index. Where one of them would get a name that the index has had already,
    the release gets the next number, and its other relinked wheels are done again with it.

    :param wheels: in the order of releases.
    """
    plan = TaskPlan()
    for (project, version), release in itertools.groupby(
        wheels, lambda wheel: (wheel.name.canonical, str(wheel.name.version))
    ):
        known = {wheel: store.of_wheel(wheel.filename) for wheel in release}
        for target in recipe.targets:
            machine = states[target.name].machine
            own = [wheel for wheel in known if any(fits(wheel, python, machine) for python in recipe.pythons)]
            results = {wheel: known[wheel].get(target.name) for wheel in own}
            done = {wheel: row for wheel, row in results.items() if row and row["input"] == wheel.sha256}
            plan.tasks += len(own)
            if len(done) == len(own):
                continue
            pending = (wheel.filename for wheel in own if wheel not in done)
            number, new = store.number(project, version, target.name, pending)
            if new:
                plan.releases.append((project, version, target.name, number))
                if number > 1:
                    done = {wheel: row for wheel, row in done.items() if row["status"] != "written"}
            for wheel in own:
                if wheel not in done:
                    plan.todo.setdefault(wheel, []).append((target, number))
                    if row := results[wheel]:
                        plan.again.append(row["id"])
    return plan
