"""From a wheel, and a plan for it where there are libraries, to a package for Nix."""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from relink.elf.image import Image
from relink.elf.symbols import SymbolTable
from relink.isa import DeviceCode, coverage_of
from relink.loader.target import GLIBC_SONAMES, Target
from relink.nix.attributes import EXTRA, attribute_of_path, attribute_of_soname
from relink.nix.model import Base, CodeSet, CodeTarget, File, Package, PathEntry, Replaced, RunPath, Source
from relink.plan.findings import Finding, finding
from relink.plan.layout import Layout
from relink.plan.model import FilePlan, Plan
from relink.plan.rpath import classify
from relink.plan.strategy import matches_library
from relink.plan.words import some
from relink.profiles import Profile, profile_for
from relink.providers.nix_store import store_path
from relink.rocm import component_of, rocm_facts, same_abi
from relink.wheel.archive import WheelArchive
from relink.wheel.metadata import read_metadata

__all__ = ["Subject", "package_from_plan", "package_from_table"]

_HIP = re.compile(r"libamdhip64\.so\.(\d+)")
_INTERPRETER_SYMBOLS = ("Py*", "_Py*")
_NAME_LIMIT = 200  # characters; a store path's name may have 211


@dataclass(frozen=True, slots=True)
class Subject:
    """A wheel as read, and what the user says about the package.

    :ivar url: where the wheel comes from; None derives PyPI's address from its bytes.
    :ivar major: the ROCm major; None takes that of the libraries, or of the wheel.
    """

    archive: WheelArchive
    images: Mapping[str, Image]
    tables: Mapping[str, SymbolTable]
    codes: Mapping[str, DeviceCode]
    layout: Layout
    profile: Profile
    target: Target | None = None
    url: str | None = None
    major: int | None = None
    gpus: tuple[str, ...] = ()
    allow_missing: tuple[str, ...] = ()
    assume_symbols: tuple[str, ...] = ()


