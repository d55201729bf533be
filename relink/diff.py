"""Comparing two wheels, member by member and byte by byte, and holding the difference against the plan that the new one carries.

Contents are compared as they are inflated. What does not differ in its compressed bytes is not inflated at all; of the rest one
ELF file at a time is held in memory, with those blocks of its other version that differ.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from relink.elf.edit_checks import MOVABLE, check_edit
from relink.elf.image import Image, Section, is_elf, read_image, read_sections
from relink.elf.patchelf import result_of
from relink.errors import ElfError, RelinkError, UsageError, WheelError
from relink.pipeline import PLAN_MEMBER, SBOM_MEMBER
from relink.plan.model import Plan, from_json, plain
from relink.report.diff_text import ByteRange, ElfChange, MemberChange, SectionChange, WheelDiff, WheelSide
from relink.report.sbom import bill_of_materials
from relink.wheel import (
    Limits,
    Member,
    WheelArchive,
    check_record,
    read_record,
    renamed_directory,
    rewrite_metadata,
    rewrite_wheel_info,
    signatures,
    verify_members,
)

__all__ = ["diff"]

_BLOCK: Final = 4096
_RANGES_AT_MOST: Final = 10_000
# Differing bytes with fewer equal ones between them count as one range.
_DIFFERING: Final = re.compile(rb"[^\0]+(?:\0{1,15}[^\0]+)*", re.DOTALL)
_SHF_ALLOC: Final = 2
_SHT_NOBITS: Final = 8
# What an edit may write: tables that move, the symbols of sections that moved, and the names of sections.
_WRITTEN: Final = MOVABLE | {".symtab", ".shstrtab"}


def diff(old: Path, new: Path, limits: Limits | None = None) -> WheelDiff:
    """Compare two wheels.

    :raises WheelError: one of them cannot be read, or is not what its own directory says.
    """
    with WheelArchive(old, limits=limits) as before, WheelArchive(new, limits=limits) as after:
        return _Comparison(before, after).result()


@dataclass(slots=True)
class _Ranges:
    """The places at which two contents differ, and how many bytes do."""

    found: list[tuple[int, int]] = field(default_factory=list)
    differing: int = 0

    def add(self, start: int, stop: int) -> None:
        """Add a range that lies behind all others."""
        self.differing += stop - start
        if self.found and (start - self.found[-1][1] < 16 or len(self.found) >= _RANGES_AT_MOST):
            self.found[-1] = (self.found[-1][0], stop)
        else:
            self.found.append((start, stop))


def _compare(pairs: Iterable[tuple[int, bytes, bytes]]) -> Iterator[tuple[int, bytes, _Ranges]]:
    """Yield, for each block that differs, its offset, the new bytes, and the ranges found so far."""
    ranges = _Ranges()
    for at, old, new in pairs:
        if old == new:
            continue
        for start in range(0, max(len(old), len(new)), _BLOCK):
            a, b = old[start : start + _BLOCK], new[start : start + _BLOCK]
            if a == b:
                continue
            common = min(len(a), len(b))
            mask = int.from_bytes(a[:common], "little") ^ int.from_bytes(b[:common], "little")
            for match in _DIFFERING.finditer(mask.to_bytes(common, "little")):
                ranges.add(at + start + match.start(), at + start + match.end())
            if len(a) != len(b):
                ranges.add(at + start + common, at + start + max(len(a), len(b)))
            yield at + start, b, ranges


def _in_step(old: Iterator[bytes], new: Iterator[bytes]) -> Iterator[tuple[int, bytes, bytes]]:
    """Cut two streams at the same places; what only one of them has is paired with nothing."""
    at = 0
    a = b = b""
    while True:
        a, b = a or next(old, b""), b or next(new, b"")
        if not a and not b:
            return
        size = min(len(a), len(b)) or max(len(a), len(b))
        yield at, a[:size], b[:size]
        at += size
        a, b = a[size:], b[size:]


@contextlib.contextmanager
def _both(
    before: WheelArchive, after: WheelArchive, names: tuple[str, str]
) -> Iterator[tuple[memoryview, memoryview, _Ranges]]:
    """Give both contents of a member as buffers; they share the memory of all blocks that are the same."""
    sizes = before.member(names[0]).size, after.member(names[1]).size
    whole = max(*sizes, 1)
    fd = os.memfd_create("relink-diff")
    try:
        os.ftruncate(fd, whole)
        first = mmap.mmap(fd, whole)
        second = mmap.mmap(fd, whole, flags=mmap.MAP_PRIVATE)
    except OSError as error:
        raise RelinkError(f"{names[1]}: {whole} bytes cannot be held in memory ({error.strerror})") from error
    finally:
        os.close(fd)

    def kept() -> Iterator[bytes]:
        at = 0
        for data in before.chunks(names[0]):
            first[at : at + len(data)] = data
            at += len(data)
            yield data

    ranges = _Ranges()
    with first, second:
        for at, data, ranges in _compare(_in_step(kept(), after.chunks(names[1]))):  # noqa: B007 - the last one is used
            second[at : at + len(data)] = data
        with memoryview(first) as a, memoryview(second) as b, a[: sizes[0]] as old, b[: sizes[1]] as new:
            yield old, new, ranges


class _Comparison:
    """Two open wheels, the plan of the new one, and what has been found so far."""

    def __init__(self, before: WheelArchive, after: WheelArchive) -> None:
        self.before = before
        self.after = after
        self.unexplained: list[str] = []
        self.renamed = _renamed(before, after)
        self.plan = self._read_plan()

    def result(self) -> WheelDiff:
        before, after = self.before, self.after
        if self.plan is None:
            self.unexplained.append("the new wheel has no plan that was made for the old one")
        names = {name: self._new_name(name) for name in before.members}
        back = {new: old for old, new in names.items()}
        removed = tuple(old for old, new in names.items() if new not in after.members)
        added = tuple(name for name in after.members if name not in back)
        changed, unchanged = [], 0
        for name in after.members:
            if name not in back:
                continue
            if change := self._changed(back[name], name):
                changed.append(change)
            else:
                unchanged += 1
        identical = before.sha256() == after.sha256()
        same = not (added or removed or changed or any(old != new for old, new in self.renamed))
        if not (identical or same):
            self._explain(added, removed)
        for change in changed:
            self.unexplained += [f"{change.path}: {text}" for text in change.unexplained]
        explained: str = "only what the plan says" if not self.unexplained else "unexplained"
        verdict = "identical" if identical else "same content" if same else explained
        return WheelDiff(
            _side(before),
            _side(after),
            tuple(pair for pair in self.renamed if pair[0] != pair[1]),
            added,
            removed,
            tuple(changed),
            unchanged,
            self.plan is not None,
            verdict,  # type: ignore[arg-type]
            () if verdict in ("identical", "same content") else tuple(self.unexplained),
        )

    def _read_plan(self) -> Plan | None:
        """The plan in the new wheel, if it was made for the old one."""
        name = f"{self.after.dist_info}/{PLAN_MEMBER}"
        if name not in self.after.members or self.before.sha256() == self.after.sha256():
            return None
        try:
            plan = from_json(self.after.read(name).decode("utf-8", "replace"))
        except UsageError as error:
            self.unexplained.append(f"{name}: {error.message}")
            return None
        if plan.wheel.sha256 != self.before.sha256():
            self.unexplained.append(f"{name}: the plan was made for another wheel ({plan.wheel.sha256})")
            return None
        return plan

    def _new_name(self, old: str) -> str:
        top, slash, rest = old.partition("/")
        return f"{dict(self.renamed).get(top, top)}{slash}{rest}"

    def _changed(self, old: str, new: str) -> MemberChange | None:
        """Compare one member; None where content and mode are the same."""
        a, b = self.before.member(old), self.after.member(new)
        same = (a.crc, a.size) == (b.crc, b.size) and (self._same_raw(a, b) or self._same_content(old, new))
        if same and a.mode == b.mode:
            return None
        change = MemberChange(new, a.size, b.size, a.mode, b.mode, 0, (), None)
        moded = (f"the mode changed from {a.mode:o} to {b.mode:o}",) if a.mode != b.mode else ()
        if same:
            return replace(change, unexplained=moded)
        if is_elf(self.before.prefix(old, 4)) and is_elf(self.after.prefix(new, 4)):
            with _both(self.before, self.after, (old, new)) as (left, right, ranges):
                change = _compare_elf(change, left, right, ranges, old, self.plan)
        else:
            ranges = _Ranges()
            pairs = _in_step(self.before.chunks(old), self.after.chunks(new))
            for _, _, ranges in _compare(pairs):  # noqa: B007 - the last one is used
                pass
            found = tuple(ByteRange(start, stop, "") for start, stop in ranges.found)
            change = replace(
                change, differing=ranges.differing, ranges=found, unexplained=self._other(old, new)
            )
        return replace(change, unexplained=(*change.unexplained, *moded))

    def _same_raw(self, a: Member, b: Member) -> bool:
        if (a.method, a.compressed_size) != (b.method, b.compressed_size):
            return False
        pairs = zip(self.before.raw(a.name), self.after.raw(b.name), strict=True)
        return all(left == right for left, right in pairs)

    def _same_content(self, old: str, new: str) -> bool:
        return next(_compare(_in_step(self.before.chunks(old), self.after.chunks(new))), None) is None

    def _other(self, old: str, new: str) -> tuple[str, ...]:
        """What is not explained about a changed member that is no ELF file: relink writes three of them anew."""
        if self.plan is None:
            return ("changed",)
        read = {
            f"{self.after.dist_info}/METADATA": lambda data: rewrite_metadata(
                data, self.after.name.version_text
            ),
            f"{self.after.dist_info}/WHEEL": lambda data: rewrite_wheel_info(
                data, self.after.name.expanded_tags
            ),
        }
        if new == f"{self.after.dist_info}/RECORD":
            return ()  # held against the members in _explain
        if new in read:
            try:
                if read[new](self.before.read(old)) == self.after.read(new):
                    return ()
            except WheelError as error:
                return (error.message,)
            return ("more changed than name, version and tags ask for",)
        if new in self._own():
            return ()  # from an earlier run of relink; held against the plan in _explain
        return ("changed, and the plan does not name it",)

    def _own(self) -> tuple[str, str]:
        return f"{self.after.dist_info}/{PLAN_MEMBER}", f"{self.after.dist_info}/{SBOM_MEMBER}"

    def _explain(self, added: tuple[str, ...], removed: tuple[str, ...]) -> None:
        """Collect what the plan does not account for, beyond the changed members."""
        own = self._own() if self.plan else ()
        gone = signatures(self.before.dist_info, self.before.members) if self.plan else ()
        self.unexplained += [f"{name}: added" for name in added if name not in own]
        self.unexplained += [f"{name}: removed" for name in removed if name not in gone]
        if self.plan is None:
            self.unexplained += [f"{old}: now called {new}" for old, new in self.renamed if old != new]
            return
        self._explain_name(self.plan)
        for file in self.plan.files:
            name = self._new_name(file.path)
            if file.changed and not self._differs(file.path, name):
                self.unexplained.append(f"{name}: the plan changes it, and it has not changed")
        self._explain_record()
        self._explain_bill(self.plan)

    def _explain_name(self, plan: Plan) -> None:
        if plan.output != self.after.name.filename:
            self.unexplained.append(
                f"the plan leads to {plan.output}, the wheel is called {self.after.name.filename}"
            )
        for old, new in self.renamed:
            if new != renamed_directory(old, self.after.name):
                self.unexplained.append(f"{old}: now called {new}, not by the version")

    def _differs(self, old: str, new: str) -> bool:
        if old not in self.before.members or new not in self.after.members:
            return False
        a, b = self.before.member(old), self.after.member(new)
        return (a.crc, a.size) != (b.crc, b.size) or not self._same_content(old, new)

    def _explain_record(self) -> None:
        """RECORD is right: every member, with its hash."""
        name = f"{self.after.dist_info}/RECORD"
        try:
            entries, malformed = read_record(self.after)
            issues = [*malformed, *check_record(entries, self.after.members, self.after.dist_info)]
            self.unexplained += [f"{name}: {issue.path} {issue.message}" for issue in issues]
            verify_members(
                self.after, [entry for entry in entries if entry.digest and entry.path in self.after.members]
            )
        except WheelError as error:
            self.unexplained += [f"{name}: {text}" for text in error.issues or (error.message,)]

    def _explain_bill(self, plan: Plan) -> None:
        name = f"{self.after.dist_info}/{SBOM_MEMBER}"
        if name not in self.after.members:
            self.unexplained.append(f"{name}: is not there")
            return
        try:
            bill = json.loads(self.after.read(name))
        except (ValueError, RecursionError) as error:
            self.unexplained.append(f"{name}: is not JSON ({error})")
            return
        if bill != plain(bill_of_materials(plan, str(self.after.name.version))):
            self.unexplained.append(f"{name}: is not what this relink writes for the plan")


def _renamed(before: WheelArchive, after: WheelArchive) -> tuple[tuple[str, str], ...]:
    pairs = [(before.dist_info, after.dist_info)]
    if before.data_dir and after.data_dir:
        pairs.append((before.data_dir, after.data_dir))
    return tuple(pairs)


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


# ELF files


def _compare_elf(
    change: MemberChange, old: memoryview, new: memoryview, ranges: _Ranges, path: str, plan: Plan | None
) -> MemberChange:
    """Compare two versions of an ELF file, and hold the new one against the plan."""
    bare = tuple(ByteRange(start, stop, "") for start, stop in ranges.found)
    try:
        images = read_image(old, path), read_image(new, path)
        sections = read_sections(old, path), read_sections(new, path)
    except ElfError as error:
        return replace(change, differing=ranges.differing, ranges=bare, unexplained=(error.message,))
    where = _map(new, images[1], sections[1])
    found = tuple(
        ByteRange(start, stop, _where(where, start, stop, len(new))) for start, stop in ranges.found
    )
    facts = ElfChange(tuple(_dynamic(*images)), tuple(_sections(old, new, *sections)))
    unexplained: list[str] = []
    file = next((file for file in plan.files if file.path == path), None) if plan else None
    if plan is None:
        unexplained.append("changed")
    elif file is None or not file.changed:
        unexplained.append("changed, and the plan leaves it as it is")
    else:
        try:
            unexplained += check_edit(old, new, *images, result_of(images[0], file.edit))
        except ElfError as error:
            unexplained.append(error.message)
        unexplained += _unaccounted(old, new, images, sections, ranges)
    return replace(
        change, differing=ranges.differing, ranges=found, elf=facts, unexplained=tuple(unexplained)
    )


def _dynamic(before: Image, after: Image) -> Iterator[str]:
    """One line for each fact of the dynamic section (and the interpreter) that went or came."""
    facts = {}
    for image in (before, after):
        lines = [f"NEEDED {soname}" for soname in image.needed]
        for word, value in (
            ("SONAME", image.soname),
            ("RPATH", image.rpath),
            ("RUNPATH", image.runpath),
            ("interpreter", image.interpreter),
            ("FLAGS_1", hex(image.flags_1) if image.flags_1 else None),
        ):
            lines += [f"{word} {value}"] if value is not None else []
        lines += [f"FILTER {name}" for name in image.filters]
        facts[id(image)] = lines
    old, new = facts[id(before)], facts[id(after)]
    yield from (f"- {line}" for line in old if line not in new)
    yield from (f"+ {line}" for line in new if line not in old)
    if before.needed != after.needed and sorted(before.needed) == sorted(after.needed):
        yield f"+ NEEDED in another order: {' '.join(after.needed)}"


def _sections(
    old: memoryview, new: memoryview, before: tuple[Section, ...], after: tuple[Section, ...]
) -> Iterator[SectionChange]:
    olds, news = _by_name(before), _by_name(after)
    for name, a in olds.items():
        b = news.get(name)
        if b is None:
            yield SectionChange(name, ("removed",))
            continue
        how = [
            word
            for word, true in (
                ("moved", (a.offset, a.address) != (b.offset, b.address) and a.size > 0),
                ("resized", a.size != b.size),
                ("changed", a.size == b.size and not _equal(old, a, new, b)),
            )
            if true
        ]
        if how:
            yield SectionChange(name, tuple(how))
    for name in news:
        if name not in olds:
            yield SectionChange(name, ("added",))


def _by_name(sections: tuple[Section, ...]) -> Mapping[str, Section]:
    """Sections by name; of those with a name in common each gets a number."""
    named: dict[str, Section] = {}
    for section in sections:
        if not section.type:
            continue  # the empty one at the start
        name, number = section.name, 1
        while name in named:
            number += 1
            name = f"{section.name}#{number}"
        named[name] = section
    return named


def _equal(old: memoryview, a: Section, new: memoryview, b: Section) -> bool:
    return a.file_size == b.file_size and (
        old[a.offset : a.offset + a.file_size] == new[b.offset : b.offset + b.file_size]
    )


def _tables(data: memoryview, image: Image) -> list[tuple[int, int, str]]:
    """Where the three tables of an ELF file lie that are in no section: its header and the two header tables."""
    order = "little" if image.header.little_endian else "big"
    wide = image.header.elf_class == 64

    def number(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], order)  # type: ignore[arg-type]

    programs, sections = (number(32, 8), number(40, 8)) if wide else (number(28, 4), number(32, 4))
    at = 54 if wide else 42  # e_phentsize, e_phnum, e_shentsize, e_shnum
    sizes = [number(at + 2 * index, 2) for index in range(4)]
    return [
        (0, 64 if wide else 52, "the ELF header"),
        (programs, programs + sizes[0] * sizes[1], "program headers"),
        (sections, sections + sizes[2] * sizes[3], "section headers"),
    ]


def _map(data: memoryview, image: Image, sections: tuple[Section, ...]) -> list[tuple[int, int, str]]:
    """What lies where in a file, in order."""
    places = [(item.offset, item.offset + item.file_size, item.name) for item in sections if item.file_size]
    return sorted([*_tables(data, image), *places])


def _where(places: list[tuple[int, int, str]], start: int, stop: int, size: int) -> str:
    names = [name for begin, end, name in places if begin < stop and start < end]
    shown = ", ".join(dict.fromkeys(names[:6])) + (", …" if len(names) > 6 else "")
    return shown or ("past the end of the new file" if start >= size else "between sections")


def _unaccounted(
    old: memoryview,
    new: memoryview,
    images: tuple[Image, Image],
    sections: tuple[tuple[Section, ...], tuple[Section, ...]],
    ranges: _Ranges,
) -> Iterator[str]:
    """Yield the sections, and the bytes in none, that an edit has no business with."""
    olds, news = _by_name(sections[0]), _by_name(sections[1])
    same = []
    for name, section in news.items():
        known = olds.get(name)
        if known is None:
            yield f"section {name} was added"
        elif known.name in _WRITTEN or _equal(old, known, new, section):
            same.append((section.offset, section.offset + section.file_size))
        elif not section.flags & _SHF_ALLOC:  # check_edit has said it of the others
            yield f"section {name} changed"
    yield from (f"section {name} was removed" for name in olds if name not in news)
    # Where tables lay before they moved, the bytes are nobody's any more.
    same += [(item.offset, item.offset + item.file_size) for item in sections[0] if item.name in _WRITTEN]
    same += [(start, stop) for start, stop, _ in (*_tables(old, images[0]), *_tables(new, images[1]))]
    rest = _outside(ranges.found, sorted(same))
    named = [
        (item.offset, item.offset + item.file_size)
        for item in sections[1]
        if item.file_size and item.flags & _SHF_ALLOC
    ]
    for start, stop in _outside(rest, sorted(named)):
        # Space that was opened between the parts of the file is empty.
        filled = new[start : min(stop, len(new))]
        if any(filled) and not (start >= len(old) and _is_left_behind(filled, images[1], len(new))):
            yield f"bytes {start:#x}..{stop:#x} changed, and belong to nothing that the edit writes"
    if len(new) < len(old):
        yield f"the file became shorter by {len(old) - len(new)} bytes"


def _is_left_behind(data: memoryview, image: Image, size: int) -> bool:
    """Whether `data` ends with section headers: patchelf leaves a table behind where it makes room twice."""
    wide = image.header.elf_class == 64
    row = struct.Struct(("<" if image.header.little_endian else ">") + ("IIQQQQIIQQ" if wide else "10I"))
    filled = bytes(data).lstrip(b"\0")
    rows = -(-len(filled) // row.size)
    if rows > 65535 or rows * row.size > len(data):
        return False
    table = bytes(data[len(data) - rows * row.size :])
    return all(
        kind == _SHT_NOBITS or offset + length <= size
        for _, kind, _, _, offset, length, *_ in row.iter_unpack(table)
    )


def _outside(ranges: Iterable[tuple[int, int]], covered: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of `ranges` that lie in none of `covered`; both are in order."""
    rest: list[tuple[int, int]] = []
    for start, stop in ranges:
        at = start
        for begin, end in covered:
            if end <= at:
                continue
            if begin >= stop:
                break
            if begin > at:
                rest.append((at, begin))
            at = max(at, end)
        if at < stop:
            rest.append((at, stop))
    return rest
