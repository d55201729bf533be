"""Report the decisions: one finding for each cause, with the reason and the next step.

Takes the outcomes of all members. Gives RLK101 to RLK124, RLK2xx, RLK301 and RLK305;
:mod:`relink.planning.resolve.import_findings` reports the proofs.

A member that the package does without is left as it is only where another member gets the vendor's libraries. Only the user
says what may be missing (``--allow-missing``).
"""

from __future__ import annotations

import posixpath
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from relink.loader.binding import unserved_records
from relink.loader.closure import Closure, LoadedObject
from relink.loader.tables import Tables
from relink.loader.target import GLIBC_SONAMES
from relink.planning.resolve.context import OptionalMember, ResolveContext
from relink.planning.resolve.evidence import SubstitutionDecision
from relink.planning.resolve.import_findings import (
    VersionGaps,
    advise_relinking_first,
    find_prefix_loader,
)
from relink.planning.resolve.strategy import (
    REMEDY_WITHHELD,
    Outcome,
    explain_withheld,
    list_exposed,
    matches_library,
    search_path_findings,
    simulate_loading,
)
from relink.planning.siblings import find_sibling
from relink.providers.distribution import is_platform_library
from relink.providers.prefix import soname_stem
from relink.system.findings.model import RULES, Finding, Level, finding
from relink.system.text import group_pairs, join_truncated, join_with_and, pluralize

_ANOTHER_PYTHON = (
    "Use a Python and a loader that belong together: without --interpreter the loader is that Python's own; --python names a "
    "Python that is installed with this C library."
)
# The most variants for which RLK104 lists the missing libraries.
_MOST_VARIANTS = 3
Mapped: TypeAlias = Iterable[tuple[str, str]]
"""What loading a member maps: the soname that is asked for, and the path of the file."""


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
    yield from _unserved_members(context, outcomes, unserved, mapped)
    yield from _loaded_before(context, served)
    yield from _other_issues(context, served, gaps)
    for member, outcome in served.items():
        if outcome.strategy != "nothing":
            yield from search_path_findings(member, outcome.entries, context.profile.name)
        if added := outcome.edit.add:
            count = pluralize(len(added), "library", "libraries")
            yield finding("RLK205", member, f"{count} added to NEEDED: {join_truncated(list(added))}")
        if outcome.edit.search_path and outcome.edit.search_kind == "rpath":
            why = "a RUNPATH would not reach what the prefix's libraries need, a DT_RPATH does"
            if context.search_path == "rpath":
                why = "LD_LIBRARY_PATH does not come before a DT_RPATH, as --search-path asks"
            yield finding("RLK206", member, f"{why}: {outcome.image.rpath}")
        if outcome.edit.interpreter is not None:
            before, after = outcome.original.interpreter, outcome.edit.interpreter
            yield finding("RLK207", member, f"its loader is not the target's: {before} → {after}")
    exposed = group_pairs(
        (edge.soname, str(edge.found_by or "nothing"))
        for outcome in served.values()
        for edge in list_exposed(context, outcome, every=True)
    )
    for soname, rules in exposed.items():
        by = join_truncated([context.layout.shown(rule) for rule in dict.fromkeys(rules)])
        yield finding("RLK209", soname, f"LD_LIBRARY_PATH comes before what finds it: {by}")
    yield from _versions(context, served, tables, gaps)
    yield from _libraries(context, served)
    yield from _unused_patterns(context, outcomes)


