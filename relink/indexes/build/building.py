"""`relink index build`: ask the sources, see what is done, fetch and relink the rest, publish.

Everything that is decided stands in the store (:mod:`relink.indexes.build.store`) before the next step relies on it, so a run
that was killed goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from relink.indexes.build.budget import budget_of, check_budget
from relink.indexes.build.build_options import BuildOptions
from relink.indexes.build.cluster import ClusterEngine
from relink.indexes.build.digests import Digests
from relink.indexes.build.engine import Engine, Job, LocalEngine, drive
from relink.indexes.build.fingerprint import TargetState, state_of
from relink.indexes.build.pip_settings import PipSettings, pip_settings
from relink.indexes.build.publishing import check_place
from relink.indexes.build.recipe import Recipe
from relink.indexes.build.running import Event, Run, Summary
from relink.indexes.build.simple_api import ListedWheel
from relink.indexes.build.site import publish_site
from relink.indexes.build.sources import Listing, find_wheels
from relink.indexes.build.store import Store, StoredResult
from relink.indexes.build.tasks import PlannedTask, planned_tasks, valid_results
from relink.indexes.build.web import Web
from relink.indexes.build.work import FetchTask

__all__ = ["build"]

Todo = Sequence[tuple[ListedWheel, Sequence[PlannedTask]]]


def build(recipe: Recipe, site: Path, options: BuildOptions, say: Callable[[Event], None]) -> Summary:
    """Bring a site up to date with a recipe.

    :param say: called with everything that happens, on this thread.
    :raises UsageError: a limit would be exceeded, or another run works on the same site; nothing was begun then.
    :raises RelinkError: a source of files, a target, the cluster or the disk cannot be used.
    """
    start = time.monotonic()
    check_place(site)
    with Store(site) as store:
        digests = Digests()
        states = {target.name: state_of(target, digests) for target in recipe.targets}
        asks_pip = any(source.kind != "directory" for source in recipe.sources)
        settings = pip_settings() if asks_pip else PipSettings()
        machines = [state.machine for state in states.values()]
        listing = find_wheels(recipe, Web(settings), digests, settings.indexes, machines)
        digests.save()
        for kind, texts in (("note", listing.notes), ("source", listing.failures)):
            for text in texts:
                say(Event(kind, {"text": text}))
        standing = valid_results(store, recipe, states, digests, options.since)
        digests.save()
        summary = Summary(source_failures=len(listing.failures))
        run = Run(recipe, store, states, settings, summary, dict(standing.results), store.wheels(), say)
        listing = _with_hashes(listing, store)
        planned = list(planned_tasks(listing.wheels, recipe, states))
        todo = _pending(planned, run.results)
        budget = budget_of(len(listing.wheels), len(planned), todo, run.facts)
        say(Event("budget", asdict(budget)))
        check_budget(budget, options.limits)
        if todo:
            with _engine(recipe, store, states, options, say) as engine:
                _work(run, engine, todo)
        red = _refused(run, listing)
        if recipe.refused == "fail" and red:
            summary.red = red
            say(
                Event(
                    "note", {"text": "the site stays as it is: a wheel was refused, and the recipe says fail"}
                )
            )
        else:
            published = publish_site(store, site, recipe, states, listing, run.results, run.failures)
            summary.published, summary.red = published.changed, published.red
            for text in published.notes:
                say(Event("note", {"text": text}))
            store.forget([key for key in standing.stale if key not in run.results])
        summary.wheels, summary.tasks, summary.done_before = budget.wheels, budget.tasks, budget.done
        summary.seconds = round(time.monotonic() - start, 3)
        say(Event("published", {"changed": summary.published, "seconds": summary.seconds}))
        return summary


def _with_hashes(listing: Listing, store: Store) -> Listing:
    """Fill in the hashes that were found out when a wheel was fetched whose source says none."""
    known = store.unhashed()
    wheels = (
        wheel if wheel.sha256 else replace(wheel, sha256=known.get(wheel.url)) for wheel in listing.wheels
    )
    return replace(listing, wheels=tuple(wheels))


def _pending(planned: Iterable[PlannedTask], results: Mapping[tuple[str, str], StoredResult]) -> Todo:
    """The wheels of which something is to be done, with their tasks."""
    found: dict[ListedWheel, list[PlannedTask]] = {}
    for task in planned:
        if task.wheel.sha256 is None or (task.wheel.sha256, task.target.name) not in results:
            found.setdefault(task.wheel, []).append(task)
    return list(found.items())


def _engine(
    recipe: Recipe,
    store: Store,
    states: Mapping[str, TargetState],
    options: BuildOptions,
    say: Callable[[Event], None],
) -> AbstractContextManager[Engine]:
    if options.scheduler is None:
        return LocalEngine(options.workers, options.memory)
    expected = {name: state.fingerprint for name, state in states.items()}
    return ClusterEngine(
        options.scheduler,
        recipe.targets,
        expected,
        str(store.files.absolute()),
        lambda text: say(Event("note", {"text": text})),
    )


def _work(run: Run, engine: Engine, todo: Todo) -> None:
    tasks = dict(todo)
    jobs: list[Job] = []
    for wheel, own in todo:
        if wheel.sha256 is not None and wheel.sha256 in run.facts:
            jobs += [run.relink_job(wheel, wheel.sha256, task) for task in own]
        else:
            jobs.append(run.fetch_job(wheel))

    def on_done(job: Job, result: Any) -> Iterable[Job]:
        if isinstance(job.task, FetchTask):
            return list(run.on_fetched(job.task.wheel, result, tasks[job.task.wheel]))
        run.on_relinked(job.task, result)
        return ()

    drive(engine, jobs, on_done)


def _refused(run: Run, listing: Listing) -> int:
    """How many of the wheels that sources have now were refused."""
    wheels = {wheel.sha256 for wheel in listing.wheels}
    return sum(result.status == "refused" for (sha256, _), result in run.results.items() if sha256 in wheels)
