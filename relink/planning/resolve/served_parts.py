"""Whether any part of a wheel gets the vendor's libraries: what a package does without is left only where another part has them.

One rule for a plan (:mod:`relink.planning.resolve.decide`) and for what the real loader maps for the members of a wheel. The
plan inside of a wheel is a claim of whoever made the wheel: it adds findings here, and lowers and removes none. What may be
missing is what the user says (``--allow-missing``).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from relink.loader.dryrun import LoaderMap
from relink.planning.model.model import Plan
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.proof import system_path
from relink.planning.resolve.strategy import Outcome
from relink.planning.resolve.unserved_edges import assumed_kind
from relink.planning.siblings import assumed_finding, sibling_of
from relink.providers.distribution import is_platform_library
from relink.system.findings.model import RULES, Finding, finding
from relink.system.text import join_truncated

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
