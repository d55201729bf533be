"""`relink repair`: what is installed already is relinked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relink.cli.application import app
from relink.cli.installing import Kept, install_options, print_outcomes, show_outcome
from relink.cli.options import (
    RUN,
    AllowMissing,
    AssumeSymbols,
    Closures,
    GivenWheel,
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
    from relink.planning.options import Options


@app.command()
def repair(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="An installed distribution."),
    ],
    undo: Annotated[
        bool,
        typer.Option(
            "--undo",
            help="Install the vendor's wheel again, as it was before.",
            rich_help_panel=RUN,
        ),
    ] = False,
    wheel: GivenWheel = None,
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
    """Relink what is installed already: its very wheel is fetched, relinked and installed in its place, without dependencies.

    That it is the very wheel is checked, by its hash or by every file. What pip has made beside it is kept for --undo.
    Example: relink repair onnxruntime-rocm --prefix /opt/rocm --python venv/bin/python
    """
    from relink.indexes.install import repairing
    from relink.indexes.install.environment import find_environment

    def options(target: str | None) -> Options:
        return install_options(
            target,
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

    environment = find_environment(python, os.environ)
    if undo:
        done = repairing.undo(name, environment, wheel=wheel, offline=offline)
    else:
        done = repairing.repair(
            name,
            environment,
            options(environment.python),
            wheel=wheel,
            offline=offline,
            import_test=not no_import_test,
        )
    if as_json:
        print_outcomes([done], str(environment.prefix))
    else:
        show_outcome(done, str(environment.prefix), verbose=verbose, quiet=quiet)
    if not done.ok:
        raise typer.Exit(1)
