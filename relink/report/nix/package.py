"""From a wheel to what a package for Nix is made of: each NEEDED leads to the attribute that the table of components has."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass

from relink.elf.image import Image
from relink.loader.target import GLIBC_SONAMES
from relink.planning.options import Options
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.strategy import matches_library
from relink.planning.siblings import sibling_of
from relink.report.nix import metadata
from relink.report.nix.metadata import About, Dependency, Source
from relink.system.errors import UsageError
from relink.system.findings.model import Finding, finding
from relink.system.text import grouped
from relink.vendors.protocol import NO_VENDOR, Vendor
from relink.vendors.registry import component_of, components
from relink.wheel.archive import WheelArchive

_VERSIONED = re.compile(r"(?P<stem>.+\.so)\.(?P<major>\d{1,9})", re.ASCII)
# Brought by autoRelinkHook, so never an input of the package.
_COMPILER = "stdenv.cc.cc"


@dataclass(frozen=True, slots=True)
class Package:
    """Everything that a package for Nix is made of.

    :ivar release: name and version, which wheels of one package share; the version as the file's name spells it.
    :ivar pythons: minor versions of Python 3 that take the wheel; `exact`: it is for one Python alone.
    :ivar vendor: the vendor whose libraries it needs.
    :ivar inputs: attributes of nixpkgs → what is needed of each.
    :ivar unknown: libraries that no attribute is known to have.
    :ivar major: the major version of the vendor's runtime that the wheel needs; None where its files need none.
    :ivar same_version: Python packages of nixpkgs whose version must be the wheel's.
    :ivar settings: attributes of autoRelinkHook, each a list of words.
    """

    release: tuple[str, str]
    source: Source
    pythons: tuple[int, ...]
    exact: bool
    inputs: tuple[tuple[str, tuple[str, ...]], ...]
    about: About
    unknown: tuple[str, ...] = ()
    major: int | None = None
    vendor: Vendor = NO_VENDOR
    dependencies: tuple[Dependency, ...] = ()
    same_version: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    settings: tuple[tuple[str, tuple[str, ...]], ...] = ()
    findings: tuple[Finding, ...] = ()


def newest_major(images: Iterable[Image], vendor: Vendor) -> int | None:
    """Return the newest major that libraries were linked with: of the vendor's runtime, or of sonames that one alone has."""
    needed = {soname for image in images for soname in image.needed}
    versions = [match for match in map(_VERSIONED.fullmatch, needed) if match]
    found = [int(match["major"]) for match in versions if match["stem"] == vendor.libraries.runtime]
    if not found:
        rows = (row for component in components() for row in component.sonames.items())
        majors = grouped((soname, key) for key, sonames in rows for soname in sonames)
        single = [next(iter(majors[soname])) for soname in needed if len({*majors.get(soname, ())}) == 1]
        found = [int(key) for key in single if key != "any"]
    return max(found, default=None)


