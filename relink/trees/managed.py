"""Trees that another program keeps: it would overwrite what relink changes, or refuse to work on it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["keeper_of"]

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
_OF_USERS = "/usr/local"


def keeper_of(tree: Path) -> str | None:
    """Return which program keeps a tree, in words; None where none does.

    Sources: PEP 668 (EXTERNALLY-MANAGED in the directory of the standard library), the Filesystem Hierarchy Standard (/usr, apart
    from /usr/local, is the distribution's), conda's documentation (``conda-meta/history`` makes a directory an environment).
    """
    real = os.path.realpath(tree)
    if real == "/nix/store" or real.startswith("/nix/store/"):
        return "Nix: what is in its store never changes"
    below = [real, *map(str, Path(real).parents)]
    if any(directory in _SYSTEM for directory in below) and _OF_USERS not in below:
        return "the system's package manager, as all of /usr"
    for directory in below:
        if os.path.exists(f"{directory}/conda-meta/history"):
            return f"conda, as all of its environment {directory}"
        if os.path.basename(directory) in ("site-packages", "dist-packages") and os.path.exists(
            f"{os.path.dirname(directory)}/EXTERNALLY-MANAGED"
        ):
            return f"the system's package manager, as EXTERNALLY-MANAGED beside {directory} says"
    return None
