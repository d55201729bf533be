"""`relink fetch`, and what fetches the wheels of other commands: from a package index, by pip."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relink.cli.application import app
from relink.cli.formats import Shown
from relink.cli.guessing import is_requirement
from relink.cli.options import takes_options
from relink.planning.options import Options
from relink.system.errors import RelinkError

if TYPE_CHECKING:
    from relink.indexes.install.cache import CachedWheel
    from relink.indexes.install.installers import Platform


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
    from relink.cli.terminal import print_json
    from relink.indexes.install.installers import fetch as fetch_wheel
    from relink.indexes.install.installers import parse_requirement
    from relink.system.atomic import copy_file
    from relink.system.errors import UsageError

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
    from relink.planning.case import target_of

    target = target_of(options)
    own = ask_python(sys.executable) if options.interpreter and target.python_facts is None else None
    return platform_of(target, own)


def tell_fetched(place: str, found: CachedWheel, platform: Platform) -> None:
    """Print which wheel was fetched, as `place` names it."""
    from relink.cli.terminal import show

    show(f"{place}  sha256 {found.sha256}  {found.size / 1e6:.1f} MB, fetched for {platform.shown}")
