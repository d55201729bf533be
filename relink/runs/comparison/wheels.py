"""Compare two wheels, member by member; and one of them with what relink made of the other.

Takes paths; gives a :class:`~relink.report.diff_text.WheelDiff`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from relink.elf.image import is_elf, read_image
from relink.elf.sections import read_sections
from relink.planning.wheel_plan import wheel_facts
from relink.report.diff_text import ByteRange, DiffVerdict, MemberChange, WheelDiff, WheelSide
from relink.runs.comparison.container import differences
from relink.runs.comparison.content import (
    Ranges,
    elf_changes,
    is_packed_alike,
    named_ranges,
    open_both,
    ranges_of,
    text_differences,
)
from relink.runs.comparison.reference import Reference
from relink.system.errors import ElfError
from relink.system.text import grouped, pluralize
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import WheelLimits

# Ranges that are kept apart in one member; later ones join the last.
_RANGES: Final = 10_000
# Ranges of one wheel: a hostile pair must not fill the memory with them.
_RANGES_IN_ALL: Final = 200_000
# Ranges that are shown of one file which is not what relink writes.
_RANGES_SHOWN: Final = 5


def diff(
    old: Path, new: Path, limits: WheelLimits | None = None, reference: Reference | None = None
) -> WheelDiff:
    """Compare two wheels.

    :param reference: what relink makes of the old one. Without it nothing is judged: what the new wheel says of itself explains
        nothing.
    :raises WheelError: one of them cannot be read, or is not what its own directory says.
    :raises RelinkError: a member is larger than this machine's memory.
    """
    with WheelArchive(old, limits=limits) as before, WheelArchive(new, limits=limits) as after:
        found = _Comparison(before, after)
        same = before.sha256() == after.sha256()
        differs = found.renamed or found.added or found.removed or found.changed
        verdict: DiffVerdict = "identical" if same else "not judged" if differs else "same content"
        unexplained = [] if reference is None else list(_unexplained(reference, after, limits))
        if reference is not None:
            verdict = "unexplained" if unexplained else "identical" if same else "only what the plan says"
        texts = grouped(unexplained)
        changed = (replace(change, unexplained=tuple(texts.get(change.path, ()))) for change in found.changed)
        return WheelDiff(
            _side(before),
            _side(after),
            found.renamed,
            found.added,
            found.removed,
            tuple(changed),
            len(found.names) - len(found.changed),
            reference is not None,
            verdict,
            tuple(f"{path}: {text}" if path else text for path, text in unexplained),
            found.archive,
            reference.source if reference else None,
            reference.notes if reference else (),
        )


def _unexplained(
    reference: Reference, after: WheelArchive, limits: WheelLimits | None
) -> Iterator[tuple[str, str]]:
    """Say what is not as relink writes it: the member, or ``""`` for the archive, and a text."""
    yield from (("", text) for text in reference.refusals)
    if reference.wheel is None:
        return
    with WheelArchive(reference.wheel, limits=limits) as made:
        if made.sha256() == after.sha256():
            return
        if made.path.name != after.path.name:
            yield "", f"the wheel is called {after.path.name}, relink calls it {made.path.name}"
        found = _Comparison(made, after)
        yield from ((new, f"relink calls it {old}") for old, new in found.renamed)
        yield from ((name, "added") for name in found.added)
        yield from ((name, "is not there") for name in found.removed)
        for change in found.changed:
            if change.mode_before != change.mode_after:
                yield change.path, f"the mode is {change.mode_after:o}, relink writes {change.mode_before:o}"
            if change.differing:
                yield from ((change.path, text) for text in found.texts(change))
        yield from (("", f"not as relink writes it: {line}") for line in found.headers)


@dataclass(slots=True)
class _Comparison:
    """Two open wheels, and how the second differs from the first.

    :ivar renamed: directories that are called by the version, before and after.
    :ivar names: of the members that both have: new names to old ones.
    :ivar headers: how the two differ as ZIP files, beyond contents; `repacked`: members of the same
        content in other compressed bytes.
    """

    before: WheelArchive
    after: WheelArchive
    renamed: tuple[tuple[str, str], ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: list[MemberChange] = field(default_factory=list)
    headers: tuple[str, ...] = ()
    repacked: list[str] = field(default_factory=list)
    ranges_left: int = _RANGES_IN_ALL
    names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        before, after = self.before, self.after
        pairs = ((before.dist_info, after.dist_info), (before.data_dir, after.data_dir))
        new_tops = {old: new for old, new in pairs if old and new}
        self.renamed = tuple((old, new) for old, new in new_tops.items() if old != new)
        parts = ((name, *name.partition("/")) for name in before.members)
        old_names = {f"{new_tops.get(top, top)}{slash}{rest}": name for name, top, slash, rest in parts}
        common = self.names = {name: old_names[name] for name in after.members if name in old_names}
        self.added = tuple(name for name in after.members if name not in common)
        self.removed = tuple(old for name, old in old_names.items() if name not in common)
        self.changed += [change for name, old in common.items() if (change := self._changed(old, name))]
        if before.sha256() != after.sha256():
            self.headers = differences(before, after, common)

    @property
    def archive(self) -> tuple[str, ...]:
        """How the two differ as ZIP files."""
        names = ", ".join(self.repacked[:3]) + (", …" if len(self.repacked) > 3 else "")
        return (*self.headers, *([f"compressed anew: {names}"] if names else []))

    def _changed(self, old: str, new: str) -> MemberChange | None:
        """Compare one member; None where content and mode are the same."""
        a, b = self.before.member(old), self.after.member(new)
        # The upper 16 bits are type and permissions. Unpackers take them from here whatever system the entry names.
        modes = a.external_attributes >> 16, b.external_attributes >> 16
        change = MemberChange(new, a.size, b.size, *modes, 0, (), None)
        if not is_packed_alike(self.before, self.after, old, new):
            with open_both(self.before, self.after, old, new) as contents:
                ranges = ranges_of(*contents, max(1, min(_RANGES, self.ranges_left)))
                self.ranges_left -= len(ranges.found)
                if ranges.found:
                    return _compared(change, *contents, ranges)
            self.repacked.append(new)
        return change if modes[0] != modes[1] else None

    def texts(self, change: MemberChange) -> Iterator[str]:
        """Say how a changed member's content differs: its lines, or its bytes and the facts of an ELF file."""
        with open_both(self.before, self.after, self.names[change.path], change.path) as contents:
            if lines := text_differences(*contents):
                yield from lines
                return
        shown = ", ".join(
            f"{item.start:#x}..{item.stop:#x}{item.where and f' ({item.where})'}"
            for item in change.ranges[:_RANGES_SHOWN]
        )
        more = ", …" if len(change.ranges) > _RANGES_SHOWN else ""
        yield f"bytes {shown}{more} are not what relink writes ({pluralize(change.differing, 'byte')})"
        yield from change.elf.dynamic if change.elf else ()


def _compared(change: MemberChange, old: memoryview, new: memoryview, ranges: Ranges) -> MemberChange:
    """Add where the contents of a member differ, by section where both are ELF files that can be read."""
    change = replace(
        change,
        differing=ranges.differing,
        ranges=tuple(ByteRange(start, stop, "") for start, stop in ranges.found),
    )
    if not all(is_elf(bytes(content[:4])) for content in (old, new)):
        return change
    try:
        images = read_image(old, change.path), read_image(new, change.path)
        sections = read_sections(new, change.path)
    except ElfError:
        return change
    return replace(change, ranges=named_ranges(ranges, new, images[1], sections), elf=elf_changes(*images))


def _side(archive: WheelArchive) -> WheelSide:
    return WheelSide(**asdict(wheel_facts(archive, str(archive.path))), size=archive.size)
