"""Print what wheels open by themselves (dlopen) against ROCm prefixes, and what relink says of each name, as a Markdown table.

    python scripts/opened_table.py --prefix PREFIX [--prefix PREFIX …] [--forward auto] [--stub auto] WHEEL…

The loader of a prefix is taken where it has one. Exit code 1: a wheel would load while a library of ROCm that it opens is not
found or does not load, and no finding says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from relink.library import relink
from relink.planning.model import DlopenEdge
from relink.planning.options import Options
from relink.report.model import Report
from relink.report.summary import verdict
from relink.vendors.rocm.vendor import rocm


def options_for(prefix: Path, arguments: argparse.Namespace) -> Options:
    """Return the options of a dry run against one prefix."""
    loader = next(iter(sorted(prefix.glob("lib/*/ld-linux-*.so.*"))), None)
    return Options(
        prefixes=(str(prefix),),
        interpreter=str(loader) if loader else None,
        dry_run=True,
        forward=tuple(arguments.forward),
        stub=tuple(arguments.stub),
    )


def rows(report: Report) -> Iterator[tuple[DlopenEdge, str]]:
    """Yield what is opened, each with the findings about it."""
    for opened in report.plan.opened:
        told = [f"{found.code} {found.level}" for found in report.findings if opened.name in found.subjects]
        yield opened, ", ".join(dict.fromkeys(told))


def main(arguments: argparse.Namespace) -> int:
    """Print the tables; returns the exit code."""
    silent = 0
    for wheel in arguments.wheels:
        for prefix in arguments.prefix:
            report = relink(wheel, options_for(prefix, arguments))
            print(f"\n{wheel.name} with {prefix}: {verdict(report).text}\n")
            print(
                "| opened by | name | known by | found | rule | findings |\n| --- | --- | --- | --- | --- | --- |"
            )
            for opened, told in rows(report):
                cells = (opened.opener, opened.name, opened.known_by.partition(":")[0])
                print("|", *cells, opened.resolved or "none", opened.found_by or "none", told, "|", sep=" | ")
                lost = opened.resolved is None and rocm.libraries.is_own(opened.name) and not told
                silent += lost and report.ok and opened.opener.startswith("$WHEEL")
    print(f"\nnot told: {silent}")
    return 1 if silent else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--prefix", type=Path, action="append", required=True)
    parser.add_argument("--forward", action="append", default=[])
    parser.add_argument("--stub", action="append", default=[])
    parser.add_argument("wheels", type=Path, nargs="+")
    sys.exit(main(parser.parse_args()))
