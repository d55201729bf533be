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
from relink.report.nix.metadata import About, Source
from relink.system.findings.model import Finding, finding
from relink.system.text import grouped
from relink.vendors.registry import component_of, components
from relink.wheel.archive import WheelArchive

_HIP = re.compile(r"libamdhip64\.so\.(\d{1,9})")
# Brought by autoRelinkHook, so never an input of the package.
_COMPILER = "stdenv.cc.cc"


@dataclass(frozen=True, slots=True)
class Package:
    """Everything that a package for Nix is made of.

    :ivar release: name and version, which wheels of one package share.
    :ivar python: ``3.12`` of a wheel for that Python alone, else None.
    :ivar inputs: attributes of nixpkgs (``rocmPackages.clr``) → what is needed of each.
    :ivar unknown: libraries that no attribute is known to have.
    :ivar dependencies: names of Python packages; `siblings` those that the vendor alone has; `same_version` those of
        nixpkgs whose version must be the wheel's.
    :ivar lock: the text of its lock, where it was planned with libraries.
    :ivar stub: as :attr:`relink.planning.options.Options.stub`; so are `forward`, `missing` and `gpus`.
    """

    release: tuple[str, str]
    source: Source
    python: str | None
    inputs: tuple[tuple[str, tuple[str, ...]], ...]
    about: About
    unknown: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    siblings: tuple[str, ...] = ()
    same_version: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    stub: tuple[str, ...] = ()
    forward: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    lock: str | None = None
    findings: tuple[Finding, ...] = ()


def hip_major(images: Iterable[Image]) -> int | None:
    """Return the newest ROCm that libraries were linked with: by the HIP runtime, or sonames that one ROCm alone has."""
    needed = {soname for image in images for soname in image.needed}
    found = [int(match[1]) for soname in needed if (match := _HIP.fullmatch(soname))]
    if not found:
        rows = (row for component in components() for row in component.sonames.items())
        majors = grouped((soname, key) for key, sonames in rows for soname in sonames)
        single = [next(iter(majors[soname])) for soname in needed if len({*majors.get(soname, ())}) == 1]
        found = [int(key) for key in single if key != "any"]
    return max(found, default=None)


def package_of(
    archive: WheelArchive,
    context: ResolveContext,
    options: Options,
    url: str | None = None,
    major: int | None = None,
) -> Package:
    """Put a package together.

    :param context: what decisions about the wheel are made from, without providers.
    :param url: where the wheel comes from; None takes it from PyPI.
    :param major: the ROCm major; None takes that of the wheel.
    :raises UsageError: the wheel's name asks for an address.
    """
    images, profile = context.images, context.profile
    plain = [image for member, image in images.items() if not profile.is_variant(member)]
    # Variants may be for several ROCms, so they count only where no other file says which.
    major = major or hip_major(plain) or hip_major(images.values())
    sonames = (image.soname for image in images.values() if image.soname)
    own = {*sonames, *map(posixpath.basename, images), *GLIBC_SONAMES}

    def attribute_of(soname: str) -> str | None:
        """Return the attribute of nixpkgs that has a library, or the system's that the vendor's own copy of it is built from."""
        found = component_of(soname, major)
        if found is None and (copy := context.vendor.copy_of(soname)) is not None:
            found = next(filter(None, (component_of(name, major) for name in copy.sonames)), None)
        return found and found[0].attribute

    # Of the variants that Python picks one of, some are for other products, such as CUDA. These need what nothing has.
    served = [
        image
        for member, image in images.items()
        if not profile.is_variant(member) or all(name in own or attribute_of(name) for name in image.needed)
    ]
    inputs: dict[str, dict[str, None]] = {}
    unknown: dict[str, None] = {}
    read = metadata.read(archive)
    python = context.layout.python if "." in context.layout.python else None
    if not read.get("requires_dist"):
        read["requires_dist"] = list(profile.requires)
    dependencies, siblings, findings = metadata.dependencies(read, python, archive.path.name)
    for soname in dict.fromkeys(name for image in served for name in image.needed):
        allowed = any(matches_library(pattern, soname) for pattern in options.allow_missing)
        if soname in own or allowed or soname in options.stub:
            continue
        if (sibling := sibling_of(context.siblings, soname)) is not None:
            name = sibling.profile.nixpkgs or sibling.profile.distributions[0]
            dependencies = tuple(sorted({*dependencies, name}))
        elif (attribute := attribute_of(soname)) is None:
            unknown[soname] = None
        elif attribute != _COMPILER:
            inputs.setdefault(attribute, {})[soname] = None
    for soname in (name for entry in profile.dlopen for name in entry.sonames):
        if soname not in options.stub and (attribute := attribute_of(soname)) not in (None, _COMPILER):
            inputs.setdefault(str(attribute), {})[soname] = None
    if unknown:
        findings.append(finding("RLK711", ", ".join(unknown), "not among buildInputs"))
    source = metadata.source(archive, url)
    if source.index is not None:
        text = "no --url was given, so fetchPypi is to fetch it"
        findings.append(finding("RLK712", archive.path.name, text))
    wheel = archive.name
    return Package(
        release=(wheel.canonical, str(wheel.version)),
        source=source,
        # cp312-cp312 is for that Python alone, cp39-abi3 for newer ones too.
        python=python if any(tag.abi == tag.interpreter for tag in wheel.tags) else None,
        inputs=tuple((attribute, tuple(inputs[attribute])) for attribute in sorted(inputs)),
        unknown=tuple(unknown),
        about=metadata.about(read),
        dependencies=dependencies,
        siblings=siblings,
        same_version=profile.nixpkgs_version_of,
        imports=profile.imports or metadata.imports(archive.members),
        stub=tuple(options.stub),
        forward=tuple(options.forward),
        missing=tuple(options.allow_missing),
        gpus=tuple(options.gpus),
        findings=tuple(findings),
    )
