"""What a wheel asks of its site-packages, what of that changes, and whether the result works wherever these packages are.

A wheel made for a vendor's packages requires them. Where a prefix takes their place, an installer would fetch some gigabytes that
nothing uses; where other releases of them are installed, it would replace these. A requirement that names a version by its local
label (``torch == 2.13.0+rocm10.0.0``) follows the label. Gives RLK530, RLK535, RLK539 and RLK541. Source of the rules: "Core
metadata", "Dependency specifiers" and "Version specifiers" of the PyPA specifications.

A wheel may have its own copies of a vendor's libraries instead: which leave it where a prefix has them, and what the rest then
needs. Whoever repairs wheels copies libraries under names without a number and writes these into NEEDED; the copy's own DT_SONAME
still says which ABI it is (pytorch's repair_wheel.py). A process must not have two runtimes, so either the runtime leaves the
wheel, and all that the prefix has with it, or nothing does.
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from relink.elf.image import machine_name
from relink.planning.model.files import ChangedRequirement, FilePlan, Reliance
from relink.planning.reading import Wheel
from relink.providers.distribution import is_platform_library, manylinux_tag, satisfies_tag
from relink.providers.prefix import TREE, Provider, soname_stem
from relink.providers.profiles import Profile
from relink.providers.site_packages import SITE_PACKAGES, major_minor
from relink.system.findings.model import Finding, finding
from relink.system.text import join_truncated, pluralize
from relink.vendors.protocol import Vendor
from relink.wheel.metadata import read_metadata
from relink.wheel.naming import WheelName
from relink.wheel.source import MemberSource


def of_vendor(
    source: MemberSource, vendor: Vendor, providers: Iterable[Provider]
) -> tuple[ChangedRequirement, ...]:
    """Return the requirements of the vendor's packages that a prefix stands in for, or that the installed ones do not meet."""
    site = next((provider for provider in providers if provider.kind == SITE_PACKAGES), None)
    installed = site.packages[0].version if site is not None and site.packages else ""
    changes = []
    for text, requirement in _requirements(source):
        if not vendor.packages.is_distribution(requirement.name):
            continue
        if site is None:
            changes.append(ChangedRequirement(text))
        elif _is_version(installed) and not requirement.specifier.contains(installed, prereleases=True):
            requirement.specifier = SpecifierSet(f"=={major_minor(installed)}.*")
            changes.append(ChangedRequirement(text, str(requirement)))
    return tuple(changes)


def following_label(
    source: MemberSource, output: WheelName, vendor: Vendor
) -> tuple[ChangedRequirement, ...]:
    """Return the other requirements of exactly one version with the wheel's own local label, where the output has another."""
    old, new = source.name.version.local, output.version.local
    changes = []
    for text, requirement in _requirements(source) if old and new and old != new else ():
        if vendor.packages.is_distribution(requirement.name):
            continue
        pins = [specifier.version for specifier in requirement.specifier if specifier.operator == "=="]
        if len(requirement.specifier) == len(pins) == 1 and pins[0].endswith(f"+{old}"):
            requirement.specifier = SpecifierSet(f"=={pins[0].removesuffix(str(old))}{new}")
            changes.append(ChangedRequirement(text, str(requirement)))
    return tuple(changes)


def left_out(profile: Profile, members: Iterable[str], providers: Iterable[Provider]) -> dict[str, str]:
    """Return the members that are for the vendor's packages alone, where a prefix takes their place: name → why."""
    if any(provider.kind == SITE_PACKAGES for provider in providers):
        return {}
    globs = [(glob, row.why) for row in profile.for_packages for glob in row.members]
    return {member: why for member in members for glob, why in globs if fnmatch.fnmatchcase(member, glob)}


def requirement_findings(
    changes: Sequence[ChangedRequirement], removed: Mapping[str, str], subject: str, profile: Profile
) -> Iterator[Finding]:
    """Yield RLK539 and RLK541: what METADATA requires no longer or in another version, and the members that are left out."""
    gone = [change.before for change in changes if change.after is None]
    other = [f"{change.after} in place of {change.before}" for change in changes if change.after is not None]
    if parts := [*([f"no longer {join_truncated(gone)}"] if gone else []), *other]:
        yield finding("RLK539", subject, f"METADATA requires {'; '.join(parts)}")
    for member, why in removed.items():
        yield finding("RLK541", member, f"left out: {why}", profile=profile.name)


def _requirements(source: MemberSource) -> Iterator[tuple[str, Requirement]]:
    for text in read_metadata(source.read(f"{source.dist_info}/METADATA")).requires_dist:
        try:
            yield text, Requirement(text)
        except (InvalidRequirement, RecursionError):  # a marker in thousands of brackets
            continue


def _is_version(text: str) -> bool:
    try:
        return bool(Version(text))
    except InvalidVersion:
        return False


@dataclass(frozen=True, slots=True)
class Relocation:
    """What a result relies on outside of the wheel.

    :ivar relies_on: the packages beside it: those of a provider, found by ``$ORIGIN``, and others that have libraries of it.
    :ivar absolute: what names a directory of this machine: a library, search path entry or program, and the path.
    """

    relies_on: tuple[Reliance, ...]
    absolute: Mapping[str, str]

    @property
    def relocatable(self) -> bool:
        """Whether it relies on packages beside it, and on no directory of this machine."""
        return any(not package.files for package in self.relies_on) and not self.absolute


