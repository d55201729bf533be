"""`relink index prune`: old releases leave a site, and files that nothing names any more leave the disk.

Of each project and target the newest releases stay, and always the newest one that works.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from relink.indexes.build.digests import Digests
from relink.indexes.build.fingerprint import state_of
from relink.indexes.build.publishing import check_place
from relink.indexes.build.recipe import Recipe
from relink.indexes.build.site import publish_site
from relink.indexes.build.sources import Listing
from relink.indexes.build.store import Store, StoredResult
from relink.indexes.build.tasks import valid_results
from relink.system.errors import UsageError
from relink.wheel.naming import parse_wheel_name

__all__ = ["Pruned", "prune"]

_YOUNG = 3600  # seconds: a file that is younger may belong to a run that was killed and will go on


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many results and files went, and their bytes."""

    results: int
    files: int
    bytes: int


def prune(recipe: Recipe, site: Path, keep: int) -> Pruned:
    """Keep the newest releases, publish, and remove what is left over.

    :param keep: releases of each project and target; 1 or more.
    :raises UsageError: there is no site, or another run works on it.
    """
    check_place(site)
    if not site.exists():
        raise UsageError(f"{site}: is no site; make one by `relink index build {recipe.path} -o {site}`")
    with Store(site) as store:
        digests = Digests()
        states = {target.name: state_of(target, digests) for target in recipe.targets}
        standing = valid_results(store, recipe, states, digests, "0")
        digests.save()
        kept = _kept(standing.results, keep)
        publish_site(store, site, recipe, states, Listing(()), kept, {})
        gone = [key for key in standing.results if key not in kept]
        store.forget((*gone, *standing.stale))
        files, size = _sweep(store, kept.values())
        return Pruned(len(gone), files, size)


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


def _sweep(store: Store, kept: Iterable[StoredResult]) -> tuple[int, int]:
    """Remove the directories of files that no result has; returns how many, and their bytes."""
    named = {result.file[0] for result in kept if result.file}
    count = size = 0
    for directory in store.files.glob("??/*"):
        if directory.name in named or directory.stat().st_mtime > time.time() - _YOUNG:
            continue
        size += sum(path.stat().st_size for path in directory.iterdir())
        count += 1
        shutil.rmtree(directory, ignore_errors=True)
    return count, size
