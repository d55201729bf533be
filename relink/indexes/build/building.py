"""`relink index build`: ask the sources, see what is done, fetch and relink the rest, publish.

Everything that is decided stands in the store (:mod:`relink.indexes.build.store`) before the next step relies on it, so a run
that was killed goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path

from relink.indexes.build.budget import budget_of, check_budget
from relink.indexes.build.build_options import BuildOptions
from relink.indexes.build.cluster import ClusterEngine
from relink.indexes.build.digests import Digests
from relink.indexes.build.engine import Engine, LocalEngine, drive
from relink.indexes.build.fingerprint import TargetState, state_of
from relink.indexes.build.pip_settings import PipSettings, pip_settings
from relink.indexes.build.publishing import check_place
from relink.indexes.build.recipe import Recipe
from relink.indexes.build.running import Event, Run, Summary
from relink.indexes.build.site import publish_site
from relink.indexes.build.sources import Listing, find_wheels
from relink.indexes.build.store import Store
from relink.indexes.build.tasks import number_tasks, planned_tasks, valid_results
from relink.indexes.build.web import Web

__all__ = ["build"]


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
        addresses = (source.place for source in recipe.sources if source.kind == "index")
        settings = replace(settings, addresses=(*settings.indexes, *addresses))
        machines = [state.machine for state in states.values()]
        listing = find_wheels(recipe, Web(settings), digests, settings, machines)
        digests.save()
        for kind, texts in (("note", listing.notes), ("source", listing.failures)):
            for text in texts:
                say(Event(kind, {"text": text}))
        standing = valid_results(store, recipe, states, digests, options.since)
        digests.save()
        for target in recipe.targets:
            store.begin(target.name, states[target.name].product)
        run = Run(recipe, store, states, settings, dict(standing.results), say)
        summary = run.summary
        summary.source_failures = len(listing.failures)
        listing = _with_hashes(listing, store)
        _note_sources(listing, store)
        planned = list(planned_tasks(listing.wheels, recipe, states))
        numbered = number_tasks(store, planned, run.results)
        todo = numbered.todo
        budget = budget_of(len(listing.wheels), len(planned), todo)
        say(Event("budget", asdict(budget)))
        check_budget(budget, options.limits)
        store.allocate(numbered.releases)
        store.forget(numbered.again)
        for key in numbered.again:
            run.results.pop(key, None)
        if todo:
            with _engine(recipe, store, states, options, say) as engine:
                drive(engine, (run.job(wheel, targets) for wheel, targets in todo.items()), run.on_done)
        red = _refused(run, listing)
        if recipe.refused == "fail" and red:
            summary.red = red
            say(
                Event(
                    "note", {"text": "the site stays as it is: a wheel was refused, and the recipe says fail"}
                )
            )
        else:
            published = publish_site(store, site, recipe, states, run.results, run.failures)
            summary.published, summary.red = published.changed, published.red
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


def _note_sources(listing: Listing, store: Store) -> None:
    """Note what the sources say of wheels now, so that it holds where they cannot be reached, too."""
    known = store.wheels()
    said = ((wheel.sha256, wheel.yanked, wheel.uploaded) for wheel in listing.wheels if wheel.sha256)
    store.keep_wheels(row for row in said if known.get(row[0]) != row[1:])


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


def _refused(run: Run, listing: Listing) -> int:
    """How many of the wheels that sources have now were refused."""
    wheels = {wheel.sha256 for wheel in listing.wheels}
    return sum(result.status == "refused" for (sha256, _), result in run.results.items() if sha256 in wheels)
