"""Commands that make packages for other package managers."""

from __future__ import annotations

from collections.abc import Sequence
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
    ] = [],
    *,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where the wheel comes from; without it, PyPI.")
    ] = None,
    uv_lock: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Only plans, for uv2nix: of these wheels, or of all for ROCm that this uv.lock names, which are fetched.",
        ),
    ] = None,
    rocm_major: Annotated[
        int | None, typer.Option(metavar="N", help="The ROCm of rocmPackages, if not the wheel's own.")
    ] = None,
    no_vendor: Annotated[
        bool,
        typer.Option(
            "--no-vendor", help="Without relink's Nix functions: the overlay of its flake has them."
        ),
    ] = False,
    options: Options,
    shown: Shown,
) -> None:
    """Write a package for Nix: package.nix, and the plan as JSON with attributes of nixpkgs instead of directories.

    Without --prefix and --nix-closure it is made from a table and proved by building it.
    Example: relink nix onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl -o pkgs/onnxruntime-rocm
    """
    from relink.cli.terminal import show
    from relink.indexes.install.locked import fetch_locked
    from relink.loader.target import find_target
    from relink.report.nix.emit import write_package, write_plans
    from relink.report.nix.uv_lock import locked_urls
    from relink.report.text import findings_text
    from relink.runs import questions as queries
    from relink.system.errors import UsageError
    from relink.system.findings.model import has_errors

    if not wheels and uv_lock is None:
        raise UsageError("no wheel was named; pass WHEEL, or --uv-lock with the uv.lock that has it")
    if url is not None and len(wheels) != 1:
        raise UsageError(
            "--url names one wheel, and several were given; make them one by one, or take them from PyPI"
        )
    urls: Sequence[str | None] = [url] * len(wheels)
    if uv_lock is not None and wheels:
        urls = locked_urls(uv_lock, wheels)
    elif uv_lock is not None:
        facts = find_target(python=options.python).python_facts if options.python else None
        fetched = fetch_locked(
            uv_lock, facts.version if facts else None, lambda name: show(f"{name} is fetched")
        )
        wheels, urls = [item.path for item in fetched], [item.url for item in fetched]
    packages = [
        queries.nix_package(wheel, options, url=address, major=rocm_major)
        for wheel, address in zip(wheels, urls, strict=True)
    ]
    if uv_lock is not None:
        for package in packages:
            if not package.libraries:
                show(f"{package.source.name}: it needs no library of ROCm, so it has no plan")
        packages = [package for package in packages if package.libraries]
    findings = tuple(dict.fromkeys(found for package in packages for found in package.findings))
    show(*findings_text(findings, verbose=shown.verbose))
    for attribute, sonames in dict(item for package in packages for item in package.libraries).items():
        show(f"{attribute}  {', '.join(sonames)}")
    if has_errors(findings) and not options.force:
        raise typer.Exit(1)
    written = (
        write_package(packages, options.output_directory, vendor=not no_vendor)
        if uv_lock is None
        else write_plans(packages, options.output_directory)
    )
    for path in written:
        show(str(path))
    if has_errors(findings):
        raise typer.Exit(1)
