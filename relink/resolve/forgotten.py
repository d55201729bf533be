"""Forgotten NEEDED: a member imports what one library exports, and names no library for it. When that library may be added.

Takes the outcome of one member; gives another one, or the same. Such a member loads only where something else has mapped the
library before. A library is added if it exports every open import with its version, if no other library does, and if something
besides the symbols says that it is the one: other members of the wheel need the same soname, the vendor's table gives it all of
the names, it is the target's own C library, or ``--preload`` names it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from relink.elf.symbols import Export, match
from relink.loader.binding import Unbound, differences
from relink.loader.duplicates import duplicates, two_versions
from relink.loader.target import GLIBC_SONAMES
from relink.providers.prefix import soname_stem
from relink.resolve.preloading import required_edit
from relink.resolve.proof import Prover, is_member
from relink.resolve.strategy import Outcome, ResolveContext, find_strategy
from relink.resolve.suppliers import find_suppliers, is_of_python
from relink.text import join_truncated, pluralize

__all__ = ["with_forgotten_needed"]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A library that exports some of the open imports; `all`: each of them, with its version."""

    soname: str
    member: bool
    all: bool


def with_forgotten_needed(prover: Prover, context: ResolveContext, member: str, outcome: Outcome) -> Outcome:
    """Add the one library that exports all open imports of `member` to its NEEDED, if evidence says so and no binding changes."""
    if not outcome.loads:
        return outcome
    imports = _open_imports(prover, context, member, outcome)
    if not imports:
        return outcome
    candidates = list(_candidates(prover, context, member, imports))
    chosen = [item for item in candidates if item.all and item.soname in context.preload]
    if not chosen:
        stems = {soname_stem(item.soname) for item in candidates if item.all}
        chosen = [item for item in candidates if item.all or soname_stem(item.soname) in stems]
    if len(chosen) != 1:
        return outcome
    (found,) = chosen
    why = _evidence(context, member, found, imports)
    if why is None:
        return outcome
    names = join_truncated(sorted(item.name for item in imports))
    of_all = f"it alone exports {pluralize(len(imports), 'import')} that no NEEDED brings: {names}"
    required = required_edit(outcome)
    attempt = find_strategy(context, member, replace(required, add=(*required.add, found.soname)))
    if not _only_binds_more(prover, context, member, outcome, attempt):
        return outcome
    return replace(
        attempt,
        substitutions=outcome.substitutions,
        preloaded=outcome.preloaded,
        forgotten={found.soname: (of_all, why)},
    )


def _open_imports(
    prover: Prover, context: ResolveContext, member: str, outcome: Outcome
) -> tuple[Unbound, ...]:
    """The open imports of `member` itself that could be another library's; one with a version record has its library."""
    bindings = prover.bindings(context, member, outcome.closure)
    return tuple(
        item
        for item in bindings.unbound
        if is_member(outcome, outcome.closure, item.requester)
        and not is_of_python(item)
        and item.file is None
        and item.reason == "undefined"
    )


def _candidates(
    prover: Prover, context: ResolveContext, member: str, imports: Sequence[Unbound]
) -> Iterator[_Candidate]:
    """Yield what exports any of the imports: other members, by their soname, and libraries of the providers, each file once."""
    own = context.layout.path_of(member)
    others = {name: table for name, table in prover.members.items() if context.layout.path_of(name) != own}
    suppliers = find_suppliers(context, others, imports)
    shown = {context.layout.shown(context.layout.path_of(name)): name for name in others}
    for path, exports in suppliers.members.items():
        image = context.images.get(shown[path])
        if exports and image is not None and image.soname:
            yield _Candidate(image.soname, True, _has_all(exports, imports))
    for soname, exports in suppliers.libraries.items():
        if exports:
            yield _Candidate(soname, False, _has_all(exports, imports))


def _has_all(exports: Mapping[str, Collection[Export]], imports: Sequence[Unbound]) -> bool:
    return all(match(tuple(exports.get(item.name, ())), item.version) is not None for item in imports)


def _evidence(
    context: ResolveContext, member: str, found: _Candidate, imports: Sequence[Unbound]
) -> str | None:
    """Say what besides the symbols shows that this library is the one, or None where nothing does."""
    soname = found.soname
    if soname in context.preload:
        return "--preload names it"
    needing = [name for name, image in context.images.items() if name != member and soname in image.needed]
    if needing:
        verb = "needs" if len(needing) == 1 else "need"
        return f"{join_truncated([posixpath.basename(name) for name in needing], 3)} of the wheel {verb} it"
    stem = soname_stem(soname)
    other_version = any(
        soname_stem(needed) == stem for image in context.images.values() for needed in image.needed
    )
    if found.member or other_version:
        return None
    if soname in GLIBC_SONAMES:
        return "it is the target's own C library"
    if all(context.vendor.whose(soname, item.name) == "own" for item in imports):
        return f"all of them are its names (table {context.vendor.table})"
    return None


def _only_binds_more(
    prover: Prover, context: ResolveContext, member: str, before: Outcome, after: Outcome
) -> bool:
    """Whether the member then loads and all its imports bind, every other binding stays, and nothing comes twice.

    Two builds of one code, such as libtvm.so and libtvm_runtime.so, bind and then end the process when they register themselves.
    """
    if not after.loads or _open_imports(prover, context, member, after):
        return False
    pairs = {pair.sonames for pair in two_versions(before.closure)}
    if any(pair.sonames not in pairs for pair in two_versions(after.closure)):
        return False
    if _mixed(prover, context, member, after) - _mixed(prover, context, member, before):
        return False
    changed = differences(
        (before.closure, prover.bindings(context, member, before.closure)),
        (after.closure, prover.bindings(context, member, after.closure)),
    )
    return all(item.before is None for item in changed)


def _mixed(prover: Prover, context: ResolveContext, member: str, outcome: Outcome) -> set[tuple[str, str]]:
    """The pairs of libraries of which one answers look-ups that belong to the other."""
    closure = outcome.closure
    pairs = duplicates(closure, prover.tables, prover.bindings(context, member, closure))
    return {(pair.first, pair.second) for pair in pairs if pair.mixed}
