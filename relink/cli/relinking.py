"""`relink run`, the default command, and `relink verify`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relink.cli.application import app
from relink.cli.formats import OutputFormat, OutputFormatOption, chosen_format, print_results
from relink.cli.guessing import is_requirement
from relink.cli.options import (
    OUTPUT,
    SHOWN,
    WORK,
    AllowIsaGap,
    AllowMissing,
    AssumeSymbols,
    Closures,
    Fix,
    Force,
    GcRoot,
    GivenWheel,
    Gpus,
    Ignore,
    InEnvironment,
    Interpreter,
    Json,
    LimitOptions,
    MaxMemory,
    NoPreload,
    NoVerify,
    Offline,
    Prefixes,
    Preload,
    ProfileName,
    Python,
    Quiet,
    Requires,
    SandboxMode,
    SandboxOption,
    Select,
    Stubs,
    Substitute,
    Sysroot,
    Trust,
    Verbose,
)
from relink.cli.pages import file_for, page_for, write_page
from relink.system.errors import RelinkError, UsageError

if TYPE_CHECKING:
    from relink.report.formats import WheelResult
    from relink.report.model import Report


class Compress(StrEnum):
    """Words for :data:`relink.planning.options.COMPRESSION_LEVELS`."""

    fast = "fast"
    balanced = "balanced"
    small = "small"


@app.command("run")
def run(
    wheels: Annotated[
        list[Path],
        typer.Argument(
            metavar="WHEEL…",
            help="The vendor's wheels; NAME==VERSION is fetched by pip. Or an unpacked directory: --output is its copy.",
        ),
    ],
    prefix: Prefixes = [],
    nix_closure: Closures = [],
    wheel: GivenWheel = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="Where the result goes.", rich_help_panel=OUTPUT),
    ] = Path(),
    link: Annotated[
        bool,
        typer.Option(
            "--link",
            help="Of a directory: link what stays as it is, in the place of a copy. Who writes into such a file changes both.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    python: Python = None,
    interpreter: Interpreter = None,
    sysroot: Sysroot = None,
    allow_missing: AllowMissing = [],
    substitute: Substitute = [],
    assume_symbols: AssumeSymbols = [],
    preload: Preload = [],
    stub: Stubs = [],
    no_preload: NoPreload = False,
    trust: Trust = [],
    profile: ProfileName = None,
    gpu: Gpus = [],
    allow_isa_gap: AllowIsaGap = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Plan, print, and write nothing.", rich_help_panel=OUTPUT)
    ] = False,
    keep_version: Annotated[
        bool, typer.Option("--keep-version", help="Do not add +rocmX.Y.Z.", rich_help_panel=OUTPUT)
    ] = False,
    local_version: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL", help="The local version label, if not rocmX.Y.Z.", rich_help_panel=OUTPUT
        ),
    ] = None,
    requires: Requires = False,
    no_verify: NoVerify = False,
    no_verify_record: Annotated[
        bool,
        typer.Option(
            "--no-verify-record",
            help="Believe the vendor's RECORD: do not hash what is copied.",
            rich_help_panel=WORK,
        ),
    ] = False,
    compress: Annotated[
        Compress,
        typer.Option(help="How much is spent on making changed files small again.", rich_help_panel=WORK),
    ] = Compress.balanced,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Threads that verify and write.", rich_help_panel=WORK),
    ] = None,
    max_memory: MaxMemory = None,
    fix: Fix = False,
    force: Force = False,
    gc_root: GcRoot = None,
    limit: LimitOptions = [],
    offline: Offline = False,
    sandbox: SandboxOption = SandboxMode.auto,
    select: Select = [],
    ignore: Ignore = [],
    html: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE.html",
            help="Write a page to look at, errors or not; a directory for several wheels.",
            rich_help_panel=SHOWN,
        ),
    ] = None,
    statement: Annotated[
        Path | None,
        typer.Option(
            "--statement",
            metavar="FILE",
            help="Write where the result comes from as an in-toto statement (SLSA provenance), to be signed; "
            "a directory for several wheels.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    output_format: OutputFormatOption = None,
    as_json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Relink wheels: `relink WHEEL --prefix DIR`. This is the default command, `run` need not be written.

    Example: relink onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl --prefix /opt/rocm-6.2.2 -o dist
    """
    from relink.cli.directories import check_paths, print_path, relink_path
    from relink.planning.options import Options, source_date_epoch
    from relink.wheel.limits import parse_limits

    chosen = chosen_format(output_format, as_json)
    text = chosen is OutputFormat.text
    options = Options(
        prefixes=tuple(prefix),
        nix_closures=tuple(nix_closure),
        gc_root=gc_root,
        output_directory=output,
        python=python,
        interpreter=interpreter,
        sysroot=sysroot,
        allow_missing=tuple(allow_missing),
        substitute=tuple(substitute),
        assume_symbols=tuple(assume_symbols),
        preload=tuple(preload),
        stub=tuple(stub),
        preload_known=not no_preload,
        trust=tuple(trust),
        profile=profile,
        select=tuple(select),
        ignore=tuple(ignore),
        keep_version=keep_version,
        local_version=local_version,
        requires=requires,
        verify=not no_verify,
        force=force,
        fix=fix,
        gpus=tuple(gpu),
        allow_isa_gap=allow_isa_gap,
        dry_run=dry_run,
        compress=compress.value,
        jobs=jobs,
        verify_record=not no_verify_record,
        max_memory=max_memory << 20 if max_memory else None,
        epoch=source_date_epoch(os.environ),
        limits=parse_limits(limit),
        sandbox=sandbox.value,
        command=("relink", *sys.argv[1:]),
    )
    from relink.cli.terminal import progress, say, show
    from relink.report.text import several_text

    if any(is_requirement(str(path)) for path in wheels):
        from relink.cli.fetching import with_fetched

        wheels = with_fetched(wheels, options, offline=offline, quiet=quiet or not text)
    if wheel is not None:
        from relink.runs.relinked_input import original_given

        if len(wheels) != 1:
            raise UsageError("--wheel goes with one relinked wheel")
        wheels = [original_given(wheels[0], wheel, options.limits)]
    check_paths(wheels, statement, link=link)
    pages = [page_for(html, wheels, path) for path in wheels]
    statements = [file_for("--statement", statement, wheels, path, ".intoto.json") for path in wheels]
    reports: list[tuple[Path, Report]] = []
    failures: list[RelinkError] = []
    for path, page, place in zip(wheels, pages, statements, strict=True):
        try:
            with progress(quiet or not text) as (on_stage, on_bytes):
                report = relink_path(path, options, link=link, on_stage=on_stage, on_bytes=on_bytes)
        except RelinkError as error:
            failures.append(error)
            continue
        reports.append((path, report))
        if text:
            with _collected(failures):
                if len(wheels) > 1 and len(reports) > 1 and not quiet:
                    show("")
                print_path(report, path, verbose=verbose, quiet=quiet, dry_run=dry_run)
        if page is not None:
            with _collected(failures):
                write_page(report, page)
                if text and not quiet:
                    show(f"report: {page}")
        if place is not None and report.output is not None:
            from relink.runs.statement import make_statement, write_statement

            with _collected(failures):
                write_statement(make_statement(report, options), place)
                if text and not quiet:
                    show(f"statement: {place}")
    if text and len(reports) > 1 and not quiet:
        with _collected(failures):
            show("", several_text([report for _, report in reports]))
    if not text:
        with _collected(failures):
            results = [_wheel_result(path, report) for path, report in reports]
            print_results(chosen, results, failures, several=len(wheels) > 1)
    for failure in failures:
        say(failure)
    if failures or not all(report.ok for _, report in reports):
        raise typer.Exit(2 if failures else 1)