NOTHING_BESIDE = Relocation((), {})
"""What a wheel relies on that stays as it is."""


def relocation(
    files: Iterable[FilePlan],
    providers: Sequence[Provider],
    linked: Mapping[str, str],
    interpreter: str,
    siblings: Iterable[Reliance] = (),
) -> Relocation:
    """Say what the files of a plan rely on.

    :param linked: the path in site-packages → where it really is, of the packages that are installed beside the wheel.
    :param interpreter: the loader that every Linux of this machine has at the same path.
    :param siblings: the packages that are no providers and have libraries of it.
    """
    used: dict[tuple[str, str], dict[str, None]] = {}
    absolute: dict[str, str] = {}
    for file in files:
        if not file.served:
            continue
        own = [
            (entry.soname_after or entry.soname, entry.resolved or "")
            for entry in file.needed
            if entry.origin == "provider"
        ]
        for soname, path in [*own, *file.closure]:
            real = posixpath.normpath(path)
            provider = next((candidate for candidate in providers if candidate.holds(real)), None)
            if provider is None or provider.kind == TREE:
                continue
            beside = provider.kind == SITE_PACKAGES and _entry(real, linked)
            package = next(
                (installed for installed in provider.packages if installed.directory == beside), None
            )
            if package is None:
                absolute.setdefault(soname, real)
                continue
            directories = used.setdefault((package.name, package.version), {})
            if (soname, path) in own:
                directories[posixpath.dirname(real).removeprefix(f"{provider.path}/")] = None
        if file.changed:
            for entry in (file.edit.search_path or "").split(":"):
                if entry.startswith("/") and not any(provider.holds(f"{entry}/x") for provider in providers):
                    absolute.setdefault(f"search path of {file.path}", entry)
            if file.edit.interpreter not in (None, interpreter):
                absolute.setdefault(f"loader of {file.path}", str(file.edit.interpreter))
    packages = tuple(Reliance(*package, tuple(directories)) for package, directories in sorted(used.items()))
    return Relocation((*packages, *siblings), absolute)


def _entry(path: str, linked: Mapping[str, str]) -> str | None:
    return next((entry for entry, real in linked.items() if path.startswith(f"{real}/")), None)


def platform_of(claimed: str, versions: Iterable[str], files: Iterable[FilePlan], machine: int) -> str:
    """Return the platform tag of a result that names no directory of this machine.

    It is the vendor's where every Linux of that age has what the files take from the system, else the oldest manylinux tag that
    is true, else ``linux_<machine>``. The libraries of packages beside it count as those that ``auditwheel --exclude`` leaves
    out.

    :param claimed: the vendor's platform tags, with points between them.
    :param versions: the symbol versions that the files require.
    """
    taken = (entry for file in files if file.served for entry in file.needed if entry.origin == "platform")
    if not all(is_platform_library(entry.soname_after or entry.soname, machine) for entry in taken):
        return f"linux_{machine_name(machine)}"
    oldest = manylinux_tag(versions, machine)
    return claimed if all(satisfies_tag(tag, oldest, machine) for tag in claimed.split(".")) else oldest


def relocation_findings(moves: Relocation, subject: str) -> Iterator[Finding]:
    """Yield what a result relies on, and what of it keeps the result on this machine."""
    if moves.relies_on:
        parts = [
            f"{package.name} {package.version}" + (f" ({', '.join(files)})" if files else "")
            for package, files in (
                (package, package.directories or package.files) for package in moves.relies_on
            )
        ]
        brought = any(not package.files for package in moves.relies_on)
        remedy = (
            None if brought else "Nothing; `relink verify --in VENV` tells whether an environment has it."
        )
        yield finding("RLK530", subject, f"relies on {', '.join(parts)}, installed beside it", remedy)
    if moves.absolute and any(not package.files for package in moves.relies_on):
        parts = [f"{name} ({path})" for name, path in moves.absolute.items()]
        yield finding("RLK535", subject, f"works on this machine only, because of {join_truncated(parts)}")


# Rounds in which copies follow those that leave: ROCm's libraries need libdw, and libdw brings libelf.
_ROUNDS = 4


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
    own = {member for member, soname in sonames.items() if vendor.libraries.is_own(soname)}
    if not own:
        return None
    where = providers[0].path if providers else "there"
    provided = {
        member for member, soname in sonames.items() if any(place.find(soname) for place in providers)
    }
    if lacking := {
        sonames[member] for member in own - provided if vendor.libraries.is_runtime(sonames[member])
    }:
        return Copies(wheel, (), f"{where} has no {min(lacking)}")
    leaving = own & provided
    for _ in range(_ROUNDS):
        needed = {soname for member in leaving for soname in wheel.images[member].needed}
        kept = {
            name for member, image in wheel.images.items() if member not in leaving for name in image.needed
        }
        for member in (
            member for member, soname in sonames.items() if vendor.libraries.has(soname) and member not in own
        ):
            names = {posixpath.basename(member), sonames[member]}
            # Others of the product's libraries leave as well, once no member that stays needs them.
            if not kept & names and (member in provided or needed & names):
                leaving.add(member)
    stems = {soname_stem(sonames[member]) for member in leaving}
    globs = [glob for row in profile.bundled if row.library in stems for glob in row.members]
    files = _matching(wheel.source.members, globs)
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
