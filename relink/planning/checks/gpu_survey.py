"""`relink isa` on a wheel, a file or a directory: the survey, with what the wheel's profile knows of its variants."""

from __future__ import annotations

from pathlib import Path

from relink.gpu import Survey, survey
from relink.providers.profiles import NO_PROFILE, profile_for

__all__ = ["survey_of"]

_SCAN = 256 << 20  # bytes of each file


def survey_of(path: Path, *, scan: bool = False, profile: str | None = None) -> Survey:
    """Return what a wheel, file or directory holds, for ``relink isa``; a wheel's profile says which members are variants.

    :param scan: also search up to 256 MiB of each file's other data for code that is loaded by hand (XLA).
    :param profile: the name or the file of another profile than the wheel's own.
    :raises RelinkError: there is nothing of that name, or no wheel in a .whl.
    """
    distribution = path.name.partition("-")[0] if path.suffix == ".whl" else ""
    known = profile_for(distribution, profile) if distribution else NO_PROFILE
    return survey(path, variants=known.variants, scan_limit=_SCAN if scan else 0)
