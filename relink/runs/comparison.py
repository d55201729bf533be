"""Compare two wheels member by member, and one of them with what relink makes of the other today.

Relinking is reproducible, so whatever differs from the wheel that is made again was not done by relink, or not with the user's
options or plan. Of the new wheel nothing is believed; what is taken of it weakens no proof, and is told.
"""

from __future__ import annotations

import calendar
import dataclasses
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from relink import __version__
from relink.make.added_members import SBOM_MEMBER
from relink.planning.model import PLAN_MEMBER
from relink.planning.options import Options
from relink.planning.wheel_plan import describe_wheel
from relink.report.diff_text import DiffVerdict, MemberChange, WheelDiff, WheelSide
from relink.report.model import Report
from relink.system.atomic import working_directory
from relink.system.bounded_json import JSON_LIMIT, parse_json
from relink.system.errors import WheelError
from relink.system.safe_open import hash_pieces
from relink.wheel import zipformat as z
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import WheelLimits
from relink.wheel.source import find_member
from relink.wheel.zipformat import EXTRA_ZIP64, extra_fields

# Differences of one plan that are named.
_MOST: Final = 20
# Characters of a value of a plan that are shown.
_LONGEST: Final = 120


class Reference(msgspec.Struct, frozen=True):
    """The wheel that relink made again.

    :ivar wheel: None where relink writes nothing; `refusals` then says why.
    :ivar source: what the wheel was made by, for the verdict.
    :ivar notes: what was taken from the new wheel, and what the new wheel says of the release of relink.
    """

    wheel: Path | None
    source: str
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()


@contextmanager
def make_again(
    old: Path, new: Path, options: Options, make: Callable[[Options], Report], source: str
) -> Iterator[Reference]:
    """Relink the old wheel into a directory that is gone at the end.

    :param make: relinks the old wheel with the options that it gets.
    :param source: what is relinked by, for the verdict.
    :raises RelinkError: the new wheel cannot be read, or the old one cannot be relinked at all.
    """
    limits = options.limits
    with WheelArchive(old, limits=limits) as before, WheelArchive(new, limits=limits) as after:
        moments = [
            find_member(archive, f"{archive.dist_info}/RECORD").date_time for archive in (before, after)
        ]
        sbom, release = _read_json(after, SBOM_MEMBER), None
        with suppress(LookupError, TypeError):
            release = sbom["metadata"]["tools"]["components"][0]["version"]
    notes, epoch = [], None
    if moments[0] != moments[1]:
        # A ZIP file can hold a date that does not exist, such as one in month 0. relink writes none, so none is taken.
        with suppress(ValueError):
            epoch = calendar.timegm((*moments[1], 0, 0, 0))
            text = "{:04}-{:02}-{:02} {:02}:{:02}:{:02}".format(*moments[1])
            notes.append(f"taken from NEW: {text}, the time of what relink writes (SOURCE_DATE_EPOCH)")
    if isinstance(release, str) and release != __version__:
        notes.append(
            f"NEW says that relink {release} wrote it, and this is {__version__}: that release judges plan and SBOM"
        )
    with working_directory(Path(tempfile.gettempdir())) as directory:
        options = dataclasses.replace(
            options, output_directory=directory, epoch=epoch, dry_run=False, gc_root=None
        )
        report = make(options)
        errors = [
            f"{found.code} {found.subject}: {found.message}"
            for found in report.findings
            if found.level == "error"
        ]
        refusals = (
            [] if report.path else [f"relink writes nothing: {error}" for error in errors or ("no output",)]
        )
        wheel = Path(report.path) if report.path else None
        yield Reference(wheel, source, tuple(notes), tuple(refusals))


def _read_json(archive: WheelArchive, member: str) -> Any:
    """Return a JSON member of a wheel's .dist-info as data; None where it is not there, or is no JSON."""
    with suppress(ValueError, WheelError):
        return parse_json(archive.read(f"{archive.dist_info}/{member}", JSON_LIMIT).decode("utf-8"))
    return None


