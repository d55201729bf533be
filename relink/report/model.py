"""The report: what one run found, decided and wrote. The same object is returned by the API, printed and written as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from relink import __version__
from relink.planning.model.model import (
    FilePlan,
    Load,
    Plan,
    ProviderFacts,
    Stub,
    TargetFacts,
    WheelFacts,
    plain,
)
from relink.planning.model.reliance import Reliance
from relink.planning.model.typed import typed
from relink.system.errors import UsageError
from relink.system.findings.model import Finding, has_errors

__all__ = ["SCHEMA", "OutputFacts", "Report", "from_json", "report_of", "to_json"]

SCHEMA = "relink.report/1"


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """The wheel that was written: where, and its sha256 (hex)."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one command on one wheel.

    :ivar output: None where nothing was written.
    :ivar isa: the GPU code of the wheel and its libraries, or None where it was not looked at.
    :ivar timings: seconds by stage.
    :ivar loads: the edges of the dependency graph.
    :ivar stubs: libraries that were written into the output.
    :ivar way_out: after a refusal the words of options with which the same command succeeds: tried. Empty where none are known.
    :ivar relies_on: other packages that members find in the same site-packages; `relocatable`: it works wherever they are.
    :ivar verified: of how many files the real loader confirmed what was written; None where it was not asked.
    """

    command: tuple[str, ...]
    wheel: WheelFacts
    output: OutputFacts | None
    target: TargetFacts
    providers: tuple[ProviderFacts, ...]
    files: tuple[FilePlan, ...]
    findings: tuple[Finding, ...]
    isa: Mapping[str, Any] | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    loads: tuple[Load, ...] = ()
    relink: str = __version__
    schema: str = SCHEMA
    verified: int | None = None
    stubs: tuple[Stub, ...] = ()
    relies_on: tuple[Reliance, ...] = ()
    relocatable: bool = False
    way_out: tuple[str, ...] = ()

    @property
    def path(self) -> str | None:
        """The path of the wheel that was written, or None where nothing was."""
        return self.output.path if self.output else None

    @property
    def ok(self) -> bool:
        """Whether no finding is an error: what exit code 0 means."""
        return not has_errors(self.findings)


def report_of(
    plan: Plan,
    command: tuple[str, ...],
    output: OutputFacts | None,
    findings: tuple[Finding, ...],
    timings: Mapping[str, float],
) -> Report:
    """Put a plan and what came of it together."""
    return Report(
        command,
        plan.wheel,
        output,
        plan.target,
        plan.providers,
        plan.files,
        findings,
        None,
        timings,
        plan.loads,
        stubs=plan.stubs,
        relies_on=plan.relies_on,
        relocatable=plan.relocatable,
    )


def to_json(report: Report) -> dict[str, Any]:
    """Return the report as JSON data, in the shape of ``report.schema.json``."""
    added = {"stubs": plain(report.stubs), "way_out": list(report.way_out)}
    return {
        "schema": report.schema,
        "relink": report.relink,
        "command": list(report.command),
        "wheel": plain(report.wheel),
        "output": plain(report.output),
        "target": plain(report.target),
        "providers": plain(report.providers),
        "files": [{"path": file.path, "changed": file.changed, **plain(file)} for file in report.files],
        "loads": plain(report.loads),
        "isa": report.isa,
        "findings": plain(report.findings),
        "relies_on": plain(report.relies_on),
        "relocatable": report.relocatable,
        "verified": report.verified,
        "timings": {stage: round(seconds, 4) for stage, seconds in report.timings.items()},
        **{key: items for key, items in added.items() if items},
    }


def from_json(data: Mapping[str, Any]) -> Report:
    """Read a report that :func:`to_json` made; keys that a newer relink adds are passed over.

    :raises UsageError: it is none; names the place.
    """
    if data.get("schema") != SCHEMA:
        raise UsageError(f"this is not a report of the kind that this relink writes ({SCHEMA})")
    return cast("Report", typed(Report, dict(data), "report", strict=False))
