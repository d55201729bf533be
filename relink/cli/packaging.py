"""Commands that make packages for other package managers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relink.cli.application import app
from relink.cli.formats import Shown
from relink.cli.options import takes_options
from relink.planning.options import Options


@app.command()
@takes_options("nix")
def nix(
    wheels: Annotated[
        list[Path],
        typer.Argument(metavar="WHEEL...", help="The vendor's wheel; of one release, one for each Python."),
    ],
    *,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where the wheel comes from; without it, PyPI.")
    ] = None,
    rocm_major: Annotated[
        int | None, typer.Option(metavar="N", help="The ROCm of rocmPackages, if not the wheel's own.")
    ] = None,
    lock: Annotated[
        bool,
        typer.Option(
            "--lock",
            help="Beside it the plan with the libraries of --prefix, which the build compares with its own.",
        ),
    ] = False,
    options: Options,
    shown: Shown,
) -> None:
    """Write a package for Nix, which autoRelinkHook relinks in its build to what buildInputs have.

    Example: relink nix onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl -o pkgs/onnxruntime-rocm
    """
    from relink.cli.terminal import show
    from relink.report.nix.emit import write_package
    from relink.report.text import findings_text
    from relink.runs import questions as queries
    from relink.system.errors import UsageError
    from relink.system.findings.model import has_errors

    if url is not None and len(wheels) != 1:
        raise UsageError(
            "--url names one wheel, and several were given; make them one by one, or take them from PyPI"
        )
    if lock and not (options.prefixes or options.nix_closures):
        raise UsageError(
            "--lock: the plan is made with libraries; name the packages of the store by --prefix or --nix-closure"
        )
    packages = [queries.nix_package(wheel, options, url=url, major=rocm_major) for wheel in wheels]
    findings = tuple(dict.fromkeys(found for package in packages for found in package.findings))
    show(*findings_text(findings, verbose=shown.verbose))
    for attribute, sonames in dict(item for package in packages for item in package.inputs).items():
        show(f"{attribute}  {', '.join(sonames)}")
    if has_errors(findings) and not options.force:
        raise typer.Exit(1)
    for path in write_package(packages, options.output_place, lock=lock):
        show(str(path))
    if has_errors(findings):
        raise typer.Exit(1)
