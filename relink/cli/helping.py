"""Commands for people: this machine's state, the rules, the profiles, the settings that hold, a demonstration."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from relink.cli.application import app
from relink.cli.formats import Shown, print_document
from relink.cli.options import complete_profile_name, complete_rule_code, takes_options
from relink.cli.terminal import say, show
from relink.planning.options import Options
from relink.report.lines import Line, align_rows
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
    from relink.providers.profiles import shipped_profiles

    for name, found in shipped_profiles().items():
        show(Line.assemble((name, "bold"), f"  for {', '.join(found.distributions)}"))
        show(Line(f"  rests on {found.source}", style="dim"))


@profile.command("show")
def show_profile(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A shipped profile, or `rocm`.", autocompletion=complete_profile_name
        ),
    ],
) -> None:
    """Print a shipped profile as it is written, comments included: the start of one of your own.

    Example: relink profile show onnxruntime-rocm
    """
    from relink.providers.profiles import DOCUMENT_LIMIT, NO_PROFILE, profile_named
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
    from relink.providers.profiles import read_profile
    from relink.runs import questions as queries

    found = read_profile(file)
    unmatched = queries.find_unmatched(found, wheel) if wheel is not None else []
    for line in unmatched:
        show(Line(f"{file}: {line} of {wheel}", style="yellow"))
    if unmatched:
        raise typer.Exit(1)
    what = ", ".join(found.distributions) or "no package by itself: name it by --profile"
    show(f"{file}: profile {found.name}, for {what}")


@app.command()
@takes_options("doctor")
def doctor(options: Options, shown: Shown) -> None:
    """Check this machine and its ROCm: GPUs, access to them, environment, what the runtime can load, which libraries do not fit.

    Exit code 1 if something is wrong. Example: relink doctor --prefix /opt/rocm
    """
    from relink.planning.checks.machine import check_machine, to_json
    from relink.report.text import doctor_text
    from relink.system.findings.model import has_errors

    found = check_machine(options.prefixes)
    print_document(shown, to_json(found), doctor_text(found), ok=not has_errors(found.findings))


@app.command()
def rules(
    code: Annotated[
        str | None,
        typer.Argument(metavar="CODE", help="For example RLK101.", autocompletion=complete_rule_code),
    ] = None,
) -> None:
    """List the finding codes, or explain one: what it means, what to do, and how it looks.

    Example: relink rules RLK101
    """
    from relink.report import text
    from relink.system.findings.model import RULES

    if code is None:
        show(*text.rules_table())
        return
    rule = RULES.get(code.upper())
    if rule is None:
        raise UsageError(f"{code}: there is no such rule; `relink rules` lists them")
    show(*text.rule_text(rule))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def demo(context: typer.Context) -> None:
    """Relink a real vendor wheel, install it, and show which libraries are found before and after (downloads 21 MB).

    Example: relink demo
    """
    from relink.runs import questions as queries

    raise typer.Exit(queries.run_demo(context.args))


@app.command()
@takes_options("config")
def config(shown: Shown) -> None:
    r"""Print the settings that hold in this directory, and the file and line, variable or default that each comes from.

    Settings are in relink.toml, or in \[tool.relink] of pyproject.toml, here or in a directory above; options win over them.
    Example: relink config
    """
    from relink.cli.settings import check_gpus, find_settings
    from relink.loader.target import find_target
    from relink.system.shipped_files import load_schema
    from relink.vendors.registry import find_places

    found = find_settings(Path(os.path.curdir), os.environ)
    check_gpus(found)
    rows: dict[str, dict[str, Any]] = {}
    for key in load_schema("settings")["properties"]:
        if key in found.values:
            rows[key] = {"value": found.values[key], "source": f"{found.path}:{found.lines[key]}"}
        elif key == "prefix" and len(places := find_places(find_target(), os.environ)) == 1:
            rows[key] = {"value": [places[0].path], "source": places[0].found_by}
        else:
            rows[key] = {"value": None, "source": "not set"}
    for sentence in () if shown.as_json else found.passed_over:
        say(sentence)
    path = str(found.path) if found.path else None
    lines = align_rows(
        (
            key,
            "" if row["value"] is None else json.dumps(row["value"], ensure_ascii=False),
            Line(row["source"], style="dim"),
        )
        for key, row in rows.items()
    )
    print_document(shown, {"schema": "relink.settings/1", "file": path, "settings": rows}, lines)
