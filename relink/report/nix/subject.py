"""What a package for Nix is made from, and the parts of it that are the same with and without libraries to prove it with."""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from packaging.utils import canonicalize_name

from relink.elf.image import Image
from relink.elf.symbols import SymbolTable
from relink.gpu import DeviceCode, coverage_of
from relink.planning.model.additions import Stub
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.layout import Layout
from relink.planning.resolve.member_graph import reached
from relink.planning.siblings import sibling_of
from relink.report.nix import metadata
from relink.report.nix.attributes import EXTRA, PYTHON, python_attribute
from relink.report.nix.model import Base, CodeSet, Dlopens, File, Package, PackagedTarget, PathEntry, StubFile
from relink.system.findings.model import Finding, finding
from relink.vendors.registry import components, dlopens
from relink.wheel.archive import WheelArchive

__all__ = [
    "Attributes",
    "Subject",
    "hip_major",
    "literal",
    "package_of",
    "place",
    "sibling_entry",
]

_HIP = re.compile(r"libamdhip64\.so\.(\d{1,9})")
_INTERPRETER_SYMBOLS = ("Py*", "_Py*")


@dataclass(frozen=True, slots=True)
class Subject:
    """A wheel as read, and what the user says about the package.

    :ivar context: what decisions about the wheel are made from, without providers.
    :ivar url: where the wheel comes from; None takes it from PyPI.
    :ivar major: the ROCm major; None takes that of the libraries, or of the wheel.
    :ivar again: the options that make the same plan anew (:func:`relink.report.nix.anew.options_text`).
    """

    archive: WheelArchive
    context: ResolveContext
    tables: Mapping[str, SymbolTable]
    codes: Mapping[str, DeviceCode]
    url: str | None = None
    major: int | None = None
    gpus: tuple[str, ...] = ()
    again: str = ""


