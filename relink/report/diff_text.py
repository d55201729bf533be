"""How two wheels differ, as data, as JSON and for people; made by :mod:`relink.comparison`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from relink.plans.model import plain
from relink.report.lines import Line

__all__ = [
    "ByteRange",
    "ElfChange",
    "MemberChange",
    "SectionChange",
    "WheelDiff",
    "WheelSide",
    "to_json",
    "to_text",
]

DiffVerdict: TypeAlias = Literal["identical", "same content", "only what the plan says", "unexplained"]
SCHEMA = "relink.comparison/1"
_SHOWN = 40  # lines of one kind, without --verbose


@dataclass(frozen=True, slots=True)
class WheelSide:
    """One of the two: the file and what its name says."""

    path: str
    sha256: str
    size: int
    name: str
    version: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Offsets from `start` up to, not including, `stop` at which the contents differ, and the parts of the new file there."""

    start: int
    stop: int
    where: str


@dataclass(frozen=True, slots=True)
class SectionChange:
    """One section that is not what it was: ``added``, ``removed``, ``moved``, ``resized``, ``changed``; several may be true."""

    name: str
    how: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ElfChange:
    """What is different in one ELF file beyond its bytes.

    :ivar dynamic: one line an entry that went (``- NEEDED libx.so.1``) or came (``+ RUNPATH $ORIGIN``).
    """

    dynamic: tuple[str, ...]
    sections: tuple[SectionChange, ...]


@dataclass(frozen=True, slots=True)
class MemberChange:
    """A member that both wheels have and that differs.

    :ivar path: its name in the new wheel.
    :ivar ranges: the first of the ranges that differ; `differing` bytes do in all.
    :ivar elf: None for what is no ELF file, or a damaged one.
    :ivar unexplained: what the plan does not say of it.
    """

    path: str
    size_before: int
    size_after: int
    mode_before: int
    mode_after: int
    differing: int
    ranges: tuple[ByteRange, ...]
    elf: ElfChange | None
    unexplained: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadPlace:
    """A place to load from that changed files name now, and did not name before.

    :ivar path: as it stands in the file; empty for an empty entry of a search path, which is the current directory.
    :ivar kind: ``search path``, ``interpreter`` or ``library`` (a NEEDED with a slash).
    :ivar members: the files, by their names in the new wheel.
    """

    path: str
    kind: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WheelDiff:
    """Everything that differs between two wheels.

    :ivar renamed: directories that are called by the version, before and after.
    :ivar unchanged: how many members are the same.
    :ivar planned: whether there is a plan to compare with that was made for the old one.
    :ivar unexplained: what neither the plan nor the rules of relink's output account for, those of `changed` included.
    :ivar archive: how the two differ as ZIP files, beyond the contents of members; a line a kind of difference.
    :ivar brings: the places to load from that the new wheel brings in.
    :ivar reference: where the plan to compare with comes from; None for the one inside of the new wheel.
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
    archive: tuple[str, ...] = ()
    brings: tuple[LoadPlace, ...] = ()
    reference: str | None = None

    @property
    def ok(self) -> bool:
        """Whether there is nothing that a reviewer has to look at: what exit code 0 means."""
        return self.verdict != "unexplained"


def to_json(found: WheelDiff) -> dict[str, Any]:
    """Return the difference as JSON data (``relink.comparison/1``)."""
    return {"schema": SCHEMA, **plain(found)}


def to_text(found: WheelDiff, *, verbose: bool = False) -> list[Line]:
    """Return the difference for people; `verbose` leaves nothing out."""
    limit = None if verbose else _SHOWN
    lines = [Line(f"- {found.old.path}", style="red"), Line(f"+ {found.new.path}", style="green")]
    lines += [Line(f"renamed  {before} -> {after}") for before, after in found.renamed]
    lines += _name_lines("removed  ", found.removed, limit, "red")
    lines += _name_lines("added    ", found.added, limit, "green")
    for change in found.changed[:limit]:
        lines += _change(change, limit)
    if limit is not None and len(found.changed) > limit:
        lines.append(Line(f"… and {len(found.changed) - limit} more changed members (--verbose shows them)"))
    lines += [Line(f"archive  {line}") for line in found.archive]
    for place in found.brings:
        where = place.path or "the current directory, by an empty entry"
        shown = ", ".join(place.members[: limit and 3])
        more = f" and {len(place.members) - 3} more" if limit is not None and len(place.members) > 3 else ""
        lines.append(Line.assemble("brings in  ", (where, "bold"), f"  {place.kind} of {shown}{more}"))
    lines += _name_lines("unexplained: ", found.unexplained, None, "bold red")
    lines.append(Line(_verdict(found), style="bold green" if found.ok else "bold red"))
    return lines


def _name_lines(word: str, names: tuple[str, ...], limit: int | None, style: str) -> list[Line]:
    lines = [Line(f"{word}{name}", style=style) for name in names[:limit]]
    if limit is not None and len(names) > limit:
        lines.append(Line(f"{word}… and {len(names) - limit} more (--verbose shows them)", style=style))
    return lines


def _change(change: MemberChange, limit: int | None) -> list[Line]:
    sizes = f"{change.size_before} bytes"
    if change.size_after != change.size_before:
        sizes = f"{change.size_before} -> {change.size_after} bytes"
    lines = [Line.assemble("changed  ", (change.path, "bold"), f"  {sizes}, {change.differing} differ")]
    if change.mode_before != change.mode_after:
        lines.append(Line(f"    mode {change.mode_before:o} -> {change.mode_after:o}"))
    if change.elf is not None:
        lines += [
            Line(f"    {line}", style="red" if line.startswith("-") else "green")
            for line in change.elf.dynamic
        ]
        lines += [Line(f"    {item.name}: {', '.join(item.how)}") for item in change.elf.sections]
    shown = change.ranges if limit is None else change.ranges[:8]
    lines += [Line(f"    bytes {item.start:#x}..{item.stop:#x}  {item.where}".rstrip()) for item in shown]
    hidden = change.differing - sum(item.stop - item.start for item in shown)
    if hidden > 0:
        lines.append(Line(f"    … and {hidden} more bytes"))
    return lines


def _verdict(found: WheelDiff) -> str:
    counts = f"{len(found.changed)} changed, {len(found.added)} added, {len(found.removed)} removed, {found.unchanged} unchanged"
    match found.verdict:
        case "identical":
            return "identical"
        case "same content":
            return "same content, packed differently"
        case "only what the plan says":
            if found.reference is not None:
                return f"only what the plan says ({counts}); the plan is {found.reference}"
            return (
                f"only what the plan inside of NEW says ({counts}); whoever made NEW wrote that plan: "
                "look at what it brings in, or compare with a plan of your own by --plan FILE or --prefix DIR"
            )
    why = "" if found.planned else "; the new wheel carries no plan that was made for the old one"
    return f"{len(found.unexplained)} differences that no plan explains ({counts}){why}"
