"""A page to look at of a report that was saved."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relink.cli.application import app
from relink.cli.pages import write_page
from relink.errors import UsageError

if TYPE_CHECKING:
    from relink.report.model import Report


@app.command("report")
def report(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="What `relink WHEEL --json` printed, a relink.json, or a relinked wheel."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.html", help="The page. Default: FILE's name, here."),
    ] = None,
) -> None:
    """Make a page to look at of a saved report: findings, dependency graph, GPU code, what changed.

    Example: relink onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl --json > plan.json; relink report plan.json
    """
    from relink.cli.terminal import show

    found, plan = _read(source)
    path = output or Path(f"{source.stem}.html")
    if os.path.isdir(path):
        path /= f"{source.stem}.html"
    write_page(found, path, plan=plan)
    show(str(path))


def _read(source: Path) -> tuple[Report, bool]:
    """Return the report in a file, and whether it is what a plan alone can tell."""
    from relink.bounded_json import JSON_LIMIT
    from relink.files import read_text
    from relink.report.saved import planned_report, read_saved

    if source.suffix == ".whl":
        from relink.queries import read_plan
        from relink.wheel.archive import WheelArchive

        with WheelArchive(source) as archive:
            plan = read_plan(archive)
        if plan is None:
            raise UsageError(
                f"{source}: relink has not made this wheel, so there is no plan in it; `relink {source.name} --report FILE.html`"
            )
        return planned_report(plan), True
    try:
        content = read_text(source, JSON_LIMIT, errors="replace")
    except OSError as error:
        raise UsageError(f"{source}: cannot be read ({error.strerror})") from error
    return read_saved(content, str(source))