def _wheel_result(wheel: Path, report: Report) -> WheelResult:
    from relink.report.formats import WheelResult
    from relink.report.model import to_json

    return WheelResult(str(wheel), report.wheel.sha256, report.findings, to_json(report))


@contextmanager
def _collected(failures: list[RelinkError]) -> Iterator[None]:
    """Keep an error for the end, so that other wheels are done all the same."""
    try:
        yield
    except RelinkError as error:
        failures.append(error)


@app.command()
def verify(
    wheel: Annotated[Path, typer.Argument(metavar="WHEEL", help="A wheel, relinked or not.")],
    environment: InEnvironment = None,
    python: Python = None,
    interpreter: Interpreter = None,
    sysroot: Sysroot = None,
    trust: Trust = [],
    profile: ProfileName = None,
    allow_missing: AllowMissing = [],
    ignore: Ignore = [],
    limit: LimitOptions = [],
    sandbox: SandboxOption = SandboxMode.auto,
    statement: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="First compare with what `relink WHEEL --statement FILE` wrote; its signature is not looked at.",
        ),
    ] = None,
    output_format: OutputFormatOption = None,
    as_json: Json = False,
) -> None:
    """Ask the real loader what it makes of every ELF file of a wheel, in a dry run and in a sandbox.

    No initialiser runs, and a file that could run code all the same is refused (RLK605). The loader can change nothing. The plan
    inside of the wheel was written by whoever made the wheel: what it allows is an error here, until you pass --allow-missing.

    Example: relink verify dist/onnxruntime_rocm-1.22.2+rocm6.2.2-cp312-cp312-linux_x86_64.whl
    """
    from relink.cli.terminal import show
    from relink.planning.model.model import plain
    from relink.planning.options import Options
    from relink.report import summary as verdict
    from relink.report.formats import WheelResult
    from relink.report.text import findings_text, verdict_text, verification_text
    from relink.runs import questions as queries
    from relink.runs.statement import check_statement
    from relink.system.findings.model import has_errors
    from relink.wheel.limits import parse_limits

    chosen = chosen_format(output_format, as_json)
    text = chosen is OutputFormat.text
    options = Options(
        environment=environment,
        python=python,
        interpreter=interpreter,
        sysroot=sysroot,
        trust=tuple(trust),
        profile=profile,
        allow_missing=tuple(allow_missing),
        ignore=tuple(ignore),
        limits=parse_limits(limit),
        sandbox=sandbox.value,
    )
    differing = check_statement(statement, wheel, options.limits) if statement is not None else []
    if differing:  # a wheel that is not the statement's is not given to the loader
        if text:
            ending = verdict_text(verdict.differing(str(wheel), str(statement), differing))
            show(*findings_text(differing, verbose=True), *ending)
        else:
            facts = {"path": str(wheel), "target": None, "maps": {}, "findings": plain(differing)}
            document = {"schema": "relink.verification/1", **facts}
            print_results(chosen, [WheelResult(str(wheel), None, tuple(differing), document)])
        raise typer.Exit(1)
    result = queries.verify_wheel(wheel, options)
    if statement is not None and text:
        show(f"{statement}: agrees with the wheel; its signature was not looked at")
    if text:
        show(*verification_text(str(wheel), result.maps, result.findings))
    else:
        document = {"schema": "relink.verification/1", **plain(result)}
        print_results(chosen, [WheelResult(str(wheel), None, result.findings, document)])
    if has_errors(result.findings):
        raise typer.Exit(1)
