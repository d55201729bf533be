"""The second reader of an output before it is published: the package `wheel` opens the archive.

relink's own reader has read and checked it already. What `wheel` makes of the archive's name, its central directory and RECORD is
seen here; no content is read but RECORD's. `wheel.wheelfile` is imported when the first wheel is opened.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from relink.system.findings.model import Finding, Level, finding
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import NO_LIMITS

# Differences that are listed: one mistake can concern every member.
_MOST = 5


def refusals(path: Path, members: Iterable[str]) -> list[str]:
    """Open a wheel by ``WheelFile``; returns a sentence for each thing that it refuses or reads otherwise.

    It must accept the file's name, every line of RECORD, and the local header of each member, which must have a hash in RECORD.

    :param members: the names of the members that relink has written, in the archive's order, directories included.
    """
    from wheel.wheelfile import WheelError, WheelFile  # noqa: PLC0415

    issues: list[str] = []
    # What `wheel` raises for damaged lines of RECORD is what Python does: too many fields, hashes that are not base64.
    errors = (
        WheelError,
        zipfile.BadZipFile,
        csv.Error,
        OSError,
        ValueError,
        LookupError,
        NotImplementedError,
    )
    try:
        with WheelFile(path) as other:
            for ours, theirs in zip_longest(members, other.namelist()):
                if ours != theirs:
                    issues.append(f"relink has written the member {ours!r}, wheel reads {theirs!r}")
                elif ours is not None:
                    try:
                        other.open(ours).close()
                    except errors as error:
                        issues.append(f"relink can read the member {ours!r}, wheel cannot: {_reason(error)}")
                if len(issues) > _MOST:
                    break
    except errors as error:
        issues.append(f"relink can open it, wheel cannot: {_reason(error)}")
    return issues


def _reason(error: Exception) -> str:
    return str(error).rstrip(".") or type(error).__name__


def reread_wheel(path: Path) -> Iterator[Finding]:
    """Yield a finding for each thing in a finished wheel that `wheel` refuses, or reads otherwise than relink.

    :raises WheelError: relink's own reader does not take it.
    """
    # The input was read under the user's limits.
    with WheelArchive(path, limits=NO_LIMITS) as archive:
        expected = f"{archive.name.distribution}-{archive.name.version_text}.dist-info"
        # `wheel` looks for a directory of just this name; pip and relink, which keep the vendor's spelling, for any that means
        # the same distribution and version.
        level: Level = "error" if archive.dist_info.lower() == expected.lower() else "warning"
        members = list(archive.members)
    for refusal in refusals(path, members):
        yield finding("RLK611", path.name, refusal, level=level)
