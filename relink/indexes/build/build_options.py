"""What a user can say about one build of an index."""

from __future__ import annotations

from dataclasses import dataclass

from relink.planning.option_fields import Option, mebibytes

_COMMAND = ("index build",)


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How to build.

    :ivar workers: processes on this machine; None: one a processor.
    :ivar memory: bytes that all of them may take; None: most of what is free.
    :ivar scheduler: the address of a Dask scheduler; None for processes of this machine.
    :ivar since: keep results that this release of relink or a later one has made; None: this release alone.
    """

    workers: int | None = Option(
        _COMMAND, None, "Processes. Default: one a processor.", ("--jobs", "-j"), "N", kind=int, least=1
    ).field(None)
    memory: int | None = Option(
        _COMMAND,
        None,
        "Memory for all of them. Default: most of what is free.",
        metavar="MIB",
        kind=int,
        least=1,
        parse=mebibytes,
    ).field(None)
    scheduler: str | None = Option(
        _COMMAND,
        None,
        "Work on a Dask cluster: tcp://HOST:8786. Needs rocm-relink[cluster].",
        metavar="ADDRESS",
    ).field(None)
    since: str | None = Option(
        _COMMAND,
        None,
        "Keep what this release of relink, or a later one, has made. Default: this one alone.",
        metavar="VERSION",
    ).field(None)
