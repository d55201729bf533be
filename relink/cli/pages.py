"""The HTML pages of reports: their paths, and writing them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from relink.system.errors import UsageError

if TYPE_CHECKING:
    from relink.report.model import Report


def page_path(wanted: Path | None, wheels: Sequence[Path], wheel: Path) -> Path | None:
    """Return the path of the page of `wheel`, one of the `wheels` of the command line.

    :param wanted: as ``--report`` names it: the page, or a directory for the pages of all wheels.
    :raises UsageError: `wanted` is one file for several wheels, or its directory does not exist.
    """
    if wanted is None:
        return None
    if os.path.isdir(wanted):
        return wanted / f"{wheel.stem}.html"
    if len(wheels) > 1:
        raise UsageError(
            f"--report {wanted}: a page shows one wheel, and {len(wheels)} were passed; name a directory"
        )
    if not os.path.isdir(wanted.parent):
        raise UsageError(f"--report {wanted}: there is no directory {wanted.parent}; make it first")
    return wanted


def write_page(report: Report, path: Path, *, plan: bool = False) -> None:
    """Write the page of a report under its name whole, or not at all.

    :raises UsageError: it cannot be written, or would take the place of something that is no page.
    """
    from relink.report.html import html_page
    from relink.system.atomic import atomic_file

    if path.suffix.lower() not in (".html", ".htm") and os.path.exists(path):
        raise UsageError(f"{path}: exists and is not called .html; name another file")
    page = html_page(report, plan=plan)
    try:
        with atomic_file(path) as file:
            file.write(page.encode())
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({os.strerror(error.errno or 0)})") from error
