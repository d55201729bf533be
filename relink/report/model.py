"""The report: what one run found, decided and wrote. The same object is returned by the API, printed and written as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from relink import __version__
from relink.planning.model import (
    PLAN_SCHEMA,
    FilePlan,
    Load,
    Plan,
    ProviderFacts,
    TargetFacts,
    WheelFacts,
    read_plan_fields,
    to_data,
)
from relink.planning.model import from_json as plan_from_json
from relink.report.formats import SCHEMA as SEVERAL
from relink.report.summary import verdict, verdict_to_json
from relink.system.bounded_json import parse_json, read_typed
from relink.system.errors import UsageError
from relink.system.findings.model import Finding
from relink.system.text import pluralize

SCHEMA = "relink.report/1"
# The keys of a report's JSON that are its plan's; a plan without any finding may leave them out, a report may not.
_OF_PLAN = (
    "wheel",
    "target",
    "providers",
    "files",
    "findings",
    "loads",
    "stubs",
    "opened",
    "relies_on",
    "relocatable",
)


class OutputFacts(msgspec.Struct, frozen=True):
    """The wheel that was written: where, its sha256 (hex), and the bytes of it and of the input (0: not known)."""

    path: str
    sha256: str
    size: int = 0
    size_before: int = 0


class Report(msgspec.Struct, frozen=True):
    """The outcome of one command on one wheel.

    :ivar plan: with the findings of carrying it out, too. Of a report that was read, what its JSON has of it.
    :ivar output: None where nothing was written.
    :ivar isa: the GPU code of the wheel and its libraries, or None where it was not looked at.
    :ivar timings: seconds by stage.
    :ivar way_out: after a refusal the words of options with which the same command succeeds: tried. Empty where none are known.
        A ``--prefix`` among them is in place of those of the command.
    :ivar other_ways_out: words that `way_out` could be as well, where only a person can decide.
    :ivar verified: of how many files the real loader confirmed what was written; None where it was not asked.
    """

    command: tuple[str, ...]
    plan: Plan
    output: OutputFacts | None
    isa: Mapping[str, Any] | None = None
    timings: Mapping[str, float] = msgspec.field(default_factory=dict)
    relink: str = __version__
    schema: str = SCHEMA
    verified: int | None = None
    way_out: tuple[str, ...] = ()
    other_ways_out: tuple[tuple[str, ...], ...] = ()

    @property
    def wheel(self) -> WheelFacts:
        """The input."""
        return self.plan.wheel

    @property
    def target(self) -> TargetFacts:
        """The loader that the plan was made for."""
        return self.plan.target

    @property
    def providers(self) -> tuple[ProviderFacts, ...]:
        """Where libraries come from."""
        return self.plan.providers

    @property
    def files(self) -> tuple[FilePlan, ...]:
        """What becomes of each ELF file."""
        return self.plan.files

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings: of the plan, and of carrying it out."""
        return self.plan.findings

    @property
    def loads(self) -> tuple[Load, ...]:
        """The edges of the dependency graph."""
        return self.plan.loads

    @property
    def path(self) -> str | None:
        """The path of the wheel that was written, or None where nothing was."""
        return self.output.path if self.output else None

    @property
    def ok(self) -> bool:
        """Whether no finding is an error: what exit code 0 means."""
        return self.plan.ok


def to_json(report: Report) -> dict[str, Any]:
    """Return the report as JSON data, in the shape of ``report.schema.json``."""
    added = {
        "opened": to_data(report.plan.opened),
        "stubs": to_data(report.plan.stubs),
        "way_out": to_data(report.way_out),
        "other_ways_out": to_data(report.other_ways_out),
    }
    return {
        "schema": report.schema,
        "relink": report.relink,
        "command": list(report.command),
        "wheel": to_data(report.wheel),
        "output": to_data(report.output),
        "target": to_data(report.target),
        "providers": to_data(report.providers),
        "files": [{"path": file.path, "changed": file.changed, **to_data(file)} for file in report.files],
        "loads": to_data(report.loads),
        "isa": report.isa,
        "findings": to_data(report.findings),
        "relies_on": to_data(report.plan.relies_on),
        "relocatable": report.plan.relocatable,
        "verified": report.verified,
        "ok": report.ok,
        "verdict": verdict_to_json(verdict(report)),
        "timings": {stage: round(seconds, 4) for stage, seconds in report.timings.items()},
        **{key: items for key, items in added.items() if items},
    }


def from_json(data: Mapping[str, Any]) -> Report:
    """Read a report that :func:`to_json` made; keys that a newer relink adds are passed over.

    :raises UsageError: it is none; names the place.
    """
    if data.get("schema") != SCHEMA:
        raise UsageError(f"this is not a report of the kind that this relink writes ({SCHEMA})")
    if "findings" not in data:
        raise UsageError("report: Object missing required field `findings`")
    shared = {key: data[key] for key in _OF_PLAN if key in data}
    plan = read_plan_fields({**shared, "output": ""}, "report", strict=False)
    return cast("Report", read_typed(Report, {**data, "plan": plan}, "report", strict=False))


def read_saved(text: str, name: str) -> tuple[Report, bool]:
    """Read what ``relink --json`` printed, or the ``relink.json`` of a wheel; the latter is a plan, and then True is returned.

    :param name: of the file, for messages.
    :raises UsageError: it is neither; says why.
    """
    try:
        data: Any = parse_json(text)
    except ValueError as error:
        raise UsageError(f"{name}: this is not JSON ({error})") from error
    # A list is what relink 0.1.0 printed of several wheels.
    reports = data.get("reports") if isinstance(data, dict) and data.get("schema") == SEVERAL else data
    if isinstance(reports, list):
        if len(reports) != 1:
            count = pluralize(len(reports), "report")
            raise UsageError(f"{name} has {count}, and a page shows one; save one report per file")
        data = reports[0]
    schema = data.get("schema") if isinstance(data, dict) else None
    try:
        if schema == SCHEMA:
            return from_json(data), False
        if schema == PLAN_SCHEMA:
            return Report((), plan_from_json(data, strict=False), None), True
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error
    raise UsageError(
        f"{name}: this is no report of relink (`relink WHEEL --json` prints one, {SCHEMA}) and no plan ({PLAN_SCHEMA})"
    )