def compare_wheels(
    old: Path, new: Path, limits: WheelLimits | None = None, reference: Reference | None = None
) -> WheelDiff:
    """Compare two wheels.

    :param reference: what relink makes of the old one. Without it nothing is judged: what the new wheel says of itself explains
        nothing.
    :raises WheelError: one of them cannot be read, or is not what its own directory says.
    """
    with WheelArchive(old, limits=limits) as before, WheelArchive(new, limits=limits) as after:
        found = _compare_members(before, after)
        same = before.sha256() == after.sha256()
        differs = found.renamed or found.added or found.removed or found.changed
        verdict: DiffVerdict = "identical" if same else "not judged" if differs else "same content"
        unexplained = [] if reference is None else list(_find_unexplained(reference, after, limits))
        if reference is not None:
            verdict = "unexplained" if unexplained else "identical" if same else "only what the plan says"
        old_side, new_side = (
            WheelSide(**asdict(describe_wheel(archive, str(archive.path))), size=archive.size)
            for archive in (before, after)
        )
        return WheelDiff(
            old_side,
            new_side,
            found.renamed,
            found.added,
            found.removed,
            found.changed,
            len(found.names) - len(found.changed),
            reference is not None,
            verdict,
            tuple(unexplained),
            reference.source if reference else None,
            reference.notes if reference else (),
        )


