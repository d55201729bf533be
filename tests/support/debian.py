"""Debian's ROCm, as printed in the documentation and as it is by now."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest


def same_rocm(root: Path, markdown: str) -> None:
    """Skip the test where Debian has moved on from the release that the text shows: what it prints is then another."""
    shown = re.search(r"\+rocm(\d+\.\d+)\.\d+-cp312", markdown)
    now = re.match(r"\S+ \((?:\d+:)?(\d+\.\d+)", gzip.decompress(_changelog(root)).decode(errors="replace"))
    if shown and now and shown[1] != now[1]:
        pytest.skip(f"the text shows ROCm {shown[1]}, Debian has {now[1]} by now")


def _changelog(root: Path) -> bytes:
    return (root / "usr/share/doc/libamdhip64-7/changelog.Debian.gz").read_bytes()
