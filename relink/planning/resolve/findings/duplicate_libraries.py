"""Findings about libraries that are in one process twice: two versions of one library, and definitions that replace others.

Takes the closures of the members as planned, with what is dlopened in them. Gives RLK130 and RLK131.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from relink.loader.closure import Closure
from relink.loader.duplicates import SharedSymbols, TwoVersions, duplicates, two_versions
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.dlopen import profile_of
from relink.planning.resolve.proof import Prover
from relink.planning.resolve.strategy import Outcome
from relink.providers.prefix import soname_stem
from relink.system.findings.model import Finding, Level, finding
from relink.system.text import join_truncated, pluralize

__all__ = ["duplicate_findings"]

_HASHED = re.compile(r"-[0-9a-f]{8}\.so")  # auditwheel: the first 8 digits of the copy's SHA-256


def duplicate_findings(
    prover: Prover, context: ResolveContext, outcomes: Mapping[str, Outcome], closures: Mapping[str, Closure]
) -> Iterator[Finding]:
    """Yield RLK130 for each pair of versions of one library, RLK131 where a library takes symbols of another over."""
    # One finding a pair: where two members differ, the error, whichever member comes first.
    pairs: dict[tuple[str, ...], Finding] = {}
    for member, closure in closures.items():
        for key, reported in (
            *_two_versions(prover, context, closure, outcomes[member].closure),
            *_other_version_requested(context, closure),
        ):
            if key not in pairs or (reported.level == "error" and pairs[key].level != "error"):
                pairs[key] = reported
    yield from pairs.values()
    mixed = (
        shared
        for member in closures
        for shared in duplicates(
            outcomes[member].closure,
            prover.tables,
            prover.bindings(member, outcomes[member].closure),
        )
    )
    yield from _mixed_symbols(context, mixed)


def _mixed_symbols(context: ResolveContext, shared_symbols: Iterable[SharedSymbols]) -> Iterator[Finding]:
    """Yield RLK131: one finding a pair of files, whatever paths lead to them, with one cause a library that is answered for.

    Between two members of the wheel it is an info: what the vendor built together is the vendor's to mix.
    """
    shown = context.layout.shown
    pairs: dict[tuple[str, str], SharedSymbols] = {}
    for shared in shared_symbols:
        if shared.mixed:
            pairs.setdefault((shown(shared.first), shown(shared.second)), shared)
    interposing: dict[tuple[str, Level], list[str]] = {}
    own = context.layout.own
    for first, second in pairs:
        level: Level = "info" if first.startswith(own) and second.startswith(own) else "warning"
        interposing.setdefault((second, level), []).append(first)
    for (second, level), firsts in interposing.items():
        names = join_truncated([posixpath.basename(path) for path in firsts])
        sentence = f"{names} export symbols of {second} too, and theirs are used"
        cause = sentence if len(firsts) > 1 else None
        for first in firsts:
            shared = pairs[first, second]
            same = pluralize(shared.count, "symbol")
            start = f"{first} exports {same} of the same name"
            examples = join_truncated(list(shared.examples))
            end = f"and answers {shared.mixed} of them instead of this library's"
            text = f"{start} ({examples}) {end}"
            mixed = finding("RLK131", second, text, level=level, brief=f"{start} {end}")
            yield replace(mixed, cause=cause)


def _two_versions(
    prover: Prover, context: ResolveContext, closure: Closure, needed_only: Closure
) -> Iterator[tuple[tuple[str, ...], Finding]]:
    """Two files of one library in one process: an error where both are there by NEEDED.

    :param closure: with what is dlopened; `needed_only` without.
    """
    needed = {pair.paths for pair in two_versions(needed_only)}
    # With the dlopen edges as links, a chain leads from the root to what arrives by dlopen, too.
    linked = replace(closure, edges=(*closure.edges, *closure.dlopened))
    for pair in two_versions(linked):
        by_needed = pair.paths in needed
        chains = "; ".join(_arrows(chain) for chain in pair.chains)
        how = "both by NEEDED" if by_needed else f"{_dlopened_sonames(pair, needed_only)} by dlopen"
        message = f"{' and '.join(pair.sonames)} in one process, {how}: {chains}"
        profile = None if by_needed else _profile_of_chain(prover, linked, pair.chains)
        level: Level = "error" if by_needed or _is_runtime(context, pair.stem) else "warning"
        remedy = None
        if copy := _renamed_copy(context, pair):
            level = "warning"
            message = (
                f"{copy} is a copy that auditwheel put into the wheel under a name of its own, beside "
                f"{' and '.join(name for name in pair.sonames if name != copy)}; {how}: {chains}"
            )
            remedy = "Both are mapped. RLK131 tells what the one answers in the other's place, if it does."
        yield (
            tuple(sorted(pair.sonames)),
            finding("RLK130", pair.stem, message, remedy, level=level, profile=profile),
        )


def _renamed_copy(context: ResolveContext, pair: TwoVersions) -> str | None:
    """The soname of the one of the two that auditwheel renamed by a hash, or None; a vendor's own library never counts."""
    if context.vendor.is_own(f"{pair.stem}.so"):
        return None
    hashed = [
        soname
        for soname, path in zip(pair.sonames, pair.paths, strict=True)
        if _HASHED.search(soname) and posixpath.dirname(path).endswith(".libs")
    ]
    return hashed[0] if len(hashed) == 1 else None


