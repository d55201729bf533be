"""What a package for Nix takes from the wheel's name and METADATA: where it is fetched from, what it requires, what it is."""

from __future__ import annotations

import base64
import os
import posixpath
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.metadata import RawMetadata, parse_email
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from relink.providers.profiles import profile_for
from relink.system.errors import UsageError
from relink.system.findings.model import Finding, finding
from relink.system.safe_open import read_text
from relink.system.shipped_files import shipped_directory
from relink.vendors.registry import is_distribution
from relink.wheel.archive import WheelArchive
from relink.wheel.naming import WheelName

OLDEST, NEWEST = 10, 15
"""Minor versions of Python 3 that nixpkgs has; the newest stands for newer ones, too."""
# Characters. A store path's name may have 211.
_NAME_LIMIT = 200
_TABLE_LIMIT = 4 << 20  # bytes
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
class Source:
    """The vendor's wheel in nixpkgs' words.

    :ivar name: the file's name.
    :ivar fetcher: ``fetchPypi``, ``fetchurl``, or None for a file beside package.nix.
    :ivar arguments: what the fetcher takes, the version left out; ``path`` without a fetcher.
    """

    name: str
    fetcher: str | None
    arguments: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Dependency:
    """A Python package that the wheel requires.

    :ivar attribute: its name among nixpkgs' Python packages; None: it is not known to be there.
    :ivar pythons: minor versions of Python 3 for which it is required.
    """

    name: str
    attribute: str | None
    pythons: frozenset[int]


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


def pythons(wheel: WheelName) -> tuple[int, ...]:
    """Return the minor versions of Python 3 that take a wheel: all from `OLDEST` to `NEWEST` that its tags admit.

    An ABI of its own is for one Python, abi3 and ``py3N`` are for that one and newer ones (PEP 425).

    :raises UsageError: no Python of nixpkgs' takes it.
    """
    found: set[int] = set()
    for tag in wheel.tags:
        match = re.fullmatch(r"(cp|py)3([0-9]{0,3})", tag.interpreter)
        if match is None or tag.abi not in ("none", "abi3", tag.interpreter):
            continue
        if tag.platform != "any" and not re.fullmatch(r"(many)?linux\w*_x86_64", tag.platform):
            continue
        newer = tag.abi == "abi3" or match[1] == "py" or not match[2]
        found |= {*range(max(int(match[2] or 0), OLDEST), NEWEST + 1)} if newer else {int(match[2])}
    if not found:
        raise UsageError(
            f"{wheel.filename}: nixpkgs' sets of Python packages are for CPython 3 with the GIL, its GPU libraries for x86_64 "
            "Linux: take the vendor's wheel for these"
        )
    return tuple(sorted(found))


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
        if reason := _not_on_pypi(wheel, name):
            raise UsageError(
                f"{wheel.filename}: {reason}, so PyPI does not have it; name its address by --url URL, or the file itself by "
                "--url ./FILE.whl"
            )
        # fetchPypi has no argument for the build tag, which stands before the Python tag in the name.
        python = f"{wheel.build}-{wheel.python}" if wheel.build else wheel.python
        facts = {"pname": wheel.distribution, "format": "wheel", "dist": wheel.python, "python": python}
        return Source(
            name, "fetchPypi", facts | {"abi": wheel.abi, "platform": wheel.platform, "hash": digest}
        )
    if "://" not in address:
        path = os.path.relpath(address, directory)
        path = path if path.startswith("../") else f"./{path}"
        if not re.fullmatch(r"[0-9A-Za-z+\-._/]+", path) or name != os.path.basename(path):
            raise UsageError(
                f"{path}: Nix has no path of these characters; rename the file, or name a URL by --url"
            )
        return Source(name, None, {"path": path})
    last = unquote(posixpath.basename(urlsplit(address).path))
    fits = last.endswith(".whl") and len(last) <= _NAME_LIMIT and _STORE_NAME.fullmatch(last)
    named = {} if fits and address.endswith(f"/{last}") else {"name": last if fits else name}
    return Source(name, "fetchurl", {"url": address, **named, "hash": digest})


def _not_on_pypi(wheel: WheelName, name: str) -> str | None:
    """Why PyPI takes no wheel of this name (warehouse, forklift/legacy.py), or no store path can have it."""
    if wheel.version.local is not None:
        return f"its version has a local label (+{wheel.version.local})"
    if "linux_x86_64" in wheel.platform.split("."):
        return "its platform is linux_x86_64"
    return None if name == wheel.filename else "no file in a Nix store can have this name"


def dependencies(
    metadata: RawMetadata, minors: Sequence[int], subject: str
) -> tuple[tuple[Dependency, ...], list[Finding]]:
    """Return the Python packages that the wheel requires, and what was left out.

    A vendor's packages for site-packages are none of them: buildInputs take their place. A package that only the vendor has is
    called as its wheel is: a package.nix of it has to be passed to callPackage.

    :param minors: the Pythons that take the wheel; a marker is evaluated for each.
    """
    found: dict[str, set[int]] = {}
    findings = []
    for line in metadata.get("requires_dist", ()):
        try:
            requirement = Requirement(line)
            marker = requirement.marker
            applies = {minor for minor in minors if marker is None or marker.evaluate(_environment(minor))}
        except (
            ValueError,
            RecursionError,
        ):  # a marker in thousands of brackets, or with a number of thousands of digits
            findings.append(finding("RLK713", subject, f"cannot be read: {line}"))
            continue
        if applies and not is_distribution(requirement.name):
            found.setdefault(str(canonicalize_name(requirement.name)), set()).update(applies)
    rows = [Dependency(name, attribute_of(name), frozenset(found[name])) for name in sorted(found)]
    lost = [row.name for row in rows if row.attribute is None]
    findings += [finding("RLK713", name, "not in the table of nixpkgs' Python packages") for name in lost]
    return tuple(rows), findings


def _environment(minor: int) -> dict[str, str]:
    # A marker may ask for the patch release, which no tag tells.
    return {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "sys_platform": "linux",
        "python_version": f"3.{minor}",
        "python_full_version": f"3.{minor}.0",
        "extra": "",
    }


def attribute_of(name: str) -> str | None:
    """Return what nixpkgs calls a Python package of the package index; None where it is not known to be there.

    A package that its vendor alone has is called as its wheel is.

    :param name: normalised (PEP 503).
    """
    names, others = python_names()
    known = name in names or is_sibling(name)
    return others.get(name) or (name if known else None)


def is_sibling(name: str) -> bool:
    """Whether a profile knows this Python package and nixpkgs does not have it: its vendor alone has it."""
    return name not in python_names()[0] and bool(profile_for(name).distributions)


@cache
def python_names() -> tuple[frozenset[str], Mapping[str, str]]:
    """Return the names of nixpkgs' Python packages, and those that are called otherwise there: name on the index → attribute.

    ``scripts/record-nixpkgs-names`` makes the file of them.
    """
    table = tomllib.loads(
        read_text(shipped_directory("profiles") / "nixpkgs/python-names.toml", _TABLE_LIMIT)
    )
    return frozenset(table["names"]), table["others"]


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
        description=re.sub(r"\s+", " ", metadata.get("summary", "")).strip().removesuffix("."),
        homepage=next((home for home in homes if home.startswith("http")), None),
        changelog=next((urls[name] for name in _CHANGES if urls.get(name, "").startswith("http")), None),
        license=next((found for text in stated if (found := _spdx(text))), None),
    )


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
