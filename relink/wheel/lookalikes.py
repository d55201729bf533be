"""What people pass where a wheel is expected, and what they can do: directories, source distributions, other archives."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from relink.system.text import join_truncated

# "Source distribution format" of the PyPA specifications has .tar.gz; .zip and others are older.
_SOURCE = re.compile(r"(?P<stem>.+-\d.*)\.(?:tar\.(?:gz|bz2|xz|Z)|tgz|tbz|zip)")
_OTHERS = {
    ".conda": "a package of conda's",
    ".egg": "an egg, the format before wheels",
    ".deb": "a package of Debian's",
    ".rpm": "an RPM package",
}


def not_a_wheel(path: Path) -> str | None:
    """Return a sentence about what `path` is instead of a wheel; None where it may be one, or is not there."""
    if path.is_dir():
        return no_tree(path) or f"{path} is a directory, and there is no wheel in it; pass a wheel (.whl)"
    if path.suffix == ".whl" or not path.is_file():
        return None
    if match := _SOURCE.fullmatch(path.name):
        return (
            f"{path} is a source distribution, and relink takes wheels, which have libraries in them; build one: "
            f"pip wheel --no-deps {path}, or get the vendor's wheel of {match['stem']}"
        )
    kind = _OTHERS.get(path.suffix.lower())
    return f"{path} is {kind}, and relink takes wheels; get the vendor's wheel (.whl)" if kind else None


def no_tree(path: Path) -> str | None:
    """Return a sentence about a directory of wheels or of sources; None where it may be an unpacked tree."""
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        return f"{path} is a directory, and relink takes wheels" if error.errno == errno.EACCES else None
    wheels = [name for name in names if name.endswith(".whl")]
    if wheels:
        listed = join_truncated([str(path / name) for name in wheels])
        return f"{path} is a directory, and relink takes wheels; pass those in it: {listed}"
    if {"pyproject.toml", "setup.py"} & set(names):
        return f"{path} is a directory with sources, and relink takes wheels; build one: pip wheel --no-deps {path}"
    return None
