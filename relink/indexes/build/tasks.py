"""Which tasks an index has, and which of them are done: work that rests on the same things is never done again."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from packaging.version import InvalidVersion, Version

from relink import __version__
from relink.indexes.build.fingerprint import Digests, TargetState, hold
from relink.indexes.build.recipe import IndexTarget, Recipe
from relink.indexes.build.simple_api import ListedWheel
from relink.indexes.build.sources import fits
from relink.indexes.build.store import Store
from relink.system.errors import UsageError


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
