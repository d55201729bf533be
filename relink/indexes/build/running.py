"""What a user can say about one build of an index, and what a run has done: events while it goes on, figures at its end, for
persons, for cron and CI, and for Prometheus.

Source: Prometheus's documentation, "Text-based format" and the node exporter's textfile collector.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from relink.planning.options import Option, parse_mebibytes

SUMMARY_SCHEMA = "relink.indexes.build-summary/1"
Say: TypeAlias = Callable[[str, Mapping[str, Any]], None]
"""Is told what happens, for a bar and a log: an event and its facts. Events are ``source``, ``note``, ``budget``, ``fetched``,
``result``, ``failure`` and ``published``."""


class Summary(msgspec.Struct):
    """What a run has done; `refused` and `failed` are of this run, `red` is what the site says of all."""

    wheels: int = 0
    tasks: int = 0
    done_before: int = 0
    fetched: int = 0
    written: int = 0
    original: int = 0
    refused: int = 0
    failed: int = 0
    source_failures: int = 0
    bytes_fetched: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    published: bool = False
    red: int = 0

    def sentence(self) -> str:
        """``12 of 30 tasks in 41.2 s: 9 written, …``."""
        state = "the site is new" if self.published else "the site is as it was"
        return (
            f"{self.tasks - self.done_before} of {self.tasks} tasks in {self.seconds:.1f} s: {self.written} written, "
            f"{self.original} need no relinking, {self.refused} refused, {self.failed} failed; {state}."
        )

    def ok(self, refused: str) -> bool:
        """Whether the exit code is 0: everything was tried, and nothing was refused that the recipe wants to fail for.

        :param refused: as a recipe has it.
        """
        return not (self.failed or self.source_failures or (refused == "fail" and self.red))

    def data(self, *, ok: bool) -> dict[str, Any]:
        """Return the figures as JSON data."""
        return {"schema": SUMMARY_SCHEMA, "ok": ok, **msgspec.to_builtins(self)}

    def metrics(self, *, ok: bool) -> str:
        """Return the figures as Prometheus reads them, each a gauge of the last run."""
        figures = msgspec.to_builtins(self) | {"ok": ok, "end_time_seconds": round(time.time(), 3)}
        return "".join(
            f"# TYPE relink_index_{name} gauge\nrelink_index_{name} {float(value):.15g}\n"
            for name, value in figures.items()
        )


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
        parse=parse_mebibytes,
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