@dataclass(slots=True)
class Attributes:
    """The attributes in use, each with what is needed of it, and what is to be said about them."""

    used: dict[str, dict[str, None]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def use(self, attribute: str, sonames: Iterable[str]) -> str:
        """Note that libraries of an attribute are needed; returns the attribute."""
        known = self.used.setdefault(attribute, {})
        known |= dict.fromkeys(sonames)
        return attribute


def sibling_entry(subject: Subject, attributes: Attributes, soname: str) -> PathEntry | None:
    """Return the directory of another Python package that has a library, such as torch/lib, or None where none has it.

    The library is mapped already when the wheel is imported; the build's dry run, and programs that load the wheel's files by
    themselves, find it by the search path.
    """
    sibling = sibling_of(subject.context.siblings, soname)
    if sibling is None:
        return None
    attribute = attributes.use(python_attribute(sibling.profile), [soname])
    return PathEntry(
        attribute=attribute, directory=posixpath.dirname(sibling.profile.where_brought(soname) or "")
    )


def place(layout: Layout, member: str) -> tuple[Base, str]:
    """Return where a member is installed: relative to site-packages, or to the package's root."""
    path = layout.path_of(member)
    if path.startswith(layout.site_packages + "/"):
        return "site-packages", path[len(layout.site_packages) + 1 :]
    return "root", path[len(layout.root) + 1 :]


def hip_major(images: Iterable[Image]) -> int | None:
    """Return the newest ROCm that libraries were linked with: by the HIP runtime, or sonames that one ROCm alone has."""
    needed = {soname for image in images for soname in image.needed}
    found = [int(match[1]) for soname in needed if (match := _HIP.fullmatch(soname))]
    if not found:
        majors: dict[str, set[str]] = {}
        for component in components():
            for key, sonames in component.sonames.items():
                for soname in sonames:
                    majors.setdefault(soname, set()).add(key)
        single = [next(iter(majors[soname])) for soname in needed if len(majors.get(soname, ())) == 1]
        found = [int(key) for key in single if key != "any"]
    return max(found, default=None)


def package_of(
    subject: Subject,
    files: Iterable[File],
    served: Iterable[str],
    attributes: Attributes,
    major: int | None,
    *,
    proved: bool,
    stubs: Sequence[Stub] = (),
) -> Package:
    """Put a package together.

    :param served: the members that can be loaded; the package covers the GPUs that their code is for.
    :raises UsageError: the wheel's name asks for an address.
    """
    archive = subject.archive
    read = metadata.read(archive)
    python = subject.context.layout.python if "." in subject.context.layout.python else None
    if not read.get("requires_dist"):
        read["requires_dist"] = list(subject.context.profile.requires)
    dependencies, siblings, findings = metadata.dependencies(read, python, archive.path.name)
    mapped = [name.partition(".")[2] for name in attributes.used if name.startswith(f"{PYTHON}.")]
    dependencies = tuple(sorted({*dependencies, *mapped}))
    findings = [*attributes.findings, *findings]
    for attribute, sonames in attributes.used.items():
        if attribute.startswith(f"{EXTRA}."):
            findings.append(finding("RLK711", ", ".join(sonames), f"asked for as {attribute}"))
    source = metadata.source(archive, subject.url)
    if source.index is not None:
        findings.append(
            finding("RLK712", archive.path.name, "no --url was given, so fetchPypi is to fetch it")
        )
    return Package(
        # A store path's name is ASCII and has no mark of an epoch.
        pname=re.sub(r"[^a-z0-9]+", "-", str(canonicalize_name(archive.name.distribution))).strip("-")
        or "wheel",
        version=str(archive.name.version).replace("!", "-"),
        source=source,
        python=python,
        rocm=major,
        proved=proved,
        libraries=tuple((name, tuple(sonames)) for name, sonames in sorted(attributes.used.items())),
        files=tuple(_with_digests(subject, files)),
        stubs=tuple(_stub_file(subject.context.layout, stub) for stub in stubs),
        coverage=tuple(_coverage(subject, served)),
        undefined=(
            *_INTERPRETER_SYMBOLS,
            *sorted(literal(name) for name in _open_symbols(subject)),
            *subject.context.assume_symbols,
        ),
        missing=subject.context.allow_missing,
        dlopens=_dlopens(subject),
        again=subject.again,
        about=metadata.about(read, metadata.programs(archive)),
        dependencies=dependencies,
        siblings=siblings,
        same_version=subject.context.profile.nixpkgs_version_of,
        imports=subject.context.profile.imports or metadata.imports(archive.members),
        gpus=subject.gpus,
        findings=tuple(findings),
    )


def _with_digests(subject: Subject, files: Iterable[File]) -> Iterable[File]:
    members = {place(subject.context.layout, member): member for member in subject.context.images}
    for file in files:
        digest = hashlib.sha256()
        for chunk in subject.archive.chunks(members[file.base, file.path]):
            digest.update(chunk)
        yield replace(file, sha256=digest.hexdigest())


def _stub_file(layout: Layout, stub: Stub) -> StubFile:
    content = stub.content()
    digest = hashlib.sha256(content).hexdigest()
    return StubFile(*place(layout, stub.path), stub.soname, digest, base64.b64encode(content).decode("ascii"))


def _dlopens(subject: Subject) -> tuple[Dlopens, ...]:
    """Rows of the table of ROCm and of the wheel's profile; a member is known by its path."""
    rows = [(entry.member, entry.sonames) for entry in (*dlopens(), *subject.context.profile.dlopen)]
    return tuple(Dlopens(member, sonames) for member, sonames in rows)


def _coverage(subject: Subject, served: Iterable[str]) -> Iterable[CodeSet]:
    for member in served:
        if member in subject.codes and (found := coverage_of(subject.codes[member])).restricts:
            sets = {
                tuple(
                    PackagedTarget(str(code.target), code.generic_version) for code in sorted(codes, key=str)
                )
                for codes, _ in found.sets
            }
            variant = subject.context.profile.is_variant(member)
            yield CodeSet(member, tuple(sorted(sets, key=str)), "ccob" in found.container, variant)


def _open_symbols(subject: Subject) -> set[str]:
    """Imports that another member of the wheel supplies without being NEEDED: the package loads it before, globally."""
    near = reached(subject.context.images)
    found: set[str] = set()
    for member, table in subject.tables.items():
        imports = {item.name for item in table.imports}
        for other in subject.tables.keys() - near[member]:
            found |= imports & subject.tables[other].exports.keys()
    return found


def literal(name: str) -> str:
    """A symbol's name as a glob that matches nothing else: a hostile one must not switch the dry run off."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", name)
