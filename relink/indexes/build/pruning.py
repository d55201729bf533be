"""`relink index prune|remove`: releases leave a site, and files that nothing names any more leave the disk.

What `prune` leaves are the newest releases of each project and target, and always the newest one that works.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from relink.indexes.build.publishing import check_place
from relink.indexes.build.recipe import Recipe, covers
from relink.indexes.build.site import publish_site
from relink.indexes.build.store import Store, now
from relink.system.atomic import working_directory
from relink.system.errors import UsageError
from relink.wheel.naming import parse_wheel_name

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
    return _without(recipe, site, lambda store: _old_wheels(store, keep), _YOUNG)


def remove(recipe: Recipe, site: Path, requirement: Requirement) -> Pruned:
    """Take the releases that a requirement names out of a site, with all their files.

    :raises UsageError: there is no site.
    """
    return _without(recipe, site, lambda store: named_wheels(store, requirement), 0)


def named_wheels(store: Store, requirement: Requirement) -> set[tuple[str, str]]:
    """Return the wheels that a requirement names, by target and name."""
    rows = store.wheels_of(canonicalize_name(requirement.name))
    wheels = {(row["target"], row["filename"]) for row in rows}
    return {wheel for wheel in wheels if covers(requirement, parse_wheel_name(wheel[1]))}


def _old_wheels(store: Store, keep: int) -> set[tuple[str, str]]:
    """All wheels but those that stay, by target and name."""
    old: set[tuple[str, str]] = set()
    for project in store.projects():
        targets: dict[str, dict[Version, dict[str, str]]] = {}
        for row in store.wheels_of(project):
            version = parse_wheel_name(row["filename"]).version
            if row["status"] is not None:
                targets.setdefault(row["target"], {}).setdefault(version, {})[row["filename"]] = row["status"]
        for target, releases in targets.items():
            ordered = sorted(releases, reverse=True)
            working = (version for version in ordered if set(releases[version].values()) != {"refused"})
            for version in set(ordered) - {*ordered[:keep], next(working, None)}:
                old |= {(target, filename) for filename in releases[version]}
    return old


def _without(
    recipe: Recipe, site: Path, chosen: Callable[[Store], set[tuple[str, str]]], young: float
) -> Pruned:
    """Publish a site without some wheels, and remove the files that nothing names.

    :param chosen: gives the wheels, by target and name.
    :param young: files of fewer seconds stay.
    """
    check_place(site)
    if not site.is_symlink():
        raise UsageError(f"{site}: is no site; make one by `relink index build {recipe.path} -o {site}`")
    with Store(site) as store:
        count = store.drop(chosen(store))
        publish_site(store, site, recipe)
        return Pruned(count, *_sweep(store, now() - recipe.superseded, time.time() - young))


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
