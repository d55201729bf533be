"""Findings about missing libraries: who needs each, where it was searched, what the providers have instead, and what to do.

Takes the outcomes of the served members. Gives RLK101, RLK102 and RLK114, one finding a soname.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from relink.loader.search import Tried
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.served_parts import missing_remedy
from relink.planning.resolve.strategy import Outcome
from relink.planning.resolve.substitution import SubstitutionDecision
from relink.planning.resolve.unserved_edges import REMEDY_WITHHELD, why_withheld
from relink.planning.siblings import sibling_of
from relink.providers.prefix import soname_stem
from relink.system.findings.model import Finding, finding
from relink.system.text import grouped, join_truncated, pluralize


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
        nearest = _nearest(context, soname)
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
            reason = _refused(context, soname, substitutes[soname], decision)
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


def _refused(context: ResolveContext, soname: str, new: str, decision: SubstitutionDecision | None) -> str:
    """Return why ``--substitute`` is not followed."""
    if context.provider_path(new) is None:
        return f"no prefix has {new}"
    if soname_stem(new) != soname_stem(soname):
        return "the two are different libraries"
    if decision is not None and decision.lacking:
        return f"{new} lacks {join_truncated(list(decision.lacking))}"
    return "no import of the wheel is known to come from it, so nothing is proved"


def _nearest(context: ResolveContext, soname: str) -> list[tuple[str, str]]:
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
