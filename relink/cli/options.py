"""The options that more than one command takes."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from relink.cli.completion import gpu_names, profile_names, rule_codes

__all__ = [
    "GPUS",
    "KNOWN",
    "LINK",
    "OUTPUT",
    "RUN",
    "SHOWN",
    "WORK",
    "AllowIsaGap",
    "AllowMissing",
    "AssumeSymbols",
    "Closures",
    "Fix",
    "Force",
    "GcRoot",
    "Gpus",
    "Ignore",
    "InEnvironment",
    "Interpreter",
    "Json",
    "LimitOptions",
    "NoImportTest",
    "NoVerify",
    "Offline",
    "Prefixes",
    "Preload",
    "ProfileName",
    "Python",
    "Quiet",
    "Requires",
    "SandboxMode",
    "SandboxOption",
    "Select",
    "Stubs",
    "Substitute",
    "Sysroot",
    "TargetPython",
    "Trust",
    "Verbose",
]

# The groups of `relink COMMAND --help`.
LINK = "What to link to"
RUN = "Where the result will run"
KNOWN = "What only you can know"
GPUS = "GPUs"
OUTPUT = "What is written"
WORK = "How it is done"
SHOWN = "What is shown"

Prefixes = Annotated[
    list[str],
    typer.Option(
        "--prefix",
        metavar="DIR",
        help="A ROCm to link to, or an environment with pip's; repeatable. Default: $ROCM_PATH, that of the Python, or the one "
        "in /opt, ld.so.cache or /usr.",
        rich_help_panel=LINK,
    ),
]
Closures = Annotated[
    list[str],
    typer.Option(
        "--nix-closure",
        metavar="PATH",
        help="A Nix store path: all libraries of its closure; repeatable.",
        rich_help_panel=LINK,
    ),
]
Python = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="The Python that will load the result. Default: the active environment's, or this one.",
        rich_help_panel=RUN,
    ),
]
Interpreter = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="The loader (ld-linux) that will run the result, if it is another.",
        rich_help_panel=RUN,
    ),
]
Sysroot = Annotated[
    str | None,
    typer.Option(
        metavar="DIR", help="A directory that will be / when the result is run.", rich_help_panel=RUN
    ),
]
AllowMissing = Annotated[
    list[str],
    typer.Option(
        "--allow-missing",
        metavar="GLOB",
        help="A library that will be there at run time; repeatable.",
        rich_help_panel=KNOWN,
    ),
]
Gpus = Annotated[
    list[str],
    typer.Option(
        "--gpu",
        metavar="GPU",
        help="A GPU that must be covered: gfx1031, 'RX 6750 XT' or auto; repeatable.",
        rich_help_panel=GPUS,
        autocompletion=gpu_names,
    ),
]
InEnvironment = Annotated[
    str | None,
    typer.Option(
        "--in",
        metavar="VENV",
        help="As installed in this environment: what it has beside the wheel is found.",
        rich_help_panel=RUN,
    ),
]
Requires = Annotated[
    bool,
    typer.Option(
        "--requires",
        help="Require the packages in site-packages that the result relies on; else they are its extra [rocm].",
        rich_help_panel=OUTPUT,
    ),
]
Substitute = Annotated[
    list[str],
    typer.Option(
        "--substitute",
        metavar="OLD=NEW",
        help="Two sonames are one ABI: let NEW take OLD's place; repeatable.",
        rich_help_panel=KNOWN,
    ),
]
AssumeSymbols = Annotated[
    list[str],
    typer.Option(
        "--assume-symbols",
        metavar="GLOB",
        help="Symbols that something else will supply; repeatable.",
        rich_help_panel=KNOWN,
    ),
]
Preload = Annotated[
    list[str],
    typer.Option(
        "--preload",
        metavar="SONAME",
        help="A library that others dlopen, or that a file needs and does not name: add it to NEEDED; repeatable.",
        rich_help_panel=KNOWN,
    ),
]
Stubs = Annotated[
    list[str],
    typer.Option(
        "--stub",
        metavar="SONAME",
        help="Write a stub for a library that nobody has: its functions refuse; auto: for all that are optional; repeatable.",
        rich_help_panel=KNOWN,
    ),
]
Fix = Annotated[
    bool,
    typer.Option(
        "--fix",
        help="Add the options that findings name and that are sound by proof alone: NEEDED entries that change no binding.",
        rich_help_panel=WORK,
    ),
]
GcRoot = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="Put garbage collector roots of the Nix store paths used here.",
        rich_help_panel=OUTPUT,
    ),
]
NoPreload = Annotated[
    bool,
    typer.Option(
        "--no-preload",
        help="Preload nothing but what --preload names: also not what is known to be dlopened and not to be found.",
        rich_help_panel=KNOWN,
    ),
]
Trust = Annotated[
    list[str],
    typer.Option(
        "--trust",
        metavar="GLOB",
        help="Give the loader and patchelf a file that the static scan refuses; only with --sandbox require; repeatable.",
        rich_help_panel=KNOWN,
    ),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME|FILE",
        help="What is assumed of the package: a shipped profile, a file, or none. Default: by the wheel's name.",
        rich_help_panel=KNOWN,
        autocompletion=profile_names,
    ),
]
Select = Annotated[
    list[str],
    typer.Option(
        "--select",
        metavar="GLOB",
        help="Of warnings and infos only this code or subject; repeatable.",
        rich_help_panel=SHOWN,
        autocompletion=rule_codes,
    ),
]
Ignore = Annotated[
    list[str],
    typer.Option(
        "--ignore",
        metavar="GLOB",
        help="No findings of this code or subject, errors included; repeatable.",
        rich_help_panel=SHOWN,
        autocompletion=rule_codes,
    ),
]
LimitOptions = Annotated[
    list[str],
    typer.Option(
        "--limit",
        metavar="NAME=N",
        help="What a wheel may ask for: members, member-size, total-size (32G, say), ratio or loads; repeatable.",
        rich_help_panel=WORK,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Nothing but JSON on standard output.", rich_help_panel=SHOWN)
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Every NEEDED with its evidence, and all findings.", rich_help_panel=SHOWN
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Errors only, and no progress.", rich_help_panel=SHOWN),
]


GivenWheel = Annotated[
    Path | None,
    typer.Option(
        "--wheel",
        metavar="FILE",
        help="The vendor's wheel, where what is named was installed or relinked from it; its SHA-256 must be that one's.",
        rich_help_panel=LINK,
    ),
]
AllowIsaGap = Annotated[
    bool,
    typer.Option(
        "--allow-isa-gap", help="Go on although a GPU of --gpu is not covered.", rich_help_panel=GPUS
    ),
]
NoVerify = Annotated[
    bool, typer.Option("--no-verify", help="Do not ask the real loader.", rich_help_panel=WORK)
]
Force = Annotated[
    bool, typer.Option("--force", help="Write although there are errors.", rich_help_panel=OUTPUT)
]
Offline = Annotated[
    bool,
    typer.Option(
        "--offline",
        help="Ask no package index: a requirement is taken from the cache of fetched wheels.",
        rich_help_panel=WORK,
    ),
]
NoImportTest = Annotated[
    bool,
    typer.Option(
        "--no-import-test",
        help="Do not import what was installed. The import test runs the wheel's code, in a process of its own.",
        rich_help_panel=WORK,
    ),
]
TargetPython = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="PATH",
        help="The Python of the environment to change. Default: that of the active virtual environment.",
        rich_help_panel=RUN,
    ),
]


class SandboxMode(StrEnum):
    """Words for :data:`relink.system.sandbox.MODES`."""

    auto = "auto"
    require = "require"
    off = "off"


MaxMemory = Annotated[
    int | None,
    typer.Option(
        "--max-memory",
        min=256,
        metavar="MIB",
        help="Memory for all of it, in MiB, at least 256; large files then lie beside the output.",
        rich_help_panel=WORK,
    ),
]
SandboxOption = Annotated[
    SandboxMode,
    typer.Option(
        "--sandbox",
        help="Confine the loader and patchelf: as well as can be had here, or else refuse, or not at all.",
        rich_help_panel=WORK,
    ),
]
