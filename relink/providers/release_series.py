"""The series of a release: what a result works with."""

from __future__ import annotations

from packaging.version import Version

__all__ = ["series"]


def series(version: str) -> str:
    """Return major and minor of a version, ``7.2``: what a result works with."""
    try:
        release = Version(version)
    except ValueError:  # InvalidVersion, or more digits than Python makes a number of
        return version
    return f"{release.major}.{release.minor}"
