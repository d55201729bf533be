"""The wheels that a uv.lock names: their addresses and hashes, and which of them are for ROCm.

Source: uv's documentation, "Lockfile"; the form is that of `version = 1` (uv2nix reads the same: lib/lock1.nix).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import NormalizedName, canonicalize_name

from relink.providers.profiles import shipped_profiles
from relink.providers.profiles.document import parse_document, read_named_text
from relink.system.errors import UsageError, WheelError
from relink.system.text import join_truncated
from relink.wheel.archive import WheelArchive
from relink.wheel.naming import WheelName, parse_wheel_name

__all__ = ["LockedWheel", "locked_url", "locked_urls", "read_lock", "rocm_wheels"]

_LOCK_LIMIT = 32 << 20  # bytes; the lock of a large workspace has a few millions
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_URL = re.compile(r"(?:https?|file)://[!-\[\]-~]+")  # printable ASCII without a space and a backslash
_WHEELS = 200_000
_CHOSEN = 200
_LARGEST = 64 << 30  # bytes of one wheel
_PLATFORM = re.compile(r"(?:many)?linux[0-9_]*_x86_64")
_ROCM_ITSELF = re.compile(r"rocm(?:-sdk(?:-.*)?)?")
"""Wheels that are ROCm, by TheRock's docs/packaging/python_packaging.md: a plan takes ROCm from nixpkgs in their place."""


@dataclass(frozen=True, slots=True)
class LockedWheel:
    """A wheel of a lock file, as it is said there.

    :ivar package: the name of the package that it stands below.
    :ivar sha256: hex; None where there is none.
    :ivar size: in bytes; None where there is none.
    """

    package: NormalizedName
    name: WheelName
    url: str
    sha256: str | None
    size: int | None


def read_lock(path: Path) -> tuple[LockedWheel, ...]:
    """Return the wheels with an address, in the order of the file.

    :raises UsageError: it cannot be read, is not TOML, or is no uv.lock.
    """
    text = read_named_text(path, _LOCK_LIMIT, "lock file")
    packages = parse_document(text, path, "lock file").get("package")
    if not isinstance(packages, list):
        raise UsageError(f"{path}: no uv.lock: it has no [[package]]; name the one that `uv lock` writes")
    found: list[LockedWheel] = []
    for package in packages:
        wheels = package.get("wheels") if isinstance(package, dict) else None
        for wheel in wheels if isinstance(wheels, list) else ():
            if (row := _row(package.get("name"), wheel)) is not None and len(found) < _WHEELS:
                found.append(row)
    return tuple(found)


def _row(package: Any, wheel: Any) -> LockedWheel | None:
    url = wheel.get("url") if isinstance(wheel, dict) else None
    if not isinstance(package, str) or not isinstance(url, str):
        return None
    try:
        name = parse_wheel_name(unquote(posixpath.basename(urlsplit(url).path)))
    except (ValueError, WheelError):
        return None
    digest, size = wheel.get("hash"), wheel.get("size")
    match = _HASH.fullmatch(digest) if isinstance(digest, str) else None
    whole = isinstance(size, int) and not isinstance(size, bool)
    return LockedWheel(
        canonicalize_name(package), name, url, match[1] if match else None, size if whole else None
    )


def rocm_wheels(
    wheels: Iterable[LockedWheel], lock: Path, python: tuple[int, int] | None = None
) -> tuple[LockedWheel, ...]:
    """Return the wheels that need ROCm and run on Linux on x86-64, each once.

    That a wheel is for ROCm is said by its version (``2.9.1+rocm7.2``), its name, or a profile: of a package that only AMD has,
    or that has a variant for ROCm beside others. Wheels that are ROCm itself are none of them.

    :param python: only those that this Python takes.
    :raises UsageError: there is none, there are more than two hundred, or one of them cannot be fetched as it is said there.
    """
    profiled = {
        name
        for profile in shipped_profiles().values()
        if profile.variants or profile.nixpkgs is None
        for name in profile.distributions
    }
    taken = _taken(python) if python else None
    chosen = {
        wheel.url: wheel
        for wheel in wheels
        if (wheel.name.canonical in profiled or _says_rocm(wheel.name)) and _fits(wheel.name, taken)
    }
    if not chosen:
        which = f" for Python {python[0]}.{python[1]}" if python else ""
        raise UsageError(
            f"{lock}: it has no wheel for ROCm{which} on Linux x86-64 by its names and versions; "
            "pass what is meant as WHEEL"
        )
    if len(chosen) > _CHOSEN:
        raise UsageError(f"{lock}: it has {len(chosen)} wheels for ROCm; pass those that are meant as WHEEL")
    if wrong := [sentence for wheel in chosen.values() if (sentence := _wrong(wheel))]:
        raise UsageError(f"{lock}: {join_truncated(wrong)}")
    return tuple(chosen.values())


def _says_rocm(name: WheelName) -> bool:
    if _ROCM_ITSELF.fullmatch(name.canonical):
        return False
    labels = (name.version.local or "").split(".")
    return "rocm" in name.canonical or any(label.startswith("rocm") for label in labels)


def _taken(python: tuple[int, int]) -> frozenset[tuple[str, str]]:
    """Return the interpreters and ABIs of wheels that a Python takes."""
    abi = f"cp{python[0]}{python[1]}"
    tags = (*cpython_tags(python, [abi], ["any"]), *compatible_tags(python, abi, ["any"]))
    return frozenset((tag.interpreter, tag.abi) for tag in tags)


def _fits(name: WheelName, taken: frozenset[tuple[str, str]] | None) -> bool:
    if not any(_PLATFORM.fullmatch(platform) for platform in name.platform.lower().split(".")):
        return False
    tags = {(tag.interpreter, tag.abi) for tag in replace(name, platform="any").tags}
    if taken is None:
        return any(
            re.fullmatch(r"(?:py3|cp3)\d*", interpreter) and not abi.endswith("t")
            for interpreter, abi in tags
        )
    return not tags.isdisjoint(taken)


def _wrong(wheel: LockedWheel) -> str | None:
    shown = wheel.name.filename
    if wheel.package != wheel.name.canonical:
        return f"{shown} stands below the package {wheel.package}, another name; lock anew"
    if wheel.sha256 is None:
        return f"{shown} has no sha256, without which it cannot be checked; lock it from an index that gives hashes"
    if not _URL.fullmatch(wheel.url):
        return f"{shown} has an address that is none of https, http or file; lock anew"
    if wheel.size is not None and not 0 < wheel.size <= _LARGEST:
        return f"{shown} is said to have a size that no wheel has; lock anew"
    return None


def locked_urls(lock: Path, files: Sequence[Path]) -> list[str]:
    """Return the address of each of these files, as :func:`locked_url` finds it.

    :raises UsageError: a file cannot be read, or the lock file has another or none.
    """
    wheels = read_lock(lock)
    found = []
    for file in files:
        with WheelArchive(file) as archive:
            found.append(locked_url(wheels, archive.sha256(), file.name, lock))
    return found


def locked_url(wheels: Iterable[LockedWheel], sha256: str, name: str, lock: Path) -> str:
    """Return the address of a wheel by its hash.

    :raises UsageError: the lock file has another wheel, or none, or no address that can be fetched.
    """
    wheel = next((wheel for wheel in wheels if wheel.sha256 == sha256), None)
    if wheel is None:
        raise UsageError(
            f"{name}: {lock} has no wheel of this hash (sha256:{sha256}); take the file that it names, or lock anew"
        )
    if wrong := _wrong(wheel):
        raise UsageError(f"{lock}: {wrong}")
    return wheel.url
