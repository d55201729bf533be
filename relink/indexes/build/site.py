"""A site of the results that hold: indexes of files, the matrix, the feed; see docs/index-building.md for what lies where.

It is written project by project, so that an index of a hundred thousand wheels needs no more memory than its largest project, and
not at all where nothing of what it is made of has changed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.utils import NormalizedName

from relink import __version__
from relink.indexes.build.feed import atom_feed
from relink.indexes.build.fingerprint import TargetState
from relink.indexes.build.matrix import Cell, matrix_data
from relink.indexes.build.matrix_page import PROJECTS, matrix_page
from relink.indexes.build.pages import ALL, IndexPages, SiteFile, Write
from relink.indexes.build.publishing import publish, shows
from relink.indexes.build.recipe import Recipe
from relink.indexes.build.simple_api import ListedWheel
from relink.indexes.build.sources import Listing
from relink.indexes.build.store import Store, StoredResult
from relink.wheel.naming import WheelName, parse_wheel_name

__all__ = ["ONE_PAGE", "Published", "publish_site"]

_CHANGES = 500  # that the page and the feed show
_FEED = 100
ONE_PAGE = 15_000
"""Results that one page shows; where there are more, each project has a page."""


@dataclass(frozen=True, slots=True)
class Published:
    """:ivar red: wheels of a target that do not work there."""

    changed: bool
    red: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """One wheel for one target; `result` is None where nothing is known and this run has failed, `failure` says why."""

    name: WheelName
    target: str
    result: StoredResult | None
    failure: Mapping[str, Any]

    @property
    def status(self) -> str:
        return self.result.status if self.result else "failed"

    @property
    def what(self) -> str:
        return f"{self.name.filename} {self.target}"


def publish_site(
    store: Store,
    site: Path,
    recipe: Recipe,
    states: Mapping[str, TargetState],
    listing: Listing,
    results: Mapping[tuple[str, str], StoredResult],
    failures: Mapping[tuple[str, str], Mapping[str, Any]],
) -> Published:
    """Publish what holds. A wheel that its source has no more stays, until it is pruned.

    :param results: by (SHA-256 of the wheel, name of the target).
    :param failures: what could not be done in this run, by (SHA-256 or address of the wheel, name of the target).
    """
    red = sum(result.status == "refused" for result in results.values())
    red += sum(key not in results for key in failures)
    basis = _basis(store, recipe, states, listing, results, failures)
    if shows(site, basis):
        return Published(False, red, ())
    projects = _projects(listing, results, failures)
    changes = _note_changes(store, itertools.chain.from_iterable(projects.values()))
    listed = {wheel.sha256: wheel for wheel in listing.wheels if wheel.sha256}
    many = len(results) + len(failures) > ONE_PAGE
    notes: list[str] = []

    def write_pages(write: Write) -> None:
        pages = IndexPages([*(target.name for target in recipe.targets), ALL], write)

        def cells() -> Iterator[Cell]:
            for project, entries in projects.items():
                own = [_cell(store, entry) for entry in entries]
                pages.add(project, _files(zip(entries, own, strict=True), recipe, listed))
                if many:
                    about = [change for change in changes if change[1]["project"] == project]
                    data = matrix_data(recipe.targets, states, own, about)
                    write(f"{PROJECTS}/{project}.json", _json(data))
                    write(f"{PROJECTS}/{project}.html", matrix_page(data, project).encode())
                yield from (cell for cell in own if not many or cell.version == own[-1].version)

        data = matrix_data(recipe.targets, states, cells(), changes)
        if many:
            data[PROJECTS] = list(projects)
        write("matrix.json", _json(data))
        write("index.html", matrix_page(data).encode())
        write("changes.atom", atom_feed("Changes of the index", changes[:_FEED]))
        pages.finish()
        notes.extend(pages.notes)

    publish(store, site, basis, write_pages)
    return Published(True, red, tuple(notes))


def _json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _basis(
    store: Store,
    recipe: Recipe,
    states: Mapping[str, TargetState],
    listing: Listing,
    results: Mapping[tuple[str, str], StoredResult],
    failures: Mapping[tuple[str, str], Mapping[str, Any]],
) -> str:
    """A digest of all that a site is made of."""
    targets = [
        [asdict(target), states[target.name].fingerprint, states[target.name].paths]
        for target in recipe.targets
    ]
    facts = [__version__, recipe.originals, targets, sorted(map(str, failures.items()))]
    digest = hashlib.sha256(json.dumps(facts).encode())
    for wheel in listing.wheels:
        digest.update(json.dumps([wheel.sha256, wheel.yanked]).encode())
    for sha256, target, record in store.digests():
        if (sha256, target) in results:
            digest.update(f"{sha256} {target} {record}\n".encode())
    return digest.hexdigest()


def _projects(
    listing: Listing,
    results: Mapping[tuple[str, str], StoredResult],
    failures: Mapping[tuple[str, str], Mapping[str, Any]],
) -> dict[NormalizedName, list[_Entry]]:
    """What there is of each project, in the order of releases."""
    names: dict[str, WheelName] = {}
    wheels = {wheel.sha256 or wheel.url: wheel for wheel in listing.wheels}
    found: dict[NormalizedName, list[_Entry]] = {}

    def add(filename: str, target: str, result: StoredResult | None, failure: Mapping[str, Any]) -> None:
        if filename not in names:
            names[filename] = parse_wheel_name(filename)
        name = names[filename]
        found.setdefault(name.canonical, []).append(_Entry(name, target, result, failure))

    for result in results.values():
        add(result.filename, result.target, result, {})
    for (key, target), failure in failures.items():
        if (key, target) not in results:
            add(wheels[key].filename, target, None, failure)
    for entries in found.values():
        entries.sort(key=lambda entry: (entry.name.version, entry.name.filename, entry.target))
    return dict(sorted(found.items()))


def _cell(store: Store, entry: _Entry) -> Cell:
    name = entry.name
    return Cell(
        name.canonical,
        str(name.version),
        f"{name.python}-{name.abi}",
        name.filename,
        entry.target,
        entry.status,
        store.record(entry.result) if entry.result else entry.failure,
    )


def _files(
    found: Iterable[tuple[_Entry, Cell]], recipe: Recipe, listed: Mapping[str, ListedWheel]
) -> dict[str, list[SiteFile]]:
    """What each index has of a project."""
    indexes: dict[str, list[SiteFile]] = {target.name: [] for target in recipe.targets}
    together: dict[tuple[str, str], SiteFile] = {}
    for entry, cell in found:
        result = entry.result
        if result and (file := _site_file(result, cell.record, recipe, listed.get(result.input))):
            indexes[entry.target].append(file)
            together[file.name.filename, file.sha256] = file
    return {**indexes, ALL: list(together.values())}


def _site_file(
    result: StoredResult, record: Mapping[str, Any], recipe: Recipe, listed: ListedWheel | None
) -> SiteFile | None:
    """What an index has of a result; None where that is nothing."""
    wheel, file = record["wheel"], record.get("file")
    # What the source says now counts: a release may have been yanked since.
    yanked = listed.yanked if listed else wheel["yanked"]
    if result.status == "refused" or (result.status == "original" and recipe.originals == "omit"):
        return None
    if result.status == "original" and recipe.originals == "link" and not wheel["url"].startswith("file:"):
        name = parse_wheel_name(wheel["filename"])
        return SiteFile(name, result.input, wheel["size"], wheel["requires_python"], yanked, wheel["url"])
    if file is None:
        return None
    return SiteFile(
        parse_wheel_name(file["filename"]),
        file["sha256"],
        file["size"],
        file["requires_python"] or wheel["requires_python"],
        yanked,
        None,
        file["metadata"],
        tuple(file["beside"]),
    )


def _note_changes(store: Store, entries: Iterable[_Entry]) -> Sequence[tuple[float, dict[str, Any]]]:
    """Compare with the last state that was noted, note the differences, and return the last of them, the newest first."""
    before = store.shown()
    changed = [
        (entry, was) for entry in entries for was in (before.pop(entry.what, None),) if was != entry.status
    ]

    def told() -> Iterator[tuple[str, dict[str, Any]]]:
        for entry, was in changed:
            cell = _cell(store, entry)
            text = cell.record.get("verdict", {}).get("text") or cell.record.get("error", "")
            yield (
                entry.what,
                {
                    "project": cell.project,
                    "version": cell.version,
                    "wheel": cell.filename,
                    "target": cell.target,
                    "before": was,
                    "after": cell.status,
                    "text": text[:300],
                },
            )

    if changed or before:
        store.note_changes(time.time(), told(), before)
    return store.changes(_CHANGES)