@dataclass(slots=True)
class _Attributes:
    """The attributes in use, each with what is needed of it, and what is to be said about them."""

    used: dict[str, dict[str, None]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def use(self, attribute: str, sonames: Iterable[str]) -> str:
        known = self.used.setdefault(attribute, {})
        known |= dict.fromkeys(sonames)
        return attribute


def package_from_plan(subject: Subject, plan: Plan) -> Package:
    """Make a package of a plan that was proved with libraries: directories become attributes, everything else stays."""
    major = subject.major or _release_major(plan) or _hip_major(subject.images.values())
    attributes = _Attributes()
    by_path = _paths(plan, major, attributes)
    files = [
        _planned_file(subject, file, by_path, major, attributes)
        for file in plan.files
        if file.served and file.changed
    ]
    served = [file.path for file in plan.files if file.served]
    return _package(subject, files, served, attributes, major, proved=True)


def _paths(plan: Plan, major: int | None, attributes: _Attributes) -> dict[str, str]:
    """The attribute of each store path in the plan."""
    sonames: dict[str, list[str]] = {}
    for file in plan.files:
        found = [(entry.soname_after or entry.soname, entry.resolved or "") for entry in file.needed]
        for soname, path in (*found, *file.closure):
            if item := store_path(path):
                sonames.setdefault(item, []).append(soname)
        for text in (file.rpath.after or "").split(":"):
            if item := store_path(text):
                sonames.setdefault(item, [])
    result = {}
    for item, names in sonames.items():
        attribute, known = attribute_of_path(item, names, major)
        result[item] = attribute
        named = any(
            item == store_path(text) for file in plan.files for text in (file.rpath.after or "").split(":")
        )
        if named and not known:
            text = f"has {some(list(dict.fromkeys(names)))}; the attribute is guessed from the path's name"
            attributes.findings.append(
                finding("RLK711", item, text, f"Correct {attribute} in the plan if it is called otherwise.")
            )
    return result


def _planned_file(
    subject: Subject, file: FilePlan, by_path: Mapping[str, str], major: int | None, attributes: _Attributes
) -> File:
    edit = file.edit
    served = {
        entry.soname_after or entry.soname: entry.resolved or ""
        for entry in file.needed
        if entry.origin == "provider" and entry.action != "drop"
    }
    entries: dict[PathEntry, None] = {}
    for text in (edit.search_path or "").split(":"):
        if item := store_path(text):
            directory = posixpath.relpath(posixpath.normpath(text), item)
            here = [soname for soname, path in served.items() if store_path(path) == item]
            entries[PathEntry(attribute=attributes.use(by_path[item], here), directory=directory)] = None
        elif text.startswith(("$ORIGIN", "${ORIGIN}")):
            entries[PathEntry(text=text)] = None
    for soname, path in served.items():  # those of an ordinary prefix: nixpkgs has them elsewhere
        if soname not in GLIBC_SONAMES and store_path(path) is None:
            attribute = attribute_of_soname(soname, major)
            entries[PathEntry(attribute=attributes.use(attribute, [soname]))] = None
    return File(
        *_place(subject.layout, file.path),
        search_path=None
        if edit.search_path is None
        else RunPath(edit.search_kind or "runpath", tuple(entries)),
        replace=tuple(Replaced(old, new) for old, new in edit.replace),
        remove=edit.remove,
        add=edit.add,
        interpreter=file.interpreter.after is not None,
    )


def package_from_table(subject: Subject) -> Package:
    """Make a package without any library at hand: each NEEDED goes to the attribute that the table has for it."""
    variants = [member for member in subject.images if subject.profile.is_variant(member)]
    plain = [image for member, image in subject.images.items() if member not in variants]
    major = subject.major or _hip_major(plain) or _hip_major(subject.images.values())
    attributes = _Attributes()
    text = (
        f"made from the table for ROCm {major}" if major else "made from the table; no ROCm release is known"
    )
    attributes.findings.append(finding("RLK710", subject.archive.path.name, text))
    members = {image.soname or posixpath.basename(name) for name, image in subject.images.items()}
    files, served = [], []
    for member, image in subject.images.items():
        if member in variants and not all(
            soname in members | GLIBC_SONAMES or _exact(soname, major) for soname in image.needed
        ):
            continue
        served.append(member)
        file = _table_file(subject, member, image, members, major, attributes)
        if file is not None:
            files.append(file)
    return _package(subject, files, served, attributes, major, proved=False)


def _exact(soname: str, major: int | None) -> bool:
    found = component_of(soname, major)
    return found is not None and (found[1] == soname or same_abi(soname, found[1]) is not None)


def _table_file(
    subject: Subject, member: str, image: Image, members: set[str], major: int | None, attributes: _Attributes
) -> File | None:
    entries: dict[PathEntry, None] = dict.fromkeys(
        PathEntry(text=text) for text in _kept(subject, member, image)
    )
    replaced = []
    for soname in image.needed:
        allowed = any(matches_library(pattern, soname) for pattern in subject.allow_missing)
        if soname in members or soname in GLIBC_SONAMES or allowed:
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
    before = image.search_path or ""
    literal = ":".join(entry.text or "" for entry in entries)
    changed = any(entry.attribute for entry in entries) or literal != before
    program = image.is_executable and image.interpreter is not None
    if not (changed or replaced or program):
        return None
    return File(
        *_place(subject.layout, member),
        search_path=RunPath("runpath", tuple(entries)) if changed else None,
        replace=tuple(replaced),
        interpreter=program,
    )


def _kept(subject: Subject, member: str, image: Image) -> list[str]:
    """The entries of a search path that stay: those into the wheel, and those to other packages beside it."""
    if subject.target is None:
        return [text for text in (image.search_path or "").split(":") if text.startswith("$ORIGIN")]
    entries = classify(
        image,
        subject.layout.path_of(member),
        layout=subject.layout,
        target=subject.target,
        provider_directories=(),
        member_directories={
            posixpath.dirname(subject.layout.path_of(name)) for name in subject.archive.members
        },
        serving=(),
        profile=subject.profile,
    )
    return [entry.text for entry in entries if entry.kept]


def _place(layout: Layout, member: str) -> tuple[Base, str]:
    """Where a member is installed: relative to site-packages, or to the package's root."""
    path = layout.path_of(member)
    if path.startswith(layout.site_packages + "/"):
        return "site-packages", path[len(layout.site_packages) + 1 :]
    return "root", path[len(layout.root) + 1 :]


def _package(
    subject: Subject,
    files: list[File],
    served: list[str],
    attributes: _Attributes,
    major: int | None,
    *,
    proved: bool,
) -> Package:
    archive = subject.archive
    metadata_text = archive.read(f"{archive.dist_info}/METADATA")
    metadata = read_metadata(metadata_text)
    python = subject.layout.python if "." in subject.layout.python else None
    dependencies, siblings, more = _dependencies(metadata.requires_dist, python, archive.path.name)
    findings = [*attributes.findings, *more]
    lacking = {name: names for name, names in attributes.used.items() if name.startswith(f"{EXTRA}.")}
    findings += [
        finding("RLK711", ", ".join(names), f"asked for as {attribute}")
        for attribute, names in lacking.items()
    ]
    source, derived = _source(archive, subject.url)
    if derived:
        findings.append(finding("RLK712", archive.path.name, source.url))
    coverage = []
    for member in served:
        if member in subject.codes and (found := coverage_of(subject.codes[member])).restricts:
            sets = {
                tuple(CodeTarget(str(code.target), code.generic_version) for code in sorted(codes, key=str))
                for codes, _ in found.sets
            }
            coverage.append(CodeSet(member, tuple(sorted(sets, key=str))))
    return Package(
        pname=str(canonicalize_name(archive.name.distribution)),
        version=str(archive.name.version),
        source=source,
        python=python,
        rocm=major,
        proved=proved,
        libraries=tuple((name, tuple(sonames)) for name, sonames in sorted(attributes.used.items())),
        files=tuple(files),
        coverage=tuple(coverage),
        undefined=(*_INTERPRETER_SYMBOLS, *sorted(_open_symbols(subject)), *subject.assume_symbols),
        missing=subject.allow_missing,
        description=_header(metadata_text, "Summary") or "",
        homepage=_homepage(metadata_text),
        dependencies=dependencies,
        siblings=siblings,
        imports=_imports(archive),
        gpus=subject.gpus,
        findings=tuple(findings),
    )


def _open_symbols(subject: Subject) -> set[str]:
    """Imports that another member of the wheel supplies without being NEEDED: the package loads it before, globally."""
    by_name = {image.soname or posixpath.basename(member): member for member, image in subject.images.items()}
    found: set[str] = set()
    for member, table in subject.tables.items():
        reached, waiting = {member}, [member]
        while waiting:
            for soname in subject.images[waiting.pop()].needed:
                if (other := by_name.get(soname)) and other not in reached:
                    reached.add(other)
                    waiting.append(other)
        imports = {item.name for item in table.imports}
        for other in subject.tables.keys() - reached:
            found |= imports & subject.tables[other].exports.keys()
    return found


def _release_major(plan: Plan) -> int | None:
    release = next((item.rocm_version for item in plan.providers if item.rocm_version), None)
    return int(release.split(".", 1)[0]) if release else None


def _hip_major(images: Iterable[Image]) -> int | None:
    """The newest ROCm that the wheel's libraries were linked with: by the HIP runtime, or sonames that one ROCm alone has."""
    needed = {soname for image in images for soname in image.needed}
    found = [int(match[1]) for soname in needed if (match := _HIP.fullmatch(soname))]
    if not found:
        majors: dict[str, set[str]] = {}
        for component in rocm_facts().components:
            for key, sonames in component.sonames.items():
                for soname in sonames:
                    majors.setdefault(soname, set()).add(key)
        single = [next(iter(majors[soname])) for soname in needed if len(majors.get(soname, ())) == 1]
        found = [int(key) for key in single if key != "any"]
    return max(found, default=None)


def _source(archive: WheelArchive, url: str | None) -> tuple[Source, bool]:
    """The wheel for fetchurl, and whether its address is derived from its bytes."""
    digest = base64.b64encode(bytes.fromhex(archive.sha256())).decode()
    name = re.sub(r"[^0-9A-Za-z+\-._?=]", "_", archive.name.filename)[-_NAME_LIMIT:].lstrip(".")
    if url is not None:
        last = unquote(posixpath.basename(urlsplit(url).path))
        if last.endswith(".whl") and re.fullmatch(r"[0-9A-Za-z+\-_][0-9A-Za-z+\-._?=]*", last):
            name = last
        return Source(name, url, f"sha256-{digest}"), False
    with archive.path.open("rb") as file:
        key = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
    address = "https://files.pythonhosted.org/packages"  # the layout of PyPI's own files: BLAKE2b-256, cut after 2 and 4
    return Source(
        name, f"{address}/{key[:2]}/{key[2:4]}/{key[4:]}/{archive.name.filename}", f"sha256-{digest}"
    ), True


def _dependencies(
    lines: Iterable[str], python: str | None, subject: str
) -> tuple[tuple[str, ...], tuple[str, ...], list[Finding]]:
    """The Python packages that the wheel requires, those of them that only the vendor has, and what was left out."""
    environment = {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "sys_platform": "linux",
        "extra": "",
    }
    if python is not None:
        environment |= {"python_version": python, "python_full_version": f"{python}.0"}
    names: dict[str, None] = {}
    findings = []
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            findings.append(finding("RLK713", subject, f"cannot be read: {line}"))
            continue
        marker = str(requirement.marker or "")
        if "extra" in marker and not (requirement.marker and requirement.marker.evaluate(environment)):
            continue
        if python is None and "python" in marker:
            findings.append(finding("RLK713", subject, line))
        elif requirement.marker is None or requirement.marker.evaluate(environment):
            names[str(canonicalize_name(requirement.name))] = None
    vendor = tuple(name for name in names if profile_for(name).distributions)
    return tuple(sorted(names.keys() - set(vendor))), vendor, findings


def _imports(archive: WheelArchive) -> tuple[str, ...]:
    """The importable packages at the top of the wheel."""
    tops = {
        name.partition("/")[0] for name in archive.members if re.fullmatch(r"[A-Za-z]\w*/__init__\.py", name)
    }
    return tuple(sorted(tops))


def _headers(metadata: bytes) -> Iterator[tuple[str, str]]:
    for line in metadata.decode("utf-8", "replace").splitlines():
        if not line:
            return
        name, colon, value = line.partition(":")
        if colon and not line.startswith((" ", "\t")):
            yield name.lower(), value.strip()


def _header(metadata: bytes, name: str) -> str | None:
    return next((value for key, value in _headers(metadata) if key == name.lower()), None)


def _homepage(metadata: bytes) -> str | None:
    found = _header(metadata, "Home-page")
    if found and found.startswith("http"):
        return found
    urls = [value.partition(",") for key, value in _headers(metadata) if key == "project-url"]
    return next((url.strip() for label, _, url in urls if label.strip().lower() == "homepage"), None)
