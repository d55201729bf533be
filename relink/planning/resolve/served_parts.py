"""Whether any part of a wheel gets the vendor's libraries: what a package does without is left only where another part has them.

What may be missing is what the user says (``--allow-missing``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.strategy import Outcome
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
    if context.vendor.is_own(soname):
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


def missing_remedy(context: ResolveContext, soname: str, remedy: str | None = None) -> str:
    """Return what to do about a missing library: `remedy`, or else the rule's own, and where the library is to be had."""
    where = context.vendor.where_to_get(soname, context.distribution, context.providers)
    return f"{remedy or RULES['RLK101'].fix}{f' {where}' if where else ''}"
