"""Copying one file, whatever lies under its name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from relink.atomic import atomic_file
from relink.files import open_regular

__all__ = ["copy_file"]

_CHUNK = 1 << 20  # bytes


def copy_file(source: Path, place: Path) -> Path:
    """Copy a regular file with its mode and times; `place` has all of it, or what it had before.

    :raises OSError: `source` is no regular file (EINVAL) or cannot be read, or `place` cannot be written.
    """
    with os.fdopen(open_regular(source), "rb") as reader, atomic_file(place) as writer:
        while chunk := reader.read(_CHUNK):
            writer.write(chunk)
    shutil.copystat(source, place)
    return place
