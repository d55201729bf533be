"""Profiles: which there are, what one says, and whether a file is one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relink.cli.application import app
from relink.cli.options import profile_names
from relink.system.errors import UsageError

profile = typer.Typer(
    name="profile",
    no_args_is_help=True,
    help="What relink knows of a vendor's package, as data: it changes what is assumed, never what is proved.",
)
app.add_typer(profile)


@profile.command("list")
def list_profiles() -> None:
    """List the shipped profiles and the packages that they are for.

    Example: relink profile list
    """
    from relink.cli.terminal import show
    from relink.providers.profiles import shipped_profiles
    from relink.report.lines import Line

    for name, found in shipped_profiles().items():
        show(Line.assemble((name, "bold"), f"  for {', '.join(found.distributions)}"))
        show(Line(f"  rests on {found.source}", style="dim"))


@profile.command("show")
def show_profile(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A shipped profile, or `rocm`.", autocompletion=profile_names),
    ],
) -> None:
    """Print a shipped profile as it is written, comments included: the start of one of your own.

    Example: relink profile show onnxruntime-rocm
    """
    from relink.cli.terminal import show
    from relink.providers.profiles import NO_PROFILE, profile_named
    from relink.providers.profiles.document import DOCUMENT_LIMIT
    from relink.system.safe_open import read_text
    from relink.system.shipped_files import shipped_directory
    from relink.vendors.registry import VENDORS

    if name == NO_PROFILE.name:
        raise UsageError("none: the profile that says nothing has no file")
    path = Path(name)
    if "/" not in name and not name.endswith(".toml"):
        of_vendor = any(name == vendor.name for vendor in VENDORS)
        file = f"{name}/{name}.toml" if of_vendor else f"packages/{profile_named(name).name}.toml"
        path = shipped_directory("profiles") / file
    try:
        content = read_text(path, DOCUMENT_LIMIT)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: the profile cannot be read ({error})") from error
    # A tab would be spelled out as a control character.
    show(*(line.expandtabs() for line in content.rstrip("\n").split("\n")))


@profile.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A profile of your own.")],
    wheel: Annotated[
        Path | None,
        typer.Option(metavar="WHEEL", help="Say what in it names nothing in this wheel, too."),
    ] = None,
) -> None:
    """Check a profile: everything that is wrong with it, each with its line. Exit code 1 if it names what WHEEL lacks.

    Example: relink profile check ./mine.toml --wheel bitsandbytes-0.50.2-py3-none-manylinux_2_24_x86_64.whl
    """
    from relink.cli.terminal import show
    from relink.providers.profiles import read_profile
    from relink.report.lines import Line
    from relink.runs import questions as queries

    found = read_profile(file)
    unmatched = queries.unmatched(found, wheel) if wheel is not None else []
    for line in unmatched:
        show(Line(f"{file}: {line} of {wheel}", style="yellow"))
    if unmatched:
        raise typer.Exit(1)
    what = ", ".join(found.distributions) or "no package by itself: name it by --profile"
    show(f"{file}: profile {found.name}, for {what}")
