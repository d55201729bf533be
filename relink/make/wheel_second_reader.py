"""A finished wheel opened by `wheel`'s own :class:`wheel.wheelfile.WheelFile`, which shares no code with this package.

:mod:`relink.wheel.archive` reads the output again with the reader that relink itself is built on. What another tool makes of its
name, its central directory and RECORD is seen here. No content is read but RECORD's.

`wheel.wheelfile` is imported when the first wheel is opened.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

__all__ = ["refusals"]

_MOST = 5  # differences that are listed: one mistake can concern every member


def refusals(path: Path, members: Iterable[str]) -> list[str]:
    """Open a wheel by ``WheelFile``; returns a sentence for each thing that it refuses or reads otherwise.

    It must accept the file's name, every line of RECORD, and the local header of each member, which must have a hash in RECORD.

    :param members: the names of the members that relink has written, in the archive's order, directories included.
    """
    from wheel.wheelfile import WheelError, WheelFile  # noqa: PLC0415

    issues: list[str] = []
    # What it raises for damaged lines of RECORD is what Python does: too many fields, hashes that are not base64.
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