def replaced_findings(
    context: ResolveContext, outcomes: Mapping[str, Outcome], library_path: tuple[str, ...]
) -> Iterator[Finding]:
    """Yield RLK210 for each library of the wheel or of a provider that a shell's LD_LIBRARY_PATH has another file for.

    :param library_path: its entries, absolute.
    """
    replaced: dict[str, str] = {}
    for member, outcome in outcomes.items() if library_path else ():
        closure = simulate_loading(context, member, outcome.image, shell=library_path)
        now = _served(closure)
        if closure.fatal is not None and outcome.closure.fatal is None:
            replaced.setdefault(posixpath.basename(closure.fatal.partition(": ")[0]), closure.fatal)
        for soname, loaded in _served(outcome.closure).items():
            own = loaded.identity[0] == "member" or context.provider_path(soname) is not None
            if own and soname in now and now[soname].identity != loaded.identity:
                replaced.setdefault(soname, now[soname].path)
    places = join_truncated([*dict.fromkeys(map(posixpath.dirname, replaced.values()))])
    names = f"{pluralize(len(replaced), 'library', 'libraries')}, and has others in {places}"
    cause = f"LD_LIBRARY_PATH of this shell comes before what finds {names}: {join_truncated([*replaced])}"
    offered = context.search_path == "auto" and not context.as_it_is
    for soname, path in replaced.items():
        text = f"LD_LIBRARY_PATH of this shell comes before what finds it, and has {path}"
        told = finding("RLK210", soname, text, step="--search-path rpath" if offered else None)
        yield replace(told, cause=cause if len(replaced) > 1 else None)


def _served(closure: Closure) -> dict[str, LoadedObject]:
    """What serves each soname first, but for the C library."""
    edges = (edge for edge in reversed(closure.edges) if edge.soname not in GLIBC_SONAMES)
    return {edge.soname: closure.objects[edge.target] for edge in edges if edge.target is not None}


