"""What a person is told about the decisions: one finding a thing, with the reason and the next step."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from relink.findings.model import Finding, finding
from relink.loader.binding import Tables, check_versions, unserved_records
from relink.loader.search import Tried
from relink.providers.platform import is_platform_library
from relink.providers.prefix import soname_stem
from relink.resolve.proof import Settled
from relink.resolve.search_path import removed
from relink.resolve.strategy import Outcome, Situation, matches_library, simulate
from relink.resolve.substitution import Verdict
from relink.rocm.advice import missing_remedy
from relink.text import several, some

__all__ = ["reasons"]


def reasons(
    situation: Situation, settled: Mapping[str, Settled], unserved: list[str], tables: Tables
) -> Iterator[Finding]:
    """Yield everything that the decisions give reason to say, but for what the proofs say (:mod:`relink.resolve.proof`).

    :param settled: the decisions about all members.
    :param unserved: variants that were left as they are.
    """
    outcomes = {member: item.outcome for member, item in settled.items()}
    served = {member: outcome for member, outcome in outcomes.items() if member not in unserved}
    yield from _missing(situation, served, settled)
    yield from _changed_needed(situation, served, settled)
    yield from _variants(situation, outcomes, unserved)
    yield from _loaded_before(situation, served)
    yield from _other_troubles(situation, served)
    yield from _skipped_files(situation, served)
    yield from _paths_and_strategies(situation, served)
    yield from _versions(situation, served, tables)
    yield from _dangling_records(situation, served, tables)
    yield from _from_the_system(situation, served)
    yield from _unused_patterns(situation, outcomes)


def _missing(
    situation: Situation, served: Mapping[str, Outcome], settled: Mapping[str, Settled]
) -> Iterator[Finding]:
    """One finding a soname, with all who need it, what was tried and what there is instead."""
    by_soname: dict[str, list[tuple[str, tuple[Tried, ...], bool]]] = {}
    verdicts: dict[str, Verdict] = {}
    for member, outcome in served.items():
        for trouble in outcome.troubles:
            if trouble.kind in ("missing", "allowed"):
                requester = situation.layout.shown(trouble.requester)
                by_soname.setdefault(trouble.edge.soname, []).append(
                    (requester, trouble.edge.tried, trouble.kind == "allowed")
                )
                if trouble.edge.soname in settled[member].verdicts:
                    verdicts[trouble.edge.soname] = settled[member].verdicts[trouble.edge.soname]
    told = dict(situation.substitutes)
    for soname, cases in by_soname.items():
        requesters = list(dict.fromkeys(requester for requester, _, _ in cases))
        tried = list(dict.fromkeys(situation.layout.shown(one.path) for one in cases[0][1]))
        near = _nearest(situation, soname)
        message = f"needed by {some(requesters)}; {_near_text(situation, near)}"
        verdict = verdicts.get(soname)
        if verdict is not None and verdict.wanted:
            message += f"; {_counts(verdict)}"
        message += f"; looked in {some([posixpath.dirname(path) or path for path in tried])}" if tried else ""
        if all(allowed for _, _, allowed in cases):
            yield finding("RLK102", soname, message)
        elif soname in told:
            reason = _refused(situation, soname, told[soname], verdict)
            yield finding("RLK114", soname, f"--substitute {soname}={told[soname]}: {reason}")
        else:
            remedy = missing_remedy(
                soname, situation.distribution, situation.providers, _missing_remedy(soname, verdict)
            )
            yield finding("RLK101", soname, message, remedy)


def _counts(verdict: Verdict) -> str:
    if verdict.candidate is None:
        return f"{several(verdict.wanted, 'import')} may be its: {some(list(verdict.lacking))}"
    text = f"{verdict.candidate} exports {verdict.found} of {verdict.wanted} imports"
    return f"{text}, not {some(list(verdict.lacking))}" if verdict.lacking else text


def _missing_remedy(soname: str, verdict: Verdict | None) -> str | None:
    if verdict is None or verdict.candidate is None or not verdict.wanted:
        return None
    if verdict.lacking:
        return f"Use a ROCm that has {soname}: {verdict.candidate} lacks what the wheel imports."
    return (
        f"A changed soname is a claim about the ABI that symbols alone do not prove. If you know that the two are one, say "
        f"--substitute {soname}={verdict.candidate}; else use a ROCm that has {soname}."
    )


def _refused(situation: Situation, soname: str, new: str, verdict: Verdict | None) -> str:
    if situation.provider_path(new) is None:
        return f"no prefix has {new}"
    if soname_stem(new) != soname_stem(soname):
        return "the two are different libraries"
    if verdict is not None and verdict.lacking:
        return f"{new} lacks {some(list(verdict.lacking))}"
    return "no import of the wheel is known to come from it, so nothing is proved"


def _changed_needed(
    situation: Situation, served: Mapping[str, Outcome], settled: Mapping[str, Settled]
) -> Iterator[Finding]:
    for member, outcome in served.items():
        for old, new in outcome.edit.replace:
            verdict = settled[member].verdicts[old]
            text = f"NEEDED {old} → {new}: {situation.layout.shown('; '.join(verdict.evidence))}"
            yield finding("RLK112", member, text, profile=verdict.profile)
        for soname in outcome.edit.remove:
            verdict = settled[member].verdicts[soname]
            text = f"NEEDED {soname} dropped: {'; '.join(verdict.evidence)}"
            yield finding("RLK113", member, text, profile=verdict.profile)
        preloaded = [soname for soname in outcome.edit.add if soname in situation.preload]
        if preloaded:
            yield finding(
                "RLK121", member, f"added to NEEDED, since the closure dlopens it: {some(preloaded)}"
            )


def _nearest(situation: Situation, soname: str) -> list[tuple[str, str]]:
    """(soname, path) of the libraries in the providers that differ in the version only; other names of one file are left out."""
    found: dict[tuple[object, ...] | None, tuple[str, str]] = {}
    for provider in situation.providers:
        for name in provider.nearest(soname):
            path = provider.libraries[name][0]
            candidate = situation.files.open(path)
            own = candidate.image.soname if candidate.image else None
            if candidate.identity not in found or name == own:
                found[candidate.identity] = (name, path)
    return list(found.values())


def _near_text(situation: Situation, near: list[tuple[str, str]]) -> str:
    if not situation.providers:
        return "no prefix was given"
    where = "the prefix" if len(situation.providers) == 1 else "the prefixes"
    has = "has" if len(situation.providers) == 1 else "have"
    if near:
        return f"{where} {has} {', '.join(name for name, _ in near)}"
    return f"{where} {has} nothing of that name"


def _variants(
    situation: Situation, outcomes: Mapping[str, Outcome], unserved: list[str]
) -> Iterator[Finding]:
    for member in unserved:
        lost = dict.fromkeys(
            trouble.edge.soname for trouble in outcomes[member].troubles if trouble.kind != "shadowed"
        )
        text = f"left as it is: the prefixes do not serve {some(list(lost))}"
        yield finding("RLK103", member, text, profile=situation.profile.name)
    variants = [member for member in outcomes if situation.profile.is_variant(member)]
    from_providers = [
        member
        for member in variants
        if member not in unserved and _uses_provider(situation, outcomes[member])
    ]
    if variants and situation.providers and not from_providers:
        yield finding(
            "RLK104",
            situation.profile.name,
            f"none of {len(variants)} variants finds all it needs in the prefixes",
            profile=situation.profile.name,
        )


def _uses_provider(situation: Situation, outcome: Outcome) -> bool:
    machine = situation.target.header.machine
    return any(
        situation.is_providers(outcome.closure.objects[edge.target].identity, edge.soname)
        and not is_platform_library(edge.soname, machine)
        for edge in outcome.closure.edges
        if edge.target is not None
    )


def _loaded_before(situation: Situation, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    """What is found only because the profile says that the package loads it before: one finding a soname."""
    profile = situation.profile
    early = {situation.layout.path_of(name) for name in profile.preload}
    without = replace(situation, profile=replace(profile, preload=()))
    found: dict[tuple[str, str], dict[str, None]] = {}
    for member, outcome in served.items():
        objects, edges = outcome.closure.objects, outcome.closure.edges
        taken = {
            edge.soname: objects[edge.target].path
            for edge in edges
            if edge.target is not None and objects[edge.target].path in early
        }
        taken = {} if situation.layout.path_of(member) in early else taken
        lost = simulate(without, member, outcome.image).missing if taken else ()
        for soname in {edge.soname for edge in lost} & taken.keys():
            key = (soname, situation.layout.shown(taken[soname]))
            found.setdefault(key, {})[situation.layout.shown(situation.layout.path_of(member))] = None
    for (soname, path), members in found.items():
        text = f"needed by {some(list(members))}, and there because the package loads {path} before"
        yield finding("RLK115", soname, text, profile=profile.name)


def _other_troubles(situation: Situation, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    seen: set[tuple[str, str, str | None]] = set()
    for member, outcome in served.items():
        if outcome.closure.fatal:
            shown = situation.layout.shown(outcome.closure.fatal)
            yield finding("RLK105", member, f"the loader dies of {shown}")
        for trouble in outcome.troubles:
            soname = trouble.edge.soname
            key = (trouble.kind, soname, trouble.served_by)
            if trouble.kind in ("missing", "allowed") or key in seen:
                continue
            seen.add(key)
            by = f"needed by {situation.layout.shown(trouble.requester)}, served by {trouble.served_by}"
            if trouble.kind == "libc":
                yield finding(
                    "RLK107",
                    soname,
                    f"{by}; the target's own C library is in {situation.target.libc_directory}",
                )
            elif trouble.kind == "shadowed":
                yield finding(
                    "RLK108", soname, f"{by}, although the prefix has {situation.provider_path(soname)}"
                )
            else:
                message = f"{by}, although the prefix has {situation.provider_path(soname)}, and no search path changes that"
                yield finding("RLK111", soname, message)


def _skipped_files(situation: Situation, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    wanted = {edge.soname for outcome in served.values() for edge in outcome.closure.edges}
    for provider in situation.providers:
        for skipped in provider.skipped:
            if posixpath.basename(skipped.path) in wanted:
                yield finding("RLK106", skipped.path, f"passed over: {skipped.reason}")


def _paths_and_strategies(situation: Situation, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    for member, outcome in served.items():
        if outcome.strategy != "nothing":
            yield from removed(member, outcome.entries, situation.profile.name)
        if outcome.edit.add:
            count = several(len(outcome.edit.add), "library", "libraries")
            yield finding("RLK205", member, f"{count} added to NEEDED: {some(list(outcome.edit.add))}")
        if outcome.strategy == "rpath":
            message = f"a RUNPATH would not reach what the prefix's libraries need, a DT_RPATH does: {outcome.image.rpath}"
            yield finding("RLK206", member, message)
        if outcome.edit.interpreter is not None:
            message = (
                f"its loader is not the target's: {outcome.original.interpreter} → {outcome.edit.interpreter}"
            )
            yield finding("RLK207", member, message)


def _versions(situation: Situation, served: Mapping[str, Outcome], tables: Tables) -> Iterator[Finding]:
    """One finding a pair of objects, with all the versions that are missing between them."""
    lost: dict[tuple[str, str, str], dict[str, None]] = {}
    defined: dict[tuple[str, str, str], str] = {}
    for outcome in served.values():
        for missing in check_versions(outcome.closure, tables):
            key = (missing.requester, missing.file, missing.supplier)
            lost.setdefault(key, {})[missing.version] = None
            defined[key] = max(missing.defined, key=_version_key, default="none of that family")
    for (requester, file, supplier), versions in lost.items():
        shown = situation.layout.shown(requester)
        highest = defined[requester, file, supplier]
        message = (
            f"needs {', '.join(versions)} of {file}; {situation.layout.shown(supplier)} goes up to {highest}"
        )
        yield finding("RLK301", shown, message, _other_loader(situation))


def _dangling_records(
    situation: Situation, served: Mapping[str, Outcome], tables: Tables
) -> Iterator[Finding]:
    seen: dict[tuple[str, str], None] = {}
    for outcome in served.values():
        missing = {edge.soname for edge in outcome.closure.missing}
        for record in unserved_records(outcome.closure, tables):
            if record.file not in missing:  # what is missing is told as such
                seen[situation.layout.shown(record.requester), record.file] = None
    for requester, file in seen:
        yield finding(
            "RLK305", requester, f"a version record names {file}, which is neither NEEDED nor loaded"
        )


def _other_loader(situation: Situation) -> str | None:
    """A prefix that carries a loader of its own was built with another C library: name that loader."""
    soname = posixpath.basename(situation.target.interpreter)
    for provider in situation.providers:
        for directory in provider.directories:
            path = posixpath.join(directory, soname)
            if path != situation.target.interpreter and situation.files.open(path).image is not None:
                return f"The prefix was built with another C library and has its loader: aim at it with --interpreter {path}"
    return None


def _version_key(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,18}", version)]


def _from_the_system(situation: Situation, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    machine = situation.target.header.machine
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


def _unused_patterns(situation: Situation, outcomes: Mapping[str, Outcome]) -> Iterator[Finding]:
    sonames = {edge.soname for outcome in outcomes.values() for edge in outcome.closure.edges}
    wanted = {soname for soname, _ in situation.substitutes}
    for old in wanted - sonames - {name for outcome in outcomes.values() for name in outcome.original.needed}:
        yield finding("RLK109", old, "--substitute: no library of that name is needed")
    for pattern in situation.allow_missing:
        if not any(matches_library(pattern, soname) for soname in sonames):
            near = sorted(soname for soname in sonames if soname_stem(soname).startswith(pattern[:6]))
            hint = f"; near: {some(near)}" if near else ""
            yield finding("RLK109", pattern, f"--allow-missing: no library of that name is needed{hint}")
