"""A vendor's wheel and what relink makes of it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import NamedTuple

from relink.planning.options import Options

INFO = "demo-1.0+rocm7.2.4.dist-info"


class Pair(NamedTuple):
    """The vendor's wheel, the relinked one, and the options that it was made with."""

    old: Path
    new: Path
    options: Options


def member(wheel: Path, name: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