class _MemberDifferences(msgspec.Struct, frozen=True):
    """How the members of a wheel differ from those of another.

    :ivar names: the members that both have: new names to old ones.
    :ivar renamed: directories that are called by the version, before and after.
    :ivar contents: the members of `changed` with another content; the others have another mode alone.
    """

    names: dict[str, str]
    renamed: tuple[tuple[str, str], ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[MemberChange, ...]
    contents: frozenset[str]


def _compare_members(before: WheelArchive, after: WheelArchive) -> _MemberDifferences:
    pairs = ((before.dist_info, after.dist_info), (before.data_dir, after.data_dir))
    new_tops = {old: new for old, new in pairs if old and new}
    parts = ((name, *name.partition("/")) for name in before.members)
    old_names = {f"{new_tops.get(top, top)}{slash}{rest}": name for name, top, slash, rest in parts}
    names = {name: old_names[name] for name in after.members if name in old_names}
    changed, contents = [], set()
    for name, old in names.items():
        a, b = find_member(before, old), find_member(after, name)
        # The upper 16 bits are type and permissions. Unpackers take them from here whatever system the entry names.
        modes = a.external_attributes >> 16, b.external_attributes >> 16
        packed = [(one.crc, one.size, one.method, one.compressed_size) for one in (a, b)]
        # Equal compressed bytes are not inflated.
        same = packed[0] == packed[1] and all(
            x == y for x, y in zip(before.raw(old), after.raw(name), strict=True)
        )
        if not same and hash_pieces(before.chunks(old)) != hash_pieces(after.chunks(name)):
            contents.add(name)
        if name in contents or modes[0] != modes[1]:
            changed.append(MemberChange(name, a.size, b.size, *modes))
    return _MemberDifferences(
        names,
        tuple((old, new) for old, new in new_tops.items() if old != new),
        tuple(name for name in after.members if name not in names),
        tuple(old for name, old in old_names.items() if name not in names),
        tuple(changed),
        frozenset(contents),
    )


def _find_unexplained(reference: Reference, after: WheelArchive, limits: WheelLimits | None) -> Iterator[str]:
    """Yield a text for each thing that is not as relink writes it; the text begins with the member where it is about one."""
    yield from reference.refusals
    if reference.wheel is None:
        return
    with WheelArchive(reference.wheel, limits=limits) as made:
        if made.sha256() == after.sha256():
            return
        if made.path.name != after.path.name:
            yield f"the wheel is called {after.path.name}, relink calls it {made.path.name}"
        found = _compare_members(made, after)
        yield from (f"{new}: relink calls it {old}" for old, new in found.renamed)
        yield from (f"{name}: added" for name in found.added)
        yield from (f"{name}: is not there" for name in found.removed)
        for change in found.changed:
            if change.mode_before != change.mode_after:
                yield f"{change.path}: the mode is {change.mode_after:o}, relink writes {change.mode_before:o}"
            if change.path in found.contents:
                yield f"{change.path}: the content is not what relink writes"
            if change.path == f"{after.dist_info}/{PLAN_MEMBER}" and change.path in found.contents:
                plans = (_read_json(archive, PLAN_MEMBER) for archive in (made, after))
                lines = list(islice(_compare_values("", *plans), _MOST + 1))
                yield from (f"{change.path}: {line}" for line in lines[:_MOST])
                if lines[_MOST:]:
                    yield f"{change.path}: more of the plan differs"
        # What is compared here changes no installed file, but data can be hidden in it. That no byte lies outside of members,
        # and no name is there twice, WheelArchive has seen. Source: PKWARE APPNOTE.TXT 4.3 and 4.4.
        (left, left_comment), (right, right_comment) = _read_headers(made), _read_headers(after)
        for name, old in found.names.items():
            if left[old] != right[name]:
                what = "time, method, flags, extra fields, comment or attributes in the archive"
                yield f"{name}: {what} are not as relink writes them"
        kept = {*found.names.values()}
        if [found.names[name] for name in right if name in found.names] != [
            name for name in left if name in kept
        ]:
            yield "the members are in another order than relink writes"
        if left_comment != right_comment:
            yield "the comment of the archive is not as relink writes it"


def _compare_values(place: str, made: Any, found: Any) -> Iterator[str]:
    """Yield a line for each value that differs between two plans: where it is, what relink writes, and what is there."""
    if isinstance(made, dict) and isinstance(found, dict):
        for key in dict.fromkeys((*made, *found)):
            inner = f"{place}.{key}" if place else key
            if key not in found:
                yield f"{inner}: is not there"
            elif key not in made:
                yield f"{inner}: added"
            else:
                yield from _compare_values(inner, made[key], found[key])
    elif isinstance(made, list) and isinstance(found, list):
        if len(made) != len(found):
            yield f"{place}: {len(found)} entries, relink writes {len(made)}"
        for number, (left, right) in enumerate(zip(made, found, strict=False)):
            # The files of a plan are known by their paths.
            name = left.get("path", number) if isinstance(left, dict) else number
            yield from _compare_values(f"{place}[{name}]", left, right)
    elif made != found:
        shown = [json.dumps(value)[:_LONGEST] for value in (found, made)]
        yield f"{place}: {shown[0]}, relink writes {shown[1]}"


def _read_headers(archive: WheelArchive) -> tuple[dict[str, tuple[object, ...]], bytes]:
    """Return what the headers say of each member, in the directory's order, and the comment of the whole file.

    Of a member that is what is beside name, mode, sizes and CRC: in the directory, and before the member. The archive has been
    checked when it was opened; Python's own reader sees the rest.
    """
    headers: dict[str, tuple[object, ...]] = {}
    with archive.file() as file, zipfile.ZipFile(file) as listing:
        for item in listing.infolist():
            member = find_member(archive, item.filename)
            file.seek(member.header_offset)
            local = file.read(member.data_offset - member.header_offset)
            _, version, _, _, moment, date, *_, name_size, _ = z.LOCAL.unpack_from(local)
            # Those of ZIP64 are there where sizes are large.
            fields = [
                tuple((kind, data) for kind, data in extra_fields(extra) if kind != EXTRA_ZIP64)
                for extra in (item.extra, local[z.LOCAL.size + name_size :])
            ]
            headers[item.filename] = (
                (member.date_time, z.from_dos_time(date, moment)),
                (item.create_system, item.create_version, item.extract_version, version),
                (item.compress_type, item.flag_bits, item.comment),
                (item.external_attr & 0xFFFF, item.internal_attr),
                *fields,
            )
        return headers, listing.comment
