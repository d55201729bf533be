"""What a package for Nix is made of: the wheel's name and METADATA, and for each NEEDED the attribute of nixpkgs that has it."""

from __future__ import annotations

import base64
import os
import posixpath
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from packaging.metadata import parse_email
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from relink.elf.image import Image
from relink.loader.target import GLIBC_SONAMES
from relink.planning.options import Options
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.strategy import find_assumed_kind
from relink.planning.siblings import find_sibling
from relink.providers.profiles import profile_for
from relink.system.errors import UsageError
from relink.system.findings.model import Finding, finding
from relink.system.shipped_files import shipped_directory
from relink.system.text import group_pairs
from relink.vendors.protocol import NO_VENDOR, Vendor
from relink.vendors.registry import find_component, is_distribution, list_components
from relink.wheel.about import read_about
from relink.wheel.archive import WheelArchive
from relink.wheel.naming import WheelName
from relink.wheel.pythons import find_minors, select_minors

OLDEST, NEWEST = 10, 15
"""Minor versions of Python 3 that nixpkgs has; the newest stands for newer ones, too."""
_NAME_LIMIT = 200  # characters; a store path's name may have 211
_STORE_NAME = re.compile(r"[0-9A-Za-z+\-_?=][0-9A-Za-z+\-._?=]*\.whl")
_PACKAGE = re.compile(r"([A-Za-z]\w*)/__init__\.py")
# Options that autoRelinkHook has an attribute for: relinkAllowMissing is allow_missing.
_SETTINGS = ("allow_missing", "assume_symbols", "forward", "gpus", "preload", "stub", "substitute")


class Source(msgspec.Struct, frozen=True):
    """The vendor's wheel in nixpkgs' words.

    :ivar fetcher: ``fetchPypi``, ``fetchurl``, or None for a file, whose path is the only argument.
    :ivar arguments: what the fetcher takes, the version left out.
    """

    fetcher: str | None
    arguments: Mapping[str, str]


class Dependency(msgspec.Struct, frozen=True):
    """A Python package that the wheel requires.

    :ivar attribute: its name among nixpkgs' Python packages; None: it is not known to be there.
    :ivar pythons: minor versions of Python 3 for which it is required.
    """

    name: str
    attribute: str | None
    pythons: frozenset[int]


class Package(msgspec.Struct, frozen=True):
    """Everything that a package for Nix is made of.

    :ivar wheel: its name; wheels of one package share distribution and version.
    :ivar pythons: minor versions of Python 3 that take the wheel: one for cp312-cp312, all the newer ones for cp39-abi3.
    :ivar vendor: the vendor whose libraries it needs.
    :ivar inputs: attributes of nixpkgs → what is needed of each.
    :ivar unknown: libraries that no attribute is known to have.
    :ivar major: the major version of the vendor's runtime that the wheel needs; None where its files need none.
    :ivar same_version: Python packages of nixpkgs whose version must be the wheel's.
    :ivar settings: attributes of autoRelinkHook, each a list of words.
    :ivar meta: `description`, `homepage` and `changelog`, and `license` as an expression of SPDX.
    """

    wheel: WheelName
    source: Source
    pythons: tuple[int, ...]
    inputs: Mapping[str, Sequence[str]]
    meta: Mapping[str, str]
    unknown: tuple[str, ...] = ()
    major: int | None = None
    vendor: Vendor = NO_VENDOR
    dependencies: tuple[Dependency, ...] = ()
    same_version: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    settings: Mapping[str, Sequence[str]] | None = None
    findings: tuple[Finding, ...] = ()


