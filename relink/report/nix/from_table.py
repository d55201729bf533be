"""From a wheel alone to a package for Nix: each NEEDED goes to the attribute that the table of components has for it."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace

from relink.elf.image import Image
from relink.loader.target import GLIBC_SONAMES
from relink.planning.resolve.search_path import added_entries, classify
from relink.planning.resolve.stubs import StubPlans, plan_stubs_alone
from relink.planning.resolve.unserved_edges import matches_library
from relink.planning.siblings import sibling_of
from relink.report.nix.attributes import attribute_of_soname
from relink.report.nix.model import File, Package, PathEntry, Replaced, RunPath
from relink.report.nix.subject import Attributes, Subject, hip_major, package_of, place, sibling_entry
from relink.system.findings.model import finding
from relink.vendors.protocol import NO_VENDOR
from relink.vendors.registry import component_of, same_abi

__all__ = ["package_from_table"]


def package_from_table(subject: Subject, stub: Sequence[str] = ()) -> Package:
    """Make a package without any library at hand.

    Whether the package set has a library is not known here. So a library that a stub is asked for keeps its attribute: where
    the set has the library, it comes before the stub (nix/resolve.nix).

    :param stub: as :attr:`relink.planning.options.Options.stub`.
    :raises UsageError: the wheel's name asks for an address.
    """
    variants = [member for member in subject.context.images if subject.context.profile.is_variant(member)]
    plain = [image for member, image in subject.context.images.items() if member not in variants]
    major = subject.major or hip_major(plain) or hip_major(subject.context.images.values())
    attributes = Attributes()
    known = (
        f"made from the table for ROCm {major}" if major else "made from the table; no ROCm release is known"
    )
    text = f"{known}; that the libraries export what it imports, and find each other, was not checked"
    attributes.findings.append(finding("RLK710", subject.archive.path.name, text))
    members = {image.soname or posixpath.basename(name) for name, image in subject.context.images.items()}
    served = {
        member: image
        for member, image in subject.context.images.items()
        if member not in variants
        or all(soname in members | GLIBC_SONAMES or _exact(soname, major) for soname in image.needed)
    }
    missing = {
        member: [name for name in image.needed if _may_be_stubbed(subject, name, members, major)]
        for member, image in served.items()
    }
    distribution = subject.archive.path.name.partition("-")[0]
    stubs = (
        plan_stubs_alone(subject.context, subject.tables, stub, distribution, missing)
        if stub
        else StubPlans()
    )
    attributes.findings += stubs.findings
    added = {one.soname: one.path for one in stubs.stubs}
    found = (
        _file(subject, member, image, members, major, attributes, added) for member, image in served.items()
    )
    files = [file for file in found if file is not None]
    return package_of(subject, files, served, attributes, major, proved=False, stubs=stubs.stubs)


def _may_be_stubbed(subject: Subject, soname: str, members: set[str], major: int | None) -> bool:
    """Whether a library is to come from elsewhere, by this very soname."""
    if (
        soname in members
        or soname in GLIBC_SONAMES
        or sibling_of(subject.context.siblings, soname) is not None
    ):
        return False
    found = component_of(soname, major)
    return found is None or found[1] == soname or same_abi(soname, found[1]) is None


def _exact(soname: str, major: int | None) -> bool:
    found = component_of(soname, major)
    return found is not None and (found[1] == soname or same_abi(soname, found[1]) is not None)


def _file(
    subject: Subject,
    member: str,
    image: Image,
    members: set[str],
    major: int | None,
    attributes: Attributes,
    added: Mapping[str, str],
) -> File | None:
    """What is done to one member; `added` are the stubs, by soname."""
    entries: dict[PathEntry, None] = dict.fromkeys(
        PathEntry(text=text) for text in _kept(subject, member, image)
    )
    replaced = []
    for soname in image.needed:
        allowed = any(matches_library(pattern, soname) for pattern in subject.context.allow_missing)
        if soname in members or soname in GLIBC_SONAMES or allowed:
            continue
        if (entry := sibling_entry(subject, attributes, soname)) is not None:
            entries[entry] = None
            continue
        found = component_of(soname, major)
        attribute = attribute_of_soname(soname, major)
        name = soname
        if found is not None and found[1] != soname:
            why = same_abi(soname, found[1])
            if why:
                replaced.append(Replaced(soname, name := found[1]))
                attributes.findings.append(finding("RLK714", member, f"NEEDED {soname} → {found[1]}: {why}"))
            else:
                text = f"{member} needs {soname}, {attribute} of ROCm {major} has {found[1]}"
                attributes.findings.append(finding("RLK715", soname, text))
        entries[PathEntry(attribute=attributes.use(attribute, [name]))] = None
    for text in added_entries(subject.context.layout, added, member, image.needed):
        entries[PathEntry(text=text)] = None
    before = image.search_path or ""
    literal = ":".join(entry.text or "" for entry in entries)
    changed = any(entry.attribute for entry in entries) or literal != before
    program = image.is_executable and image.interpreter is not None
    if not (changed or replaced or program):
        return None
    return File(
        *place(subject.context.layout, member),
        search_path=RunPath("runpath", tuple(entries)) if changed else None,
        replace=tuple(replaced),
        interpreter=program,
    )


def _kept(subject: Subject, member: str, image: Image) -> list[str]:
    """The entries of a search path that stay: those into the wheel, and those to other packages beside it."""
    # The vendor's packages beside the wheel are no providers here, so an entry that leads to them is one like any other.
    context = replace(subject.context, vendor=NO_VENDOR)
    entries = classify(context, image, context.layout.path_of(member), serving=())
    return [entry.text for entry in entries if entry.kept]
