"""The libraries that a wheel gets beside its own members: stubs, of this run and of an earlier one.

Takes a wheel as read, the context and the options. Gives :class:`Additions`: the context with what is added, and what of an
earlier run is left out. What an earlier run added is asked for again where the providers are the same, and forgotten where they
are not: so relinking what relink wrote changes nothing, and another prefix starts from the vendor's members.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relink.elf.symbols import SymbolTable
from relink.errors import UsageError
from relink.findings.model import Finding
from relink.options import Options
from relink.plans.additions import Stub, check_places
from relink.plans.model import Plan, ProviderFacts
from relink.provenance import read_plan, same_providers
from relink.reading import Wheel
from relink.resolve.strategy import ResolveContext
from relink.resolve.stubs import plan_stubs, with_stubs
from relink.wheel.archive import WheelArchive

__all__ = ["Additions", "plan_additions", "saved_additions"]


@dataclass(frozen=True, slots=True)
class Additions:
    """What is added to a wheel, and the wheel's facts with it.

    :ivar context: what is decided from; without what an earlier run added, unless it is kept.
    :ivar tables: the symbols of its images.
    :ivar kept: the members of stubs that the input has already, as they will be.
    :ivar dropped: members that an earlier run added and that are left out.
    """

    context: ResolveContext
    tables: Mapping[str, SymbolTable]
    stubs: tuple[Stub, ...] = ()
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def paths(self) -> frozenset[str]:
        """The members that the input does not have, or that are not its own."""
        return frozenset(stub.path for stub in self.stubs)

    @property
    def changes(self) -> bool:
        """Whether the output has other stubs than the input."""
        return bool(self.dropped) or not self.paths <= set(self.kept)


def plan_additions(
    wheel: Wheel, context: ResolveContext, providers: Sequence[ProviderFacts], options: Options
) -> Additions:
    """Plan the stubs of a wheel.

    :param providers: the facts of the context's providers.
    """
    archive = wheel.archive
    distribution = archive.path.name.partition("-")[0]
    earlier = _earlier(archive)
    same = earlier is not None and same_providers(earlier.providers, providers)
    own = {stub.path for stub in earlier.stubs} if earlier else set()

    # The vendor's members alone: what an earlier run added is not theirs.
    base, tables = _without(context, wheel.tables, own)
    again = tuple(stub.soname for stub in earlier.stubs) if earlier is not None and same else ()
    stubs = plan_stubs(base, tables, options.stub, distribution, again)
    final, final_tables = with_stubs(base, tables, stubs.stubs)

    present = {
        stub.path
        for stub in stubs.stubs
        if stub.path in own
        and archive.members[stub.path].size == len(stub.content())
        and archive.read(stub.path) == stub.content()
    }
    dropped = own - {stub.path for stub in stubs.stubs}
    return Additions(
        final,
        final_tables,
        stubs.stubs,
        tuple(sorted(present)),
        tuple(sorted(dropped)),
        stubs.findings,
    )


def saved_additions(
    wheel: Wheel, context: ResolveContext, tables: Mapping[str, SymbolTable], plan: Plan
) -> Additions:
    """Return the additions of a plan that was saved: nothing is decided.

    :raises UsageError: they are not where relink puts them.
    """
    unknown = [path for path in (*plan.kept, *plan.dropped) if path not in wheel.archive.members]
    if unknown:
        raise UsageError("the plan names files that the wheel does not have", unknown)
    context, tables = _without(context, tables, {*plan.dropped, *(stub.path for stub in plan.stubs)})
    context, tables = with_stubs(context, tables, plan.stubs)
    return Additions(context, tables, plan.stubs, plan.kept, plan.dropped)


def _earlier(archive: WheelArchive) -> Plan | None:
    """Return the plan that an earlier run put into the wheel, if it has added libraries that are there."""
    try:
        plan = read_plan(archive)
        if plan is None or not plan.stubs:
            return None
        check_places(plan.stubs)
    except UsageError:  # not one of this relink: what is in the wheel is taken as it is
        return None
    present = archive.members.keys()
    return replace(plan, stubs=tuple(stub for stub in plan.stubs if stub.path in present))


def _without(
    context: ResolveContext, tables: Mapping[str, SymbolTable], paths: set[str]
) -> tuple[ResolveContext, Mapping[str, SymbolTable]]:
    """Leave members out, and the directories that hold nothing else."""
    if not paths:
        return context, tables
    directories = {posixpath.dirname(context.layout.path_of(path)) for path in paths}
    images = {path: image for path, image in context.images.items() if path not in paths}
    left = {posixpath.dirname(context.layout.path_of(path)) for path in images}
    context = replace(
        context, images=images, member_directories=context.member_directories - (directories - left)
    )
    return context, {path: table for path, table in tables.items() if path not in paths}
