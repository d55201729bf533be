"""`relink index prune|remove`: releases leave a site, and files that nothing names any more leave the disk.

What `prune` leaves are the newest releases of each project and target, and always the newest one that works.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from relink.indexes.build.recipe import Recipe, covers
from relink.indexes.build.site import check_place, publish_site
from relink.indexes.build.store import Store, now
from relink.system.atomic import working_directory
from relink.system.errors import UsageError
from relink.wheel.naming import parse_wheel_name

_YOUNG = 3600  # seconds: a file that is younger may belong to a run that was killed and will go on


def prune(recipe: Recipe, site: Path, keep: int) -> tuple[int, int, int]:
    """Take old releases out of a site.

    :param keep: so many releases of each project and target stay, the newest.
    :return: how many results and files went, and their bytes.
    :raises UsageError: there is no site.
    """
    return _without(recipe, site, lambda store: _old_results(store, keep), _YOUNG)


def remove(recipe: Recipe, site: Path, requirement: Requirement) -> tuple[int, int, int]:
    """Take the releases that a requirement names out of a site, with all their files.

    :return: how many results and files went, and their bytes.
    :raises UsageError: there is no site.
    """
    return _without(recipe, site, lambda store: named_results(store, requirement), 0)


def named_results(store: Store, requirement: Requirement) -> list[Any]:
    """Return the results of the wheels that a requirement names."""
    rows = store.results_of(canonicalize_name(requirement.name))
    return [row for row in rows if covers(requirement, parse_wheel_name(row["filename"]))]


def _old_results(store: Store, keep: int) -> Iterator[Any]:
    """All results but those of the releases that stay."""
    for project in store.projects():
        releases = defaultdict[str, defaultdict[Version, list[Any]]](lambda: defaultdict(list))
        for row in store.results_of(project):
            releases[row["target"]][parse_wheel_name(row["filename"]).version].append(row)
        for own in releases.values():
            held = {
                version: {row["status"] for row in rows if row["until"] is None} - {"failed"}
                for version, rows in own.items()
            }
            ordered = sorted((version for version, statuses in held.items() if statuses), reverse=True)
            working = (version for version in ordered if held[version] != {"refused"})
            for version in set(ordered) - {*ordered[:keep], next(working, None)}:
                yield from own[version]


def _without(
    recipe: Recipe, site: Path, chosen: Callable[[Store], Iterable[Any]], young: float
) -> tuple[int, int, int]:
    """Publish a site without some results, and remove the files that nothing names.

    :param young: files of fewer seconds stay.
    """
    check_place(site)
    if not site.is_symlink():
        raise UsageError(f"{site}: is no site; make one by `relink index build {recipe.path} -o {site}`")
    with Store(site) as store:
        rows = list(chosen(store))
        store.drop(row["id"] for row in rows)
        publish_site(store, site, recipe)
        held = sum(row["until"] is None for row in rows)
        return held, *_sweep(store, now() - recipe.superseded, time.time() - young)


def _sweep(store: Store, superseded: float, oldest: float) -> tuple[int, int]:
    """Remove the directories of files that no index has and that are older than a time; returns how many, and their bytes."""
    named = {sha256 for _, sha256, _ in store.files_of(superseded)}
    count = size = 0
    with working_directory(store.files) as place:  # renamed first: a directory is there whole, or it is not
        for directory in sorted(store.files.glob("??/*")):
            if directory.name in named or directory.stat().st_mtime > oldest:
                continue
            size += sum(path.stat().st_size for path in directory.iterdir())
            count += 1
            directory.rename(place / directory.name)
    return count, size
