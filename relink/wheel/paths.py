"""Which member names a wheel may hold: those that mean the same file, inside the tree, to every installer."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Bytes: Linux, PATH_MAX without the NUL; what is longer cannot be opened.
_MAX_PATH = 4095
_MAX_COMPONENT = 255  # bytes: Linux, NAME_MAX
# Components of a path; vendors' wheels have less than 20.
_MAX_DEPTH = 100
_DRIVE = re.compile(r"[A-Za-z]:")


def name_defect(name: str) -> str | None:
    """Say why ``name`` (a member's path, ``/`` at the end for a directory) is refused, or None."""
    if not name or name == "/":
        return "the name is empty"
    size = len(name.encode("utf-8", "surrogateescape"))
    if size > _MAX_PATH:
        return f"the name has {size} bytes; a path has {_MAX_PATH} at most"
    if size > _MAX_COMPONENT and any(
        len(part.encode("utf-8", "surrogateescape")) > _MAX_COMPONENT for part in name.split("/")
    ):
        return f"a component of the name is longer than {_MAX_COMPONENT} bytes"
    if "\0" in name:
        return "the name holds a NUL: unpackers cut it there"
    if _CONTROL.search(name):
        return "the name holds control characters"
    if "\\" in name:
        return "the name holds a backslash: a separator to some unpackers"
    if name.startswith("/"):
        return "the path is absolute"
    if _DRIVE.match(name):
        return "the path begins with a drive"
    parts = name.removesuffix("/").split("/")
    if ".." in parts:
        return "the path leaves the wheel ('..')"
    if len(parts) > _MAX_DEPTH:
        return f"the path goes through {len(parts) - 1} directories; at most {_MAX_DEPTH - 1} are expected"
    if "" in parts or "." in parts:
        return "the path is not in its shortest form (empty or '.' component)"
    return None


def collisions(names: Iterable[str]) -> list[str]:
    """Find the distinct ``names`` that become one file where case or composition does not count.

    Also a file that would have to be a directory for another member. Takes O(n log n) steps whatever the
    names are: they may have been made up to be slow.
    """
    issues: list[str] = []
    seen: dict[str, str] = {}
    for name in names:
        key = unicodedata.normalize("NFC", name.removesuffix("/").casefold())
        other = seen.setdefault(key, name)
        if other != name:
            issues.append(f"{name!r}: differs from {other!r} only in case, composition or a final slash")
    keys = sorted(seen)
    for key, name in seen.items():
        if not name.endswith("/"):
            # In sorted order the first key from here on is below this one, or none is.
            at = bisect_left(keys, f"{key}/")
            if at < len(keys) and keys[at].startswith(f"{key}/"):
                issues.append(f"{name!r}: is a file, and the directory of {seen[keys[at]]!r}")
    return issues
