"""Stale lines of RECORD: what it says of the wheel's own ``*.dist-info`` and is not so.

Tools write METADATA and WHEEL anew, or rename the directory for another version, and forget RECORD; pip installs such a wheel.
The package's own files have to be what RECORD lists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from packaging.utils import canonicalize_name

from relink.wheel.archive import WheelArchive
from relink.wheel.record import RecordEntry, RecordIssue, RecordKind, is_metadata, signatures

__all__ = ["as_stale", "stale_lines"]

_OF_A_FILE = frozenset({RecordKind.ABSENT, RecordKind.NOT_LISTED, RecordKind.MALFORMED})


def as_stale(issues: Iterable[RecordIssue], dist_info: str) -> list[RecordIssue]:
    """Return the issues, with those about files of the distribution's ``*.dist-info``, whatever its version, as stale lines.

    :param dist_info: the directory that the wheel has.
    """
    distribution = _distribution(dist_info)
    return [
        replace(issue, kind=RecordKind.STALE)
        if issue.kind in _OF_A_FILE and _distribution(issue.path.partition("/")[0]) == distribution
        else issue
        for issue in issues
    ]


def _distribution(directory: str) -> str | None:
    """Return the normalized name of the distribution that a ``NAME-VERSION.dist-info`` is of; None for another directory."""
    name, hyphen, _ = directory.removesuffix(".dist-info").rpartition("-")
    return canonicalize_name(name) if hyphen and directory.endswith(".dist-info") else None


def stale_lines(archive: WheelArchive, entries: Iterable[RecordEntry]) -> list[RecordIssue]:
    """Return the files of ``*.dist-info`` whose hash is not the one in RECORD, where their size is.

    Tools write METADATA and WHEEL anew and forget RECORD; pip installs such a wheel. The package's own files have to be what
    RECORD lists: :func:`check_digest`.

    :raises WheelError: the archive's CRC or size of such a file is wrong.
    """
    unhashed = {f"{archive.dist_info}/RECORD", *signatures(archive.dist_info, archive.members)}
    issues = []
    for entry in entries:
        member = archive.members.get(entry.path)
        if member is None or entry.digest is None or entry.algorithm is None or entry.path in unhashed:
            continue
        if is_metadata(archive, entry.path) and entry.size in (None, member.size):
            digest = hashlib.new(entry.algorithm, usedforsecurity=False)
            for chunk in archive.chunks(entry.path):
                digest.update(chunk)
            if digest.digest() != entry.digest:
                issues.append(RecordIssue(RecordKind.STALE, entry.path, "is not the file that RECORD lists"))
    return issues
