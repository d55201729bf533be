"""`relink repair`: what is installed or unpacked already is relinked."""

from __future__ import annotations

import os
import shlex
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
from relink.errors import UsageError
from relink.text import join_truncated

if TYPE_CHECKING:
    from collections.abc import Callable

    from relink.options import Options
    from relink.progress import OnBytes
    from relink.report.model import Report


@app.command()
def repair(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="An installed distribution; with --in-place also a directory."),
    ],
    undo: Annotated[
        bool,
        typer.Option(
            "--undo",
            help="Install the vendor's wheel again, as it was before; with --in-place, put the originals back.",
            rich_help_panel=RUN,
        ),
    ] = False,
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place",
            help="Exchange the files where they are, without any wheel; the originals are kept for --undo.",
            rich_help_panel=RUN,
        ),
    ] = False,
    managed: Annotated[
        bool,
        typer.Option(
            "--managed",
            help="With --in-place: also where conda or the system's package manager keeps the files.",
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
    With --in-place no wheel is needed: the files of a distribution or of a directory are exchanged.
    Example: relink repair onnxruntime-rocm --prefix /opt/rocm --python venv/bin/python
    """
    from relink.install import repairing
    from relink.install.environment import find_environment

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

    if managed and not in_place:
        raise UsageError("--managed goes with --in-place")
    if in_place and os.path.isdir(name):
        _in_place(
            Path(name), None, options(python), undo=undo, managed=managed, shown=(as_json, verbose, quiet)
        )
        return
    environment = find_environment(python, os.environ)
    if in_place:
        site, files = repairing.files_of(name, environment)
        chosen = options(environment.python)
        _in_place(site, files, chosen, undo=undo, managed=managed, shown=(as_json, verbose, quiet))
        return
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


def _in_place(
    tree: Path,
    only: frozenset[str] | None,
    options: Options,
    *,
    undo: bool,
    managed: bool,
    shown: tuple[bool, bool, bool],
) -> None:
    from relink.cli.terminal import print_json, show
    from relink.report.model import to_json
    from relink.trees.relinking import put_back, relink_tree

    as_json, verbose, quiet = shown
    if undo:
        names = put_back(tree, only)
        if as_json:
            print_json({"schema": "relink.undo/1", "tree": str(tree), "files": list(names)})
        else:
            show(f"{tree} is as it was before{': ' if names else ''}{join_truncated(names)}.")
        return
    report = relink_tree(tree, options, managed=managed, only=only)
    if as_json:
        print_json(to_json(report))
    else:
        print_path(report, tree, verbose=verbose, quiet=quiet)
    if not report.ok:
        raise typer.Exit(1)


def relink_path(
    path: Path,
    options: Options,
    statement: Path | None = None,
    *,
    on_stage: Callable[[str], None],
    on_bytes: OnBytes,
) -> Report:
    """Relink a wheel, or an unpacked tree in place.

    :raises RelinkError: as for the functions of the library; also for a directory of wheels or of sources.
    """
    from relink import library
    from relink.wheel.lookalikes import no_tree

    if path.is_dir() and (told := no_tree(path)):
        raise UsageError(told)
    if path.is_dir() and statement is not None:
        raise UsageError(
            "--statement says where a wheel comes from; a tree that is changed in place has none"
        )
    act = library.relink_tree if path.is_dir() else library.relink
    return act(path, options, on_stage=on_stage, on_bytes=on_bytes)


def print_path(report: Report, path: Path, *, verbose: bool, quiet: bool, dry_run: bool = False) -> None:
    """Print the report on a wheel, or on a tree with what puts it back."""
    from relink.cli.terminal import print_report, show

    tree = path.is_dir()
    print_report(report, verbose=verbose, quiet=quiet, dry_run=dry_run, installed=tree)
    if tree and not quiet:
        undoing = f"`relink repair {shlex.quote(str(path))} --in-place --undo` puts its files back"
        show(f"{path} was {f'changed in place; {undoing}' if report.output else 'not changed'}.")
