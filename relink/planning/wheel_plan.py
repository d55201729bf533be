"""From an assessment to a plan: the decisions about each file, the name of the result, and what is found, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relink.loader.tables import Tables
from relink.loader.target import Target
from relink.planning.assess import Assessment, Attempt, Trace, assess
from relink.planning.case import Case
from relink.planning.model.files import metadata_lines
from relink.planning.model.model import Plan, TargetFacts, WheelFacts
from relink.planning.options import deciding
from relink.planning.resolve.context import ResolveContext
from relink.providers.site_packages import SITE_PACKAGES
from relink.wheel.naming import WheelName, parse_wheel_name
from relink.wheel.source import MemberSource


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A plan with what carrying it out needs beside it.

    :ivar context: what was decided from, with the images as they will be.
    :ivar tables: the symbols of everything in the members' closures.
    :ivar isa: the report's object of GPU code; None where it was not looked at.
    :ivar ways_out: for each way the words of options with which there would be no error; tried. Empty where none are known.
    :ivar attempts: the plans that were made before this one, and this one.
    """

    plan: Plan
    context: ResolveContext
    tables: Tables
    isa: Mapping[str, Any] | None
    ways_out: tuple[tuple[str, ...], ...] = ()
    attempts: tuple[Attempt, ...] = ()

    @property
    def output(self) -> WheelName:
        """The name of the wheel that the plan leads to."""
        return parse_wheel_name(self.plan.output)


def plan_wheel(case: Case, trace: Trace | None = None) -> PreparedPlan:
    """Decide everything about one wheel, and check whether the result runs on the GPUs of the case; writes nothing."""
    trace = trace if trace is not None else Trace()
    assessed = assess(case, trace)
    isa = assessed.gpu.block
    return PreparedPlan(
        plan_of(assessed), assessed.context, assessed.draft.tables, isa, attempts=tuple(trace.attempts)
    )


def plan_of(assessed: Assessment) -> Plan:
    """Return the plan that an assessment leads to."""
    case, context, vendor = assessed.case, assessed.context, assessed.vendor
    moves, options = assessed.relocation, case.options
    named = (item.path for item in context.providers if item.kind == SITE_PACKAGES)
    return Plan(
        wheel=wheel_facts(assessed.source, assessed.source.path.name),
        output=assessed.output.filename,
        target=target_facts(case.target),
        providers=assessed.provider_facts,
        files=assessed.files,
        findings=assessed.findings,
        loads=assessed.draft.loads,
        relies_on=moves.relies_on,
        sites=(*named, *assessed.site_facts[1]) if assessed.changes else (),
        relocatable=moves.relocatable,
        # The extra that brings the vendor's packages has no use for a wheel whose own copies were left out.
        metadata=metadata_lines(
            moves.relies_on,
            None if options.requires or assessed.copies else vendor.name,
            vendor.packages.bundles(),
        ),
        requirements=assessed.requirements,
        removed=(*assessed.dropped_members, *assessed.copies),
        stubs=assessed.stubs.stubs,
        opened=assessed.draft.opened,
        options=deciding(options),
    )


def target_facts(target: Target) -> TargetFacts:
    """Return what a plan says of its target."""
    return TargetFacts(target.interpreter, target.glibc, target.directories, target.python, target.sysroot)


def wheel_facts(source: MemberSource, path: str) -> WheelFacts:
    """Return what a plan says of its wheel.

    :param path: as it is to be shown.
    """
    name = source.name
    return WheelFacts(path, source.sha256(), name.distribution, str(name.version), tuple(name.expanded_tags))
