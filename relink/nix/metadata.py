"""What a package for Nix takes from the wheel's name and METADATA: where it is fetched from, what it requires, what it is."""

from __future__ import annotations

import base64
import posixpath
import re
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.metadata import RawMetadata, parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from relink.errors import UsageError
from relink.findings.model import Finding, finding
from relink.nix.model import About, Index, Source
from relink.profiles import profile_for
from relink.wheel.archive import WheelArchive

__all__ = ["about", "dependencies", "imports", "read", "source"]

_NAME_LIMIT = 200  # characters; a store path's name may have 211
_CHANGES = "changelog", "changes", "release notes", "release-notes", "releases"
_STORE_NAME = re.compile(r"[0-9A-Za-z+\-_?=][0-9A-Za-z+\-._?=]*")


def read(archive: WheelArchive) -> RawMetadata:
    """Return the fields of METADATA, as spelled there."""
    return parse_email(archive.read(f"{archive.dist_info}/METADATA"))[0]


def source(archive: WheelArchive, url: str | None) -> Source:
    """Return where the wheel comes from: `url`, or PyPI by nixpkgs' fetchPypi, which makes the address of the name's parts.

    :raises UsageError: there is no `url`, and fetchPypi would give the file a name that no store path can have.
    """
    wheel = archive.name
    sha256 = archive.sha256()
    digest = f"sha256-{base64.b64encode(bytes.fromhex(sha256)).decode()}"
    # The store takes no % of an escaped address and no ! of an epoch.
    name = re.sub(r"[^0-9A-Za-z+\-._?=]", "_", wheel.filename)[-_NAME_LIMIT:].lstrip(".")
    if url is not None:
        last = unquote(posixpath.basename(urlsplit(url).path))
        fits = last.endswith(".whl") and len(last) <= _NAME_LIMIT and _STORE_NAME.fullmatch(last)
        return Source(last if fits else name, digest, url=url, sha256=sha256)
    if name != wheel.filename:
        raise UsageError(
            f"{wheel.filename}: no file in a Nix store can have this name, and fetchPypi would give it; say --url URL"
        )
    python = f"{wheel.build}-{wheel.python}" if wheel.build else wheel.python
    index = Index(wheel.distribution, wheel.version_text, wheel.python, python, wheel.abi, wheel.platform)
    return Source(name, digest, index=index, sha256=sha256)


def dependencies(
    metadata: RawMetadata, python: str | None, subject: str
) -> tuple[tuple[str, ...], tuple[str, ...], list[Finding]]:
    """Return the Python packages that the wheel requires, those of them that only the vendor has, and what was left out.

    nixpkgs calls a package by its normalised name (PEP 503).

    :param python: ``3.12``, or None where any Python takes the wheel: a marker about Python's version is then undecided.
    """
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
    for line in metadata.get("requires_dist", ()):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            findings.append(finding("RLK713", subject, f"cannot be read: {line}"))
            continue
        marker = str(requirement.marker or "")
        applies = requirement.marker is None or requirement.marker.evaluate(environment)
        if python is None and "python" in marker and "extra" not in marker:
            findings.append(finding("RLK713", subject, line))
        elif applies:
            names[str(canonicalize_name(requirement.name))] = None
    known = {name: profile_for(name) for name in names}
    vendor = tuple(name for name, profile in known.items() if profile.distributions and not profile.nixpkgs)
    return tuple(sorted(names.keys() - set(vendor))), vendor, findings


def about(metadata: RawMetadata) -> About:
    """Return what the package says of itself; the licence only where it is an expression of SPDX's."""
    urls = {label.strip().lower(): url for label, url in metadata.get("project_urls", {}).items()}
    homes = [metadata.get("home_page", ""), urls.get("homepage", "")]
    stated = [metadata.get("license_expression", ""), metadata.get("license", "").removesuffix(" License")]
    return About(
        description=_description(metadata),
        homepage=next((home for home in homes if home.startswith("http")), None),
        changelog=next((urls[name] for name in _CHANGES if urls.get(name, "").startswith("http")), None),
        license=next((found for text in stated if (found := _spdx(text))), None),
    )


def _description(metadata: RawMetadata) -> str:
    """The summary as nixpkgs wants it: without an article or the package's name in front, and without a final period."""
    text = re.sub(r"\s+", " ", metadata.get("summary", "")).strip().removesuffix(".")
    name = re.escape(metadata.get("name", ""))
    text = re.sub(rf"^(?:{name}(?:\s*[:-]\s+|\s+is\s+))?(?:(?:an?|the)\s+)?", "", text, flags=re.IGNORECASE)
    return text[:1].upper() + text[1:]


def _spdx(text: str) -> str | None:
    try:
        found = str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        return None
    return None if "LicenseRef-" in found else found


def imports(members: Iterable[str]) -> tuple[str, ...]:
    """Return the importable packages at the top of the wheel."""
    found = {name.partition("/")[0] for name in members if re.fullmatch(r"[A-Za-z]\w*/__init__\.py", name)}
    return tuple(sorted(found))
