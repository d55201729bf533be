"""What a package for Nix takes from the wheel's name and METADATA: where it is fetched from, what it requires, what it is."""

from __future__ import annotations

import base64
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.metadata import RawMetadata, parse_email
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from relink.providers.profiles import profile_for
from relink.system.errors import UsageError
from relink.system.findings.model import Finding, finding
from relink.vendors.registry import is_distribution
from relink.wheel.archive import WheelArchive

# Characters. A store path's name may have 211.
_NAME_LIMIT = 200
_CHANGES = "changelog", "changes", "release notes", "release-notes", "releases"
# Licences as METADATA spells them → as SPDX does.
_LICENSES = {
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "license :: osi approved :: mit license": "MIT",
    "license :: osi approved :: mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
}
_STORE_NAME = re.compile(r"[0-9A-Za-z+\-_?=][0-9A-Za-z+\-._?=]*")


@dataclass(frozen=True, slots=True)
class Index:
    """The parts of a wheel's name that nixpkgs' fetchPypi makes PyPI's address of; its arguments are called so."""

    pname: str
    version: str
    dist: str
    python: str
    abi: str
    platform: str


@dataclass(frozen=True, slots=True)
class Source:
    """The vendor's wheel: a name that a store can have, the SRI hash, and either its address or what fetchPypi takes."""

    name: str
    hash: str
    url: str | None = None
    index: Index | None = None


@dataclass(frozen=True, slots=True)
class About:
    """What the wheel says of itself; `license` is an SPDX expression."""

    description: str = ""
    homepage: str | None = None
    license: str | None = None
    changelog: str | None = None


def read(archive: WheelArchive) -> RawMetadata:
    """Return the fields of METADATA, as spelled there."""
    return parse_email(archive.read(f"{archive.dist_info}/METADATA"))[0]


def source(archive: WheelArchive, url: str | None) -> Source:
    """Return where the wheel comes from: `url`, or PyPI by nixpkgs' fetchPypi, which makes the address of the name's parts.

    :raises UsageError: there is no `url`, and fetchPypi would give the file a name that no store path can have.
    """
    wheel = archive.name
    digest = f"sha256-{base64.b64encode(bytes.fromhex(archive.sha256())).decode()}"
    # A store path's name has no % of an escaped address and no ! of an epoch.
    name = re.sub(r"[^0-9A-Za-z+\-._?=]", "_", wheel.filename)[-_NAME_LIMIT:].lstrip(".")
    if url is not None:
        last = unquote(posixpath.basename(urlsplit(url).path))
        fits = last.endswith(".whl") and len(last) <= _NAME_LIMIT and _STORE_NAME.fullmatch(last)
        return Source(last if fits else name, digest, url=url)
    if name != wheel.filename:
        raise UsageError(
            f"{wheel.filename}: no file in a Nix store can have this name, and fetchPypi would give it; say --url URL"
        )
    # fetchPypi has no argument for the build tag, which stands before the Python tag in the name.
    python = f"{wheel.build}-{wheel.python}" if wheel.build else wheel.python
    index = Index(wheel.distribution, wheel.version_text, wheel.python, python, wheel.abi, wheel.platform)
    return Source(name, digest, index=index)


def dependencies(
    metadata: RawMetadata, python: str | None, subject: str
) -> tuple[tuple[str, ...], tuple[str, ...], list[Finding]]:
    """Return the Python packages that the wheel requires, those of them that only the vendor has, and what was left out.

    A vendor's packages for site-packages are none of them: buildInputs take their place.
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
        # A marker may ask for the patch release, which no tag tells.
        environment |= {"python_version": python, "python_full_version": f"{python}.0"}
    names: dict[str, None] = {}
    findings = []
    for line in metadata.get("requires_dist", ()):
        try:
            requirement = Requirement(line)
            marker = str(requirement.marker or "")
            applies = requirement.marker is None or requirement.marker.evaluate(environment)
        except (
            ValueError,
            RecursionError,
        ):  # a marker in thousands of brackets, or with a number of thousands of digits
            findings.append(finding("RLK713", subject, f"cannot be read: {line}"))
            continue
        if python is None and "python" in marker and "extra" not in marker:
            findings.append(finding("RLK713", subject, line))
        elif applies and not is_distribution(requirement.name):
            names[str(canonicalize_name(requirement.name))] = None
    known = {name: profile_for(name) for name in names}
    vendor = tuple(name for name, profile in known.items() if profile.distributions and not profile.nixpkgs)
    return tuple(sorted(names.keys() - set(vendor))), vendor, findings


def about(metadata: RawMetadata) -> About:
    """Return what the package says of itself, as nixpkgs' `meta` wants it."""
    urls = {label.strip().lower(): url for label, url in metadata.get("project_urls", {}).items()}
    homes = [metadata.get("home_page", ""), urls.get("homepage", "")]
    stated = [
        metadata.get("license_expression", ""),
        metadata.get("license", "").removesuffix(" License"),
        *metadata.get("classifiers", ()),
    ]
    return About(
        description=_description(metadata),
        homepage=next((home for home in homes if home.startswith("http")), None),
        changelog=next((urls[name] for name in _CHANGES if urls.get(name, "").startswith("http")), None),
        license=next((found for text in stated if (found := _spdx(text))), None),
    )


def _description(metadata: RawMetadata) -> str:
    """The summary as nixpkgs wants it: without an article or the package's name in front, and without a final period.

    The name counts in every spelling, and without the vendor's suffix: ``ONNX Runtime is …`` of onnxruntime-rocm.
    """
    text = re.sub(r"\s+", " ", metadata.get("summary", "")).strip().removesuffix(".")
    words = canonicalize_name(metadata.get("name", "")).split("-")
    names = {"".join(words[:count]) for count in range(1, len(words) + 1)}
    head = re.match(r"([\w .-]{1,60}?)(?::\s+|\s+-\s+|\s+is\s+)", text)
    if head and re.sub(r"[^a-z0-9]", "", head[1].lower()) in names:
        text = text[head.end() :]
    text = re.sub(r"^(?:an?|the)\s+", "", text, flags=re.IGNORECASE)
    return text[:1].upper() + text[1:]


def _spdx(text: str) -> str | None:
    text = _LICENSES.get(text.strip().lower(), text)
    try:
        found = str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        return None
    # SPDX does not list such a licence, so nixpkgs has no name for it.
    return None if "LicenseRef-" in found else found


def imports(members: Iterable[str]) -> tuple[str, ...]:
    """Return the importable packages at the top of the wheel."""
    found = {name.partition("/")[0] for name in members if re.fullmatch(r"[A-Za-z]\w*/__init__\.py", name)}
    return tuple(sorted(found))
