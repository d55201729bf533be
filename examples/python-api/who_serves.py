"""Relink as a library: plan a wheel, write nothing, and say which package of this system serves each library it needs.

    python who_serves.py WHEEL PREFIX [INTERPRETER]

Exit code 0: everything is served; 1: something is not; 2: the wheel or the prefix cannot be used.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from pathlib import Path

from relink.library import relink
from relink.planning.options import Options
from relink.report.model import Report
from relink.system.errors import RelinkError


def by_directory(report: Report) -> dict[str, set[str]]:
    """Return directory → sonames of everything that the closures of a report map, the wheel's own members left out."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for file in report.files:
        for soname, path in file.closure:
            if not path.startswith("$WHEEL"):
                found[os.path.dirname(os.path.normpath(path))].add(soname)
    return found


def main(wheel: str, prefix: str, interpreter: str | None = None) -> int:
    """Print what a plan says; returns the exit code."""
    options = Options(prefixes=(prefix,), interpreter=interpreter, dry_run=True)
    try:
        report = relink(Path(wheel), options)
    except RelinkError as error:
        print(error, file=sys.stderr)
        return 2
    for file in report.files:
        edit = f"{file.strategy}, {len(file.edit.add)} NEEDED added" if file.changed else "stays as it is"
        print(f"{os.path.basename(file.path)}: {edit}")
    for directory, sonames in sorted(by_directory(report).items()):
        print(f"{directory}: {' '.join(sorted(sonames))}")
    for finding in report.findings:
        if finding.level != "info":
            print(f"{finding.level} {finding.code} {finding.subject}")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
