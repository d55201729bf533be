"""`relink install`: wheels into an environment. `relink repair`: what is installed already is relinked."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relink.cli.application import app
from relink.cli.fetching import platform_for, tell_fetched
from relink.cli.formats import Shown
from relink.cli.options import GivenWheel, NoImportTest, Offline, takes_options
from relink.planning.option_fields import RUN
from relink.planning.options import Options
from relink.system.text import join_with_and

if TYPE_CHECKING:
    from relink.indexes.install.environment import TargetEnvironment
    from relink.indexes.install.installing import InstallResult


@app.command()
@takes_options("install")
def install(
    requirements: Annotated[
        list[str],
        typer.Argument(
            metavar="REQUIREMENT…", help="NAME, NAME==VERSION, 'NAME>=VERSION', or a vendor's wheel."
        ),
    ],
    options: Options,
    *,
    offline: Offline = False,
    no_import_test: NoImportTest = False,
    no_deps: Annotated[
        bool,
        typer.Option("--no-deps", help="Do not install what the wheels depend on.", rich_help_panel=RUN),
    ] = False,
    shown: Shown,
) -> None:
    """Fetch wheels, relink them, install them with what they depend on, and import them.

    It changes the active virtual environment, or that of --python, by its pip or by uv; never the one that relink runs in by
    itself. The import test runs the wheel's code; --no-import-test leaves it out.
    Example: relink install onnxruntime-rocm==1.22.2.post3 --prefix /opt/rocm --python venv/bin/python
    """
    from relink.indexes.install.environment import find_environment
    from relink.indexes.install.fetching import fetch
    from relink.indexes.install.installing import install_wheel
    from relink.indexes.install.requirements import parse_requirement

    environment = find_environment(options.python, os.environ)
    options = installing_into(environment, options)
    given = [text for text in requirements if os.path.lexists(text)]
    wanted = {text: parse_requirement(text) for text in requirements if text not in given}
    platform = platform_for(options)
    outcomes: list[InstallResult] = []
    for text in requirements:
        extras = ""
        if text in wanted:
            found = fetch(wanted[text], platform, offline=offline)
            wheel, extras = found.path, wanted[text].extras
            if not shown.quiet and not shown.as_json:
                tell_fetched(found, platform, offline=offline)
        else:
            wheel = Path(text)
        done = install_wheel(
            wheel,
            environment,
            options,
            extras=extras,
            offline=offline,
            import_test=not no_import_test,
            dependencies=not no_deps,
        )
        outcomes.append(done)
        if not shown.as_json:
            show_outcome(done, str(environment.prefix), shown)
    if shown.as_json:
        print_outcomes(outcomes, str(environment.prefix))
    if not all(done.ok for done in outcomes):
        raise typer.Exit(1)


@app.command()
@takes_options("repair")
def repair(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="An installed distribution."),
    ],
    *,
    undo: Annotated[
        bool,
        typer.Option(
            "--undo",
            help="Install the vendor's wheel again, as it was before.",
            rich_help_panel=RUN,
        ),
    ] = False,
    wheel: GivenWheel = None,
    options: Options,
    offline: Offline = False,
    no_import_test: NoImportTest = False,
    shown: Shown,
) -> None:
    """Relink what is installed already: its very wheel is fetched, relinked and installed in its place, without dependencies.

    That it is the very wheel is checked, by its hash or by every file. What pip has made beside it is kept for --undo.
    Example: relink repair onnxruntime-rocm --prefix /opt/rocm --python venv/bin/python
    """
    from relink.indexes.install import repairing
    from relink.indexes.install.environment import find_environment

    environment = find_environment(options.python, os.environ)
    if undo:
        done = repairing.undo(name, environment, wheel=wheel, offline=offline)
    else:
        done = repairing.repair(
            name,
            environment,
            installing_into(environment, options),
            wheel=wheel,
            offline=offline,
            import_test=not no_import_test,
        )
    if shown.as_json:
        print_outcomes([done], str(environment.prefix))
    else:
        show_outcome(done, str(environment.prefix), shown)
    if not done.ok:
        raise typer.Exit(1)


def installing_into(environment: TargetEnvironment, options: Options) -> Options:
    """Return the options of a run whose result is installed."""
    return replace(options, python=environment.python, command=("relink", *sys.argv[1:]))


def print_outcomes(outcomes: Sequence[InstallResult], prefix: str) -> None:
    """Print what was installed as JSON."""
    from relink.cli.terminal import print_json
    from relink.indexes.install.installing import to_json

    wheels = [to_json(done) for done in outcomes]
    print_json({"schema": "relink.install/1", "environment": prefix, "wheels": wheels})


def show_outcome(done: InstallResult, prefix: str, shown: Shown) -> None:
    """Print the report, what was installed, what came of the import test, and the line of a constraints file."""
    from packaging.utils import canonicalize_name

    from relink.cli.terminal import print_report, show
    from relink.indexes.install.installers import has_pip
    from relink.report.text import command_line

    if done.report is not None and (not shown.quiet or not done.report.ok):
        print_report(done.report, verbose=shown.verbose, quiet=shown.quiet, installed=done.ok)
    if done.installed is None:
        show(f"{prefix} was not changed.")
        return
    name, version = done.installed.canonical, done.installed.version
    for result in done.imports:
        if result.problem is not None:
            show(f"import {result.module}: {result.problem}")
    imported = ", ".join(result.module for result in done.imports)
    if not done.ok:
        python = f"{prefix}/bin/python"
        if lacking := done.missing_modules:
            told = f"{join_with_and(lacking)}, which it imports, {'is' if len(lacking) == 1 else 'are'} not there."
            own = [python, "-m", "pip", "install"]
            words = [*(own if has_pip(python) else ["uv", "pip", "install", "--python", python]), *lacking]
            # A module may be another package's than the one of its name: proposed is what the wheel requires.
            if not {canonicalize_name(module) for module in lacking} <= {*done.requires}:
                words = []
        else:
            told, words = (
                "This puts the vendor's wheel back:",
                ["relink", "repair", name, "--undo", "--python", python],
            )
        show(f"{name} {version} is installed in {prefix}, but cannot be imported. {told}")
        if words:
            show(command_line(shlex.join(words)))
        return
    verdict = f"{name} {version} is installed in {prefix}"
    if done.report is None:
        show(f"{verdict} again.")
        return
    show(f"{verdict}; imported: {imported}." if imported else f"{verdict}; nothing was imported.")
    output = done.report.output
    if output and os.path.exists(output.path):  # without --output it is removed
        show(f"The relinked wheel is {output.path}.")
    if done.constraint is not None and not shown.quiet:
        show("So that no upgrade replaces it, put this line into a constraints file (pip install -c FILE):")
        show(f"    {done.constraint}")
