"""Commands that make packages for other package managers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relink.cli.application import app
from relink.cli.formats import Shown
from relink.cli.guessing import is_requirement
from relink.cli.options import takes_options
from relink.planning.options import Options


@app.command()
@takes_options("nix")
def nix(
    wheels: Annotated[
        list[str],
        typer.Argument(
            metavar="WHEEL…",
            help="The vendor's wheel, its URL, or NAME==VERSION, which pip fetches; of one release, one for each Python.",
        ),
    ],
    *,
    url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL|FILE",
            help="Where a wheel comes from; without it, PyPI. Once for each wheel, in their order.",
        ),
    ] = None,
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
    from relink.system.errors import RelinkError, UsageError
    from relink.system.findings.model import has_errors

    addresses: list[str | None] = [*url] if url else [word if "://" in word else None for word in wheels]
    if len(addresses) != len(wheels):
        raise UsageError(
            f"--url: {len(addresses)} for {len(wheels)} wheels; pass it once for each, in their order"
        )
    paths = [Path(word) for word in wheels]
    if any("://" in word or is_requirement(word) for word in wheels):
        from relink.cli.fetching import fetch_named
        from relink.indexes.install.installers import fetch_url

        paths = [fetch_url(word).path if "://" in word else Path(word) for word in wheels]
        failures: list[RelinkError] = []
        paths = fetch_named(paths, options, failures, quiet=shown.quiet)
        if failures:
            raise failures[0]
    packages = [
        queries.nix_package(path, options, address) for path, address in zip(paths, addresses, strict=True)
    ]
    findings = tuple(dict.fromkeys(found for package in packages for found in package.findings))
    show(*findings_text(findings, verbose=shown.verbose))
    for attribute, sonames in dict(item for package in packages for item in package.inputs).items():
        show(f"{attribute}  {', '.join(sonames)}")
    if has_errors(findings) and not options.force:
        raise typer.Exit(1)
    show(str(write_package(packages, options.output_place, force=options.force)))
    if has_errors(findings):
        raise typer.Exit(1)
