"""Preloading: a library that is known to be dlopened, and would not be found, is added to NEEDED if that changes nothing else.

Takes the outcome of one member; gives another one, or the same. What another object dlopens is then mapped already under its
soname (glibc elf/dl-load.c, _dl_map_object), wherever the caller would search. A string in a file is no knowledge: RLK120 names
the option then (:mod:`relink.planning.resolve.dlopen`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relink.elf.edit import ElfEdit
from relink.loader.binding import Difference, differences
from relink.loader.closure import Closure
from relink.loader.duplicates import two_versions
from relink.planning.resolve.dlopen import profile_of
from relink.planning.resolve.proof import Prover
from relink.planning.resolve.strategy import Outcome, find_strategy

__all__ = ["in_new_versions", "rebound", "required_edit", "with_known_preloads"]


def with_known_preloads(prover: Prover, member: str, outcome: Outcome) -> Outcome:
    """Preload what the package's profile or the vendor's table knows to be dlopened in the closure of `member`.

    A library is left out if any import then binds to another file than before, or if two versions of a library would meet.
    """
    if not (prover.context.preload_known and outcome.loads):
        return outcome
    edit = required_edit(outcome)
    tried: set[str] = set()
    closure = prover.knowledge.follow(member, outcome)
    while True:
        # What is preloaded may dlopen another library.
        known = {soname: profile for soname, profile in _not_found(prover, closure) if soname not in tried}
        if not known:
            return outcome
        soname, profile = next(iter(known.items()))
        tried.add(soname)
        more = replace(edit, add=(*edit.add, soname))
        attempt = find_strategy(prover.context, member, more)
        after = prover.knowledge.follow(member, attempt)
        second = in_new_versions(_linked(closure), _linked(after))
        if attempt.loads and not second and not rebound(prover, member, outcome, attempt):
            preloaded = {**outcome.preloaded, soname: profile}
            outcome = replace(attempt.with_reasons_of(outcome), preloaded=preloaded)
            edit, closure = more, after


def required_edit(outcome: Outcome) -> ElfEdit:
    """Return the edit that the evidence and the user ask for, without what the strategy adds."""
    return ElfEdit(
        replace=outcome.edit.replace,
        remove=outcome.edit.remove,
        add=(*outcome.preloaded, *outcome.forgotten),
        versions=outcome.edit.versions,
    )


def _not_found(prover: Prover, closure: Closure) -> Iterator[tuple[str, str]]:
    """Yield what a provider's library is known to dlopen, and would not find although a provider has it; with the profile.

    Libraries of the wheel are left out: a ROCm that a wheel brings along must not be mixed with the provider's.
    """
    context = prover.context
    for edge in closure.dlopened:
        caller = closure.objects[edge.requester]
        if edge.target is not None or not context.is_held(caller.path):
            continue
        profile = profile_of(prover.knowledge.of(caller)[edge.soname])
        if profile is not None and context.provider_path(edge.soname) is not None:
            yield edge.soname, profile


def in_new_versions(before: Closure, after: Closure) -> bool:
    """Whether a library is there in two versions after an edit that was there in one before."""
    pairs = {pair.sonames for pair in two_versions(before)}
    return any(pair.sonames not in pairs for pair in two_versions(after))


def rebound(prover: Prover, member: str, before: Outcome, after: Outcome) -> list[Difference]:
    """Return the imports of a closure that bind to another file than before."""
    return differences(
        (before.closure, prover.bindings(member, before.closure)),
        (after.closure, prover.bindings(member, after.closure)),
    )


def _linked(closure: Closure) -> Closure:
    """Return the closure with its dlopens as edges, so that what they bring counts."""
    return replace(closure, edges=(*closure.edges, *closure.dlopened))
