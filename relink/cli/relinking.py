"""`relink run`, the default command, `relink verify`, and `relink nix`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relink.cli.application import app
from relink.cli.formats import (
    OutputFormat,
    Shown,
    choose_page_path,
    print_results,
    print_verification,
    write_page,
)
from relink.cli.options import is_requirement, takes_options
from relink.cli.terminal import print_report, say, show, show_progress
from relink.planning.options import SHOWN, Options, read_source_date_epoch
from relink.system.errors import RelinkError, UsageError

if TYPE_CHECKING:
    from relink.report.model import Report


@app.command()
@takes_options("run")
def run(
    wheels: Annotated[
        list[Path],
        typer.Argument(
            metavar="WHEEL…",
            help="The vendor's wheels; NAME==VERSION is fetched by pip. Or an unpacked directory: --output is its copy.",
        ),
    ],
    options: Options,
    *,
    html: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE.html",
            help="Write a page to look at, errors or not; a directory for several wheels.",
            rich_help_panel=SHOWN,
        ),
    ] = None,
    shown: Shown,
) -> None:
    """Relink wheels: `relink WHEEL --prefix DIR`. This is the default command, `run` need not be written.

    Example: relink onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl --prefix /opt/rocm-6.2.2 -o dist
    """
    from relink import library

    chosen = shown.chosen_format()
    text = chosen is OutputFormat.text
    # Programs read the output: no progress, and no sentences beside it.
    quiet = shown.quiet or not text
    options = replace(options, epoch=read_source_date_epoch(os.environ), command=("relink", *sys.argv[1:]))
    wheels = [*_without_results(wheels)]
    options = replace(options, several=len(wheels) > 1)
    from relink.report.text import several_text
    from relink.wheel.naming import explain_no_tree

    failures: list[RelinkError] = []
    several = len(wheels) > 1
    if any(is_requirement(str(path)) for path in wheels):
        from relink.cli.installing import fetch_named

        wheels = fetch_named(wheels, options, failures, quiet=quiet)
    directories = [path for path in wheels if path.is_dir()]
    for path in directories:
        if told := explain_no_tree(path):
            raise UsageError(told)
    if directories and len(wheels) > 1:
        raise UsageError(
            f"{directories[0]}: a directory is relinked alone, as --output is the name of its copy"
        )
    pages = [choose_page_path(html, wheels, path) for path in wheels]
    reports: list[tuple[Path, Report]] = []
    for path, page in zip(wheels, pages, strict=True):
        try:
            with show_progress(quiet) as (on_stage, on_bytes):
                report = (
                    library.relink_tree(path, options, on_stage=on_stage, on_bytes=on_bytes)
                    if path.is_dir()
                    else library.relink(
                        path,
                        options,
                        beside=[other for other in wheels if other != path],
                        on_stage=on_stage,
                        on_bytes=on_bytes,
                    )
                )
        except RelinkError as error:
            failures.append(error)
            continue
        reports.append((path, report))
        if text:
            with _collected(failures):
                if len(reports) > 1 and not quiet:
                    show("")
                tree = path.is_dir()
                print_report(
                    report, verbose=shown.verbose, quiet=quiet, dry_run=options.dry_run, installed=tree
                )
                if tree and report.output is not None and not quiet:
                    show(f"{report.output.path} is the relinked copy; {path} is as it was.")
        if page is not None:
            with _collected(failures):
                write_page(report, page)
                if not quiet:
                    show(f"report: {page}")
    if len(reports) > 1 and not quiet:
        with _collected(failures):
            show("", *several_text([report for _, report in reports]))
    if not text:
        with _collected(failures):
            from relink.report.formats import WheelResult
            from relink.report.model import to_json

            results = [
                WheelResult(str(path), report.wheel.sha256, report.findings, to_json(report))
                for path, report in reports
            ]
            print_results(chosen, results, failures=failures, several=several)
    for failure in failures:
        say(failure)
    if failures or not all(report.ok for _, report in reports):
        raise typer.Exit(2 if failures else 1)


def _without_results(wheels: Sequence[Path]) -> Iterator[Path]:
    """Yield the wheels without what relink has made of another of them, which a glob has found beside it."""
    names = {path.name for path in wheels}
    for path in wheels:
        made_from = None
        if len(names) > 1 and path.is_file():
            from relink.planning.model import read_plan
            from relink.wheel.archive import WheelArchive

            # What cannot be read is told when it is relinked.
            with suppress(RelinkError), WheelArchive(path) as archive:
                made_from = (plan := read_plan(archive)) and os.path.basename(plan.wheel.path)
        if made_from in names - {path.name}:
            say(f"{path} is left out: it was relinked from {made_from}")
        else:
            yield path


@contextmanager
def _collected(failures: list[RelinkError]) -> Iterator[None]:
    """Keep an error for the end, so that other wheels are done all the same."""
    try:
        yield
    except RelinkError as error:
        failures.append(error)


@app.command()
@takes_options("verify")
def verify(
    wheel: Annotated[Path, typer.Argument(metavar="WHEEL", help="A wheel, relinked or not.")],
    options: Options,
    *,
    shown: Shown,
) -> None:
    """Ask the real loader what it makes of every ELF file of a wheel, in a dry run and in a sandbox.

    No initialiser runs, and a file that could run code all the same is refused (RLK605). The loader can change nothing. The plan
    inside of the wheel was written by whoever made the wheel: what it allows is an error here, until you pass --allow-missing.

    Example: relink verify dist/onnxruntime_rocm-1.22.2+rocm6.2.2-cp312-cp312-linux_x86_64.whl
    """
    from relink.report.summary import verification_verdict
    from relink.report.text import verification_text
    from relink.runs import questions as queries

    chosen = shown.chosen_format()
    result = queries.verify_wheel(wheel, options)
    told = (str(wheel), result.maps, result.findings, result.made_from)
    print_verification(chosen, result, verification_verdict(*told), verification_text(*told))


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
    from relink.report.nix.emit import write_package
    from relink.report.text import findings_text
    from relink.runs import questions as queries
    from relink.system.findings.model import has_errors

    addresses: list[str | None] = [*url] if url else [word if "://" in word else None for word in wheels]
    if len(addresses) != len(wheels):
        raise UsageError(
            f"--url: {len(addresses)} for {len(wheels)} wheels; pass it once for each, in their order"
        )
    paths = [Path(word) for word in wheels]
    if any("://" in word or is_requirement(word) for word in wheels):
        from relink.cli.installing import fetch_named
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
    for attribute, sonames in (row for package in packages for row in package.inputs.items()):
        show(f"{attribute}  {', '.join(sonames)}")
    if has_errors(findings) and not options.force:
        raise typer.Exit(1)
    show(str(write_package(packages, options.output_place, force=options.force)))
    if has_errors(findings):
        raise typer.Exit(1)
