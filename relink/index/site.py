"""A site of the results that hold: indexes of files, the matrix, the feed; see docs/index-building.md for what lies where."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relink.index.feed import atom_feed
from relink.index.fingerprint import TargetState
from relink.index.matrix import Cell, colour_of, matrix_data
from relink.index.matrix_page import matrix_page
from relink.index.pages import ALL, SiteFile, Write, write_indexes
from relink.index.publishing import publish
from relink.index.recipe import Recipe
from relink.index.simple_api import ListedWheel
from relink.index.sources import Listing
from relink.index.store import Store, StoredResult
from relink.wheel.naming import parse_wheel_name

__all__ = ["Published", "publish_site"]

_CHANGES = 500  # that the page and the feed show
_FEED = 100


@dataclass(frozen=True, slots=True)
class Published:
    """:ivar red: wheels of a target that do not work there."""

    changed: bool
    red: int
    notes: tuple[str, ...]


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
    listed = {wheel.sha256: wheel for wheel in listing.wheels if wheel.sha256}
    cells = sorted(
        (*_cells(results), *_failed(listing, failures, results)),
        key=lambda cell: (cell.project, parse_wheel_name(cell.filename).version, cell.filename, cell.target),
    )
    changes = _note_changes(store, cells)
    indexes = {
        target.name: [
            file
            for result in results.values()
            if result.target == target.name and (file := _site_file(result, recipe, listed.get(result.input)))
        ]
        for target in recipe.targets
    }
    together = {(file.name.filename, file.sha256): file for files in indexes.values() for file in files}
    notes: list[str] = []

    def write_pages(write: Write) -> None:
        data = matrix_data(recipe.targets, states, cells, changes)
        write("matrix.json", json.dumps(data, separators=(",", ":")).encode() + b"\n")
        write("index.html", matrix_page(data).encode())
        write("changes.atom", atom_feed("Changes of the index", changes[:_FEED]))
        notes.extend(write_indexes({**indexes, ALL: together.values()}, write))

    changed = publish(store, site, write_pages)
    red = sum(colour_of(cell.status, cell.record, None) == "red" for cell in cells)
    return Published(changed, red, tuple(notes))


def _cells(results: Mapping[tuple[str, str], StoredResult]) -> Iterator[Cell]:
    for result in results.values():
        name = parse_wheel_name(result.record["wheel"]["filename"])
        yield Cell(
            name.canonical,
            str(name.version),
            f"{name.python}-{name.abi}",
            name.filename,
            result.target,
            result.record["status"],
            result.record,
        )


def _failed(
    listing: Listing,
    failures: Mapping[tuple[str, str], Mapping[str, Any]],
    results: Mapping[tuple[str, str], StoredResult],
) -> Iterator[Cell]:
    wheels = {wheel.sha256 or wheel.url: wheel for wheel in listing.wheels}
    for (key, target), facts in failures.items():
        wheel = wheels[key]
        if (key, target) not in results:
            name = wheel.name
            tags = f"{name.python}-{name.abi}"
            yield Cell(name.canonical, str(name.version), tags, name.filename, target, "failed", facts)


def _site_file(result: StoredResult, recipe: Recipe, listed: ListedWheel | None) -> SiteFile | None:
    """What an index has of a result; None where that is nothing."""
    record, wheel = result.record, result.record["wheel"]
    # What the source says now counts: a release may have been yanked since.
    yanked = listed.yanked if listed else wheel["yanked"]
    status = record["status"]
    if status == "refused" or (status == "original" and recipe.originals == "omit"):
        return None
    if status == "original" and recipe.originals == "link" and not wheel["url"].startswith("file:"):
        name = parse_wheel_name(wheel["filename"])
        return SiteFile(name, result.input, wheel["size"], wheel["requires_python"], yanked, wheel["url"])
    file = record.get("file")
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


def _note_changes(store: Store, cells: list[Cell]) -> list[tuple[float, dict[str, Any]]]:
    """Compare with the last state that was noted, note the differences, and return the last of them, the newest first."""
    before = store.shown()
    now = {f"{cell.filename} {cell.target}": cell.status for cell in cells}
    told = [
        {
            "project": cell.project,
            "version": cell.version,
            "wheel": cell.filename,
            "target": cell.target,
            "before": before.get(f"{cell.filename} {cell.target}"),
            "after": cell.status,
            "text": (cell.record.get("verdict", {}).get("text") or cell.record.get("error", ""))[:300],
        }
        for cell in cells
        if before.get(f"{cell.filename} {cell.target}") != cell.status
    ]
    if told or now.keys() != before.keys():
        store.note_changes(time.time(), told, now)
    return store.changes(_CHANGES)
