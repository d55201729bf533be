"""`relink repair`: what is installed already is relinked."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from relink.cli.application import app
from relink.cli.formats import Shown
from relink.cli.installing import installing_into, print_outcomes, show_outcome
from relink.cli.options import GivenWheel, NoImportTest, Offline, takes_options
from relink.planning.option_fields import RUN
from relink.planning.options import Options


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