def package_of(
    archive: WheelArchive, context: ResolveContext, options: Options, address: str | None = None
) -> Package:
    """Put a package together.

    :param context: what decisions about the wheel are made from, without providers.
    :param options: `gpus` are target ids.
    :param address: as :func:`source` takes it.
    :raises UsageError: the wheel has no such address, no Python of nixpkgs takes it, or the package cannot have an option.
    """
    images, profile, wheel = context.images, context.profile, archive.name
    if not (pythons := find_minors(wheel, OLDEST, NEWEST)):
        raise UsageError(
            f"{wheel.filename}: nixpkgs' sets of Python packages are for CPython 3 with the GIL, its GPU libraries for x86_64 "
            "Linux: take the vendor's wheel for these"
        )
    plain = [image for member, image in images.items() if not profile.is_variant(member)]
    # Variants may be for several releases, so they count only where no other file says which.
    own_major = newest_major(plain, context.vendor)
    major = own_major or newest_major(images.values(), context.vendor)
    own = {*(image.soname for image in images.values()), *map(posixpath.basename, images), *GLIBC_SONAMES}

    def attribute_with(soname: str) -> str | None:
        """Return the attribute of nixpkgs that has a library, or the system's that the vendor's own copy of it is built from."""
        copies, _ = context.vendor.libraries.copy_of(soname) or ((), "")
        found = (find_component(name, major) for name in (soname, *copies))
        return next((component.attribute for component, _ in filter(None, found)), None)

    # Of the variants that Python picks one of, some are for other products. These need what nothing has.
    served = [
        image
        for member, image in images.items()
        if not profile.is_variant(member) or all(name in own or attribute_with(name) for name in image.needed)
    ]
    read = parse_email(archive.read(f"{archive.dist_info}/METADATA"))[0]
    lines = read.get("requires_dist") or profile.requires
    there = {*own, *options.stub}
    lacking = dict.fromkeys(name for image in served for name in image.needed if name not in there)
    asked = [name for name in lacking if find_assumed_kind(context, name) != "allowed"]
    siblings = {name: found for name in asked if (found := find_sibling(context.siblings, name))}
    imported = [sibling.profile.distributions[0] for sibling in siblings.values()]
    needed = [(attribute_with(name), name) for name in asked if name not in siblings]
    unknown = tuple(name for attribute, name in needed if attribute is None)
    opened = (name for entry in profile.dlopen for name in entry.sonames if name not in options.stub)
    needed += [(attribute_with(name), name) for name in opened]
    # The compiler's libraries are brought by autoRelinkHook.
    inputs = group_pairs((name, soname) for name, soname in needed if name and name != "stdenv.cc.cc")
    dependencies, findings = read_dependencies([*lines, *imported], pythons, wheel.filename)
    where = source(archive, address, options.output_place)
    if unknown:
        findings.append(finding("RLK711", ", ".join(unknown), "not among buildInputs"))
    if where.fetcher == "fetchPypi":
        findings.append(finding("RLK712", wheel.filename, "no --url was given, so fetchPypi is to fetch it"))
    if profile.nixpkgs is not None:
        text = f"python3Packages.{profile.nixpkgs} is built for {context.vendor.product}, too"
        findings.append(finding("RLK717", profile.nixpkgs, text))
    tops = {match[1] for match in map(_PACKAGE.fullmatch, archive.members) if match}
    return Package(
        wheel=wheel,
        source=where,
        pythons=pythons,
        inputs=dict(sorted(inputs.items())),
        unknown=unknown,
        major=own_major,
        vendor=context.vendor,
        meta=read_about(read),
        dependencies=dependencies,
        same_version=profile.nixpkgs_version_of,
        imports=profile.imports or tuple(sorted(tops)),
        settings=_settings(options),
        findings=tuple(findings),
    )


def newest_major(images: Iterable[Image], vendor: Vendor) -> int | None:
    """Return the newest major that libraries were linked with: of the vendor's runtime, or of sonames that one alone has."""
    needed = {soname for image in images for soname in image.needed}
    runtime = re.compile(rf"{re.escape(vendor.libraries.runtime)}\.([0-9]{{1,9}})")
    found = [int(match[1]) for match in map(runtime.fullmatch, needed) if match]
    if not found:
        rows = (row for component in list_components() for row in component.sonames.items())
        majors = group_pairs((soname, key) for key, sonames in rows for soname in sonames)
        single = [next(iter(majors[soname])) for soname in needed if len({*majors.get(soname, ())}) == 1]
        found = [int(key) for key in single if key != "any"]
    return max(found, default=None)


def _settings(options: Options) -> dict[str, Sequence[str]]:
    """The options that change what the build does, as attributes of autoRelinkHook.

    :raises UsageError: the profile is a file, which the build does not have.
    """
    if options.profile is not None and "/" in options.profile:
        raise UsageError(
            f"--profile {options.profile}: the build does not have this file; write the package without it, and give the file to "
            'the hook: relinkFlags = [ "--profile=${./profile.toml}" ]'
        )
    rows = {
        f"relink{field.title().replace('_', '')}": tuple(dict.fromkeys(getattr(options, field)))
        for field in _SETTINGS
    }
    profile = [f"--profile={options.profile}"] if options.profile else []
    rows["relinkFlags"] = (*profile, *([] if options.preload_known else ["--no-preload"]))
    return {name: words for name, words in rows.items() if words}


