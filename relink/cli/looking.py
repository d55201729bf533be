"""Commands that look at wheels and libraries and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relink.cli.application import app
from relink.cli.formats import OutputFormat, OutputFormatOption, chosen_format, print_results
from relink.cli.options import (
    LINK,
    AllowIsaGap,
    AllowMissing,
    AssumeSymbols,
    Closures,
    Fix,
    Force,
    Gpus,
    Ignore,
    Interpreter,
    Json,
    LimitOptions,
    MaxMemory,
    NoPreload,
    NoVerify,
    Prefixes,
    Preload,
    ProfileName,
    Python,
    Requires,
    SandboxMode,
    SandboxOption,
    Select,
    Stubs,
    Substitute,
    Sysroot,
    Trust,
)
from relink.system.errors import RelinkError, UsageError


@app.command()
def inspect(
    wheels: Annotated[list[Path], typer.Argument(metavar="WHEEL…", help="Wheels to look at.")],
    limit: LimitOptions = [],
    output_format: OutputFormatOption = None,
    as_json: Json = False,
) -> None:
    """Say what a wheel is: its ELF files, what they need, their search paths, versions and tags.

    Example: relink inspect onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl
    """
    from relink.cli.terminal import say, show
    from relink.report import inspection
    from relink.report.formats import WheelResult
    from relink.runs import questions as queries
    from relink.wheel.limits import parse_limits

    chosen = chosen_format(output_format, as_json)
    limits = parse_limits(limit)
    found, failures = [], []
    for wheel in wheels:
        try:
            found.append(queries.inspect(wheel, limits))
        except RelinkError as error:
            failures.append(error)
    if chosen is OutputFormat.text:
        for item in found:
            show(*inspection.to_text(item))
    else:
        outcomes = [
            WheelResult(item.path, item.sha256, item.findings, inspection.to_json(item)) for item in found
        ]
        print_results(chosen, outcomes, failures, several=len(wheels) > 1)
    for failure in failures:
        say(failure)
    if failures:
        raise typer.Exit(2)


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A wheel, the vendor's for example.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Another, what relink made of it for example.")],
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Carry out this plan on OLD, and compare NEW with that: a relink.json that you trust.",
        ),
    ] = None,
    prefix: Annotated[
        list[str],
        typer.Option(
            "--prefix",
            metavar="DIR",
            help="Relink OLD for this ROCm, and compare NEW with that; repeatable.",
            rich_help_panel=LINK,
        ),
    ] = [],
    nix_closure: Closures = [],
    python: Python = None,
    interpreter: Interpreter = None,
    sysroot: Sysroot = None,
    allow_missing: AllowMissing = [],
    substitute: Substitute = [],
    assume_symbols: AssumeSymbols = [],
    preload: Preload = [],
    stub: Stubs = [],
    no_preload: NoPreload = False,
    profile: ProfileName = None,
    gpu: Gpus = [],
    allow_isa_gap: AllowIsaGap = False,
    keep_version: Annotated[
        bool, typer.Option("--keep-version", help="NEW was made with --keep-version.", rich_help_panel=LINK)
    ] = False,
    local_version: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="NEW was made with this --local-version.", rich_help_panel=LINK),
    ] = None,
    requires: Requires = False,
    trust: Trust = [],
    no_verify: NoVerify = False,
    max_memory: MaxMemory = None,
    fix: Fix = False,
    force: Force = False,
    sandbox: SandboxOption = SandboxMode.auto,
    select: Select = [],
    ignore: Ignore = [],
    limit: LimitOptions = [],
    output_format: OutputFormatOption = None,
    as_json: Json = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every difference, however many.")] = False,
) -> None:
    """Say how two wheels differ; with --prefix or --plan also whether NEW is what relink makes of OLD today.

    OLD is relinked anew, and every member's content, name, mode and order are compared. Pass the options that NEW was made with:
    nothing that NEW says of itself is believed. What differs is printed, and the exit code is 1.
    Without --prefix and --plan the differences are listed, nothing is judged, and the exit code is 0.
    Example: relink diff onnxruntime_rocm-1.22.2-*.whl dist/onnxruntime_rocm-1.22.2+rocm6.2.2-*.whl --prefix /opt/rocm-6.2.2
    """
    from relink import library
    from relink.cli.terminal import show
    from relink.planning.model.model import Plan
    from relink.planning.options import Options
    from relink.report import diff_text
    from relink.report.formats import WheelResult
    from relink.wheel.limits import parse_limits

    chosen = chosen_format(output_format, as_json)
    options = Options(
        prefixes=tuple(prefix),
        nix_closures=tuple(nix_closure),
        python=python,
        interpreter=interpreter,
        sysroot=sysroot,
        allow_missing=tuple(allow_missing),
        substitute=tuple(substitute),
        assume_symbols=tuple(assume_symbols),
        preload=tuple(preload),
        stub=tuple(stub),
        preload_known=not no_preload,
        profile=profile,
        gpus=tuple(gpu),
        allow_isa_gap=allow_isa_gap,
        keep_version=keep_version,
        local_version=local_version,
        requires=requires,
        trust=tuple(trust),
        verify=not no_verify,
        max_memory=max_memory << 20 if max_memory else None,
        fix=fix,
        force=force,
        sandbox=sandbox.value,
        select=tuple(select),
        ignore=tuple(ignore),
        limits=parse_limits(limit),
    )
    found = library.diff(old, new, options, plan=Plan.load(plan) if plan else None)
    if chosen is OutputFormat.text:
        show(*diff_text.to_text(found, verbose=verbose))
    else:
        findings, document = diff_text.diff_findings(found), diff_text.to_json(found)
        print_results(chosen, [WheelResult(found.new.path, found.new.sha256, findings, document)])
    if not found.ok:
        raise typer.Exit(1)


@app.command()
def explain(
    wheel: Annotated[Path, typer.Argument(metavar="WHEEL", help="The vendor's wheel.")],
    library: Annotated[
        str | None,
        typer.Argument(metavar="LIBRARY", help="Only the ways to this soname (a glob works). Default: all."),
    ] = None,
    prefix: Prefixes = [],
    nix_closure: Closures = [],
    python: Python = None,
    interpreter: Interpreter = None,
    sysroot: Sysroot = None,
    allow_missing: AllowMissing = [],
    substitute: Substitute = [],
    preload: Preload = [],
    stub: Stubs = [],
    no_preload: NoPreload = False,
    profile: ProfileName = None,
) -> None:
    """Draw who needs whom in a wheel as it will be, with the rule that finds each library, or all that is tried in vain.

    Example: relink explain onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl 'librocm_smi64*'
    """
    from relink.cli.terminal import show
    from relink.planning.options import Options
    from relink.report.tree import dependency_trees
    from relink.runs import questions as queries

    options = Options(
        prefixes=tuple(prefix),
        nix_closures=tuple(nix_closure),
        python=python,
        interpreter=interpreter,
        sysroot=sysroot,
        allow_missing=tuple(allow_missing),
        substitute=tuple(substitute),
        preload=tuple(preload),
        stub=tuple(stub),
        preload_known=not no_preload,
        profile=profile,
    )
    trees = dependency_trees(queries.explain(wheel, options), library)
    if not trees and library is not None:
        raise UsageError(
            f"{library}: nothing in the closure of {wheel.name} needs a library of that name; "
            "leave it out to see all of them"
        )
    show(*trees)


@app.command()
def isa(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH…", help="Wheels, libraries, .co/.hsaco/.kpack files, directories, prefixes."
        ),
    ],
    gpu: Gpus = [],
    profile: ProfileName = None,
    scan: Annotated[
        bool,
        typer.Option("--scan", help="Search other data of each file too, for code that is loaded by hand."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Say which GPUs the code in wheels, files and directories is for. Exit code 1 if a GPU of --gpu is missing.

    Example: relink isa onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl --gpu 'RX 6750 XT'
    """
    from relink.cli.terminal import console, print_json, show
    from relink.gpu import wanted_gpus
    from relink.planning.checks.gpu_survey import survey_of
    from relink.report import isa_text
    from relink.report.formats import collected

    wanted = wanted_gpus(gpu)
    found = [survey_of(path, scan=scan, profile=profile) for path in paths]
    if as_json:
        documents = [item.to_json([one.target for one in wanted]) for item in found]
        print_json(collected(documents, (), several=len(paths) > 1))
    else:
        out = console()
        for item in found:
            show(*isa_text.survey_text(item, wanted, out))
    if not all(item.covers(one.target) for item in found for one in wanted):
        raise typer.Exit(1)
