"""A wheel's own copies of a vendor's libraries: which leave it where a prefix has them, and what the rest then needs.

Whoever repairs wheels copies libraries under names without a number and writes these into NEEDED; the copy's own DT_SONAME still
says which ABI it is (pytorch's repair_wheel.py). A process must not have two runtimes, so either the runtime leaves the wheel,
and all that the prefix has with it, or nothing does.
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from relink.planning.reading import Wheel
from relink.providers.prefix import Provider, soname_stem
from relink.providers.profiles import Profile
from relink.system.findings.model import Finding, finding
from relink.system.text import join_truncated, pluralize
from relink.vendors.protocol import Vendor

__all__ = ["Copies", "find_copies", "removed_finding", "staying_finding"]


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies in a wheel, and the wheel without those that a prefix has.

    :ivar rest: the wheel as if it had only the other members.
    :ivar libraries: the members that leave; `files`: those that only these use.
    :ivar staying: the copies that the prefix has no library for.
    :ivar lacking: the runtime that keeps all copies in the wheel, since the prefix has it not; None where they can leave.
    """

    rest: Wheel
    libraries: tuple[str, ...]
    files: tuple[str, ...]
    staying: tuple[str, ...]
    lacking: str | None = None

    @property
    def removed(self) -> tuple[str, ...]:
        """All members that leave the wheel."""
        return (*self.libraries, *self.files)


def find_copies(
    wheel: Wheel, profile: Profile, vendor: Vendor, providers: Sequence[Provider]
) -> Copies | None:
    """Return the copies of a vendor's libraries that the profile says are in a wheel, or None where there are none."""
    globs = [glob for row in profile.bundled if row.library is None for glob in row.members]
    sonames = {
        member: image.soname
        for member, image in wheel.images.items()
        if image.soname and any(fnmatch.fnmatchcase(member, glob) for glob in globs)
    }
    own = {member: soname for member, soname in sonames.items() if vendor.is_own(soname)}
    if not own:
        return None
    provided = {
        member for member, soname in sonames.items() if any(provider.find(soname) for provider in providers)
    }
    leaving = provided & own.keys()
    runtimes = (
        soname for member, soname in own.items() if member not in leaving and vendor.is_runtime(soname)
    )
    if lacking := next(runtimes, None):
        return Copies(wheel, (), (), tuple(own), lacking)
    others = {
        member: soname for member, soname in sonames.items() if vendor.has(soname) and member not in own
    }
    leaving = _with_those_they_need(wheel, leaving, others, provided)
    stems = {soname_stem(sonames[member]) for member in leaving}
    rows = [row for row in profile.bundled if row.library in stems]
    files = tuple(
        member
        for member in wheel.archive.members
        if any(fnmatch.fnmatchcase(member, glob) for row in rows for glob in row.members)
    )
    rest = replace(
        wheel,
        images=_without(wheel.images, leaving),
        tables=_without(wheel.tables, leaving),
        codes=_without(wheel.codes, leaving),
        opens=_without(wheel.opens, leaving),
        left_out={posixpath.basename(member): sonames[member] for member in leaving},
    )
    return Copies(
        rest, tuple(member for member in sonames if member in leaving), files, tuple(own.keys() - leaving)
    )


_T = TypeVar("_T")


def _without(facts: Mapping[str, _T], leaving: Collection[str]) -> dict[str, _T]:
    return {member: fact for member, fact in facts.items() if member not in leaving}


def _with_those_they_need(
    wheel: Wheel, leaving: Collection[str], others: Mapping[str, str], provided: Collection[str]
) -> set[str]:
    """Return the members that leave, with those of `others` that only these need, or nothing needs and a prefix has.

    :param others: copies of other libraries that the vendor's need: member → soname.
    :param provided: those that a prefix has.
    """
    gone = {*leaving}
    while True:
        needed = {soname for member in gone for soname in wheel.images[member].needed}
        kept = {
            soname for member, image in wheel.images.items() if member not in gone for soname in image.needed
        }
        more = {
            member
            for member, soname in others.items()
            if not kept & {posixpath.basename(member), soname}
            and (member in provided or needed & {posixpath.basename(member), soname})
        } - gone
        if not more:
            return gone
        gone |= more


def removed_finding(copies: Copies, subject: str, providers: Sequence[Provider]) -> Finding:
    """Return RLK541 about the copies that leave the wheel."""
    names = [posixpath.basename(member) for member in copies.libraries]
    text = f"left out: {join_truncated(names)}, copies of what {providers[0].path} has"
    if copies.files:
        text += f", and {pluralize(len(copies.files), 'file')} of theirs"
    if copies.staying:
        staying = join_truncated([posixpath.basename(member) for member in copies.staying])
        text += f"; kept, as it has no such library: {staying}"
    return finding("RLK541", subject, text)


def staying_finding(
    copies: Copies, subject: str, providers: Sequence[Provider], errors: Sequence[Finding]
) -> Finding:
    """Return RLK546: why the wheel keeps its copies.

    :param errors: of the plan without them.
    """
    path = providers[0].path if providers else "the prefix"
    reason = f"{path} has no {copies.lacking}"
    if errors:
        first = errors[0]
        more = f" (and {len(errors) - 1} more)" if errors[1:] else ""
        reason = f"with those of {path} it would not do: {first.code} {first.subject}: {first.message}{more}"
    return finding("RLK546", subject, f"the wheel's own copies of the libraries stay: {reason}")
