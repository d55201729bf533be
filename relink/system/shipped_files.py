"""Files that relink ships beside its code: inside the package when installed, beside it in a source tree."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any, cast

__all__ = ["COMMIT", "PACKAGE", "load_schema", "shipped_directory", "source_commit"]

PACKAGE = Path(__file__).resolve().parents[1]
"""The directory of the package ``relink``."""
COMMIT = "_commit"
"""The file of the package that names the commit; hatch_build.py writes it when a checkout is built."""
_DESCRIBE = ("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


def shipped_directory(name: str) -> Path:
    """Return a directory of shipped files: ``profiles`` or ``examples/demo``, by its path in a source tree.

    hatchling puts each into the package under its last name with an underscore before it (pyproject.toml).
    """
    inside = PACKAGE / f"_{Path(name).name}"
    return inside if inside.is_dir() else PACKAGE.parent / name


@functools.cache
def load_schema(name: str) -> dict[str, Any]:
    """Return a shipped JSON schema by its name, such as ``report`` or, beside a vendor's data, ``rocm/rocm``."""
    own = PACKAGE / "schemas" / f"{name}.schema.json"
    path = own if own.is_file() else shipped_directory("profiles") / f"{name}.schema.json"
    text = path.read_text(encoding="utf-8")
    return cast("dict[str, Any]", json.loads(text))


def source_commit() -> str | None:
    """Return the commit that relink was built from, or is run from, with ``-dirty`` behind it where files were changed.

    None where nothing tells: a copy of the sources without git's directory, or a machine without git.
    """
    built = PACKAGE / COMMIT
    if built.is_file():
        return built.read_text(encoding="ascii").strip()
    root = PACKAGE.parent
    if not (
        root / ".git"
    ).exists():  # a file in a worktree; and no other project's repository around an environment counts
        return None
    try:
        done = subprocess.run(
            ["git", "-C", root, *_DESCRIBE], capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
