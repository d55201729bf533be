"""The libraries that a wheel gets beside its own members: stubs and grafts, of this run and of an earlier one.

Takes a wheel as read, the context and the options. Gives :class:`Additions`: the context with what is added, and what of an
earlier run is left out. What an earlier run added is asked for again where the providers are the same, and forgotten where they
are not: so relinking what relink wrote changes nothing, and another prefix starts from the vendor's members.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from relink.checks.gpu import host_path
from relink.checks.licences import licence_of, why_not_copied
from relink.elf.symbols import SymbolTable
from relink.errors import UsageError
from relink.findings.model import Finding, finding
from relink.gpu import DeviceCode, read_file
from relink.gpu.side_files import side_files_of
from relink.options import Options
from relink.plans.additions import Graft, LicenceFacts, Stub, check_places
from relink.plans.files import FilePlan
from relink.plans.model import Plan, ProviderFacts
from relink.provenance import read_plan, same_providers
from relink.providers.nix_store import open_place
from relink.reading import Wheel
from relink.resolve.grafts import (
    Donor,
    GraftDraft,
    Knowledge,
    missing_libraries,
    plan_grafts,
    read_grafts,
    with_grafts,
)
from relink.resolve.strategy import ResolveContext
from relink.resolve.stubs import plan_stubs, with_stubs
from relink.rocm.installation import release_of
from relink.rocm.places import prefix_of_libraries
from relink.text import join_truncated
from relink.wheel.archive import WheelArchive

__all__ = ["Additions", "plan_additions", "saved_additions"]


@dataclass(frozen=True, slots=True)
class Additions:
    """What is added to a wheel, and the wheel's facts with it.

    :ivar context: what is decided from; without what an earlier run added, unless it is kept.
    :ivar tables: the symbols of its images, `codes` the device code of the grafts of this run.
    :ivar grafts: those that are copied in this run; `carried`: those that the input has, and keeps.
    :ivar kept: the members of stubs and grafts that the input has already, as they will be.
    :ivar dropped: members that an earlier run added and that are left out.
    """

    context: ResolveContext
    tables: Mapping[str, SymbolTable]
    codes: Mapping[str, DeviceCode] = field(default_factory=dict)
    stubs: tuple[Stub, ...] = ()
    grafts: tuple[GraftDraft, ...] = ()
    carried: tuple[Graft, ...] = ()
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def paths(self) -> frozenset[str]:
        """The members that the input does not have, or that are not its own."""
        return frozenset((*(stub.path for stub in self.stubs), *(graft.path for graft in self.grafts)))

    @property
    def changes(self) -> bool:
        """Whether the output has other stubs and grafts than the input."""
        return bool(self.dropped) or not self.paths <= set(self.kept)

    def plans(self, files: Sequence[FilePlan]) -> tuple[Graft, ...]:
        """Return the grafts with their plans, which are among `files`."""
        by_path = {file.path: file for file in files}
        made = tuple(
            Graft(
                draft.path,
                draft.soname,
                draft.source,
                draft.sha256,
                draft.image.size,
                draft.provider,
                draft.licence,
                by_path[draft.path],
            )
            for draft in self.grafts
            if draft.path in by_path
        )
        return (*self.carried, *made)


def plan_additions(
    wheel: Wheel, context: ResolveContext, providers: Sequence[ProviderFacts], options: Options
) -> Additions:
    """Plan the stubs and the grafts of a wheel.

    :param providers: the facts of the context's providers.
    :raises UsageError: ``--graft`` without ``--graft-from``.
    :raises ProviderError: a second provider is none.
    """
    if options.graft and not options.graft_from:
        raise UsageError("--graft: say where the library is to be copied from: --graft-from DIR")
    archive = wheel.archive
    distribution = archive.path.name.partition("-")[0]
    earlier = _earlier(archive)
    same = earlier is not None and same_providers(earlier.providers, providers)
    own = {item.path for item in earlier.additions} if earlier else set()
    donors = _donors(context, options)
    major = next((major for one in providers if (major := _major(one.rocm_version)) is not None), None)

    # The vendor's members alone: what an earlier run added is not theirs.
    base, tables = _without(context, wheel.tables, own)
    carried = earlier.grafts if earlier is not None and same else ()
    with_carried = _without(context, wheel.tables, own - {graft.path for graft in carried})
    if carried and not _still_right(with_carried[0], with_carried[1], carried, donors, options):
        carried = ()
    if carried:
        base, tables = with_carried
        base = replace(base, added={graft.soname: graft.path for graft in carried})
    findings: list[Finding] = []
    drafts: tuple[GraftDraft, ...] = ()
    if donors and not carried:
        planned = plan_grafts(base, tables, donors, options.graft, distribution, _knowledge(context), major)
        drafts, findings = planned.grafts, [*planned.findings]
    grafted, grafted_tables = with_grafts(base, tables, drafts)
    again = tuple(stub.soname for stub in earlier.stubs) if earlier is not None and same else ()
    stubs = plan_stubs(grafted, grafted_tables, options.stub, distribution, again)
    final, final_tables = with_stubs(grafted, grafted_tables, stubs.stubs)

    present = {
        stub.path
        for stub in stubs.stubs
        if stub.path in own
        and archive.members[stub.path].size == len(stub.content())
        and archive.read(stub.path) == stub.content()
    } | {graft.path for graft in carried}
    paths = {*(stub.path for stub in stubs.stubs), *(draft.path for draft in drafts), *present}
    dropped = [path for path in own if path not in paths]
    if dropped and earlier is not None:
        names = join_truncated([posixpath.basename(path) for path in dropped])
        why = "nothing misses it any more" if same else "it was relinked for another prefix"
        findings.append(finding("RLK144", archive.path.name, f"left out, since {why}: {names}"))
    dropped += _licences(
        archive, [graft for graft in (earlier.grafts if earlier else ()) if graft.path in dropped]
    )
    codes = {draft.path: _device_code(context, draft) for draft in drafts}
    return Additions(
        final,
        final_tables,
        codes,
        stubs.stubs,
        drafts,
        carried,
        tuple(sorted(present)),
        tuple(sorted(dropped)),
        (*findings, *stubs.findings),
    )


def saved_additions(
    wheel: Wheel, context: ResolveContext, tables: Mapping[str, SymbolTable], plan: Plan
) -> Additions:
    """Return the additions of a plan that was saved: nothing is decided.

    :raises UsageError: they are not where relink puts them, or a file is not the one that the plan was made with.
    """
    carried = tuple(graft for graft in plan.grafts if graft.path in plan.kept)
    drafts = read_grafts(context, [graft for graft in plan.grafts if graft.path not in plan.kept])
    unknown = [path for path in (*plan.kept, *plan.dropped) if path not in wheel.archive.members]
    if unknown:
        raise UsageError("the plan names files that the wheel does not have", unknown)
    context, tables = _without(context, tables, {*plan.dropped, *(stub.path for stub in plan.stubs)})
    context, tables = with_stubs(*with_grafts(context, tables, drafts), plan.stubs)
    codes = {draft.path: _device_code(context, draft) for draft in drafts}
    return Additions(context, tables, codes, plan.stubs, drafts, carried, plan.kept, plan.dropped)


def _earlier(archive: WheelArchive) -> Plan | None:
    """Return the plan that an earlier run put into the wheel, if it has added libraries that are there."""
    try:
        plan = read_plan(archive)
        if plan is None or not (plan.stubs or plan.grafts):
            return None
        check_places(plan.additions)
    except UsageError:  # not one of this relink: what is in the wheel is taken as it is
        return None
    present = archive.members.keys()
    return replace(
        plan,
        stubs=tuple(stub for stub in plan.stubs if stub.path in present),
        grafts=tuple(graft for graft in plan.grafts if graft.path in present),
    )


def _donors(context: ResolveContext, options: Options) -> tuple[Donor, ...]:
    donors = []
    for path in options.graft_from:
        provider = open_place(prefix_of_libraries(path, context.target), context.target)
        release = release_of(provider, context.target.sysroot)
        donors.append(Donor(provider, release.major if release else None))
    return tuple(donors)


def _major(release: str | None) -> int | None:
    return int(release.partition(".")[0]) if release else None


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


def _still_right(
    context: ResolveContext,
    tables: Mapping[str, SymbolTable],
    carried: Sequence[Graft],
    donors: Sequence[Donor],
    options: Options,
) -> bool:
    """Whether the grafts in the input are those that this run would make."""
    if not options.graft_from:
        return True
    for graft in carried:
        donor = next((one for one in donors if one.provider.find(graft.soname)), None)
        if donor is None or donor.provider.find(graft.soname) != graft.source:
            return False
    try:
        drafts = read_grafts(context, carried)
    except UsageError:
        return False
    have = {draft.soname for draft in drafts}
    context = replace(context, added={graft.soname: graft.path for graft in carried})
    more = missing_libraries(context, tables, options.graft)
    return not any(
        soname not in have and (not options.graft or soname in options.graft)
        for soname in more
        if any(one.provider.find(soname) for one in donors)
    )


def _licences(archive: WheelArchive, grafts: Sequence[Graft]) -> list[str]:
    members = (graft.licence.member(graft.soname) for graft in grafts)
    paths = (f"{archive.dist_info}/{member}" for member in members if member)
    return [path for path in paths if path in archive.members]


def _knowledge(context: ResolveContext) -> Knowledge:
    sysroot = context.target.sysroot

    def licence(soname: str, prefix: str) -> LicenceFacts:
        return licence_of(soname, prefix, sysroot)

    return Knowledge(licence, why_not_copied, partial(_beside, sysroot))


def _beside(sysroot: str, soname: str, path: str) -> str | None:
    """Return what a library would miss beside a copy of itself: kernel files, or GPU code in archives."""
    host = host_path(path, sysroot)
    if files := side_files_of(host, soname):
        return f"it loads kernel files from {files[0].directory}, which a copy would not find"
    if read_file(host).kpack is not None:
        return "its GPU code lies in archives beside it, which a copy would not find"
    return None


def _device_code(context: ResolveContext, draft: GraftDraft) -> DeviceCode:
    return replace(read_file(context.files.host(draft.source)), path=draft.path)
