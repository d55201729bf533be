"""What a user can say about one build of an index, and the limits that it may not exceed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from relink.planning.option_fields import Option, mebibytes
from relink.system.errors import UsageError

__all__ = ["BudgetLimits", "BuildOptions", "parse_budget"]

_BUDGET = re.compile(r"(disk|download)=(\d{1,9})([MGT])")
_UNITS = {"M": 20, "G": 30, "T": 40}


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """Bytes that a run may fetch, and bytes that the site may grow by; None for any number."""

    download: int | None = None
    disk: int | None = None


def parse_budget(texts: Iterable[str]) -> BudgetLimits:
    """Read limits from ``disk=50G`` and ``download=20G``.

    :raises UsageError: there is no such limit, or no number; names all of them.
    """
    found: dict[str, int] = {}
    wrong = []
    for text in texts:
        match = _BUDGET.fullmatch(text)
        if match is None:
            wrong.append(f"{text}: write it like disk=50G or download=500M")
        else:
            found[match[1]] = int(match[2]) << _UNITS[match[3]]
    if wrong:
        raise UsageError("--limit: not a limit", wrong)
    return BudgetLimits(**found)


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
    limits: BudgetLimits = Option(  # noqa: RUF009 (a field)
        _COMMAND,
        None,
        "Do not begin a run that needs more: disk=50G, download=20G.",
        ("--limit",),
        "NAME=N",
        repeatable=True,
        parse=parse_budget,
    ).field(BudgetLimits())
    since: str | None = Option(
        _COMMAND,
        None,
        "Keep what this release of relink, or a later one, has made. Default: this one alone.",
        metavar="VERSION",
    ).field(None)
