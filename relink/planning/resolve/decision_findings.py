"""Report the decisions: one finding for each cause, with the reason and the next step.

Takes the outcomes of all members. Gives RLK101 to RLK124, RLK2xx, RLK301 and RLK305;
:mod:`relink.planning.resolve.import_findings` reports the proofs.

A member that the package does without is left as it is only where another member gets the vendor's libraries. One rule holds
for a plan and for what the real loader maps for the members of a wheel (RLK101 to RLK104, RLK124, RLK127). The plan inside of a
wheel is a claim of whoever made the wheel: it adds findings, and lowers and removes none. Only the user says what may be missing
(``--allow-missing``).
"""

from __future__ import annotations

import posixpath
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from relink.loader.dryrun import LoaderMap
from relink.loader.search import Tried
from relink.loader.tables import Tables
from relink.loader.target import GLIBC_SONAMES
from relink.loader.versions_check import unserved_records
from relink.planning.model.model import Plan
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.evidence import SubstitutionDecision
from relink.planning.resolve.import_findings import VersionGaps, loader_of_a_prefix
from relink.planning.resolve.proof import system_path
from relink.planning.resolve.strategy import (
    REMEDY_WITHHELD,
    Outcome,
    assumed_kind,
    matches_library,
    removed,
    simulate,
    why_withheld,
)
from relink.planning.siblings import assumed_finding, sibling_of
from relink.providers.distribution import is_platform_library
from relink.providers.prefix import soname_stem
from relink.system.findings.model import RULES, Finding, finding
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
    nearest = _nearest_variants(context, [*filter(context.profile.is_variant, unserved)], outcomes, lacking)
    texts = [
        f"{posixpath.basename(member)} lacks {join_with_and([*lacking[member].values()])}"
        for member in nearest
    ]
    found_none = [*variant_findings(context, filter(context.profile.is_variant, outcomes), mapped, texts)]
    yield from found_none
    # The nearest variant lacks least, so RLK101 tells what has to be there for that one.
    if found_none and nearest:
        yield from missing_findings(context, {nearest[0]: outcomes[nearest[0]]})


