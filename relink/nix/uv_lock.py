"""The wheels that a uv.lock names: their addresses by their hashes.

Source: uv's documentation, "Lockfile"; the form is that of `version = 1` (uv2nix reads the same: lib/lock1.nix).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relink.errors import UsageError
from relink.profiles.document import parse_document, read_named_text
from relink.wheel.archive import WheelArchive

__all__ = ["locked_url", "locked_urls", "locked_wheels"]

_LOCK_LIMIT = 32 << 20  # bytes; the lock of a large workspace has a few millions
_HASH = re.compile(r"sha256:([0-9a-f]{64})\Z")
_WHEELS = 200_000


def locked_wheels(path: Path) -> dict[str, str]:
    """Return sha256 (hex) → address, in the order of the file, of every wheel that has both.

    :raises UsageError: it cannot be read, is not TOML, or is no uv.lock.
    """
    text = read_named_text(path, _LOCK_LIMIT, "lock file")
    packages = parse_document(text, path, "lock file").get("package")
    if not isinstance(packages, list):
        raise UsageError(f"{path}: no uv.lock: it has no [[package]]; name the one that `uv lock` writes")
    found: dict[str, str] = {}
    for package in packages:
        wheels = package.get("wheels") if isinstance(package, dict) else None
        for wheel in wheels if isinstance(wheels, list) else ():
            if (row := _row(wheel)) is not None and len(found) < _WHEELS:
                found.setdefault(*row)
    return found


def _row(wheel: Any) -> tuple[str, str] | None:
    if not isinstance(wheel, dict):
        return None
    url, digest = wheel.get("url"), wheel.get("hash")
    if (
        not isinstance(url, str)
        or not isinstance(digest, str)
        or not url.startswith(("https://", "http://", "file://"))
    ):
        return None
    match = _HASH.match(digest)
    return (match[1], url) if match else None


def locked_urls(lock: Path, wheels: Sequence[Path]) -> list[str]:
    """Return the address of each of these files, as :func:`locked_url` finds it.

    :raises UsageError: a file cannot be read, or the lock file has another or none.
    """
    locked = locked_wheels(lock)
    found = []
    for wheel in wheels:
        with WheelArchive(wheel) as archive:
            found.append(locked_url(locked, archive.sha256(), wheel.name, lock))
    return found


def locked_url(wheels: dict[str, str], sha256: str, name: str, lock: Path) -> str:
    """Return the address of a wheel by its hash.

    :raises UsageError: the lock file has another wheel, or none.
    """
    if sha256 not in wheels:
        raise UsageError(
            f"{name}: {lock} has no wheel of this hash (sha256:{sha256}); take the file that it names, or lock anew"
        )
    return wheels[sha256]
