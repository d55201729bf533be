"""Commands that look at wheels, libraries and saved reports, and change nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relink.cli.application import app
from relink.cli.formats import Shown, print_document, print_results, write_page
from relink.cli.options import takes_options
from relink.cli.terminal import say, show
from relink.planning.options import Options
from relink.system.errors import RelinkError, UsageError

if TYPE_CHECKING:
    from relink.gpu.coverage import RequestedGpu, Survey

_SCANNED = 256 << 20  # bytes of each file's other data


@app.command()
@takes_options("inspect")
def inspect(
    wheels: Annotated[list[Path], typer.Argument(metavar="WHEEL…", help="Wheels to look at.")],
    options: Options,
    shown: Shown,
) -> None:
    """Say what a wheel is: its ELF files, what they need, their search paths, versions and tags.

    Example: relink inspect onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl
    """
    from relink.report import inspection
    from relink.report.formats import WheelResult
    from relink.runs import questions as queries

    chosen = shown.chosen_format()
    found, failures = [], []
    for wheel in wheels:
        try:
            found.append(queries.inspect(wheel, options.limits))
        except RelinkError as error:
            failures.append(error)
    outcomes = [
        WheelResult(item.path, item.sha256, item.findings, inspection.to_json(item)) for item in found
    ]
    lines = (line for item in found for line in inspection.to_text(item))
    print_results(chosen, outcomes, lines, failures, several=len(wheels) > 1)
    for failure in failures:
        say(failure)
    if failures:
        raise typer.Exit(2)


@app.command()
@takes_options("diff")
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A wheel, the vendor's for example.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Another, what relink made of it for example.")],
    *,
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Carry out this plan on OLD, and compare NEW with that: a relink.json that you trust.",
        ),
    ] = None,
    options: Options,
    shown: Shown,
) -> None:
    """Say how two wheels differ; with --prefix or --plan also whether NEW is what relink makes of OLD today.

    OLD is relinked anew, and every member's content, name, mode and order are compared. Pass the options that NEW was made with:
    nothing that NEW says of itself is believed. What differs is printed, and the exit code is 1.
    Without --prefix and --plan the differences are listed, nothing is judged, and the exit code is 0.
    Example: relink diff onnxruntime_rocm-1.22.2-*.whl dist/onnxruntime_rocm-1.22.2+rocm6.2.2-*.whl --prefix /opt/rocm-6.2.2
    """
    from relink import library
    from relink.planning.model import Plan
    from relink.report import diff_text
    from relink.report.formats import WheelResult

    chosen = shown.chosen_format()
    found = library.diff(old, new, options, plan=Plan.load(plan) if plan else None)
    findings, document = diff_text.diff_findings(found), diff_text.to_json(found)
    outcome = WheelResult(found.new.path, found.new.sha256, findings, document)
    print_results(chosen, [outcome], diff_text.to_text(found, verbose=shown.verbose), ok=found.ok)


@app.command()
@takes_options("explain")
def explain(
    wheel: Annotated[Path, typer.Argument(metavar="WHEEL", help="The vendor's wheel.")],
    options: Options,
    library: Annotated[
        str | None,
        typer.Argument(metavar="LIBRARY", help="Only the ways to this soname (a glob works). Default: all."),
    ] = None,
    *,
    trace: Annotated[
        bool,
        typer.Option("--trace", help="Say which plans were made, in order, and what was wrong with each."),
    ] = False,
) -> None:
    """Draw who needs whom in a wheel as it will be: where each library is found, or where it was looked for in vain.

    Example: relink explain onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl 'librocm_smi64*'
    """
    from relink.report.text import findings_text
    from relink.report.tree import dependency_trees
    from relink.runs import questions as queries

    explained = queries.explain(wheel, options)
    trees = dependency_trees(explained.trees, library)
    if not trees and library is not None:
        raise UsageError(
            f"{library}: nothing in the closure of {wheel.name} needs a library of that name; "
            "leave it out to see all of them"
        )
    show(*trees)
    show(*findings_text(explained.findings, verbose=False))
    if trace:
        show("")
        for number, attempt in enumerate(explained.attempts, 1):
            show(f"{number}. {attempt.what}: {attempt.result}", *(f"   {line}" for line in attempt.members))


@app.command()
@takes_options("isa")
def isa(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH…", help="Wheels, libraries, .co/.hsaco/.kpack files, directories, prefixes."
        ),
    ],
    options: Options,
    *,
    scan: Annotated[
        bool,
        typer.Option("--scan", help="Search other data of each file too, for code that is loaded by hand."),
    ] = False,
    shown: Shown,
) -> None:
    """Say which GPUs the code in wheels, files and directories is for. Exit code 1 if a GPU of --gpu is missing.

    Example: relink isa onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl --gpu 'RX 6750 XT'
    """
    from relink.providers.profiles import profile_for
    from relink.report.formats import join_documents
    from relink.report.text import survey_text
    from relink.vendors.registry import survey_place

    gpus = options.requested_gpus
    found: list[tuple[Survey, list[RequestedGpu]]] = []
    for path in paths:
        # The profile of a wheel says which of its members are variants: one of them is enough.
        is_wheel = path.suffix == ".whl"
        profile = profile_for(path.name.partition("-")[0], options.profile) if is_wheel else None
        variants = profile.variants if profile else ()
        surveys = survey_place(path, variants, _SCANNED if scan else 0, gpus)
        found += [(one, [gpu for gpu in gpus if gpu.vendor == one.vendor]) for one in surveys]
    documents = [survey.to_json([gpu.target for gpu in asked]) for survey, asked in found]
    document = join_documents(documents, (), several=len(found) > 1)
    covered = all(survey.covers(gpu.target) for survey, asked in found for gpu in asked)
    print_document(shown, document, (line for one in found for line in survey_text(*one)), ok=covered)


@app.command("report")
@takes_options("report")
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
    *,
    options: Options,
) -> None:
    """Make a page to look at of a saved report: findings, dependencies, GPU code, what changed.

    Example: relink onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl --json > plan.json; relink report plan.json
    """
    from relink.runs import questions as queries

    found, plan = queries.read_report(source, options)
    path = output or Path(f"{source.stem}.html")
    if os.path.isdir(path):
        path /= f"{source.stem}.html"
    write_page(found, path, plan=plan)
    show(str(path))
