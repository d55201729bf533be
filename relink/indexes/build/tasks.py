"""Which tasks an index has, and which of them are done: work that rests on the same things is never done again."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

from packaging.version import Version

from relink import __version__
from relink.indexes.build.digests import Digests
from relink.indexes.build.fingerprint import Dependencies, TargetState, hold
from relink.indexes.build.recipe import IndexTarget, Recipe
from relink.indexes.build.simple_api import ListedWheel
from relink.indexes.build.sources import fits
from relink.indexes.build.store import Store, StoredResult
from relink.system.bounded_json import typed
from relink.system.errors import UsageError

__all__ = [
    "Numbered",
    "PlannedTask",
    "Standing",
    "Todo",
    "number_tasks",
    "planned_tasks",
    "task_key",
    "valid_results",
]

Todo: TypeAlias = dict[ListedWheel, list[tuple[IndexTarget, int]]]
"""What is to be done: each wheel with its targets, and the number that the version ends in there."""


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """One wheel for one target."""

    wheel: ListedWheel
    target: IndexTarget


@dataclass(frozen=True, slots=True)
class Numbered:
    """What is to be done.

    :ivar releases: project, version, target and number, where the number is new.
    :ivar again: results that do not count any more, by input and target.
    """

    todo: Todo
    releases: tuple[tuple[str, str, str, int], ...]
    again: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known already.

    :ivar results: those that still hold, by (SHA-256 of the wheel, name of the target).
    :ivar stale: the same of those that do not.
    """

    results: Mapping[tuple[str, str], StoredResult]
    stale: tuple[tuple[str, str], ...]


def task_key(sha256: str, target: IndexTarget) -> str:
    """Return the identity of a task: the wheel's content and everything that the recipe says of the target."""
    return hashlib.sha256(f"{sha256} {_said(target)}".encode()).hexdigest()


@functools.lru_cache
def _said(target: IndexTarget) -> str:
    return json.dumps(asdict(target), sort_keys=True)


def valid_results(
    store: Store,
    recipe: Recipe,
    states: Mapping[str, TargetState],
    digests: Digests,
    since: str | None,
) -> Standing:
    """Return the results that hold: made by this relink, or since the named one, of what has not changed.

    :param states: of the recipe's targets, by name.
    :param since: the oldest release of relink whose results are kept; None for this one alone.
    :raises UsageError: `since` is no version.
    """
    targets = {target.name: target for target in recipe.targets}
    rests = {name: typed(Dependencies, body, f"what {name} rests on") for name, body in store.rests().items()}
    checked: dict[tuple[str, str], bool] = {}

    def still(key: str, result: StoredResult) -> bool:
        target = targets.get(result.target)
        if target is None or key != task_key(result.input, target) or not _made_since(result.relink, since):
            return False
        if result.file is None and result.status == "original" and recipe.originals == "mirror":
            return False
        if result.file is not None and not os.path.exists(store.path_of(*result.file)):
            return False
        if result.rests is None:
            return True
        case = (result.rests, result.target)
        if case not in checked:
            checked[case] = hold(rests[result.rests], states[result.target], digests)
        return checked[case]

    _made_since(__version__, since)
    good: dict[tuple[str, str], StoredResult] = {}
    stale: list[tuple[str, str]] = []
    for key, result in store.results():
        if still(key, result):
            good[result.input, result.target] = result
        else:
            stale.append((result.input, result.target))
    return Standing(good, tuple(stale))


def _made_since(relink: str, since: str | None) -> bool:
    if relink == __version__:
        return _version(since) is None or Version(relink) >= Version(since or "0")
    oldest = _version(since)
    return oldest is not None and Version(relink) >= oldest


def _version(text: str | None) -> Version | None:
    try:
        return None if text is None else Version(text)
    except ValueError as error:
        raise UsageError(
            f"--since {text}: no version of relink; write it like --since {__version__}"
        ) from error


def planned_tasks(
    wheels: Sequence[ListedWheel], recipe: Recipe, states: Mapping[str, TargetState]
) -> Iterator[PlannedTask]:
    """Yield every wheel with every target on whose machine one of the recipe's Pythons installs it."""
    for wheel in wheels:
        for target in recipe.targets:
            machine = states[target.name].machine
            if any(fits(wheel.name, wheel.requires_python, python, machine) for python in recipe.pythons):
                yield PlannedTask(wheel, target)


def number_tasks(
    store: Store, planned: Sequence[PlannedTask], results: Mapping[tuple[str, str], StoredResult]
) -> Numbered:
    """Return what is to be done, with the numbers that :meth:`Store.allocate` has to note first.

    All wheels of one release have one number in an index. Where one of them would get a name that the index has had already,
    the release gets the next number, and its other relinked wheels are done again with it.

    :param planned: in the order of releases.
    :param results: those that hold.
    """
    todo: Todo = {}
    numbers: list[tuple[str, str, str, int]] = []
    again: list[tuple[str, str]] = []
    for (project, version), own in itertools.groupby(
        planned, lambda task: (task.wheel.name.canonical, str(task.wheel.name.version))
    ):
        for target, tasks in _by_target(own):
            pending = [task for task in tasks if _result_of(task, results) is None]
            if not pending:
                continue
            filenames = (task.wheel.filename for task in pending)
            number, new = store.number(project, version, target.name, filenames)
            if new and number > 1:
                pending = [
                    task
                    for task in tasks
                    if (result := _result_of(task, results)) is None or result.status == "written"
                ]
                again += [(task.wheel.sha256 or "", target.name) for task in pending]
            if new:
                numbers.append((project, version, target.name, number))
            for task in pending:
                todo.setdefault(task.wheel, []).append((target, number))
    return Numbered(todo, tuple(numbers), tuple(again))


def _by_target(tasks: Iterable[PlannedTask]) -> Iterable[tuple[IndexTarget, list[PlannedTask]]]:
    found: dict[str, list[PlannedTask]] = {}
    for task in tasks:
        found.setdefault(task.target.name, []).append(task)
    return [(own[0].target, own) for own in found.values()]


def _result_of(task: PlannedTask, results: Mapping[tuple[str, str], StoredResult]) -> StoredResult | None:
    return results.get((task.wheel.sha256 or "", task.target.name))
