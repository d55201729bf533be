"""The findings about the decisions: one for each cause, with the reason and the next step.

Takes the outcomes of all members. Gives RLK103 to RLK122, RLK2xx, RLK301 and RLK305, and those of
:mod:`relink.planning.resolve.findings.missing_libraries`; :mod:`relink.planning.resolve.findings.imports` has those of
the proofs.
"""

from __future__ import annotations

import posixpath
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from relink.loader.tables import Tables
from relink.loader.target import GLIBC_SONAMES
from relink.loader.versions_check import unserved_records
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.findings.missing_libraries import missing_findings
from relink.planning.resolve.search_path import removed
from relink.planning.resolve.served_parts import Mapped, left_out, variant_findings
from relink.planning.resolve.strategy import Outcome, simulate
from relink.planning.resolve.unserved_edges import REMEDY_WITHHELD, matches_library, why_withheld
from relink.planning.resolve.version_gaps import VersionGaps, loader_of_a_prefix
from relink.providers.distribution import is_platform_library
from relink.providers.prefix import soname_stem
from relink.system.findings.model import Finding, finding
from relink.system.text import grouped, join_truncated, join_with_and, pluralize

_ANOTHER_PYTHON = (
    "Use a Python and a loader that belong together: without --interpreter the loader is that Python's own; --python names a "
    "Python that is installed with this C library."
)


def decision_findings(
    context: ResolveContext,
    outcomes: Mapping[str, Outcome],
    unserved: list[str],
    mapped: Mapping[str, Mapped],
    tables: Tables,
    gaps: VersionGaps,
) -> Iterator[Finding]:
    """Yield the findings about the decisions, without those of the proofs.

    :param outcomes: the decisions about all members.
    :param unserved: variants that the providers cannot serve, which remain unchanged.
    :param mapped: what loading each of the others maps.
    :param gaps: the versions that are missing in the closures of the members that are served.
    """
    served = {member: outcome for member, outcome in outcomes.items() if member not in unserved}
    yield from missing_findings(context, served)
    yield from _changed_needed(context, served)
    yield from _variants(context, outcomes, unserved, mapped)
    yield from _loaded_before(context, served)
    yield from _other_issues(context, served, gaps)
    yield from _paths_and_strategies(context, served)
    yield from _versions(context, served, tables, gaps)
    yield from _libraries(context, served)
    yield from _unused_patterns(context, outcomes)


