"""What a wheel asks of its site-packages, and what of that changes: requirements in METADATA, and members that use packages.

A wheel made for a vendor's packages requires them. Where a prefix takes their place, an installer would fetch some gigabytes that
nothing uses; where other releases of them are installed, it would replace these. A requirement that names a version by its local
label (``torch == 2.13.0+rocm10.0.0``) follows the label. Source of the rules: "Core metadata", "Dependency specifiers" and
"Version specifiers" of the PyPA specifications.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from relink.planning.model.reliance import ChangedRequirement
from relink.providers.prefix import Provider
from relink.providers.profiles import Profile
from relink.providers.site_packages import SITE_PACKAGES, series
from relink.system.findings.model import Finding, finding
from relink.system.text import join_truncated
from relink.vendors.protocol import Vendor
from relink.wheel.archive import WheelArchive
from relink.wheel.metadata import read_metadata
from relink.wheel.naming import WheelName

__all__ = ["following_label", "left_out", "of_vendor", "requirement_findings"]


def of_vendor(
    archive: WheelArchive, vendor: Vendor, providers: Iterable[Provider]
) -> tuple[ChangedRequirement, ...]:
    """Return the requirements of the vendor's packages that a prefix stands in for, or that the installed ones do not meet."""
    site = next((provider for provider in providers if provider.kind == SITE_PACKAGES), None)
    installed = site.packages[0].version if site is not None and site.packages else ""
    changes = []
    for text, requirement in _requirements(archive):
        if not vendor.is_distribution(requirement.name):
            continue
        if site is None:
            changes.append(ChangedRequirement(text))
        elif _is_version(installed) and not requirement.specifier.contains(installed, prereleases=True):
            requirement.specifier = SpecifierSet(f"=={series(installed)}.*")
            changes.append(ChangedRequirement(text, str(requirement)))
    return tuple(changes)


def following_label(
    archive: WheelArchive, output: WheelName, vendor: Vendor
) -> tuple[ChangedRequirement, ...]:
    """Return the other requirements of exactly one version with the wheel's own local label, where the output has another."""
    old, new = archive.name.version.local, output.version.local
    changes = []
    for text, requirement in _requirements(archive) if old and new and old != new else ():
        if vendor.is_distribution(requirement.name):
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
    parts = [f"no longer {join_truncated(gone)}"] if gone else []
    parts += [f"{change.after} in place of {change.before}" for change in changes if change.after is not None]
    if parts:
        yield finding("RLK539", subject, f"METADATA requires {'; '.join(parts)}")
    for member, why in removed.items():
        yield finding("RLK541", member, f"left out: {why}", profile=profile.name)


def _requirements(archive: WheelArchive) -> Iterator[tuple[str, Requirement]]:
    for text in read_metadata(archive.read(f"{archive.dist_info}/METADATA")).requires_dist:
        try:
            yield text, Requirement(text)
        except (InvalidRequirement, RecursionError):  # a marker in thousands of brackets
            continue


def _is_version(text: str) -> bool:
    try:
        return bool(Version(text))
    except InvalidVersion:
        return False
