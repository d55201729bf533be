"""From the images of a wheel to its plan: every member in turn, then everything that was found, at once."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from relink.elf.image import Image
from relink.elf.symbols import SymbolTable
from relink.loader.binding import Tables, check_versions
from relink.loader.closure import Edge
from relink.loader.search import Tried
from relink.loader.target import GLIBC_SONAMES
from relink.plan.findings import Finding, finding
from relink.plan.model import FilePlan, InterpreterChange, NeededDecision, Origin, RpathChange
from relink.plan.rpath import removed
from relink.plan.strategy import Outcome, Situation, find_strategy, matches_library
from relink.providers.platform import is_platform_library
from relink.providers.prefix import soname_stem

__all__ = ["Decisions", "decide"]

_MAX_SHOWN = 4  # names that a message lists before it says how many more there are


@dataclass(frozen=True, slots=True)
class Decisions:
    """What was decided about the members, in the wheel's order, and all that was found on the way.

    :ivar outcomes: the simulation behind each file's plan, by member.
    :ivar situation: the situation with the images as they will be.
    """

    files: tuple[FilePlan, ...]
    findings: tuple[Finding, ...]
    outcomes: Mapping[str, Outcome]
    situation: Situation


def decide(situation: Situation, tables: Mapping[str, SymbolTable]) -> Decisions:
    """Plan every image of the wheel.

    Members that other members need come first, so that each is planned against the others as they will be. A variant (a
    library of which Python picks one) that the providers cannot serve is left as it is.

    :param tables: the symbols of the members.
    """
    outcomes: dict[str, Outcome] = {}
    unserved: list[str] = []
    for member in _leaves_first(situation.images):
        outcome = outcomes[member] = find_strategy(situation, member)
        if situation.profile.is_variant(member) and not outcome.loads:
            unserved.append(member)
        else:
            situation = replace(situation, images={**situation.images, member: outcome.image})
    served = {member: outcome for member, outcome in outcomes.items() if member not in unserved}
    files = tuple(
        _file_plan(situation, member, outcomes[member], served=member in served)
        for member in situation.images
    )
    findings = (
        *_missing(situation, served),
        *_variants(situation, outcomes, unserved),
        *_other_troubles(situation, served),
        *_skipped_files(situation, served),
        *_paths_and_strategies(served),
        *_versions(situation, served, tables),
        *_from_the_system(situation, served),
        *_unused_patterns(situation, outcomes),
    )
    return Decisions(files, findings, outcomes, situation)


def _leaves_first(images: Mapping[str, Image]) -> list[str]:
    """Order the members so that each comes after those it needs, as far as there is no cycle."""
    by_name: dict[str, str] = {}
    for member, image in images.items():
        by_name.setdefault(image.soname or posixpath.basename(member), member)
    order: dict[str, None] = {}
    visiting: set[str] = set()

    def visit(member: str) -> None:
        if member in order or member in visiting:
            return
        visiting.add(member)
        for soname in images[member].needed:
            if soname in by_name:
                visit(by_name[soname])
        order[member] = None

    for member in images:
        visit(member)
    return list(order)


def _file_plan(situation: Situation, member: str, outcome: Outcome, *, served: bool) -> FilePlan:
    before = outcome.original
    after = outcome.image if served else before
    closure = outcome.closure
    path = situation.layout.path_of(member)
    root = next(index for index, item in enumerate(closure.objects) if item.path == path)
    edges = {edge.soname: edge for edge in closure.edges if edge.requester == root}
    needed = [
        _needed(situation, outcome, edges.get(soname), soname, added=soname not in before.needed)
        for soname in after.needed
    ]
    scope = [closure.objects[index] for index in closure.scope]
    return FilePlan(
        path=member,
        strategy=outcome.strategy if served else "nothing",
        needed=tuple(needed),
        rpath=RpathChange(before.search_path, after.search_path, before.search_kind, after.search_kind),
        interpreter=InterpreterChange(before.interpreter, after.interpreter),
        closure=tuple((item.image.soname or item.name, situation.layout.shown(item.path)) for item in scope),
        served=served,
    )


def _needed(
    situation: Situation, outcome: Outcome, edge: Edge | None, soname: str, *, added: bool
) -> NeededDecision:
    resolved = found_by = None
    if edge is not None and edge.target is not None:
        resolved = situation.layout.shown(outcome.closure.objects[edge.target].path)
        found_by = situation.layout.shown(str(edge.found_by))
    evidence = []
    if added:
        who = [name for name, wanted in _requesters(situation, outcome) if wanted == soname]
        evidence.append(f"needed by {_some(who)}, which cannot find it by itself")
    return NeededDecision(
        soname=soname,
        action="add" if added else "keep",
        soname_after=soname,
        resolved=resolved,
        found_by=found_by,
        origin=_origin(situation, outcome, edge, soname),
        evidence=tuple(evidence),
    )


def _requesters(situation: Situation, outcome: Outcome) -> Iterator[tuple[str, str]]:
    """(path of the requester, soname) of every edge but the root's own."""
    root = outcome.closure.roots[-1]
    for edge in outcome.closure.edges:
        if edge.requester != root:
            yield situation.layout.shown(outcome.closure.objects[edge.requester].path), edge.soname


