"""The differences of two wheels as data, as JSON and for people; made by :mod:`relink.runs.comparison`."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal, TypeAlias

import msgspec

from relink.planning.model import WheelFacts, to_data
from relink.report.lines import Line
from relink.system.findings.model import Finding, finding
from relink.system.text import pluralize

DiffVerdict: TypeAlias = Literal[
    "identical", "same content", "not judged", "only what the plan says", "unexplained"
]
SCHEMA = "relink.comparison/1"
# The most lines of one kind that are shown without --verbose.
_SHOWN = 40


class WheelSide(WheelFacts, frozen=True):
    """One of the two."""

    size: int


class MemberChange(msgspec.Struct, frozen=True):
    """A member that both wheels have and that differs.

    :ivar path: its name in the new wheel.
    """

    path: str
    size_before: int
    size_after: int
    mode_before: int
    mode_after: int


class WheelDiff(msgspec.Struct, frozen=True):
    """Everything that differs between two wheels.

    :ivar renamed: directories that are called by the version, before and after.
    :ivar unchanged: how many members are the same.
    :ivar planned: whether the new one was compared with what relink makes of the old one; else nothing is judged.
    :ivar unexplained: what is not as relink writes it; a text begins with the name of the member that it is about.
    :ivar reference: what relink made the old one by, a plan or prefixes; None where nothing is judged.
    :ivar notes: what was taken from the new one although it is its maker's, and what is not judged.
    """

    old: WheelSide
    new: WheelSide
    renamed: tuple[tuple[str, str], ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[MemberChange, ...]
    unchanged: int
    planned: bool
    verdict: DiffVerdict
    unexplained: tuple[str, ...]
    reference: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is nothing that a reviewer has to look at: what exit code 0 means."""
        return self.verdict != "unexplained"


def diff_findings(diff: WheelDiff) -> tuple[Finding, ...]:
    """Return an RLK621 for each difference from what relink makes of the old wheel: for formats that consist of findings."""
    name = os.path.basename(diff.new.path)
    return tuple(
        finding("RLK621", name, f"{difference}; relinking the old wheel anew does not give this")
        for difference in diff.unexplained
    )


def to_json(diff: WheelDiff) -> dict[str, Any]:
    """Return the difference as JSON data (``relink.comparison/1``)."""
    return {"schema": SCHEMA, "ok": diff.ok, **to_data(diff)}


def to_text(diff: WheelDiff, *, verbose: bool = False) -> list[Line]:
    """Return the difference for people; `verbose` leaves nothing out."""
    limit = sys.maxsize if verbose else _SHOWN
    lines = [
        Line(f"- {diff.old.path}", style="red"),
        Line(f"+ {diff.new.path}", style="green"),
        *(Line(f"renamed  {before} -> {after}") for before, after in diff.renamed),
        *_name_lines("removed  ", diff.removed, limit, "red"),
        *_name_lines("added    ", diff.added, limit, "green"),
    ]
    for change in diff.changed[:limit]:
        before, after = change.size_before, change.size_after
        sizes = f"{before}" if before == after else f"{before} -> {after}"
        lines.append(Line.assemble("changed  ", (change.path, "bold"), f"  {sizes} bytes"))
        if change.mode_before != change.mode_after:
            lines.append(Line(f"    mode {change.mode_before:o} -> {change.mode_after:o}"))
    if len(diff.changed) > limit:
        lines.append(Line(f"… and {len(diff.changed) - limit} more changed members (--verbose shows them)"))
    counts = f"{len(diff.changed)} changed, {len(diff.added)} added, {len(diff.removed)} removed, {diff.unchanged} unchanged"
    number = pluralize(len(diff.unexplained), "difference")
    told = {
        "identical": "identical",
        "same content": "same content, packed differently",
        "not judged": f"{counts}; nothing is judged: --prefix DIR or --plan FILE compares with what relink makes of OLD",
        "only what the plan says": f"made again: equal ({counts}); the plan is {diff.reference}",
        "unexplained": f"made again: {number} ({counts}); the plan is {diff.reference}",
    }[diff.verdict]
    return [
        *lines,
        *_name_lines("unexplained: ", diff.unexplained, sys.maxsize, "bold red"),
        *map(Line, diff.notes),
        Line(told, style="bold green" if diff.ok else "bold red"),
    ]


def _name_lines(word: str, names: tuple[str, ...], limit: int, style: str) -> list[Line]:
    lines = [Line(f"{word}{name}", style=style) for name in names[:limit]]
    if len(names) > limit:
        lines.append(Line(f"{word}… and {len(names) - limit} more (--verbose shows them)", style=style))
    return lines
