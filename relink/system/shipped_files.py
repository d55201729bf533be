"""Files that relink ships beside its code: inside the package when installed, beside it in a source tree."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, cast

from relink.system.programs import NoAnswerError, ask_program

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
    return cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))


def source_commit() -> str | None:
    """Return the commit that relink was built from, or is run from, with ``-dirty`` behind it where files were changed.

    None where nothing tells: a copy of the sources without git's directory, or a machine without git.
    """
    built = PACKAGE / COMMIT
    if built.is_file():
        return built.read_text(encoding="ascii").strip()
    root = PACKAGE.parent
    # A repository further up is another project's, in which an environment with relink lies.
    if not (root / ".git").exists():
        return None
    try:
        return ask_program(["git", "-C", str(root), *_DESCRIBE]).stdout.strip() or None
    except NoAnswerError:
        return None
