"""The wheels that a uv.lock names: their addresses and hashes.

Source: uv's documentation, "Lockfile"; the form is that of `version = 1` (uv2nix reads the same: lib/lock1.nix).
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from relink.indexes.build.simple_api import ListedWheel, checked_wheel
from relink.providers.profiles.document import parse_document, read_named_text
from relink.system.errors import UsageError, WheelError

__all__ = ["read_lock"]

_LOCK_LIMIT = 32 << 20  # bytes; the lock of a large workspace has a few millions


def read_lock(path: Path) -> tuple[ListedWheel, ...]:
    """Return the wheels with an address and a SHA-256, in the order of the file.

    :raises UsageError: it cannot be read, is not TOML, or is no uv.lock.
    """
    text = read_named_text(path, _LOCK_LIMIT, "lock file")
    packages = parse_document(text, path, "lock file").get("package")
    if not isinstance(packages, list):
        raise UsageError(f"{path}: no uv.lock: it has no [[package]]; name the one that `uv lock` writes")
    base = path.absolute().as_uri()
    found: list[ListedWheel] = []
    for package in packages:
        name, wheels = (package.get("name"), package.get("wheels")) if isinstance(package, dict) else (0, 0)
        for wheel in wheels if isinstance(name, str) and isinstance(wheels, list) else ():
            try:
                filename = posixpath.basename(unquote(urlsplit(wheel["url"]).path))
                file = {**wheel, "hashes": {"sha256": wheel["hash"].removeprefix("sha256:")}}
                found.append(checked_wheel(file, filename, base, canonicalize_name(str(name))))
            except (ValueError, LookupError, TypeError, AttributeError, WheelError):
                continue  # a file that is no wheel, or one without an address
    return tuple(found)
