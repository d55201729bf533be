"""`relink index prune|remove`: releases leave a site, and files that nothing names any more leave the disk.

What `prune` leaves are the newest releases of each project and target, and always the newest one that works.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from relink.indexes.build.digests import Digests
from relink.indexes.build.fingerprint import state_of
from relink.indexes.build.publishing import check_place
from relink.indexes.build.recipe import Recipe, covers
from relink.indexes.build.site import publish_site
from relink.indexes.build.store import Store, StoredResult, now
from relink.indexes.build.tasks import valid_results
from relink.system.atomic import working_directory
from relink.system.errors import UsageError
from relink.wheel.naming import parse_wheel_name

__all__ = ["Pruned", "prune", "remove"]

_YOUNG = 3600  # seconds: a file that is younger may belong to a run that was killed and will go on


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many results and files went, and their bytes."""

    results: int
    files: int
    bytes: int


def prune(recipe: Recipe, site: Path, keep: int) -> Pruned:
    """Take old releases out of a site.

    :param keep: so many releases of each project and target stay, the newest.
    :raises UsageError: there is no site.
    """

    def chosen(_: Store, results: Mapping[tuple[str, str], StoredResult]) -> set[tuple[str, str]]:
        kept = _kept(results, keep)
        gone = {(result.target, result.filename) for key, result in results.items() if key not in kept}
        return gone - {(result.target, result.filename) for result in kept.values()}

    return _without(recipe, site, chosen, _YOUNG)


def remove(recipe: Recipe, site: Path, requirement: Requirement) -> Pruned:
    """Take the releases that a requirement names out of a site, with all their files.

    :raises UsageError: there is no site.
    """

    def chosen(store: Store, _: Mapping[tuple[str, str], StoredResult]) -> set[tuple[str, str]]:
        wheels = {(result.target, result.filename) for _, result in store.results()}
        wheels |= {(target, filename) for target, filename, *_ in store.all_files()}
        return {wheel for wheel in wheels if covers(requirement, parse_wheel_name(wheel[1]))}

    return _without(recipe, site, chosen, 0)


def _without(
    recipe: Recipe,
    site: Path,
    chosen: Callable[[Store, Mapping[tuple[str, str], StoredResult]], Collection[tuple[str, str]]],
    young: float,
) -> Pruned:
    """Publish a site without some wheels, and remove the files that nothing names.

    :param chosen: gives the wheels, by target and name.
    :param young: files of fewer seconds stay.
    """
    check_place(site)
    if not site.is_symlink():
        raise UsageError(f"{site}: is no site; make one by `relink index build {recipe.path} -o {site}`")
    with Store(site) as store:
        digests = Digests()
        states = {target.name: state_of(target, digests) for target in recipe.targets}
        standing = valid_results(store, recipe, states, digests, "0")
        digests.save()
        wheels = chosen(store, standing.results)
        count = store.drop(wheels)
        kept = {
            key: result
            for key, result in standing.results.items()
            if (result.target, result.filename) not in wheels
        }
        publish_site(store, site, recipe, states, kept, {})
        store.forget(standing.stale)
        files, size = _sweep(store, now() - recipe.superseded, time.time() - young)
        return Pruned(count, files, size)


def _kept(results: Mapping[tuple[str, str], StoredResult], keep: int) -> dict[tuple[str, str], StoredResult]:
    projects: dict[tuple[str, str], dict[Version, list[tuple[tuple[str, str], StoredResult]]]] = {}
    for key, result in results.items():
        name = parse_wheel_name(result.filename)
        own = projects.setdefault((name.canonical, result.target), {})
        own.setdefault(name.version, []).append((key, result))
    kept: dict[tuple[str, str], StoredResult] = {}
    for releases in projects.values():
        ordered = sorted(releases, reverse=True)
        working = [
            version
            for version in ordered
            if any(result.status != "refused" for _, result in releases[version])
        ]
        for version in {*ordered[:keep], *working[:1]}:
            kept.update(releases[version])
    return kept


def _sweep(store: Store, superseded: float, oldest: float) -> tuple[int, int]:
    """Remove the directories of files that no index has and that are older than a time; returns how many, and their bytes."""
    named = {sha256 for _, _, sha256, _ in store.all_files(superseded)}
    count = size = 0
    with working_directory(store.files) as place:  # renamed first: a directory is there whole, or it is not
        for directory in sorted(store.files.glob("??/*")):
            if directory.name in named or directory.stat().st_mtime > oldest:
                continue
            size += sum(path.stat().st_size for path in directory.iterdir())
            count += 1
            directory.rename(place / directory.name)
    return count, size
