"""A page to look at of a report that was saved."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from relink.cli.application import app
from relink.cli.pages import write_page


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
    from relink.runs import questions as queries

    found, plan = queries.saved_report(source)
    path = output or Path(f"{source.stem}.html")
    if os.path.isdir(path):
        path /= f"{source.stem}.html"
    write_page(found, path, plan=plan)
    show(str(path))
