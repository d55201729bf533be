"""The wheels that a uv.lock names: their addresses and hashes.

Source: uv's documentation, "Lockfile"; the form is that of `version = 1` (uv2nix reads the same: lib/lock1.nix).
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.utils import NormalizedName, canonicalize_name

from relink.providers.profiles.document import parse_document, read_named_text
from relink.system.errors import UsageError, WheelError
from relink.wheel.naming import WheelName, parse_wheel_name

__all__ = ["LockedWheel", "read_lock"]

_LOCK_LIMIT = 32 << 20  # bytes; the lock of a large workspace has a few millions
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_WHEELS = 200_000


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
