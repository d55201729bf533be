"""`relink install`: wheels into an environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relink.cli.application import app
from relink.cli.fetching import fetched, platform_for, tell_fetched
from relink.cli.options import (
    OUTPUT,
    AllowMissing,
    AssumeSymbols,
    Closures,
    Gpus,
    Ignore,
    Json,
    MaxMemory,
    NoImportTest,
    NoPreload,
    Offline,
    Prefixes,
    Preload,
    ProfileName,
    Quiet,
    SandboxMode,
    SandboxOption,
    Select,
    Stubs,
    Substitute,
    TargetPython,
    Verbose,
)

if TYPE_CHECKING:
    from relink.indexes.install.installing import InstallResult
    from relink.planning.options import Options

Kept = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="Keep the relinked wheels there. Without it they are removed after they were installed.",
        rich_help_panel=OUTPUT,
    ),
]


@app.command()
def install(
    requirements: Annotated[
        list[str],
        typer.Argument(
            metavar="REQUIREMENT…", help="NAME, NAME==VERSION, 'NAME>=VERSION', or a vendor's wheel."
        ),
    ],
    prefix: Prefixes = [],
    nix_closure: Closures = [],
    output: Kept = Path(),
    python: TargetPython = None,
    allow_missing: AllowMissing = [],
    substitute: Substitute = [],
    assume_symbols: AssumeSymbols = [],
    preload: Preload = [],
    stub: Stubs = [],
    no_preload: NoPreload = False,
    profile: ProfileName = None,
    gpu: Gpus = [],
    offline: Offline = False,
    no_import_test: NoImportTest = False,
    max_memory: MaxMemory = None,
    sandbox: SandboxOption = SandboxMode.auto,
    select: Select = [],
    ignore: Ignore = [],
    as_json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Fetch wheels, relink them, install them with what they depend on, and import them.

    It changes the active virtual environment, or that of --python, by its pip or by uv; never the one that relink runs in by
    itself. The import test runs the wheel's code; --no-import-test leaves it out.
    Example: relink install onnxruntime-rocm==1.22.2.post3 --prefix /opt/rocm --python venv/bin/python
    """
    from relink.indexes.install.environment import find_environment
    from relink.indexes.install.installing import install_wheel
    from relink.indexes.install.requirements import parse_requirement

    environment = find_environment(python, os.environ)
    options = install_options(
        environment.python,
        output,
        preload_known=not no_preload,
        profile=profile,
        max_memory=max_memory,
        sandbox=sandbox,
        prefixes=prefix,
        nix_closures=nix_closure,
        allow_missing=allow_missing,
        substitute=substitute,
        assume_symbols=assume_symbols,
        preload=preload,
        stub=stub,
        gpus=gpu,
        select=select,
        ignore=ignore,
    )
    given = [text for text in requirements if os.path.lexists(text)]
    wanted = {text: parse_requirement(text) for text in requirements if text not in given}
    platform = platform_for(options)
    outcomes: list[InstallResult] = []
    for text in requirements:
        extras = ""
        if text in wanted:
            found = fetched(wanted[text].text, platform, offline=offline, exact=False)
            wheel, extras = found.path, wanted[text].extras
            if not quiet and not as_json:
                tell_fetched(found, platform, offline=offline)
        else:
            wheel = Path(text)
        done = install_wheel(
            wheel, environment, options, extras=extras, offline=offline, import_test=not no_import_test
        )
        outcomes.append(done)
        if not as_json:
            show_outcome(done, str(environment.prefix), verbose=verbose, quiet=quiet)
    if as_json:
        print_outcomes(outcomes, str(environment.prefix))
    if not all(done.ok for done in outcomes):
        raise typer.Exit(1)


def install_options(
    python: str | None,
    output: Path,
    *,
    preload_known: bool,
    profile: str | None,
    max_memory: int | None,
    sandbox: SandboxMode,
    **lists: list[str],
) -> Options:
    """The options of a run that installs.

    :param max_memory: MiB.
    :param lists: by the names that :class:`~relink.planning.options.Options` gives them.
    """
    from relink.planning.options import Options

    return Options(
        output_directory=output,
        python=python,
        preload_known=preload_known,
        profile=profile,
        max_memory=max_memory << 20 if max_memory else None,
        sandbox=sandbox.value,
        command=("relink", *sys.argv[1:]),
        **{name: tuple(items) for name, items in lists.items()},  # type: ignore[arg-type]
    )


def print_outcomes(outcomes: Sequence[InstallResult], prefix: str) -> None:
    """Print what was installed as JSON."""
    from relink.cli.terminal import print_json
    from relink.indexes.install.installing import to_json

    wheels = [to_json(done) for done in outcomes]
    print_json({"schema": "relink.install/1", "environment": prefix, "wheels": wheels})


def show_outcome(done: InstallResult, prefix: str, *, verbose: bool, quiet: bool) -> None:
    """Print the report, what was installed, what came of the import test, and the line of a constraints file."""
    from relink.cli.terminal import print_report, show

    if done.report is not None and (not quiet or not done.report.ok):
        print_report(done.report, verbose=verbose, quiet=quiet, installed=done.installed is not None)
    if done.installed is None:
        show(f"{prefix} was not changed.")
        return
    name, version = done.installed.canonical, done.installed.version
    for result in done.imports:
        if result.problem is not None:
            show(f"import {result.module}: {result.problem}")
    imported = ", ".join(result.module for result in done.imports)
    if not done.ok:
        show(
            f"{name} {version} is installed in {prefix}, but cannot be imported. `relink repair {name} --undo` puts the vendor's "
            "wheel back."
        )
        return
    verdict = f"{name} {version} is installed in {prefix}"
    if done.report is None:
        show(f"{verdict} again.")
        return
    show(f"{verdict}; imported: {imported}." if imported else f"{verdict}; nothing was imported.")
    output = done.report.output
    if output and os.path.exists(output.path):  # without --output it is removed
        show(f"The relinked wheel is {output.path}.")
    if done.constraint is not None and not quiet:
        show("So that no upgrade replaces it, put this line into a constraints file (pip install -c FILE):")
        show(f"    {done.constraint}")
