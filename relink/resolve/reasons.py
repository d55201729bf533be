"""What a person is told about the decisions: one finding a thing, with the reason and the next step."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from relink.findings.model import RULES, Finding, finding
from relink.loader.binding import Tables, check_versions, unserved_records
from relink.loader.search import Tried
from relink.providers.platform import is_platform_library
from relink.providers.prefix import soname_stem
from relink.resolve.search_path import removed
from relink.resolve.strategy import Outcome, ResolveContext, matches_library, simulate
from relink.resolve.substitution import SubstitutionDecision
from relink.text import join_truncated, pluralize

__all__ = ["reasons"]


def reasons(
    context: ResolveContext, outcomes: Mapping[str, Outcome], unserved: list[str], tables: Tables
) -> Iterator[Finding]:
    """Yield everything that the decisions give reason to say, but for what the proofs say (:mod:`relink.resolve.proof`).

    :param outcomes: the decisions about all members.
    :param unserved: variants that were left as they are.
    """
    served = {member: outcome for member, outcome in outcomes.items() if member not in unserved}
    yield from _missing(context, served)
    yield from _changed_needed(context, served)
    yield from _variants(context, outcomes, unserved)
    yield from _loaded_before(context, served)
    yield from _other_issues(context, served)
    yield from _skipped_files(context, served)
    yield from _paths_and_strategies(context, served)
    yield from _versions(context, served, tables)
    yield from _dangling_records(context, served, tables)
    yield from _from_the_system(context, served)
    yield from _unused_patterns(context, outcomes)


def _missing(context: ResolveContext, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    """One finding a soname, with all who need it, what was tried and what there is instead."""
    by_soname: dict[str, list[tuple[str, tuple[Tried, ...], bool]]] = {}
    substitutions: dict[str, SubstitutionDecision] = {}
    for outcome in served.values():
        for issue in outcome.issues:
            if issue.kind in ("missing", "allowed"):
                requester = context.layout.shown(issue.requester)
                by_soname.setdefault(issue.edge.soname, []).append(
                    (requester, issue.edge.tried, issue.kind == "allowed")
                )
                if issue.edge.soname in outcome.substitutions:
                    substitutions[issue.edge.soname] = outcome.substitutions[issue.edge.soname]
    told = dict(context.substitutes)
    for soname, cases in by_soname.items():
        requesters = list(dict.fromkeys(requester for requester, _, _ in cases))
        tried = list(dict.fromkeys(context.layout.shown(one.path) for one in cases[0][1]))
        near = _nearest(context, soname)
        message = f"needed by {join_truncated(requesters)}; {_near_text(context, near)}"
        decision = substitutions.get(soname)
        if decision is not None and decision.wanted:
            message += f"; {_counts(decision)}"
        message += (
            f"; looked in {join_truncated([posixpath.dirname(path) or path for path in tried])}"
            if tried
            else ""
        )
        if all(allowed for _, _, allowed in cases):
            yield finding("RLK102", soname, message)
        elif soname in told:
            reason = _refused(context, soname, told[soname], decision)
            yield finding("RLK114", soname, f"--substitute {soname}={told[soname]}: {reason}")
        else:
            remedy = _missing_remedy(context, soname, decision)
            yield finding("RLK101", soname, message, remedy)


def _counts(decision: SubstitutionDecision) -> str:
    if decision.candidate is None:
        return f"{pluralize(decision.wanted, 'import')} may be its: {join_truncated(list(decision.lacking))}"
    text = f"{decision.candidate} exports {decision.exported} of {decision.wanted} imports"
    return f"{text}, not {join_truncated(list(decision.lacking))}" if decision.lacking else text


def _missing_remedy(context: ResolveContext, soname: str, decision: SubstitutionDecision | None) -> str:
    where = context.vendor.where_to_get(soname, context.distribution, context.providers)
    remedy = _remedy_by_verdict(soname, context.vendor.product, decision) or RULES["RLK101"].fix
    return f"{remedy} {where}" if where else remedy


def _remedy_by_verdict(soname: str, product: str, decision: SubstitutionDecision | None) -> str | None:
    if decision is None or decision.candidate is None or not decision.wanted:
        return None
    if decision.lacking:
        return f"Use a {product} that has {soname}: {decision.candidate} lacks what the wheel imports."
    return (
        f"A changed soname is a claim about the ABI that symbols alone do not prove. If you know that the two are one, say "
        f"--substitute {soname}={decision.candidate}; else use a {product} that has {soname}."
    )


def _refused(context: ResolveContext, soname: str, new: str, decision: SubstitutionDecision | None) -> str:
    if context.provider_path(new) is None:
        return f"no prefix has {new}"
    if soname_stem(new) != soname_stem(soname):
        return "the two are different libraries"
    if decision is not None and decision.lacking:
        return f"{new} lacks {join_truncated(list(decision.lacking))}"
    return "no import of the wheel is known to come from it, so nothing is proved"


def _changed_needed(context: ResolveContext, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    for member, outcome in served.items():
        for old, new in outcome.edit.replace:
            decision = outcome.substitutions[old]
            text = f"NEEDED {old} → {new}: {context.layout.shown('; '.join(decision.evidence))}"
            yield finding("RLK112", member, text, profile=decision.profile)
        for soname in outcome.edit.remove:
            decision = outcome.substitutions[soname]
            text = f"NEEDED {soname} dropped: {'; '.join(decision.evidence)}"
            yield finding("RLK113", member, text, profile=decision.profile)
        preloaded = [soname for soname in outcome.edit.add if soname in context.preload]
        if preloaded:
            yield finding(
                "RLK121",
                member,
                f"added to NEEDED, since the closure dlopens it: {join_truncated(preloaded)}",
            )


def _nearest(context: ResolveContext, soname: str) -> list[tuple[str, str]]:
    """(soname, path) of the libraries in the providers that differ in the version only; other names of one file are left out."""
    found: dict[tuple[object, ...] | None, tuple[str, str]] = {}
    for provider in context.providers:
        for name in provider.nearest(soname):
            path = provider.libraries[name][0]
            candidate = context.files.open(path)
            own = candidate.image.soname if candidate.image else None
            if candidate.identity not in found or name == own:
                found[candidate.identity] = (name, path)
    return list(found.values())


def _near_text(context: ResolveContext, near: list[tuple[str, str]]) -> str:
    if not context.providers:
        return "no prefix was given"
    where = "the prefix" if len(context.providers) == 1 else "the prefixes"
    has = "has" if len(context.providers) == 1 else "have"
    if near:
        return f"{where} {has} {', '.join(name for name, _ in near)}"
    return f"{where} {has} nothing of that name"


def _variants(
    context: ResolveContext, outcomes: Mapping[str, Outcome], unserved: list[str]
) -> Iterator[Finding]:
    for member in unserved:
        lost = dict.fromkeys(
            issue.edge.soname for issue in outcomes[member].issues if issue.kind != "shadowed"
        )
        text = f"left as it is: the prefixes do not serve {join_truncated(list(lost))}"
        yield finding("RLK103", member, text, profile=context.profile.name)
    variants = [member for member in outcomes if context.profile.is_variant(member)]
    from_providers = [
        member for member in variants if member not in unserved and _uses_provider(context, outcomes[member])
    ]
    if variants and context.providers and not from_providers:
        yield finding(
            "RLK104",
            context.profile.name,
            f"none of {len(variants)} variants finds all it needs in the prefixes",
            profile=context.profile.name,
        )


def _uses_provider(context: ResolveContext, outcome: Outcome) -> bool:
    machine = context.target.header.machine
    return any(
        context.is_providers(outcome.closure.objects[edge.target].identity, edge.soname)
        and not is_platform_library(edge.soname, machine)
        for edge in outcome.closure.edges
        if edge.target is not None
    )


def _loaded_before(context: ResolveContext, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    """What is found only because the profile says that the package loads it before: one finding a soname."""
    profile = context.profile
    early = {context.layout.path_of(name) for name in profile.preload}
    without = replace(context, profile=replace(profile, preload=()))
    found: dict[tuple[str, str], dict[str, None]] = {}
    for member, outcome in served.items():
        objects, edges = outcome.closure.objects, outcome.closure.edges
        taken = {
            edge.soname: objects[edge.target].path
            for edge in edges
            if edge.target is not None and objects[edge.target].path in early
        }
        taken = {} if context.layout.path_of(member) in early else taken
        lost = simulate(without, member, outcome.image).missing if taken else ()
        for soname in {edge.soname for edge in lost} & taken.keys():
            key = (soname, context.layout.shown(taken[soname]))
            found.setdefault(key, {})[context.layout.shown(context.layout.path_of(member))] = None
    for (soname, path), members in found.items():
        text = f"needed by {join_truncated(list(members))}, and there because the package loads {path} before"
        yield finding("RLK115", soname, text, profile=profile.name)


def _other_issues(context: ResolveContext, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    seen: set[tuple[str, str, str | None]] = set()
    for member, outcome in served.items():
        if outcome.closure.fatal:
            shown = context.layout.shown(outcome.closure.fatal)
            yield finding("RLK105", member, f"the loader dies of {shown}")
        for issue in outcome.issues:
            soname = issue.edge.soname
            key = (issue.kind, soname, issue.served_by)
            if issue.kind in ("missing", "allowed") or key in seen:
                continue
            seen.add(key)
            by = f"needed by {context.layout.shown(issue.requester)}, served by {issue.served_by}"
            if issue.kind == "libc":
                yield finding(
                    "RLK107",
                    soname,
                    f"{by}; the target's own C library is in {context.target.libc_directory}",
                )
            elif issue.kind == "shadowed":
                yield finding(
                    "RLK108", soname, f"{by}, although the prefix has {context.provider_path(soname)}"
                )
            else:
                message = f"{by}, although the prefix has {context.provider_path(soname)}, and no search path changes that"
                yield finding("RLK111", soname, message)


def _skipped_files(context: ResolveContext, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    wanted = {edge.soname for outcome in served.values() for edge in outcome.closure.edges}
    for provider in context.providers:
        for skipped in provider.skipped:
            if posixpath.basename(skipped.path) in wanted:
                yield finding("RLK106", skipped.path, f"passed over: {skipped.reason}")


def _paths_and_strategies(context: ResolveContext, served: Mapping[str, Outcome]) -> Iterator[Finding]:
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
            message = (
                f"its loader is not the target's: {outcome.original.interpreter} → {outcome.edit.interpreter}"
            )
            yield finding("RLK207", member, message)


def _versions(context: ResolveContext, served: Mapping[str, Outcome], tables: Tables) -> Iterator[Finding]:
    """One finding a pair of objects, with all the versions that are missing between them."""
    lost: dict[tuple[str, str, str], dict[str, None]] = {}
    defined: dict[tuple[str, str, str], str] = {}
    for outcome in served.values():
        for missing in check_versions(outcome.closure, tables):
            key = (missing.requester, missing.file, missing.supplier)
            lost.setdefault(key, {})[missing.version] = None
            defined[key] = max(missing.defined, key=_version_key, default="none of that family")
    for (requester, file, supplier), versions in lost.items():
        shown = context.layout.shown(requester)
        highest = defined[requester, file, supplier]
        message = (
            f"needs {', '.join(versions)} of {file}; {context.layout.shown(supplier)} goes up to {highest}"
        )
        yield finding("RLK301", shown, message, _other_loader(context))


def _dangling_records(
    context: ResolveContext, served: Mapping[str, Outcome], tables: Tables
) -> Iterator[Finding]:
    seen: dict[tuple[str, str], None] = {}
    for outcome in served.values():
        missing = {edge.soname for edge in outcome.closure.missing}
        for record in unserved_records(outcome.closure, tables):
            if record.file not in missing:  # what is missing is told as such
                seen[context.layout.shown(record.requester), record.file] = None
    for requester, file in seen:
        yield finding(
            "RLK305", requester, f"a version record names {file}, which is neither NEEDED nor loaded"
        )


def _other_loader(context: ResolveContext) -> str | None:
    """A prefix that carries a loader of its own was built with another C library: name that loader."""
    soname = posixpath.basename(context.target.interpreter)
    for provider in context.providers:
        for directory in provider.directories:
            path = posixpath.join(directory, soname)
            if path != context.target.interpreter and context.files.open(path).image is not None:
                return f"The prefix was built with another C library and has its loader: aim at it with --interpreter {path}"
    return None


def _version_key(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,18}", version)]


def _from_the_system(context: ResolveContext, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    machine = context.target.header.machine
    found: dict[str, str] = {}
    for outcome in served.values():
        for index in outcome.closure.scope:
            item = outcome.closure.objects[index]
            by_default = item.found_by.rule in ("cache", "default")
            if (
                by_default
                and index >= outcome.closure.roots[0]
                and not is_platform_library(item.name, machine)
            ):
                found.setdefault(item.name, item.path)
    for soname, path in found.items():
        yield finding("RLK110", soname, f"taken from the system: {path}")


def _unused_patterns(context: ResolveContext, outcomes: Mapping[str, Outcome]) -> Iterator[Finding]:
    sonames = {edge.soname for outcome in outcomes.values() for edge in outcome.closure.edges}
    wanted = {soname for soname, _ in context.substitutes}
    for old in wanted - sonames - {name for outcome in outcomes.values() for name in outcome.original.needed}:
        yield finding("RLK109", old, "--substitute: no library of that name is needed")
    for pattern in context.allow_missing:
        if not any(matches_library(pattern, soname) for soname in sonames):
            near = sorted(soname for soname in sonames if soname_stem(soname).startswith(pattern[:6]))
            hint = f"; near: {join_truncated(near)}" if near else ""
            yield finding("RLK109", pattern, f"--allow-missing: no library of that name is needed{hint}")