def source(archive: WheelArchive, address: str | None, directory: Path) -> Source:
    """Return where the wheel comes from.

    :param address: its URL, or a path; None takes it from PyPI by nixpkgs' fetchPypi, which makes the URL of the name's parts.
    :param directory: where package.nix goes.
    :raises UsageError: PyPI cannot have the wheel, or the path cannot be written in Nix.
    """
    wheel = archive.name
    digest = f"sha256-{base64.b64encode(bytes.fromhex(archive.sha256())).decode()}"
    # A store path's name has no % of an escaped address and no ! of an epoch.
    name = re.sub(r"[^0-9A-Za-z+\-._?=]", "_", wheel.filename)[-_NAME_LIMIT:].lstrip(".")
    if address is None:
        # PyPI takes none of the first two (warehouse, forklift/legacy.py).
        reasons = {
            f"its version has a local label (+{wheel.version.local})": wheel.version.local,
            "its platform is linux_x86_64": "linux_x86_64" in wheel.platform.split("."),
            "no file in a Nix store can have this name": name != wheel.filename,
        }
        if reason := next((text for text, holds in reasons.items() if holds), None):
            raise UsageError(
                f"{wheel.filename}: {reason}, so PyPI does not have it; name its address by --url URL, or the file itself by "
                "--url ./FILE.whl"
            )
        # fetchPypi has no argument for the build tag, which stands before the Python tag in the name.
        python = f"{wheel.build}-{wheel.python}" if wheel.build else wheel.python
        facts = {"pname": wheel.distribution, "format": "wheel", "dist": wheel.python, "python": python}
        return Source("fetchPypi", facts | {"abi": wheel.abi, "platform": wheel.platform, "hash": digest})
    if "://" not in address:
        path = os.path.relpath(address, directory)
        path = path if path.startswith("../") else f"./{path}"
        if not re.fullmatch(r"[0-9A-Za-z+\-._/]+", path):
            raise UsageError(
                f"{path}: Nix has no path of these characters; rename the file, or name a URL by --url"
            )
        return Source(None, {"path": path})
    last = unquote(posixpath.basename(urlsplit(address).path))
    name = last if len(last) <= _NAME_LIMIT and _STORE_NAME.fullmatch(last) else name
    named = {} if address.endswith(f"/{name}") else {"name": name}
    return Source("fetchurl", {"url": address, **named, "hash": digest})


def read_dependencies(
    lines: Iterable[str], pythons: Sequence[int], subject: str
) -> tuple[tuple[Dependency, ...], list[Finding]]:
    """Return the Python packages that the wheel requires by its Requires-Dist lines, and what was left out.

    A vendor's packages for site-packages are none of them: buildInputs take their place. A package that only the vendor has is
    called as its wheel is: a package.nix of it has to be passed to callPackage.

    :param pythons: those that take the wheel; a marker is evaluated for each.
    """
    found: dict[str, set[int]] = {}
    findings = []
    for line in lines:
        try:
            wanted = Requirement(line)
            applies = select_minors(wanted, pythons)
        except (ValueError, RecursionError):  # thousands of brackets, or a number of thousands of digits
            findings.append(finding("RLK713", subject, f"cannot be read: {line}"))
            continue
        if applies and not is_distribution(wanted.name):
            found.setdefault(str(canonicalize_name(wanted.name)), set()).update(applies)
    table, rows = nixpkgs_names(), []
    for name in sorted(found):
        known = name in table["names"] or is_sibling(name)
        attribute = table["others"].get(name) or (name if known else None)
        rows.append(Dependency(name, attribute, frozenset(found[name])))
        if attribute is None:
            findings.append(finding("RLK713", name, "not in the table of nixpkgs' Python packages"))
    return tuple(rows), findings


def is_sibling(name: str) -> bool:
    """Whether a profile knows this Python package and nixpkgs does not have it: its vendor alone has it."""
    return name not in nixpkgs_names()["names"] and bool(profile_for(name).distributions)


@cache
def nixpkgs_names() -> Mapping[str, Any]:
    """Return what nixpkgs calls things: `names` of Python packages, those with `others` than the index has, `licenses` of SPDX.

    ``scripts/record-nixpkgs-names`` makes the file of them.
    """
    return tomllib.loads((shipped_directory("profiles") / "nixpkgs/names.toml").read_text(encoding="utf-8"))
