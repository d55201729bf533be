"""Compare two wheels, member by member.

Takes two paths and perhaps a plan; gives a :class:`~relink.report.diff_text.WheelDiff`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from relink.comparison.container import differences, unlike_relink
from relink.comparison.content import (
    Ranges,
    differing_blocks,
    open_both,
    same_compressed,
    same_content,
    streams,
)
from relink.comparison.elf import elf_changes, named_ranges, new_load_places
from relink.comparison.reference import Reference, same_wheel
from relink.comparison.verdict import PlanCheck, plan_for
from relink.elf.image import is_elf, read_image
from relink.elf.sections import read_sections
from relink.errors import ElfError
from relink.report.diff_text import ByteRange, DiffVerdict, LoadPlace, MemberChange, WheelDiff, WheelSide
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import WheelLimits
from relink.wheel.zipformat import Member

__all__ = ["diff"]

_RANGES: Final = 10_000  # kept apart in one member; later ones join the last
_RANGES_IN_ALL: Final = 200_000  # of one wheel: a hostile pair must not fill the memory with ranges


def diff(
    old: Path, new: Path, limits: WheelLimits | None = None, reference: Reference | None = None
) -> WheelDiff:
    """Compare two wheels.

    :param reference: the plan to compare with. Without one it is the plan inside of the new wheel, which says what its maker
        wants it to say.
    :raises WheelError: one of them cannot be read, or is not what its own directory says.
    :raises UsageError: the reference is for another wheel.
    :raises RelinkError: a member is larger than this machine's memory.
    """
    with WheelArchive(old, limits=limits) as before, WheelArchive(new, limits=limits) as after:
        return _Comparison(before, after, reference).result()


class _Comparison:
    """Two open wheels, and the plan to compare with."""

    def __init__(self, before: WheelArchive, after: WheelArchive, reference: Reference | None) -> None:
        self.before = before
        self.after = after
        self.renamed = {before.dist_info: after.dist_info}
        if before.data_dir and after.data_dir:
            self.renamed[before.data_dir] = after.data_dir
        self.reference = reference
        self.plan, self.no_plan = plan_for(before, after) if reference is None else (None, None)
        if reference is not None:
            same_wheel(reference, before)
            output = reference.plan.output or after.name.filename
            self.plan = replace(reference.plan, output=output)
        self.check = PlanCheck(before, after, self.plan, self.renamed, reference) if self.plan else None
        self.load_places: dict[tuple[str, str], list[str]] = {}
        self.repacked: list[str] = []
        self.ranges_left = _RANGES_IN_ALL

    def result(self) -> WheelDiff:
        before, after = self.before, self.after
        names = {name: self._new_name(name) for name in before.members}
        old_names = {new: old for old, new in names.items()}
        removed = tuple(old for old, new in names.items() if new not in after.members)
        added = tuple(name for name in after.members if name not in old_names)
        changed, unchanged = [], 0
        for name in after.members:
            if name not in old_names:
                continue
            if change := self._changed(old_names[name], name):
                changed.append(change)
            else:
                unchanged += 1
        renamed = tuple((old, new) for old, new in self.renamed.items() if old != new)
        unexplained: list[str] = []
        archive: tuple[str, ...] = ()
        verdict: DiffVerdict = "identical"
        if before.sha256() != after.sha256():
            verdict = "same content"
            common = {name: old for name, old in old_names.items() if name in after.members}
            archive = differences(before, after, common, self.repacked)
        if added or removed or changed or renamed or (self.reference and not self.reference.plan.empty):
            unexplained = self._unexplained(added, removed, changed, renamed)
            verdict = "unexplained" if unexplained else "only what the plan says"
        return WheelDiff(
            _side(before),
            _side(after),
            renamed,
            added,
            removed,
            tuple(changed),
            unchanged,
            self.plan is not None,
            verdict,
            tuple(unexplained),
            archive,
            tuple(
                LoadPlace(path, kind, tuple(members)) for (path, kind), members in self.load_places.items()
            ),
            self.reference.source if self.reference else None,
        )

    def _new_name(self, old: str) -> str:
        top, slash, rest = old.partition("/")
        return f"{self.renamed.get(top, top)}{slash}{rest}"

    def _changed(self, old: str, new: str) -> MemberChange | None:
        """Compare one member; None where content and mode are the same."""
        before, after = self.before, self.after
        a, b = before.member(old), after.member(new)
        same = copied = (a.crc, a.size) == (b.crc, b.size) and same_compressed(before, after, a, b)
        if not copied and (a.crc, a.size) == (b.crc, b.size):
            same = same_content(before, after, old, new)
            self.repacked += [new] if same else []
        modes = _mode(a), _mode(b)
        if same and modes[0] == modes[1]:
            return None
        change = MemberChange(new, a.size, b.size, *modes, 0, (), None)
        if not same:
            change = self._compared(change, old, new)
        if modes[0] != modes[1]:
            mode_change = f"the mode changed from {modes[0]:o} to {modes[1]:o}"
            change = replace(change, unexplained=(*change.unexplained, mode_change))
        return change

    def _compared(self, change: MemberChange, old: str, new: str) -> MemberChange:
        """Add where the contents of a member differ, and what of that is not explained."""
        before, after = self.before, self.after
        ranges = Ranges(max(1, min(_RANGES, self.ranges_left)))
        if is_elf(before.prefix(old, 4)) and is_elf(after.prefix(new, 4)):
            with open_both(before, after, (old, new), ranges) as contents:
                change = self._compared_elf(change, contents, ranges, old)
        else:
            for _ in differing_blocks(streams(before, after, old, new), ranges):
                pass
            unexplained = self.check.other(old, new) if self.check else ("changed",)
            change = replace(change, ranges=_unnamed(ranges), unexplained=unexplained)
        self.ranges_left -= len(ranges.found)
        return replace(change, differing=ranges.differing)

    def _compared_elf(
        self, change: MemberChange, contents: tuple[memoryview, memoryview], ranges: Ranges, path: str
    ) -> MemberChange:
        old, new = contents
        try:
            images = read_image(old, path), read_image(new, path)
            sections = read_sections(old, path), read_sections(new, path)
        except ElfError as error:
            return replace(change, ranges=_unnamed(ranges), unexplained=(error.message,))
        for place in new_load_places(*images):
            self.load_places.setdefault(place, []).append(change.path)
        unexplained: tuple[str, ...] = ("changed",)
        if self.check:
            unexplained = tuple(self.check.elf(path, contents, images, sections, ranges))
        return replace(
            change,
            ranges=named_ranges(ranges, new, images[1], sections[1]),
            elf=elf_changes(old, new, images, sections, ranges),
            unexplained=unexplained,
        )

    def _unexplained(
        self,
        added: tuple[str, ...],
        removed: tuple[str, ...],
        changed: list[MemberChange],
        renamed: tuple[tuple[str, str], ...],
    ) -> list[str]:
        of_members = [f"{change.path}: {text}" for change in changed for text in change.unexplained]
        if self.check:
            contents = {change.path for change in changed if change.differing}
            old_names = {
                name: old
                for old in self.before.members
                if (name := self._new_name(old)) in self.after.members
            }
            container = unlike_relink(
                self.before, self.after, old_names, {*contents, *added}, removed, self.repacked
            )
            return [*self.check.wheel(added, removed, contents), *of_members, *container]
        return [
            *([self.no_plan] if self.no_plan else []),
            "the new wheel has no plan that was made for the old one",
            *(f"{name}: added" for name in added),
            *(f"{name}: removed" for name in removed),
            *(f"{old}: now called {new}" for old, new in renamed),
            *of_members,
        ]


def _mode(member: Member) -> int:
    """Type and permissions; unpackers take them from here whatever system the entry names."""
    return member.external_attributes >> 16


def _unnamed(ranges: Ranges) -> tuple[ByteRange, ...]:
    return tuple(ByteRange(start, stop, "") for start, stop in ranges.found)


def _side(archive: WheelArchive) -> WheelSide:
    name = archive.name
    return WheelSide(
        str(archive.path),
        archive.sha256(),
        archive.size,
        name.distribution,
        str(name.version),
        name.expanded_tags,
    )