def package_of(
    archive: WheelArchive, context: ResolveContext, options: Options, address: str | None = None
) -> Package:
    """Put a package together.

    :param context: what decisions about the wheel are made from, without providers.
    :param options: `gpus` are target ids.
    :param address: as :func:`relink.report.nix.metadata.source` takes it.
    :raises UsageError: the wheel has no such address, no Python of nixpkgs takes it, or the package cannot have an option.
    """
    images, profile, wheel = context.images, context.profile, archive.name
    plain = [image for member, image in images.items() if not profile.is_variant(member)]
    # Variants may be for several releases, so they count only where no other file says which.
    own_major = newest_major(plain, context.vendor)
    major = own_major or newest_major(images.values(), context.vendor)
    sonames = (image.soname for image in images.values() if image.soname)
    own = {*sonames, *map(posixpath.basename, images), *GLIBC_SONAMES}

    def attribute_with(soname: str) -> str | None:
        """Return the attribute of nixpkgs that has a library, or the system's that the vendor's own copy of it is built from."""
        found = component_of(soname, major)
        if found is None and (copy := context.vendor.libraries.copy_of(soname)) is not None:
            found = next(filter(None, (component_of(name, major) for name in copy.sonames)), None)
        return found and found[0].attribute

    # Of the variants that Python picks one of, some are for other products. These need what nothing has.
    served = [
        image
        for member, image in images.items()
        if not profile.is_variant(member) or all(name in own or attribute_with(name) for name in image.needed)
    ]
    inputs: dict[str, dict[str, None]] = {}
    unknown: dict[str, None] = {}
    read = metadata.read(archive)
    if not read.get("requires_dist"):
        read["requires_dist"] = list(profile.requires)
    pythons = metadata.pythons(wheel)
    dependencies, findings = metadata.dependencies(read, pythons, archive.path.name)
    required = {row.name for row in dependencies}
    for soname in dict.fromkeys(name for image in served for name in image.needed):
        allowed = any(matches_library(pattern, soname) for pattern in options.allow_missing)
        if soname in own or allowed or soname in options.stub:
            continue
        if (sibling := sibling_of(context.siblings, soname)) is not None:
            name = sibling.profile.distributions[0]
            if name not in required:
                required.add(name)
                row = Dependency(name, metadata.attribute_of(name), frozenset(pythons))
                dependencies = (*dependencies, row)
        elif (attribute := attribute_with(soname)) is None:
            unknown[soname] = None
        elif attribute != _COMPILER:
            inputs.setdefault(attribute, {})[soname] = None
    for soname in (name for entry in profile.dlopen for name in entry.sonames):
        if soname not in options.stub and (attribute := attribute_with(soname)) not in (None, _COMPILER):
            inputs.setdefault(str(attribute), {})[soname] = None
    if unknown:
        findings.append(finding("RLK711", ", ".join(unknown), "not among buildInputs"))
    if profile.nixpkgs is not None:
        text = f"python3Packages.{profile.nixpkgs} is built for {context.vendor.product}, too"
        findings.append(finding("RLK717", profile.nixpkgs, text))
    source = metadata.source(archive, address, options.output_place)
    if source.fetcher == "fetchPypi":
        text = "no --url was given, so fetchPypi is to fetch it"
        findings.append(finding("RLK712", archive.path.name, text))
    return Package(
        release=(wheel.canonical, wheel.version_text),
        source=source,
        pythons=pythons,
        # cp312-cp312 is for that Python alone, cp39-abi3 for newer ones too.
        exact=len(pythons) == 1 and pythons[0] < metadata.NEWEST,
        inputs=tuple((attribute, tuple(inputs[attribute])) for attribute in sorted(inputs)),
        unknown=tuple(unknown),
        major=own_major,
        vendor=context.vendor,
        about=metadata.about(read),
        dependencies=tuple(sorted(dependencies, key=lambda row: row.name)),
        same_version=profile.nixpkgs_version_of,
        imports=profile.imports or metadata.imports(archive.members),
        settings=_settings(options),
        findings=tuple(findings),
    )


def _settings(options: Options) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The options that change what the build does, as attributes of autoRelinkHook.

    :raises UsageError: the profile is a file, which the build does not have.
    """
    if options.profile is not None and "/" in options.profile:
        raise UsageError(
            f"--profile {options.profile}: the build does not have this file; write the package without it, and give the file to "
            'the hook: relinkFlags = [ "--profile=${./profile.toml}" ]'
        )
    flags = (
        *((f"--profile={options.profile}",) if options.profile else ()),
        *(() if options.preload_known else ("--no-preload",)),
    )
    rows = {
        "relinkAllowMissing": options.allow_missing,
        "relinkAssumeSymbols": options.assume_symbols,
        "relinkForward": options.forward,
        "relinkGpus": options.gpus,
        "relinkPreload": options.preload,
        "relinkStub": options.stub,
        "relinkSubstitute": options.substitute,
        "relinkFlags": flags,
    }
    return tuple((name, tuple(dict.fromkeys(words))) for name, words in rows.items() if words)