def missing_findings(context: ResolveContext, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    """Yield RLK101, RLK102 or RLK114: one finding a soname, with its requesters, the tried paths and the nearest libraries."""
    by_soname = group_pairs(
        (issue.edge.soname, issue)
        for outcome in served.values()
        for issue in outcome.issues
        if issue.kind in ("missing", "allowed")
    )
    # Each member has a decision of its own about the same missing library.
    decisions = group_pairs(own for outcome in served.values() for own in outcome.substitutions.items())
    substitutes, shown = dict(context.substitutes), context.layout.shown
    for soname, cases in by_soname.items():
        requesters = list(dict.fromkeys(shown(case.requester) for case in cases))
        names = [posixpath.basename(path) for path in requesters]
        # What differs in the version only, each file once, by its soname if it can.
        nearest: dict[tuple[object, ...] | None, str] = {}
        for provider in context.providers:
            for name in provider.nearest(soname):
                opened = context.files.open(provider.libraries[name][0])
                if opened.identity not in nearest or (opened.image and name == opened.image.soname):
                    nearest[opened.identity] = name
        where = "the prefix has" if len(context.providers) == 1 else "the prefixes have"
        near = f"{where} {', '.join(nearest.values()) or 'nothing of that name'}"
        if not context.providers:
            near = "no prefix counts" if context.as_it_is and context.layout.tree else "no prefix was given"
        message = f"needed by {join_truncated(requesters)}; {near}"
        brief = f"needed by {join_truncated(names, 1)}; {near}"
        decision: SubstitutionDecision | None = None
        if several := decisions.get(soname):
            # The members' decisions as one, which counts each import once, about the first candidate that one of them names.
            first = next((one for one in several if one.candidate is not None), several[0])
            same = [one for one in several if one.candidate in (first.candidate, None)]
            lacks = tuple(dict.fromkeys(name for one in same for name in one.lacking))
            serving = tuple(dict.fromkeys(name for one in same for name in one.serving))
            decision = replace(first, wanted=len({*lacks, *serving}), lacking=lacks, serving=serving)
        if decision is not None and decision.wanted:
            lacking = join_truncated(list(decision.lacking))
            count, counts = (
                f"{decision.candidate} has {len(decision.serving)} of {decision.wanted} symbols used",
                "",
            )
            if decision.candidate is None:
                count = f"{pluralize(decision.wanted, 'symbol')} of it used"
                counts = f"{pluralize(decision.wanted, 'import')} may be its: {lacking}"
            elif decision.lacking:
                counts = f"{count}, not {lacking}"
            message += f"; {counts or count}"
            # One line of a terminal: that nothing is near goes without saying where the imports are counted.
            start = brief if nearest or decision.candidate else f"needed by {join_truncated(names, 1)}"
            brief = f"{start}; {count}"
        # What has the library's name and is not taken: a later prefix, several members, or a package that should bring it.
        carrying, path = context.members.named.get(soname, []), context.withheld_path(soname)
        not_taken = f"; {path} is not taken: {explain_withheld(context)}" if path else ""
        if len(carrying) > 1:
            not_taken += f"; the wheel has it {len(carrying)} times: {join_truncated(carrying)}"
        sibling = find_sibling(context.siblings, soname)
        if sibling is not None and sibling.directory is not None:
            not_taken += f"; {sibling.directory} should bring it ({sibling.why}) and does not have it"
        message, brief = message + not_taken, brief + not_taken
        tried = dict.fromkeys(
            str(attempt.found_by)
            if attempt.found_by.rule == "cache"
            else shown(posixpath.dirname(attempt.path) or attempt.path)
            for attempt in cases[0].edge.tried
        )
        message += f"; looked in {join_truncated(list(tried))}" if tried else ""
        if all(case.kind == "allowed" for case in cases):
            yield finding("RLK102", soname, message, brief=brief)
        elif soname in substitutes:
            new = substitutes[soname]
            reason = "no import of the wheel is known to come from it, so nothing is proved"
            if context.provider_path(new) is None:
                reason = f"no prefix has {new}"
            elif soname_stem(new) != soname_stem(soname):
                reason = "the two are different libraries"
            elif decision is not None and decision.lacking:
                reason = f"{new} lacks {join_truncated(list(decision.lacking))}"
            yield finding("RLK114", soname, f"--substitute {soname}={new}: {reason}")
        else:
            remedy = _missing_remedy(context, soname, decision)
            step = context.vendor.libraries.install(soname, context.distribution, context.providers)
            yield finding("RLK101", soname, message, remedy, brief=brief, step=step)


def _missing_remedy(context: ResolveContext, soname: str, decision: SubstitutionDecision | None) -> str:
    """Return what to do about a missing library: the flag that the evidence allows, and where to get the library."""
    sibling = find_sibling(context.siblings, soname)
    if sibling is not None and sibling.directory is not None:
        name = sibling.profile.name
        return f"Install a build of {name} that has it, for the same Python, and relink again."
    if context.withheld_path(soname) is not None:
        return REMEDY_WITHHELD
    use = f"Use a {context.vendor.product if context.vendor.libraries.has(soname) else 'prefix'} that has {soname}"
    remedy = None
    if decision is None or decision.candidate is None or not decision.wanted:
        pass
    elif decision.lacking:
        remedy = f"{use}: {decision.candidate} lacks what the wheel imports."
    elif context.vendor.libraries.is_runtime(soname):
        # All of the vendor's libraries were built for the runtime, so another version of it is never advised.
        remedy = f"{use}: {decision.candidate} is the runtime of another release."
    else:
        remedy = (
            f"The version number of the library changed, so the two may be incompatible. If you know that they are not, pass "
            f"--substitute {soname}={decision.candidate}; else u{use[1:]}."
        )
    where = context.vendor.libraries.where_to_get(soname, context.distribution, context.providers)
    return f"{remedy or RULES['RLK101'].fix}{f' {where}' if where else ''}"


def _changed_needed(context: ResolveContext, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    """Yield RLK112, RLK113 and RLK121 to RLK123: NEEDED that were replaced, dropped, or added, and members that are found now."""
    shown = context.layout.shown
    for member, outcome in served.items():
        for old, new in outcome.edit.replace:
            # RLK541 reports all copies that leave the wheel at once.
            if old not in context.left_out:
                decision = outcome.substitutions[old]
                text = f"NEEDED {old} → {new}: {shown('; '.join(decision.evidence))}"
                yield finding("RLK112", member, text, profile=decision.profile)
        for soname in outcome.edit.remove:
            decision = outcome.substitutions[soname]
            text = f"NEEDED {soname} dropped: {'; '.join(decision.evidence)}"
            yield finding("RLK113", member, text, profile=decision.profile)
        for added in outcome.needed:
            if added.reason == "imported":
                text = f"{added.soname} added to NEEDED: {'; '.join(added.evidence)}"
                yield finding("RLK122", member, text)
        for entry in outcome.carried:
            text = f"{entry.soname} is {shown(entry.path)}; search path entry {entry.text} added"
            yield finding("RLK123", member, text)
        dlopened = ((added.profile, added.soname) for added in outcome.needed if added.reason == "dlopened")
        for profile, sonames in group_pairs(dlopened).items():
            text = f"loaded first (NEEDED), since a library opens it (dlopen): {join_truncated(sonames)}"
            yield finding("RLK121", member, text, profile=profile)


def _unserved_members(
    context: ResolveContext,
    outcomes: Mapping[str, Outcome],
    unserved: list[str],
    mapped: Mapping[str, Mapped],
) -> Iterator[Finding]:
    """Yield RLK103 and RLK124 for members that are left, as the providers cannot serve them, RLK104 where no variant uses one."""
    profile, vendor = context.profile, context.vendor
    lacking: dict[str, dict[str, str]] = {}
    for member in unserved:
        # Each missing soname, with how many imports can be that library's alone.
        outcome = outcomes[member]
        names = {soname: {*kept.lacking, *kept.serving} for soname, kept in outcome.substitutions.items()}
        claims = Counter(name for several in names.values() for name in several)
        counts = {soname: sum(claims[name] == 1 for name in several) for soname, several in names.items()}
        lacking[member] = {
            soname: f"{soname} ({pluralize(counts[soname], 'import')})" if counts.get(soname) else soname
            for soname in (issue.edge.soname for issue in outcome.issues if issue.kind != "shadowed")
        }
        if profile.is_variant(member):
            text = f"left as it is: no prefix has {join_truncated([*lacking[member].values()])}"
            yield finding("RLK103", member, text, profile=profile.name)
        else:
            # A member that the package does without.
            text = "left unchanged: some of its imports are in no library that it loads"
            if gone := join_truncated([*lacking[member]]):
                text = f"left as it is: no prefix has {gone}"
                text = f"it does not load: {gone} not found" if context.as_it_is else text
            why = profile.why_optional(member)
            known = OptionalMember(profile.part_of(member), why) if why else context.optional[member]
            level: Level | None = None if known.what else "info"
            by = profile.name if why else None
            reported = finding("RLK124", member, f"{text}; {known.why}", level=level, profile=by)
            yield replace(reported, without=f"{known.what} ({gone})" if known.what and gone else known.what)
    if not (context.providers or context.as_it_is):
        return
    # The variants of the vendor's: those of the providers' release first, then those that lack fewest libraries.
    nearest = sorted(
        (
            member
            for member in unserved
            if profile.is_variant(member)
            and any(map(vendor.libraries.is_own, outcomes[member].original.needed))
        ),
        key=lambda member: (len({*lacking[member]} - context.of_release), len(lacking[member])),
    )
    texts = [
        f"{posixpath.basename(member)} lacks {join_with_and([*lacking[member].values()])}"
        for member in nearest
    ]
    variants = [*filter(profile.is_variant, outcomes)]
    if variants and not any(has_vendors(context, mapped.get(member, ())) for member in variants):
        where = " in the prefixes" if context.providers else ""
        text = f"none of the {len(variants)} bundled libraries finds all that it needs{where}"
        name = profile.name
        yield finding("RLK104", name, "; ".join([text, *texts[:_MOST_VARIANTS]]), profile=name)
        # The nearest variant lacks least, so RLK101 tells what has to be there for that one.
        yield from missing_findings(context, {member: outcomes[member] for member in nearest[:1]})


def list_mapped(outcome: Outcome) -> Mapped:
    """Return what a closure maps for a member; what Python needs for itself is left out."""
    closure = outcome.closure
    return [
        (edge.soname, closure.objects[edge.target].path)
        for edge in closure.edges
        if edge.target is not None and edge.requester >= outcome.root
    ]


def has_vendors(context: ResolveContext, mapped: Mapped) -> bool:
    """Whether a library of the vendor is mapped: it has the name of one, or a provider has it and not every Linux."""
    for soname, path in mapped:
        if context.vendor.libraries.is_own(soname):
            return True
        machine = context.target.header.machine
        if context.provider_path(soname) and not is_platform_library(soname, machine):
            identity = context.files.open(path).identity
            if identity is not None and context.is_providers(identity, soname):
                return True
    return False


def _loaded_before(context: ResolveContext, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    """Yield RLK115: one finding a soname that is found only since the profile says that the package loads it before."""
    profile, shown = context.profile, context.layout.shown
    early = {("member", name) for name in profile.preload}
    without = replace(context, profile=replace(profile, preload=()))
    needing: dict[tuple[str, str], list[str]] = {}
    for member, outcome in served.items():
        objects = outcome.closure.objects
        edges = () if member in profile.preload else outcome.closure.edges
        preloaded = {
            edge.soname: objects[edge.target].path
            for edge in edges
            if edge.target is not None and objects[edge.target].identity in early
        }
        missing = simulate_loading(without, member, outcome.image).missing if preloaded else ()
        # In the order of the edges: a plan with these findings is written into the output.
        for soname in dict.fromkeys(edge.soname for edge in missing if edge.soname in preloaded):
            members = needing.setdefault((soname, shown(preloaded[soname])), [])
            members.append(shown(context.layout.path_of(member)))
    for (soname, path), members in needing.items():
        text = f"needed by {join_truncated(members)}, and there because the package loads {path} before"
        yield finding("RLK115", soname, text, profile=profile.name)


def _other_issues(
    context: ResolveContext, served: Mapping[str, Outcome], gaps: VersionGaps
) -> Iterator[Finding]:
    """Yield RLK105, and RLK107, RLK108 and RLK111 for edges that another file serves than the one that should."""
    seen: set[tuple[str, str, str | None]] = set()
    shown = context.layout.shown
    for member, outcome in served.items():
        if outcome.closure.fatal:
            yield finding("RLK105", member, f"the loader dies of {shown(outcome.closure.fatal)}")
        for issue in outcome.issues:
            soname = issue.edge.soname
            key = (issue.kind, soname, issue.served_by)
            if issue.kind in ("missing", "allowed", "sibling") or key in seen:
                continue
            seen.add(key)
            by = f"needed by {shown(issue.requester)}, served by {issue.served_by}"
            has = f"although the prefix has {context.provider_path(soname)}"
            if issue.kind == "libc":
                message = f"{by}; the target's own C library is in {context.target.libc_directory}"
                remedy = _ANOTHER_PYTHON if gaps.mismatch else None
                wrong = finding("RLK107", soname, message, remedy, brief=gaps.mismatch)
                yield replace(wrong, cause=gaps.mismatch)
            elif issue.kind == "shadowed":
                first = advise_relinking_first(context, outcome.closure.objects[issue.edge.target or 0].path)
                remedy, step = first or (None, None)
                yield finding("RLK108", soname, f"{by}, {has}", remedy, step=step)
            elif issue.kind == "withheld":
                yield finding("RLK111", soname, f"{by}; {explain_withheld(context)}", REMEDY_WITHHELD)
            else:
                yield finding("RLK111", soname, f"{by}, {has}, and no search path changes that")


def _versions(
    context: ResolveContext, served: Mapping[str, Outcome], tables: Tables, gaps: VersionGaps
) -> Iterator[Finding]:
    """Yield RLK301 for each pair of objects of which the one needs versions that the other does not define; RLK305 for records.

    A version record of a library that is neither NEEDED nor loaded makes ld.so abort.
    """
    loader = find_prefix_loader(context.providers, context.target, context.files)
    remedy = f"The prefix was built with another C library and has its loader: aim at it with --interpreter {loader}"
    alone = f"The prefix has no loader to aim at: name a {context.vendor.product} that was built for this system or an older one."
    for gap in gaps.gaps:
        message = f"needs {', '.join(gap.versions)} of {gap.file}; {gap.supplier} goes up to {gap.highest}"
        step = f"--interpreter {shlex.quote(loader)}" if loader and gap.file in GLIBC_SONAMES else None
        of_prefix = any(provider.holds(gap.requester) for provider in context.providers)
        none = alone if of_prefix and gap.file in GLIBC_SONAMES else None
        fix = remedy if loader else none
        place, python = posixpath.normpath(gap.supplier), context.target.python
        own = posixpath.dirname(posixpath.dirname(python)) if python else ""
        # The target's Python brings the library that is too old, as conda's brings libstdc++.so.6.
        is_beside = own not in ("", "/", "/usr") and place.startswith(f"{own}/")
        if is_beside and not any(provider.holds(place) for provider in context.providers):
            package = " (conda: libstdcxx-ng)" if gap.file == "libstdc++.so.6" else ""
            fix = f"{own} has its own {gap.file}: install one{package} there that has these versions, "
            fix += "or name another Python (--python)."
        lacking = finding("RLK301", gap.requester, message, fix, step=step)
        yield replace(lacking, cause=gaps.sentences[gap.file])
    left: dict[tuple[str, str], None] = {}
    for outcome in served.values():
        missing = {edge.soname for edge in outcome.closure.missing}
        for record in unserved_records(outcome.closure, tables):
            # A missing library has a finding of its own.
            if record.file not in missing:
                left[context.layout.shown(record.requester), record.file] = None
    for requester, file in left:
        text = f"a version record names {file}, which is neither NEEDED nor loaded"
        yield finding("RLK305", requester, text)


def _libraries(context: ResolveContext, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    """Yield RLK106, RLK110 and RLK117: what is passed over, what not every Linux has, and what is not simulated."""
    wanted = {edge.soname for outcome in served.values() for edge in outcome.closure.edges}
    for skipped in (skipped for provider in context.providers for skipped in provider.skipped):
        if posixpath.basename(skipped.path) in wanted:
            yield finding("RLK106", skipped.path, f"passed over: {skipped.reason}")
    filters: dict[str, tuple[str, ...]] = {}
    taken: dict[str, str] = {}
    for closure in (outcome.closure for outcome in served.values()):
        for loaded in closure.objects:
            if loaded.image.filters:
                filters[context.layout.shown(loaded.path)] = loaded.image.filters
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
    before = sonames.union(*(outcome.original.needed for outcome in outcomes.values()))
    for old in dict.fromkeys(old for old, _ in context.substitutes if old not in before):
        yield finding("RLK109", old, "--substitute: no library of that name is needed")
    needed = {name for outcome in outcomes.values() for name in outcome.image.needed}
    for soname in context.preload:
        if soname not in needed:
            why = "no prefix has it"
            if context.provider_path(soname) is not None:
                why = "no library is known to open it (dlopen), and it does not have all that a file lacks"
            yield finding("RLK109", soname, f"--preload: added to no NEEDED: {why}")
    for pattern in context.clear_execstack:
        asking = (member for member, outcome in outcomes.items() if outcome.edit.clear_stack)
        if not any(
            matches_library(pattern, context.images[member].soname or "", member) for member in asking
        ):
            text = "--clear-execstack: no file of that name has a flag for an executable stack"
            yield finding("RLK109", pattern, text)
    opened = {name for names in context.opens.values() for name in names}
    opened.update(name for member in context.images for name in context.profile.dlopens(member))
    for pattern in context.allow_missing:
        if not any(matches_library(pattern, soname) for soname in sonames | opened):
            near = sorted(soname for soname in sonames if soname_stem(soname).startswith(pattern[:6]))
            hint = f"; near: {join_truncated(near)}" if near else ""
            yield finding("RLK109", pattern, f"--allow-missing: no library of that name is needed{hint}")
