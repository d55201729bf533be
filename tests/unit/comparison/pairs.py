"""A vendor's wheel and what relink makes of it, and how the second one is tampered with."""

from __future__ import annotations

import zipfile
from pathlib import Path

INFO = "demo-1.0+rocm7.2.4.dist-info"


def content(wheel: Path, member: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(member)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
