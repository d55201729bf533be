"""Which GPUs several files and libraries cover together.

All of them are needed, so an architecture that one lacks is missing from the whole. Takes their coverage
(:mod:`relink.gpu.coverage`); gives the intersection, with the files that lack each of the other architectures, and the report's
``isa`` object.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from relink.gpu.amd.file_coverage import FileCoverage, LibraryCoverage
from relink.gpu.amd.target_id import SPIRV, foremost, sort_key
from relink.gpu.coverage import Coverage, CoverageLevel, TargetId


@dataclass(frozen=True, slots=True)
class Removal:
    """Why an architecture is not in the intersection: each file or library that lacks it, and how far it has it."""

    processor: str
    by: tuple[tuple[str, CoverageLevel], ...]


@dataclass(frozen=True, slots=True)
class Intersection:
    """What several files or libraries cover together.

    :ivar targets: processors that all cover; `conditional`: those that all cover under a condition (xnack).
    :ivar removed: processors that at least one has and at least one lacks.
    """

    targets: tuple[str, ...]
    conditional: tuple[str, ...]
    removed: tuple[Removal, ...]

    def to_json(self) -> dict[str, Any]:
        """Return targets, and by whom the others were removed."""
        return {
            "targets": list(self.targets),
            "conditional": list(self.conditional),
            "removed": {r.processor: {name: str(level) for name, level in r.by} for r in self.removed},
        }


def intersect(coverages: Iterable[Coverage], agents: Iterable[TargetId] = ()) -> Intersection:
    """Return what all of `coverages` cover, asked for every processor that one of them names, and for `agents`."""
    restricting = [c for c in coverages if c.restricts]
    names = {name for c in restricting for name in c.processors()}
    asked = {name: TargetId(name) for name in foremost(names - {SPIRV})}
    asked |= {str(agent): agent for agent in agents}
    targets, conditional, removed = [], [], []
    for name in sorted(asked, key=sort_key):
        levels = [(c.path, c.level(asked[name])) for c in restricting]
        lacking = tuple(
            (path, level) for path, level in levels if not level.usable and level.state != "conditional"
        )
        if lacking:
            removed.append(Removal(name, lacking))
        elif any(level.state == "conditional" for _, level in levels):
            conditional.append(name)
        elif levels:
            targets.append(name)
    return Intersection(tuple(targets), tuple(conditional), tuple(removed))


def matrix(coverages: Iterable[Coverage], agents: Iterable[TargetId] = ()) -> dict[str, dict[str, str]]:
    """Return path → architecture → how far it is covered, for every architecture that any file names, and for `agents`.

    Files that say nothing about any architecture are left out.
    """
    coverages = tuple(coverages)
    names = (name for item in coverages for name in item.processors())
    asked = {name: TargetId(name) for name in foremost(names)}
    asked |= {str(agent): agent for agent in agents}
    rows = {
        item.path: {name: str(item.level(asked[name])) for name in sorted(asked, key=sort_key)}
        for item in coverages
    }
    return {path: row for path, row in rows.items() if set(row.values()) - {"unknown"}}


def isa_block(
    files: Iterable[FileCoverage],
    libraries: Iterable[LibraryCoverage] = (),
    runtime: dict[str, Any] | None = None,
    gpus: Iterable[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return the report's ``isa`` object; `targets` is the intersection over the files that hold device code."""
    files, libraries = tuple(files), tuple(libraries)
    return {
        "files": [file.to_json() for file in files],
        "targets": list(intersect(files).targets),
        "libraries": [library.to_json() for library in libraries],
        "common": intersect((*files, *libraries)).to_json(),
        "runtime": runtime or {},
        "gpus": list(gpus),
    }