def _other_version_requested(
    context: ResolveContext, closure: Closure
) -> Iterator[tuple[tuple[str, ...], Finding]]:
    """What is dlopened needs another version of a library that is loaded: both would be loaded if that version were installed."""
    loaded = {
        soname_stem(library.image.soname): library for library in closure.objects if library.image.soname
    }
    scope = set(closure.scope)
    for edge in closure.edges:
        if edge.target is not None or edge.requester in scope:
            continue
        other = loaded.get(soname_stem(edge.soname))
        own = other.image.soname if other else None
        if other is None or own is None or own == edge.soname:
            continue
        key = tuple(sorted((own, edge.soname)))
        shown = context.layout.shown
        chain = _arrows([closure.objects[step].path for step in _chain(closure, edge.requester)])
        message = f"{own} is loaded ({shown(other.path)}), and {chain}, which is opened later (dlopen), needs {edge.soname}"
        stem = soname_stem(own).removesuffix(".so")
        yield key, finding("RLK130", stem, message, level=None if _is_runtime(context, stem) else "warning")


def _is_runtime(context: ResolveContext, stem: str) -> bool:
    """Whether it is the vendor's runtime: two of these do not know of each other's memory, however the second one arrives."""
    return context.vendor.runtime == f"{stem}.so"


def _profile_of_chain(prover: Prover, closure: Closure, chains: Iterable[Sequence[str]]) -> str | None:
    """The profile that knows of a dlopen in one of the chains of paths, if one does."""
    links = {link for chain in chains for link in pairwise(chain)}
    for edge in closure.dlopened:
        caller = closure.objects[edge.requester]
        if edge.target is not None and (caller.path, closure.objects[edge.target].path) in links:
            name = profile_of(prover.knowledge.of(caller)[edge.soname])
            if name:
                return name
    return None


def _arrows(paths: Sequence[str]) -> str:
    """Write a chain of paths by their file names."""
    return " → ".join(posixpath.basename(path) for path in paths)


def _chain(closure: Closure, index: int) -> list[int]:
    """The indices of the objects from a root to this one, each of which needs or dlopens the next."""
    edges = [edge for edge in (*closure.edges, *closure.dlopened) if edge.target is not None]
    chain = [index]
    while True:
        step = next(
            (edge.requester for edge in edges if edge.target == chain[-1] and edge.requester not in chain),
            None,
        )
        if step is None:
            return chain[::-1]
        chain.append(step)


def _dlopened_sonames(pair: TwoVersions, closure: Closure) -> str:
    """The sonames of those of the two that are loaded by dlopen only."""
    needed = {loaded.path for loaded in closure.objects}
    dlopened = [soname for soname, path in zip(pair.sonames, pair.paths, strict=True) if path not in needed]
    return " and ".join(dlopened) or pair.sonames[1]