def _nearest_variants(
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
    early = {("member", name) for name in profile.preload}
    without = replace(context, profile=replace(profile, preload=()))
    needing: dict[tuple[str, str], dict[str, None]] = {}
    for member, outcome in served.items():
        objects = outcome.closure.objects
        edges = () if member in profile.preload else outcome.closure.edges
        preloaded = {
            edge.soname: objects[edge.target].path
            for edge in edges
            if edge.target is not None and objects[edge.target].identity in early
        }
        missing = simulate(without, member, outcome.image).missing if preloaded else ()
        # In the order of the edges: a plan with these findings is written into the output.
        for soname in dict.fromkeys(edge.soname for edge in missing if edge.soname in preloaded):
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
    known = sonames.union(*(outcome.original.needed for outcome in outcomes.values()))
    for old in dict.fromkeys(old for old, _ in context.substitutes if old not in known):
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


def missing_findings(context: ResolveContext, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    """Yield RLK101, RLK102 or RLK114: one finding a soname, with its requesters, the tried paths and the nearest libraries."""
    issues = (issue for outcome in served.values() for issue in outcome.issues)
    by_soname = grouped(
        (issue.edge.soname, issue) for issue in issues if issue.kind in ("missing", "allowed")
    )
    # Each member has a decision of its own about the same missing library.
    substitutions = grouped(own for outcome in served.values() for own in outcome.substitutions.items())
    substitutes = dict(context.substitutes)
    for soname, cases in by_soname.items():
        requesters = list(dict.fromkeys(context.layout.shown(case.requester) for case in cases))
        tried = list(dict.fromkeys(_place(context, attempt) for attempt in cases[0].edge.tried))
        nearest = _nearest_libraries(context, soname)
        near = _near_text(context, nearest)
        decision = _merged(substitutions.get(soname, ()))
        message = f"needed by {join_truncated(requesters)}; {near}"
        names = [posixpath.basename(path) for path in requesters]
        brief = f"needed by {join_truncated(names, 1)}; {near}"
        if decision is not None and decision.wanted:
            message += f"; {_counts(decision)}"
            # One line of a terminal: that nothing is near goes without saying where the imports are counted.
            start = brief if nearest or decision.candidate else f"needed by {join_truncated(names, 1)}"
            brief = f"{start}; {_counts(decision, brief=True)}"
        message += (not_taken := _not_taken(context, soname))
        brief += not_taken
        message += f"; looked in {join_truncated(tried)}" if tried else ""
        if all(case.kind == "allowed" for case in cases):
            yield finding("RLK102", soname, message, brief=brief)
        elif soname in substitutes:
            reason = _why_not_substituted(context, soname, substitutes[soname], decision)
            yield finding("RLK114", soname, f"--substitute {soname}={substitutes[soname]}: {reason}")
        else:
            remedy = _missing_remedy(context, soname, decision)
            step = context.vendor.libraries.install(soname, context.distribution, context.providers)
            yield finding("RLK101", soname, message, remedy, brief=brief, step=step)


def _merged(decisions: Sequence[SubstitutionDecision]) -> SubstitutionDecision | None:
    """Return what the decisions of several members on one missing library say together: of all imports that may be its.

    The candidate is the first that one of them names; None where there is no decision.
    """
    if not decisions:
        return None
    first = next((decision for decision in decisions if decision.candidate is not None), decisions[0])
    same = [decision for decision in decisions if decision.candidate in (first.candidate, None)]
    lacking = tuple(dict.fromkeys(name for decision in same for name in decision.lacking))
    serving = tuple(dict.fromkeys(name for decision in same for name in decision.serving))
    return replace(first, wanted=len({*lacking, *serving}), lacking=lacking, serving=serving)


def _not_taken(context: ResolveContext, soname: str) -> str:
    """Return what has the library's name and is not taken: a later prefix, several members, or a package that should bring it."""
    carrying = context.members.named.get(soname, [])
    path = context.withheld_path(soname)
    text = f"; {path} is not taken: {why_withheld(context)}" if path else ""
    if len(carrying) > 1:
        text += f"; the wheel has it {len(carrying)} times: {join_truncated(carrying)}"
    sibling = sibling_of(context.siblings, soname)
    if sibling is not None and sibling.directory is not None:
        text += f"; {sibling.directory} should bring it ({sibling.why}) and does not have it"
    return text


def _place(context: ResolveContext, tried: Tried) -> str:
    """Return where a library was looked for: a directory, or the cache."""
    if tried.found_by.rule == "cache":
        return str(tried.found_by)
    return context.layout.shown(posixpath.dirname(tried.path) or tried.path)


def _counts(decision: SubstitutionDecision, *, brief: bool = False) -> str:
    """Return how many of the imports the candidate exports, and, unless it is to be `brief`, which it lacks."""
    lacking = join_truncated(list(decision.lacking))
    if decision.candidate is None:
        if brief:
            return f"{pluralize(decision.wanted, 'symbol')} of it used"
        return f"{pluralize(decision.wanted, 'import')} may be its: {lacking}"
    text = f"{decision.candidate} has {len(decision.serving)} of {decision.wanted} symbols used"
    return text if brief or not decision.lacking else f"{text}, not {lacking}"


def _missing_remedy(context: ResolveContext, soname: str, decision: SubstitutionDecision | None) -> str:
    """Return what to do about a missing library: the flag that the evidence allows, and where to get the library."""
    sibling = sibling_of(context.siblings, soname)
    if sibling is not None and sibling.directory is not None:
        return (
            f"Install a build of {sibling.profile.name} that has it, for the same Python, and relink again."
        )
    if context.withheld_path(soname) is not None:
        return REMEDY_WITHHELD
    product = context.vendor.product if context.vendor.libraries.has(soname) else "prefix"
    runtime = context.vendor.libraries.is_runtime(soname)
    return missing_remedy(context, soname, _substitution_remedy(soname, product, decision, runtime=runtime))


def _substitution_remedy(
    soname: str, product: str, decision: SubstitutionDecision | None, *, runtime: bool
) -> str | None:
    """Return the remedy that the evidence for a substitute leads to, or None without a candidate.

    :param runtime: all of the vendor's libraries were built for it, so another version of it is never advised.
    """
    if decision is None or decision.candidate is None or not decision.wanted:
        return None
    if decision.lacking:
        return f"Use a {product} that has {soname}: {decision.candidate} lacks what the wheel imports."
    if runtime:
        return f"Use a {product} that has {soname}: {decision.candidate} is the runtime of another release."
    return (
        f"The version number of the library changed, so the two may be incompatible. If you know that they are not, pass "
        f"--substitute {soname}={decision.candidate}; else use a {product} that has {soname}."
    )


def _why_not_substituted(
    context: ResolveContext, soname: str, new: str, decision: SubstitutionDecision | None
) -> str:
    """Return why ``--substitute`` is not followed."""
    if context.provider_path(new) is None:
        return f"no prefix has {new}"
    if soname_stem(new) != soname_stem(soname):
        return "the two are different libraries"
    if decision is not None and decision.lacking:
        return f"{new} lacks {join_truncated(list(decision.lacking))}"
    return "no import of the wheel is known to come from it, so nothing is proved"


def _nearest_libraries(context: ResolveContext, soname: str) -> list[tuple[str, str]]:
    """Return soname and path of the providers' libraries that differ in the version only, each file once."""
    nearest: dict[tuple[object, ...] | None, tuple[str, str]] = {}
    for provider in context.providers:
        for name in provider.nearest(soname):
            path = provider.libraries[name][0]
            opened = context.files.open(path)
            own = opened.image.soname if opened.image else None
            if opened.identity not in nearest or name == own:
                nearest[opened.identity] = (name, path)
    return list(nearest.values())


def _near_text(context: ResolveContext, near: list[tuple[str, str]]) -> str:
    """Return which libraries of that stem the providers have."""
    if not context.providers:
        return "no prefix was given"
    where = "the prefix has" if len(context.providers) == 1 else "the prefixes have"
    return f"{where} {', '.join(name for name, _ in near) or 'nothing of that name'}"


# The most variants of which RLK104 tells what they lack.
_MOST_TOLD = 3
Mapped: TypeAlias = Iterable[tuple[str, str]]
"""What loading a member maps: the soname that is asked for, and the path of the file."""


def mapped_for(outcome: Outcome) -> Mapped:
    """Return what a closure maps for a member; what Python needs for itself is left out."""
    closure = outcome.closure
    return [
        (edge.soname, closure.objects[edge.target].path)
        for edge in closure.edges
        if edge.target is not None and edge.requester >= outcome.root
    ]


def has_vendors(context: ResolveContext, mapped: Mapped) -> bool:
    """Whether a library of the vendor is mapped: it has the name of one, or a provider has it and not every Linux."""
    return any(_is_vendors(context, soname, path) for soname, path in mapped)


def _is_vendors(context: ResolveContext, soname: str, path: str) -> bool:
    if context.vendor.libraries.is_own(soname):
        return True
    if not context.provider_path(soname) or is_platform_library(soname, context.target.header.machine):
        return False
    identity = context.files.open(path).identity
    return identity is not None and context.is_providers(identity, soname)


def left_out(context: ResolveContext, member: str, text: str, sonames: Iterable[str]) -> Finding:
    """Return RLK124: a member that the package does without is left as it is.

    :param text: what is wrong with it.
    :param sonames: the libraries that it lacks.
    """
    part, lacks = context.profile.part_of(member), join_truncated(list(sonames))
    told = f"{text}; {context.profile.why_optional(member)}"
    reported = finding("RLK124", member, told, profile=context.profile.name)
    return replace(reported, without=f"{part} ({lacks})" if lacks else part)


def variant_findings(
    context: ResolveContext,
    variants: Iterable[str],
    complete: Mapping[str, Mapped],
    lacking: Sequence[str] = (),
) -> Iterator[Finding]:
    """Yield RLK104 where none of several variants gets the vendor's libraries.

    :param variants: the members of which Python picks one.
    :param complete: what is mapped for the members that find all they need.
    :param lacking: what each of the others lacks, in words, the one that lacks least first.
    """
    variants = list(variants)
    if variants and not any(has_vendors(context, complete.get(member, ())) for member in variants):
        name, where = context.profile.name, " in the prefixes" if context.providers else ""
        text = f"none of the {len(variants)} bundled libraries finds all that it needs{where}"
        text = "; ".join([text, *lacking[:_MOST_TOLD]])
        yield finding("RLK104", name, text, profile=name)


def unfound_findings(maps: Mapping[str, LoaderMap], context: ResolveContext) -> Iterator[Finding]:
    """Yield what the loader does not find: an error, unless the user allows it or another part of the package does without it.

    As for a plan, a variant or a member that the package does without is left only where another gets the vendor's libraries.
    """
    early = {
        context.images[member].soname: member
        for member in context.profile.preload
        if member in context.images
    }
    brought = {name for mapped in maps.values() for name in mapped.missing if assumed_kind(context, name)}
    lacking = {
        member: [name for name in dict.fromkeys(mapped.missing) if name not in brought and name not in early]
        for member, mapped in maps.items()
    }
    complete = {
        member: mapped.objects for member, mapped in maps.items() if not (lacking[member] or mapped.died)
    }
    served = any(has_vendors(context, objects) for objects in complete.values())
    by_soname: dict[str, list[str]] = {}
    for member, mapped in maps.items():
        text = f"the loader does not find {', '.join(lacking[member])}"
        if lacking[member] and context.profile.is_variant(member):
            yield finding("RLK103", member, text, profile=context.profile.name)
        elif lacking[member] and served and context.profile.why_optional(member):
            yield left_out(context, member, text, lacking[member])
        else:
            for name in dict.fromkeys(mapped.missing):
                by_soname.setdefault(name, []).append(member)
    for name, members in by_soname.items():
        sibling = sibling_of(context.siblings, name)
        if sibling is not None and sibling.directory is None:
            yield assumed_finding(sibling, [name], members)
            continue
        text = f"needed in the closure of {', '.join(members)}; the loader does not find it"
        if name in early:
            text += f" by itself, and the package loads {early[name]} before"
            yield finding("RLK115", name, text, profile=context.profile.name)
        elif name in brought:
            yield finding("RLK102", name, text)
        else:
            yield finding("RLK101", name, text, missing_remedy(context, name))
    yield from variant_findings(context, filter(context.profile.is_variant, maps), complete)


def idle_findings(maps: Mapping[str, LoaderMap], context: ResolveContext, plan: Plan) -> Iterator[Finding]:
    """Yield RLK127: stubs whose library is there now. The loader takes it instead, or would if they were gone."""
    members = [member for member in maps if not context.images[member].is_executable]
    for stub in plan.stubs:
        own = context.layout.shown(context.layout.path_of(stub.path))
        objects = (entry for mapped in maps.values() for entry in mapped.objects)
        paths = {posixpath.normpath(path) for name, path in objects if name == stub.soname}
        if real := sorted(paths - {own}):
            yield finding("RLK127", stub.soname, f"the loader takes {real[0]}; the stub in the wheel is idle")
        elif members and (path := system_path(context, members[0], stub.soname)):
            yield finding("RLK127", stub.soname, f"{path} is there now, and the stub in the wheel is taken")


def missing_remedy(context: ResolveContext, soname: str, remedy: str | None = None) -> str:
    """Return what to do about a missing library: `remedy`, or else the rule's own, and where the library is to be had."""
    where = context.vendor.libraries.where_to_get(soname, context.distribution, context.providers)
    return f"{remedy or RULES['RLK101'].fix}{f' {where}' if where else ''}"