def _changed_needed(context: ResolveContext, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    """Yield RLK112, RLK113, RLK121 and RLK122: NEEDED that were replaced, dropped, or added."""
    for member, outcome in served.items():
        for old, new in outcome.edit.replace:
            if old in context.left_out:
                # RLK541 tells of all copies at once.
                continue
            decision = outcome.substitutions[old]
            text = f"NEEDED {old} → {new}: {context.layout.shown('; '.join(decision.evidence))}"
            yield finding("RLK112", member, text, profile=decision.profile)
        for soname in outcome.edit.remove:
            decision = outcome.substitutions[soname]
            text = f"NEEDED {soname} dropped: {'; '.join(decision.evidence)}"
            yield finding("RLK113", member, text, profile=decision.profile)
        for soname, evidence in outcome.forgotten.items():
            yield finding("RLK122", member, f"{soname} added to NEEDED: {'; '.join(evidence)}")
        yield from _carried(context, member, outcome)
        by_profile = grouped((profile, soname) for soname, profile in outcome.preloaded.items())
        for profile, sonames in by_profile.items():
            text = f"loaded first (NEEDED), since a library opens it (dlopen): {join_truncated(sonames)}"
            yield finding("RLK121", member, text, profile=profile)


def _carried(context: ResolveContext, member: str, outcome: Outcome) -> Iterator[Finding]:
    """Yield RLK123: members that a search path entry was added for, since nobody else has what the file needs."""
    path, before = context.layout.path_of(member), (outcome.original.search_path or "").split(":")
    for edge in outcome.closure.edges:
        target = None if edge.target is None else outcome.closure.objects[edge.target]
        if target is None or target.identity[0] != "member" or edge.soname in context.added:
            continue
        how = edge.found_by
        if how is not None and how.owner == path and how.entry not in (None, *before):
            where = context.layout.shown(posixpath.normpath(target.path))
            yield finding("RLK123", member, f"{edge.soname} is {where}; search path entry {how.entry} added")


def _variants(
    context: ResolveContext,
    outcomes: Mapping[str, Outcome],
    unserved: list[str],
    mapped: Mapping[str, Mapped],
) -> Iterator[Finding]:
    """Yield RLK103 and RLK124 for members that are left, as the providers cannot serve them, RLK104 where no variant uses one."""
    lacking = {member: _lacking(outcomes[member]) for member in unserved}
    for member, sonames in lacking.items():
        variant = context.profile.is_variant(member)
        named = sonames.values() if variant else sonames
        text = f"left as it is: no prefix has {join_truncated(list(named))}"
        if variant:
            yield finding("RLK103", member, text, profile=context.profile.name)
        else:
            nothing = "left as it is: no library that it loads has all that it imports"
            yield left_out(context, member, text if sonames else nothing, sonames)
    if not (context.providers or context.as_it_is):
        return
    nearest = _nearest(context, [*filter(context.profile.is_variant, unserved)], outcomes, lacking)
    texts = [
        f"{posixpath.basename(member)} lacks {join_with_and([*lacking[member].values()])}"
        for member in nearest
    ]
    found_none = [*variant_findings(context, filter(context.profile.is_variant, outcomes), mapped, texts)]
    yield from found_none
    # The nearest variant lacks least, so RLK101 tells what has to be there for that one.
    if found_none and nearest:
        yield from missing_findings(context, {nearest[0]: outcomes[nearest[0]]})


def _nearest(
    context: ResolveContext,
    variants: Iterable[str],
    outcomes: Mapping[str, Outcome],
    lacking: Mapping[str, Collection[str]],
) -> list[str]:
    """Return the variants of the vendor's: those of the providers' release first, then those that lack fewest libraries."""
    of_vendor = (
        member
        for member in variants
        if any(map(context.vendor.libraries.is_own, outcomes[member].original.needed))
    )
    return sorted(
        of_vendor, key=lambda member: (len({*lacking[member]} - context.of_release), len(lacking[member]))
    )


def _lacking(outcome: Outcome) -> dict[str, str]:
    """Return what is not served as it must be: soname → the same, with how many imports can be that library's alone."""
    sonames = dict.fromkeys(issue.edge.soname for issue in outcome.issues if issue.kind != "shadowed")
    names = {soname: {*kept.lacking, *kept.serving} for soname, kept in outcome.substitutions.items()}
    claims = Counter(name for several in names.values() for name in several)
    counts = {soname: sum(claims[name] == 1 for name in several) for soname, several in names.items()}
    return {
        soname: f"{soname} ({pluralize(counts[soname], 'import')})" if counts.get(soname) else soname
        for soname in sonames
    }


def _loaded_before(context: ResolveContext, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    """Yield RLK115: one finding a soname that is found only since the profile says that the package loads it before."""
    profile = context.profile
    early = {context.layout.path_of(name) for name in profile.preload}
    without = replace(context, profile=replace(profile, preload=()))
    needing: dict[tuple[str, str], dict[str, None]] = {}
    for member, outcome in served.items():
        objects = outcome.closure.objects
        edges = () if context.layout.path_of(member) in early else outcome.closure.edges
        preloaded = {
            edge.soname: objects[edge.target].path
            for edge in edges
            if edge.target is not None and objects[edge.target].path in early
        }
        missing = simulate(without, member, outcome.image).missing if preloaded else ()
        for soname in {edge.soname for edge in missing} & preloaded.keys():
            key = (soname, context.layout.shown(preloaded[soname]))
            needing.setdefault(key, {})[context.layout.shown(context.layout.path_of(member))] = None
    for (soname, path), members in needing.items():
        text = f"needed by {join_truncated(list(members))}, and there because the package loads {path} before"
        yield finding("RLK115", soname, text, profile=profile.name)


def _other_issues(
    context: ResolveContext, served: Mapping[str, Outcome], gaps: VersionGaps
) -> Iterator[Finding]:
    """Yield RLK105, and RLK107, RLK108 and RLK111 for edges that another file serves than the one that should."""
    seen: set[tuple[str, str, str | None]] = set()
    for member, outcome in served.items():
        if outcome.closure.fatal:
            shown = context.layout.shown(outcome.closure.fatal)
            yield finding("RLK105", member, f"the loader dies of {shown}")
        for issue in outcome.issues:
            soname = issue.edge.soname
            key = (issue.kind, soname, issue.served_by)
            if issue.kind in ("missing", "allowed", "sibling") or key in seen:
                continue
            seen.add(key)
            by = f"needed by {context.layout.shown(issue.requester)}, served by {issue.served_by}"
            if issue.kind == "libc":
                message = f"{by}; the target's own C library is in {context.target.libc_directory}"
                remedy = _ANOTHER_PYTHON if gaps.mismatch else None
                wrong = finding("RLK107", soname, message, remedy, brief=gaps.mismatch)
                yield replace(wrong, cause=gaps.mismatch)
            elif issue.kind == "shadowed":
                yield finding(
                    "RLK108", soname, f"{by}, although the prefix has {context.provider_path(soname)}"
                )
            elif issue.kind == "withheld":
                yield finding("RLK111", soname, f"{by}; {why_withheld(context)}", REMEDY_WITHHELD)
            else:
                message = f"{by}, although the prefix has {context.provider_path(soname)}, and no search path changes that"
                yield finding("RLK111", soname, message)


def _paths_and_strategies(context: ResolveContext, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    """Yield RLK201 to RLK207: what an edit changes beside NEEDED, and why."""
    for member, outcome in served.items():
        if outcome.strategy != "nothing":
            yield from removed(member, outcome.entries, context.profile.name)
        if outcome.edit.add:
            count = pluralize(len(outcome.edit.add), "library", "libraries")
            yield finding(
                "RLK205", member, f"{count} added to NEEDED: {join_truncated(list(outcome.edit.add))}"
            )
        if outcome.strategy == "rpath":
            message = f"a RUNPATH would not reach what the prefix's libraries need, a DT_RPATH does: {outcome.image.rpath}"
            yield finding("RLK206", member, message)
        if outcome.edit.interpreter is not None:
            before, after = outcome.original.interpreter, outcome.edit.interpreter
            yield finding("RLK207", member, f"its loader is not the target's: {before} → {after}")


def _versions(
    context: ResolveContext, served: Mapping[str, Outcome], tables: Tables, gaps: VersionGaps
) -> Iterator[Finding]:
    """Yield RLK301 for each pair of objects of which the one needs versions that the other does not define; RLK305 for records.

    A version record of a library that is neither NEEDED nor loaded makes ld.so abort.
    """
    loader = loader_of_a_prefix(context)
    for gap in gaps.gaps:
        message = f"needs {', '.join(gap.versions)} of {gap.file}; {gap.supplier} goes up to {gap.highest}"
        remedy = (
            f"The prefix was built with another C library and has its loader: aim at it with --interpreter {loader}"
            if loader
            else None
        )
        step = f"--interpreter {shlex.quote(loader)}" if loader and gap.file in GLIBC_SONAMES else None
        lacking = finding("RLK301", gap.requester, message, remedy, step=step)
        yield replace(lacking, cause=gaps.sentences[gap.file])
    seen: dict[tuple[str, str], None] = {}
    for outcome in served.values():
        missing = {edge.soname for edge in outcome.closure.missing}
        for record in unserved_records(outcome.closure, tables):
            # A missing library has a finding of its own.
            if record.file not in missing:
                seen[context.layout.shown(record.requester), record.file] = None
    for requester, file in seen:
        yield finding(
            "RLK305", requester, f"a version record names {file}, which is neither NEEDED nor loaded"
        )


def _libraries(context: ResolveContext, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    """Yield RLK106, RLK110 and RLK117: what is passed over, what not every Linux has, and what is not simulated."""
    wanted = {edge.soname for outcome in served.values() for edge in outcome.closure.edges}
    for provider in context.providers:
        for skipped in provider.skipped:
            if posixpath.basename(skipped.path) in wanted:
                yield finding("RLK106", skipped.path, f"passed over: {skipped.reason}")
    filters: dict[str, tuple[str, ...]] = {}
    taken: dict[str, str] = {}
    for outcome in served.values():
        closure = outcome.closure
        filters |= {
            context.layout.shown(one.path): one.image.filters for one in closure.objects if one.image.filters
        }
        for index in closure.scope:
            loaded = closure.objects[index]
            by_default = index >= closure.roots[0] and loaded.found_by.rule in ("cache", "default")
            if by_default and not is_platform_library(loaded.name, context.target.header.machine):
                taken.setdefault(loaded.name, loaded.path)
    for path, names in filters.items():
        text = f"the loader maps {join_truncated(list(names))} before it (DT_FILTER or DT_AUXILIARY), which is not simulated"
        yield finding("RLK117", path, text)
    yield from (finding("RLK110", soname, f"taken from the system: {path}") for soname, path in taken.items())


def _unused_patterns(context: ResolveContext, outcomes: Mapping[str, Outcome]) -> Iterator[Finding]:
    """Yield RLK109: values of options that match no library, or that change nothing."""
    sonames = {edge.soname for outcome in outcomes.values() for edge in outcome.closure.edges}
    wanted = {soname for soname, _ in context.substitutes}
    for old in wanted - sonames - {name for outcome in outcomes.values() for name in outcome.original.needed}:
        yield finding("RLK109", old, "--substitute: no library of that name is needed")
    needed = {name for outcome in outcomes.values() for name in outcome.image.needed}
    for soname in context.preload:
        if soname not in needed:
            why = "no prefix has it"
            if context.provider_path(soname) is not None:
                why = "no library is known to open it (dlopen), and it does not have all that a file lacks"
            yield finding("RLK109", soname, f"--preload: added to no NEEDED: {why}")
    opened = {name for names in context.opens.values() for name in names} | {
        name for member in context.images for name in context.profile.dlopens(member)
    }
    for pattern in context.allow_missing:
        if not any(matches_library(pattern, soname) for soname in sonames | opened):
            near = sorted(soname for soname in sonames if soname_stem(soname).startswith(pattern[:6]))
            hint = f"; near: {join_truncated(near)}" if near else ""
            yield finding("RLK109", pattern, f"--allow-missing: no library of that name is needed{hint}")
