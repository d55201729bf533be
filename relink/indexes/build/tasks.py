"""Which tasks an index has, and which of them are done: work that rests on the same things is never done again."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from packaging.version import Version

from relink import __version__
from relink.indexes.build.digests import Digests
from relink.indexes.build.fingerprint import Dependencies, TargetState, hold
from relink.indexes.build.recipe import IndexTarget, Recipe
from relink.indexes.build.simple_api import ListedWheel
from relink.indexes.build.sources import fits
from relink.indexes.build.store import Store, StoredResult
from relink.planning.model.typed import typed
from relink.system.errors import UsageError

__all__ = ["PlannedTask", "Standing", "planned_tasks", "task_key", "valid_results"]


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """One wheel for one target."""

    wheel: ListedWheel
    target: IndexTarget


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
