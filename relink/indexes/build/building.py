"""`relink index build`: ask the sources, see what is done, fetch and relink the rest, publish.

Everything that is decided stands in the store (:mod:`relink.indexes.build.store`) before the next step relies on it, so a run
that was killed goes on where it was. Work that rests on the same things is never done again.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from relink import __version__
from relink.indexes.build.engine import ClusterEngine, LocalEngine, drive
from relink.indexes.build.fingerprint import Digests, TargetState, hold, state_of
from relink.indexes.build.recipe import IndexTarget, Recipe
from relink.indexes.build.running import BuildOptions, Say, Summary
from relink.indexes.build.simple_api import ListedWheel
from relink.indexes.build.site import check_place, named_results, publish_site
from relink.indexes.build.sources import find_wheels, fits
from relink.indexes.build.store import Store
from relink.indexes.build.web import PipSettings, Web, pip_settings
from relink.indexes.build.work import TargetTask, TaskOutcome, WheelTask, relink_wheel
from relink.indexes.install.cache import cached_sha256s
from relink.system.errors import UsageError

# Bytes of a process that relinks a wheel of small libraries.
_BASE_MEMORY = 500 << 20
# Bytes: larger libraries are worked on in a file (docs/large-wheels.md).
_MOST_MEMORY = 2 << 30
# Bytes of memory for each of a wheel: a library of it, four times as large, its edited copy, what patchelf holds.
_PER_BYTE = 12


def build(recipe: Recipe, site: Path, options: BuildOptions, say: Say) -> Summary:
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
            store.drop(row["id"] for row in named_results(store, requirement))
        asks_pip = any(source.kind != "directory" for source in recipe.sources)
        settings = pip_settings() if asks_pip else PipSettings()
        named = (source.place for source in recipe.sources if source.kind == "index")
        settings = replace(settings, addresses=(*settings.indexes, *named))
        run = _Run(recipe, store, states, say, str(store.files.absolute()))
        machines = {state.machine for state in states.values()}
        wheels = find_wheels(recipe, Web(settings), digests, machines, run.note)
        store.supersede(stale_results(store, recipe, states, digests, options.since))
        digests.save()
        plan = plan_tasks(store, run.known(wheels), recipe, states)
        run.begin(plan)
        if plan.todo:
            mirror = recipe.originals == "mirror"
            tasks = (
                WheelTask(wheel, tuple(own), run.files, mirror, settings, recipe.cache_size)
                for wheel, own in plan.todo.items()
            )
            with run.engine(options, plan.todo) as engine:
                drive(engine, relink_wheel, tasks, run.on_done)
        summary = run.summary
        if recipe.refused == "fail" and (refused := plan.refused + summary.refused):
            summary.red = refused
            run.note("note", "the site stays as it is: a wheel was refused, and the recipe says fail")
        else:
            summary.published = publish_site(store, site, recipe)
            summary.red = store.count("refused", "failed")
        summary.seconds = round(time.monotonic() - start, 3)
        say("published", {"changed": summary.published, "seconds": summary.seconds})
        return summary


@dataclass(slots=True)
class _Run:
    """One run: what an engine gives back is noted, each result on disk before the next one is looked at."""

    recipe: Recipe
    store: Store
    states: Mapping[str, TargetState]
    say: Say
    files: str
    summary: Summary = field(default_factory=Summary)

    def note(self, kind: str, text: str) -> None:
        """Tell what was passed over (``note``), or what could not be asked (``source``)."""
        self.summary.source_failures += kind == "source"
        self.say(kind, {"text": text})

    def known(self, found: Iterable[list[ListedWheel]]) -> Iterator[ListedWheel]:
        """Yield wheels, and note what the sources say of them, so that it holds where they cannot be reached, too."""
        # Of wheels that were fetched, and whose source says no hash.
        query = "select unhashed, sha256 from wheels where unhashed is not null"
        known: dict[str, str] = dict(map(tuple, self.store.rows(query)))
        for some in found:
            wheels = [one if one.sha256 else replace(one, sha256=known.get(one.url)) for one in some]
            said = ((one.sha256, one.yanked, one.uploaded, None) for one in wheels if one.sha256)
            self.store.keep_wheels(said)
            self.summary.wheels += len(wheels)
            yield from wheels

    def begin(self, plan: TaskPlan) -> None:
        """Tell what is to be done, and note it as far as it has to be noted before."""
        cached = cached_sha256s()
        fetched = [one for one in plan.todo if not one.url.startswith("file:") and one.sha256 not in cached]
        summary = self.summary
        summary.tasks, summary.done_before = plan.tasks, plan.tasks - sum(map(len, plan.todo.values()))
        facts = {
            "wheels": summary.wheels,
            "tasks": summary.tasks,
            "done": summary.done_before,
            "fetches": len(fetched),
            "download": sum(wheel.size or 0 for wheel in fetched),
            "unknown": sum(wheel.size is None for wheel in fetched),
        }
        self.say("budget", facts)
        self.store.allocate(plan.releases)
        self.store.supersede(plan.again)

    def engine(self, options: BuildOptions, wheels: Iterable[ListedWheel]) -> LocalEngine | ClusterEngine:
        """Return where wheels are relinked."""
        needs = (_MOST_MEMORY if one.size is None else _BASE_MEMORY + _PER_BYTE * one.size for one in wheels)
        need = min(_MOST_MEMORY, max(needs))
        if options.scheduler is None:
            return LocalEngine(need, options.workers, options.memory)
        expected = {name: state.fingerprint for name, state in self.states.items()}
        say = functools.partial(self.note, "note")
        return ClusterEngine(options.scheduler, self.recipe.targets, expected, self.files, need, say)

    def on_done(self, task: WheelTask, result: Any) -> None:
        """Note what came of a task: outcomes, or the exception that it ended with; the next run tries again what has failed."""
        wheel, sha256, outcomes = task.wheel, task.wheel.sha256, {}
        if isinstance(result, BaseException):
            failed = TaskOutcome("failed", {"error": str(result) or type(result).__name__})
            outcomes = dict.fromkeys((own.target.name for own in task.targets), failed)
        else:
            sha256, size, outcomes = result
            if wheel.sha256 is None:
                self.store.keep_wheels([(sha256, wheel.yanked, wheel.uploaded, wheel.url)])
            if not wheel.url.startswith("file:"):
                self.summary.fetched += 1
                self.summary.bytes_fetched += size
            self.say("fetched", {"wheel": wheel.filename, "sha256": sha256, "size": size})
        for own in task.targets:
            name = own.target.name
            outcome = outcomes[name]
            facts = {
                "project": wheel.name.canonical,
                "version": str(wheel.name.version),
                "filename": wheel.filename,
                "target": name,
                "input": sha256,
                "key": target_key(own.target),
                "relink": __version__,
                "status": outcome.status,
            }
            setattr(self.summary, outcome.status, getattr(self.summary, outcome.status) + 1)
            event, record, said = "failure", outcome.record, outcome.record
            if outcome.status != "failed":
                about = {"url": wheel.url, "requires_python": wheel.requires_python, "size": size}
                record = {"file": None, **record, "wheel": about}
                file = record["file"] or {}
                self.summary.bytes_written += file.get("size", 0)
                event, said = "result", {"status": outcome.status, "seconds": outcome.seconds}
                said |= {"text": record["verdict"]["text"], "file": file.get("filename")}
            self.store.keep(facts, own.number, record, outcome.rests)
            self.say(event, {"wheel": wheel.filename, "target": name, **said})


@dataclass(slots=True)
class TaskPlan:
    """What is to be done.

    :ivar tasks: how many there are, with those that are done.
    :ivar refused: how many of those that are done were refused.
    :ivar todo: each wheel with what it is relinked for.
    :ivar releases: project, version, target and number, where the number is new.
    :ivar again: ids of results that do not hold any more.
    """

    tasks: int = 0
    refused: int = 0
    todo: dict[ListedWheel, list[TargetTask]] = field(default_factory=dict)
    releases: list[tuple[str, str, str, int]] = field(default_factory=list)
    again: list[int] = field(default_factory=list)


@functools.lru_cache
def target_key(target: IndexTarget) -> str:
    """Return a digest of everything that the recipe says of a target."""
    return hashlib.sha256(json.dumps(asdict(target), sort_keys=True).encode()).hexdigest()


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
    keys = {target.name: target_key(target) for target in recipe.targets}
    rests = {name: store.parsed(body) for name, body in store.rows("select id, body from rests")}

    @functools.cache
    def unchanged(target: str, key: str, relink: str, rests_on: str | None) -> bool:
        kept = Version(relink) >= oldest if oldest else relink == __version__
        same = kept and key == keys.get(target)
        return same and (rests_on is None or hold(rests[rests_on], states[target], digests))

    def has_file(row: Any) -> bool:
        if row["file_sha256"]:
            return os.path.exists(store.path_of(row["file_sha256"], row["file_name"]))
        return row["status"] != "original" or recipe.originals != "mirror"

    return [
        row["id"]
        for row in store.rows("select * from results where until is null order by id")
        if not (unchanged(row["target"], row["key"], row["relink"], row["rests"]) and has_file(row))
    ]


def plan_tasks(
    store: Store, wheels: Iterable[ListedWheel], recipe: Recipe, states: Mapping[str, TargetState]
) -> TaskPlan:
    """Return every wheel with every target on whose machine one of the recipe's Pythons installs it, but for what is done.

    All wheels of one release have one number in an index. Where one of them would get a name that the index has had already,
    the release gets the next number, and its other relinked wheels are done again with it.

    :param wheels: in the order of projects and releases.
    """
    plan = TaskPlan()
    for project, listed in itertools.groupby(wheels, lambda one: one.name.canonical):
        holding = [row for row in store.results_of(project) if row["until"] is None]
        rows = {(row["filename"], row["target"]): row for row in holding}
        for version, group in itertools.groupby(listed, lambda one: str(one.name.version)):
            release = {wheel.filename: wheel for wheel in group}
            for target in recipe.targets:
                state = states[target.name]
                own = [
                    (name, wheel, rows.get((name, target.name)))
                    for name, wheel in release.items()
                    if any(fits(wheel, python, state.machine) for python in recipe.pythons)
                ]
                plan.tasks += len(own)
                todo = {name for name, wheel, row in own if row is None or row["input"] != wheel.sha256}
                if todo:
                    number, new = store.number(project, version, target.name, todo)
                    if new:
                        plan.releases.append((project, version, target.name, number))
                        if number > 1:
                            todo |= {name for name, _, row in own if row and row["status"] == "written"}
                for name, wheel, row in own:
                    if name in todo:
                        plan.todo.setdefault(wheel, []).append(TargetTask(target, state.fingerprint, number))
                        plan.again += [row["id"]] if row else []
                    elif row and row["status"] == "refused":
                        plan.refused += 1
    return plan