def _origin(situation: Situation, outcome: Outcome, edge: Edge | None, soname: str) -> Origin:
    if edge is None or edge.target is None:
        allowed = any(matches_library(pattern, soname) for pattern in situation.allow_missing)
        return "assumed" if allowed else "missing"
    item = outcome.closure.objects[edge.target]
    if item.identity[0] == "member":
        return "wheel"
    if soname not in GLIBC_SONAMES and situation.is_providers(item.identity, soname):
        return "provider"
    return "platform"


def _missing(situation: Situation, served: Mapping[str, Outcome]) -> Iterator[Finding]:
    """One finding a soname, with all who need it, what was tried and what there is instead."""
    by_soname: dict[str, list[tuple[str, tuple[Tried, ...], bool]]] = {}
    for outcome in served.values():
        for trouble in outcome.troubles:
            if trouble.kind in ("missing", "allowed"):
                requester = situation.layout.shown(trouble.requester)
                by_soname.setdefault(trouble.edge.soname, []).append(
                    (requester, trouble.edge.tried, trouble.kind == "allowed")
                )
    for soname, cases in by_soname.items():
        requesters = list(dict.fromkeys(requester for requester, _, _ in cases))
        tried = list(dict.fromkeys(situation.layout.shown(one.path) for one in cases[0][1]))
        near = _nearest(situation, soname)
        message = f"needed by {_some(requesters)}; {_near_text(situation, near)}"
        message += (
            f"; looked in {_some([posixpath.dirname(path) or path for path in tried])}" if tried else ""
        )
        if all(allowed for _, _, allowed in cases):
            yield finding("RLK102", soname, message)
            continue
        remedy = None
        if near:
            remedy = (
                f"A changed soname is another ABI until proved otherwise: use a ROCm that has {soname}, "
                f"or --allow-missing {soname} if it will be there at run time."
            )
        yield finding("RLK101", soname, message, remedy)


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
        yield finding("RLK103", member, f"left as it is: the prefixes do not serve {_some(list(lost))}")
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
        )


def _uses_provider(situation: Situation, outcome: Outcome) -> bool:
    return any(
        _origin(situation, outcome, edge, edge.soname) == "provider"
        and not is_platform_library(edge.soname, situation.target.header.machine)
        for edge in outcome.closure.edges
    )


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
            by = f"needed by {situation.layout.shown(trouble.requester)}, would be {trouble.served_by}"
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


def _paths_and_strategies(served: Mapping[str, Outcome]) -> Iterator[Finding]:
    for member, outcome in served.items():
        if outcome.strategy != "nothing":
            yield from removed(member, outcome.entries)
        if outcome.edit.add:
            count = len(outcome.edit.add)
            yield finding(
                "RLK205", member, f"{count} libraries added to NEEDED: {_some(list(outcome.edit.add))}"
            )
        if outcome.strategy == "rpath":
            yield finding("RLK206", member, f"DT_RPATH {outcome.image.rpath}")
        if outcome.edit.interpreter is not None:
            yield finding("RLK207", member, f"{outcome.original.interpreter} → {outcome.edit.interpreter}")


def _versions(
    situation: Situation, served: Mapping[str, Outcome], tables: Mapping[str, SymbolTable]
) -> Iterator[Finding]:
    """One finding a pair of objects, with all the versions that are missing between them."""
    known = Tables(situation.files, tables)
    lost: dict[tuple[str, str, str], dict[str, None]] = {}
    defined: dict[tuple[str, str, str], str] = {}
    for outcome in served.values():
        for missing in check_versions(outcome.closure, known):
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
    return [int(number) for number in re.findall(r"\d+", version)]


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
    for pattern in situation.allow_missing:
        if not any(matches_library(pattern, soname) for soname in sonames):
            near = sorted(soname for soname in sonames if soname_stem(soname).startswith(pattern[:6]))
            hint = f"; near: {_some(near)}" if near else ""
            yield finding("RLK109", pattern, f"--allow-missing: no library of that name is needed{hint}")


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_MAX_SHOWN])
    return f"{shown} and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else shown
