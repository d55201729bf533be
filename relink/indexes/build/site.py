"""A site of the results that hold: indexes of files, the matrix, the feed; see docs/index-building.md for what lies where.

It is written project by project, so that an index of a hundred thousand wheels needs no more memory than its largest project, and
not at all where nothing of what it is made of has changed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.utils import NormalizedName, canonicalize_name

from relink import __version__
from relink.indexes.build.feed import atom_feed
from relink.indexes.build.fingerprint import TargetState
from relink.indexes.build.matrix import Cell, matrix_data
from relink.indexes.build.matrix_page import PROJECTS, matrix_page
from relink.indexes.build.pages import IndexPages, SiteFile, Write
from relink.indexes.build.publishing import publish, shows
from relink.indexes.build.recipe import Recipe
from relink.indexes.build.store import Store, StoredFile, StoredResult, now
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
    results: Mapping[tuple[str, str], StoredResult],
    failures: Mapping[tuple[str, str], Mapping[str, Any]],
) -> Published:
    """Publish what holds. A wheel that its source has no more stays, until it is pruned or denied.

    :param results: by (SHA-256 of the wheel, name of the target).
    :param failures: what could not be done in this run, by (SHA-256 or address of the wheel, name of the target).
    """
    failures = {key: failure for key, failure in failures.items() if key not in results}
    projects = _projects(recipe, results, failures)
    counted = [entry.status for entries in projects.values() for entry in entries]
    red = counted.count("refused") + counted.count("failed")
    superseded, wheels = now() - recipe.superseded, store.wheels()
    basis = _basis(store, recipe, states, results, failures, wheels, superseded)
    if shows(site, basis):
        return Published(False, red)
    changes = _note_changes(store, itertools.chain.from_iterable(projects.values()))
    many = len(counted) > ONE_PAGE

    def write_pages(write: Write) -> None:
        pages = IndexPages([target.name for target in recipe.targets], write)

        def cells() -> Iterator[Cell]:
            for project, entries in projects.items():
                own = [_cell(store, entry) for entry in entries]
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
        write("changes.atom", atom_feed("Changes of the index", store.site_id, changes[:_FEED]))
        for project, own_files in itertools.groupby(store.listed(superseded), lambda file: file.project):
            files: dict[str, list[SiteFile]] = {target.name: [] for target in recipe.targets}
            for stored in own_files:
                said = wheels.get(stored.input, (None, None))
                facts = store.parsed(stored.facts)
                if stored.target in files and (file := _site_file(stored, facts, recipe, *said)):
                    files[stored.target].append(file)
            pages.add(canonicalize_name(project), files)
        pages.finish()

    publish(store, site, basis, write_pages)
    return Published(True, red)


def _json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _basis(
    store: Store,
    recipe: Recipe,
    states: Mapping[str, TargetState],
    results: Mapping[tuple[str, str], StoredResult],
    failures: Mapping[tuple[str, str], Mapping[str, Any]],
    wheels: Mapping[str, tuple[str | None, str | None]],
    superseded: float,
) -> str:
    """A digest of all that a site is made of."""
    targets = [
        [asdict(target), states[target.name].fingerprint, states[target.name].paths]
        for target in recipe.targets
    ]
    deny = [str(requirement) for requirement in recipe.deny]
    facts = [__version__, recipe.originals, deny, targets, sorted(map(str, failures.items()))]
    digest = hashlib.sha256(json.dumps(facts).encode())
    for sha256, target, record in store.digests():
        if (sha256, target) in results:
            digest.update(f"{sha256} {target} {record}\n".encode())
    for file in store.listed(superseded):
        digest.update(json.dumps([astuple(file), wheels.get(file.input)]).encode())
    return digest.hexdigest()


def _projects(
    recipe: Recipe,
    results: Mapping[tuple[str, str], StoredResult],
    failures: Mapping[tuple[str, str], Mapping[str, Any]],
) -> dict[NormalizedName, list[_Entry]]:
    """What there is of each project, in the order of releases."""
    names: dict[str, WheelName] = {}
    found: dict[NormalizedName, list[_Entry]] = {}

    def add(filename: str, target: str, result: StoredResult | None, failure: Mapping[str, Any]) -> None:
        if filename not in names:
            names[filename] = parse_wheel_name(filename)
        if not recipe.denies(name := names[filename]):
            found.setdefault(name.canonical, []).append(_Entry(name, target, result, failure))

    for result in results.values():
        add(result.filename, result.target, result, {})
    for (_, target), failure in failures.items():
        add(failure["filename"], target, None, failure)
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


def _site_file(
    stored: StoredFile, facts: Mapping[str, Any], recipe: Recipe, yanked: str | None, uploaded: str | None
) -> SiteFile | None:
    """What an index has of a file; None where that is nothing.

    :param yanked: what the source says of the wheel that it was made of, as `uploaded`.
    """
    status, wheel, file = facts["status"], facts["wheel"], facts["file"]
    original = status == "original"
    if recipe.denies(parse_wheel_name(stored.filename)) or (original and recipe.originals == "omit"):
        return None
    if not (original and uploaded) and (seconds := facts["time"]) is not None:
        uploaded = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if original and recipe.originals == "link" and not wheel["url"].startswith("file:"):
        name = parse_wheel_name(stored.filename)
        return SiteFile(
            name,
            stored.input,
            wheel["size"],
            wheel["requires_python"],
            yanked,
            wheel["url"],
            uploaded=uploaded,
        )
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
        uploaded,
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
        store.note_changes(now(), told(), before)
    return store.changes(_CHANGES)
