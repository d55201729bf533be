"""`relink fetch`, `install`, `check` and `repair`: wheels of a package index, and what is installed in an environment."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relink.cli.application import app
from relink.cli.formats import Shown, print_results, print_verification
from relink.cli.options import GivenWheel, NoImportTest, is_requirement, takes_options
from relink.cli.terminal import print_json, print_report, say, show, show_progress
from relink.planning.options import RUN, Options, list_words
from relink.system.errors import RelinkError, UsageError
from relink.system.text import join_with_and, pluralize

if TYPE_CHECKING:
    from relink.indexes.install.environment import TargetEnvironment
    from relink.indexes.install.installers import CachedWheel, Platform
    from relink.indexes.install.installing import InstallResult


@app.command()
@takes_options("fetch")
def fetch(
    requirements: Annotated[
        list[str], typer.Argument(metavar="REQUIREMENT…", help="NAME, NAME==VERSION, 'NAME>=VERSION'.")
    ],
    options: Options,
    shown: Shown,
) -> None:
    """Fetch wheels for the target's Python, by pip and with its configuration, and change nothing in them.

    Wheels only, without what they depend on. They stay in a cache: ~/.cache/relink/wheels, 20 GiB at most.
    Example: relink fetch onnxruntime-rocm==1.22.2.post3 --python /usr/bin/python3.12
    """
    from relink.indexes.install.installers import fetch as fetch_wheel
    from relink.indexes.install.installers import parse_requirement
    from relink.system.atomic import copy_file

    wanted = [parse_requirement(text) for text in requirements]
    platform = platform_for(options)
    documents, output = [], options.output_place
    for requirement in wanted:
        found = fetch_wheel(requirement, platform)
        place = output / found.path.name
        try:
            output.mkdir(parents=True, exist_ok=True)
            copy_file(found.path, place)
        except OSError as error:
            raise UsageError(f"{place}: cannot be written ({error.strerror})") from error
        facts = {"sha256": found.sha256, "size": found.size}
        documents.append({"requirement": str(requirement), "path": str(place), **facts})
        if not shown.as_json:
            tell_fetched(str(place), found, platform)
    if shown.as_json:
        print_json({"schema": "relink.fetch/1", "python": platform.shown, "wheels": documents})


def fetch_named(
    wheels: Sequence[Path], options: Options, failures: list[RelinkError], *, quiet: bool
) -> list[Path]:
    """Return `wheels` with a fetched wheel in the place of each requirement that names a version.

    :param failures: takes the errors about requirements that cannot be fetched; these have no place in what is returned.
    :raises TargetError: the Python that they are fetched for cannot be asked.
    """
    from relink.indexes.install.installers import fetch as fetch_wheel
    from relink.indexes.install.installers import parse_requirement

    platform = platform_for(options)
    paths = []
    for wheel in wheels:
        if not is_requirement(str(wheel)):
            paths.append(wheel)
            continue
        try:
            found = fetch_wheel(parse_requirement(str(wheel), exact=True), platform)
        except RelinkError as error:
            failures.append(error)
            continue
        paths.append(found.path)
        if not quiet:
            tell_fetched(found.path.name, found, platform)
    return paths


def platform_for(options: Options) -> Platform:
    """Return what wheels are chosen for; the Python that runs relink where only a loader was named, or nothing."""
    from relink.indexes.install.installers import platform_of
    from relink.loader.python import ask_python
    from relink.planning.case import choose_target

    target = choose_target(options)
    own = ask_python(sys.executable) if options.interpreter and target.python_facts is None else None
    return platform_of(target, own)


def tell_fetched(place: str, found: CachedWheel, platform: Platform) -> None:
    """Print which wheel was fetched, as `place` names it."""
    show(f"{place}  sha256 {found.sha256}  {found.size / 1e6:.1f} MB, fetched for {platform.shown}")


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
    from relink.indexes.install.installers import fetch, parse_requirement
    from relink.indexes.install.installing import install_wheel

    environment = find_environment(options.python, os.environ)
    _take_back(environment)
    # What the wheels require may be relinked, too.
    several = len(requirements) > 1 or not no_deps
    options = replace(installing_into(environment, options), several=several)
    given = [text for text in requirements if os.path.lexists(text)]
    wanted = {text: parse_requirement(text) for text in requirements if text not in given}
    platform = platform_for(options)
    outcomes: list[InstallResult] = []
    for text in requirements:
        extras: set[str] = set()
        if text in wanted:
            found = fetch(wanted[text], platform)
            wheel, extras = found.path, wanted[text].extras
            if not shown.quiet and not shown.as_json:
                tell_fetched(found.path.name, found, platform)
        else:
            wheel = Path(text)
        done = install_wheel(
            wheel,
            environment,
            options,
            extras=extras,
            import_test=not no_import_test,
            dependencies=not no_deps,
            watch=partial(show_progress, shown.quiet or shown.as_json),
        )
        outcomes.append(done)
        if not shown.as_json:
            show_outcome(done, str(environment.prefix), shown)
    if shown.as_json:
        print_outcomes(outcomes, str(environment.prefix))
    else:
        _show_how_to_keep(outcomes, str(environment.prefix), shown)
    if not all(done.ok for done in outcomes):
        raise typer.Exit(1)


@app.command()
@takes_options("check")
def check(
    environment: Annotated[
        Path | None,
        typer.Argument(
            metavar="ENV|DIR",
            help="A virtual environment, or a tree of programs. Default: that of --python, the active one, or ./.venv.",
        ),
    ] = None,
    *,
    why: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Look at this distribution alone, and say what its import opens, by which line of which source.",
            rich_help_panel=RUN,
        ),
    ] = None,
    imports: Annotated[
        bool,
        typer.Option(
            "--import",
            help="Import each distribution in a process of its own, which runs its code: what happens is the verdict, and "
            "where the prediction was wrong is shown.",
            rich_help_panel=RUN,
        ),
    ] = False,
    options: Options,
    shown: Shown,
) -> None:
    """Say which packages of an environment do not work with their libraries and your GPU, and what to type.

    Every distribution with native code is looked at as the environment's own Python would load it; nothing of it runs, unless
    --import is passed. Of a directory without a Python each program and library is, where it lies, and ld.so is asked about it.
    `relink doctor` looks at the machine: driver, permissions, and the ROCm that is installed.
    Exit code 1: something does not work.
    Example: relink check venv --gpu 'RX 7900 XTX'
    """
    of_python = ("pyvenv.cfg", "bin/python")
    if (
        environment
        and environment.is_dir()
        and not any(os.path.lexists(environment / name) for name in of_python)
    ):
        given = {"--import": imports, "--why": why is not None, "--only-gpu": bool(options.only_gpus)}
        if option := next((option for option in given if given[option]), None):
            raise UsageError(f"{option} is for an environment, and {environment} has no bin/python")
        from relink.report.text import tree_text
        from relink.runs.questions import check_tree

        chosen = shown.chosen_format()
        tree, summed = check_tree(environment, options)
        lines = tree_text(tree.path, tree.maps, tree.findings, summed, verbose=shown.verbose)
        print_verification(chosen, tree, summed, lines, commands=summed.commands)
        return
    from relink.indexes.install import checking
    from relink.indexes.install.environment import find_environment
    from relink.report.check_text import check_text
    from relink.report.formats import WheelResult
    from relink.vendors.registry import VENDORS

    python = str(environment / "bin" / "python") if environment is not None else options.python
    repair = ["relink", "repair", why or "--all"]
    repair += ["--python", python] if python else []
    repair += list_words(options, ("prefixes", "gpus", "only_gpus", "drop_jit"))
    where = find_environment(python, os.environ, changed=False)
    asked = replace(options, command=tuple(repair))
    found = checking.check_environment(where, asked, why, imports=imports, proposes=True)
    chosen = shown.chosen_format()
    named = () if options.prefixes else (vendor.places.named(os.environ) for vendor in VENDORS)
    place = next(filter(None, named), None)
    told = f"{place.path} (no --prefix: found by {place.found_by})" if place else None
    findings = tuple(reported for one in found.distributions for reported in one.findings)
    outcome = WheelResult(found.prefix, None, (*findings, *found.findings), checking.to_json(found))
    print_results(chosen, [outcome], check_text(found, place=told, verbose=shown.verbose), ok=found.ok)


@app.command()
@takes_options("repair")
def repair(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="An installed distribution."),
    ] = None,
    *,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="All that `relink check` finds not to load; with --undo all that relink has repaired.",
            rich_help_panel=RUN,
        ),
    ] = False,
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
    no_import_test: NoImportTest = False,
    shown: Shown,
) -> None:
    """Relink what is installed already: its very wheel is fetched, relinked and installed in its place, without dependencies.

    That it is the very wheel is checked, by its hash or by every file.
    Example: relink repair onnxruntime-rocm --prefix /opt/rocm --python venv/bin/python
    """
    from relink.indexes.install import installing
    from relink.indexes.install.environment import find_environment

    if every == (name is not None) or (every and wheel is not None):
        raise UsageError("name one installed distribution, or pass --all (without --wheel) for all of them")
    environment = find_environment(options.python, os.environ)
    _take_back(environment)
    if name is not None:
        names = [name]
    else:
        from relink.indexes.install.checking import check_environment

        found = check_environment(environment, replace(options, select=(), ignore=())).distributions
        names = [one.name for one in found if (one.relinked if undo else one.mendable)]
    outcomes: list[InstallResult] = []
    failures: list[RelinkError] = []
    for one in names:
        try:
            if undo:
                done = installing.undo(one, environment, wheel=wheel)
            else:
                done = installing.repair(
                    one,
                    environment,
                    replace(installing_into(environment, options), several=every),
                    wheel=wheel,
                    import_test=not no_import_test,
                    watch=partial(show_progress, shown.quiet or shown.as_json),
                )
        except RelinkError as error:  # each is as it was, or done: the others are done all the same
            if name is not None:
                raise
            failures.append(RelinkError(f"{one}: {error.message}", error.issues))
            continue
        outcomes.append(done)
        if not shown.as_json:
            show_outcome(done, str(environment.prefix), shown)
    if shown.as_json:
        print_outcomes(outcomes, str(environment.prefix), failures)
    elif not names:
        what = "has been repaired" if undo else "has to be repaired"
        show(f"Nothing in {environment.prefix} {what}.")
    else:
        _show_how_to_keep(outcomes, str(environment.prefix), shown)
    for failure in failures:
        say(failure)
    if failures or not all(done.ok for done in outcomes):
        raise typer.Exit(2 if failures else 1)


def _take_back(environment: TargetEnvironment) -> None:
    """Put back what a relink that was killed has left half done, and say so."""
    from relink.indexes.install.replacing import own

    with own(environment) as taken_back:
        for sentence in taken_back:
            say(sentence)


def installing_into(environment: TargetEnvironment, options: Options) -> Options:
    """Return the options of a run whose result is installed; a project of uv keeps it, beside pyproject.toml."""
    project = environment.prefix.parent
    output = options.output_directory or (project if (project / "uv.lock").exists() else None)
    command = ("relink", *sys.argv[1:])
    return replace(options, python=environment.python, command=command, output_directory=output)


def print_outcomes(
    outcomes: Sequence[InstallResult], prefix: str, failures: Sequence[RelinkError] = ()
) -> None:
    """Print what was installed as JSON, and the messages of what could not be."""
    from relink.indexes.install.installing import to_json

    ok = not failures and all(done.ok for done in outcomes)
    facts = {"ok": ok, "environment": prefix, "failures": [failure.message for failure in failures]}
    print_json({"schema": "relink.install/1", **facts, "wheels": [*map(to_json, outcomes)]})


def show_outcome(done: InstallResult, prefix: str, shown: Shown, *, alone: bool = True) -> None:
    """Print the report, what was installed, and what came of trying it.

    :param alone: it is no dependency of another that was installed before.
    """
    from relink.report.text import findings_text

    if done.report is not None and (not shown.quiet or not done.report.ok):
        installed = done.installed is not None or done.ok
        print_report(done.report, verbose=shown.verbose, quiet=shown.quiet, installed=installed)
    show(*findings_text(done.refused, verbose=shown.verbose))
    if done.installed is None:
        if alone:
            show(f"{prefix} was not changed.")
        return
    name, version = done.installed.canonical, done.installed.version
    if done.kept:
        show(f"{pluralize(len(done.kept), 'file')} changed since {name} was installed, kept:", *done.kept)
    for result in done.imports:
        if result.problem is not None:
            show(f"import {result.name}: {result.problem}")
    for load in done.loads:
        if load.problem is not None:
            show(f"load {load.name}: {load.problem}")
        elif load.without_gpu is not None:
            every = done.report.plan.stubs if done.report else ()
            aborting = [
                one.soname
                for one in every
                if any((of.answer, of.text) == (None, None) for of in one.functions)
            ]
            stub = f"a function of the stub of {join_with_and(aborting)} aborts, or " if aborting else ""
            show(
                f"{load.name} is bound; {stub}to go on it needs a GPU, and this machine has none ({load.without_gpu})"
            )
    failing = [one.report.plan.wheel.name for one in done.dependencies if one.report and not one.ok]
    if any(result.problem for result in (*done.imports, *done.loads)):
        _show_what_fails(done, f"{name} {version}", name, prefix)
    elif done.report is None:
        show(f"{name} {version} is installed in {prefix} again.")
    else:
        tried = [f"imported: {', '.join(result.name for result in done.imports)}"] if done.imports else []
        loaded = pluralize(len(done.loads), "library", "libraries")
        tried += [f"loaded for the GPU: {loaded}"] if done.loads else []
        show(f"{name} {version} is installed in {prefix}; {'; '.join(tried) or 'nothing was imported'}.")
        # Without --output the wheel was removed after it was installed.
        if done.report.output and os.path.exists(done.report.output.path):
            show(f"The relinked wheel is {done.report.output.path}.")
    for one in done.dependencies:
        show_outcome(one, prefix, shown, alone=False)
    if failing:
        show(
            f"{name} {version} is installed, and does not work without {join_with_and(failing)}, which it needs."
        )


def _show_how_to_keep(outcomes: Sequence[InstallResult], prefix: str, shown: Shown) -> None:
    """Say how the next upgrade, or `uv sync`, leaves what was relinked as it is."""
    from relink.report.text import command_line

    every = [one for done in outcomes for one in (done, *done.dependencies)]
    every = [one for one in every if one.constraint and (one.ok or one.missing_modules)]
    project = os.path.dirname(prefix)
    if every and os.path.exists(f"{project}/uv.lock"):
        outputs = [one.report.output.path for one in every if one.report and one.report.output]
        show("`uv run` and `uv sync` put the vendor's wheels back, until the project names these:")
        show(command_line(shlex.join(["uv", "add", "--project", project, *filter(os.path.exists, outputs)])))
    elif lines := [f"    {one.constraint}" for one in every if one.ok and not shown.quiet]:
        show("So that no upgrade replaces this, put it into a constraints file (pip install -c FILE):")
        show(*lines)


def _show_what_fails(done: InstallResult, what: str, name: str, prefix: str) -> None:
    """Say what cannot be used of what is installed, and the command that comes next."""
    from packaging.utils import canonicalize_name

    from relink.indexes.install.installers import has_pip
    from relink.report.text import command_line

    python = f"{prefix}/bin/python"
    if lacking := done.missing_modules:
        told = (
            f"{join_with_and(lacking)}, which it imports, {'is' if len(lacking) == 1 else 'are'} not there."
        )
        own = [python, "-m", "pip", "install"]
        words = [*(own if has_pip(python) else ["uv", "pip", "install", "--python", python]), *lacking]
        # A module need not be in the package of its name, so a command is proposed only for what the wheel requires.
        if not {canonicalize_name(module) for module in lacking} <= {*done.requires}:
            words = []
    else:
        told = "This puts the vendor's wheel back:"
        words = ["relink", "repair", name, "--undo", "--python", python]
    failed = (
        "cannot be imported"
        if any(result.problem for result in done.imports)
        else "its GPU part does not load"
    )
    show(f"{what} is installed in {prefix}, but {failed}. {told}")
    if words:
        show(command_line(shlex.join(words)))
