"""The options that more than one command takes."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

__all__ = [
    "AllowMissing",
    "AssumeSymbols",
    "Closures",
    "Compress",
    "Gpus",
    "Ignore",
    "Interpreter",
    "Json",
    "LimitOptions",
    "Prefixes",
    "Preload",
    "Python",
    "Select",
    "Substitute",
    "Sysroot",
    "Verbose",
]

Prefixes = Annotated[
    list[str],
    typer.Option(
        "--prefix", metavar="DIR", help="A ROCm to link to; repeatable. Default: $ROCM_PATH, /opt/rocm."
    ),
]
Closures = Annotated[
    list[str],
    typer.Option(
        "--nix-closure", metavar="PATH", help="A Nix store path: all libraries of its closure; repeatable."
    ),
]
Python = Annotated[
    str | None, typer.Option(metavar="PATH", help="The Python that will load the result. Default: this one.")
]
Interpreter = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="The loader (ld-linux) that will run the result, if it is another."),
]
Sysroot = Annotated[
    str | None, typer.Option(metavar="DIR", help="A directory that will be / when the result is run.")
]
AllowMissing = Annotated[
    list[str],
    typer.Option(
        "--allow-missing", metavar="GLOB", help="A library that will be there at run time; repeatable."
    ),
]
Gpus = Annotated[
    list[str],
    typer.Option(
        "--gpu", metavar="GPU", help="A GPU that must be covered: gfx1031, 'RX 6750 XT' or auto; repeatable."
    ),
]
Substitute = Annotated[
    list[str],
    typer.Option(
        "--substitute",
        metavar="OLD=NEW",
        help="Two sonames are one ABI: let NEW take OLD's place; repeatable.",
    ),
]
AssumeSymbols = Annotated[
    list[str],
    typer.Option(
        "--assume-symbols", metavar="GLOB", help="Symbols that something else will supply; repeatable."
    ),
]
Preload = Annotated[
    list[str],
    typer.Option(
        "--preload", metavar="SONAME", help="A library that others dlopen: load it before; repeatable."
    ),
]
Select = Annotated[
    list[str],
    typer.Option(
        "--select", metavar="GLOB", help="Of warnings and infos only this code or subject; repeatable."
    ),
]
Ignore = Annotated[
    list[str],
    typer.Option(
        "--ignore", metavar="GLOB", help="No findings of this code or subject, errors included; repeatable."
    ),
]
LimitOptions = Annotated[
    list[str],
    typer.Option(
        "--limit",
        metavar="NAME=N",
        help="What a wheel may ask for: members, member-size, total-size (32G, say) or ratio; repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Nothing but JSON on standard output.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Every NEEDED with its evidence, and all findings.")
]


class Compress(StrEnum):
    """Words for :data:`relink.pipeline.LEVELS`."""

    fast = "fast"
    balanced = "balanced"
    small = "small"
