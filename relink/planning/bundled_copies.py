"""A wheel's own copies of a vendor's libraries: which leave it where a prefix has them, and what the rest then needs.

Whoever repairs wheels copies libraries under names without a number and writes these into NEEDED; the copy's own DT_SONAME still
says which ABI it is (pytorch's repair_wheel.py). A process must not have two runtimes, so either the runtime leaves the wheel,
and all that the prefix has with it, or nothing does.
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from relink.planning.reading import Wheel
from relink.providers.prefix import Provider, soname_stem
from relink.providers.profiles import Profile
from relink.system.text import join_truncated, pluralize
from relink.vendors.protocol import Vendor

__all__ = ["Copies", "find_copies"]

_ROUNDS = 4  # libdw is needed by ROCm's libraries, and brings libelf


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies in a wheel, and the wheel without those that a prefix has.

    :ivar rest: the wheel as if it had only the other members.
    :ivar removed: the members that leave: copies, and files that only these use.
    :ivar told: which leave, and which the prefix has no library for; or why none can leave.
    """

    rest: Wheel
    removed: tuple[str, ...]
    told: str


def find_copies(
    wheel: Wheel, profile: Profile, vendor: Vendor, providers: Sequence[Provider]
) -> Copies | None:
    """Return the copies of a vendor's libraries that the profile says are in a wheel, or None where there are none."""
    globs = [glob for row in profile.bundled if row.library is None for glob in row.members]
    copies = _matching([member for member, image in wheel.images.items() if image.soname], globs)
    sonames = {member: wheel.images[member].soname or "" for member in copies}
    own = {member for member, soname in sonames.items() if vendor.is_own(soname)}
    if not own:
        return None
    where = providers[0].path if providers else "there"
    provided = {
        member for member, soname in sonames.items() if any(place.find(soname) for place in providers)
    }
    if lacking := {sonames[member] for member in own - provided if vendor.is_runtime(sonames[member])}:
        return Copies(wheel, (), f"{where} has no {min(lacking)}")
    leaving = own & provided
    for _ in range(_ROUNDS):
        needed = {soname for member in leaving for soname in wheel.images[member].needed}
        kept = {
            name for member, image in wheel.images.items() if member not in leaving for name in image.needed
        }
        for member in (
            member for member, soname in sonames.items() if vendor.has(soname) and member not in own
        ):
            names = {posixpath.basename(member), sonames[member]}
            if not kept & names and (member in provided or needed & names):
                leaving.add(member)
    stems = {soname_stem(sonames[member]) for member in leaving}
    globs = [glob for row in profile.bundled if row.library in stems for glob in row.members]
    files = _matching(wheel.archive.members, globs)
    names_of = [
        join_truncated([posixpath.basename(one) for one in part])
        for part in (sorted(leaving), sorted(own - leaving))
    ]
    told = f"left out: {names_of[0]}, copies of what {where} has"
    told += f", and {pluralize(len(files), 'file')} of theirs" if files else ""
    told += f"; kept, as it has no such library: {names_of[1]}" if own - leaving else ""
    rest = replace(
        wheel,
        images={member: image for member, image in wheel.images.items() if member not in leaving},
        tables={member: table for member, table in wheel.tables.items() if member not in leaving},
        codes={member: code for member, code in wheel.codes.items() if member not in leaving},
        opens={member: names for member, names in wheel.opens.items() if member not in leaving},
        left_out={posixpath.basename(member): sonames[member] for member in leaving},
    )
    return Copies(rest, (*sorted(leaving), *files), told)


def _matching(members: Iterable[str], globs: Sequence[str]) -> list[str]:
    return [member for member in members if any(fnmatch.fnmatchcase(member, glob) for glob in globs)]
