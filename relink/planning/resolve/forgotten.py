"""Forgotten NEEDED: a member imports what one library exports, and names no library for it. When that library may be added.

Takes the outcome of one member; gives another one, or the same. Such a member loads only where something else has mapped the
library before. A library is added if it exports every open import with its version, if no other library does, and if something
besides the symbols says that it is the one: other members of the wheel need the same soname, the vendor's table gives it all of
the names, it is the target's own C library, or ``--preload`` names it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from relink.loader.binding import Unbound
from relink.loader.duplicates import duplicates
from relink.loader.target import GLIBC_SONAMES
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.preloading import in_new_versions, rebound, required_edit
from relink.planning.resolve.proof import Prover
from relink.planning.resolve.strategy import Outcome, find_strategy
from relink.planning.resolve.suppliers import is_of_python
from relink.providers.prefix import soname_stem
from relink.system.text import join_truncated, pluralize

__all__ = ["with_forgotten_needed"]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A library that exports all open imports, each with its version; `member`: it is one of the wheel's."""

    soname: str
    member: bool


def with_forgotten_needed(prover: Prover, member: str, outcome: Outcome) -> Outcome:
    """Add the one library that exports all open imports of `member` to its NEEDED, if evidence says so and no binding changes."""
    if not outcome.loads:
        return outcome
    imports = _open_imports(prover, member, outcome)
    if not imports:
        return outcome
    supplier = _only_supplier(prover, member, imports)
    if supplier is None:
        return outcome
    why = _evidence(prover.context, member, supplier, imports)
    if why is None:
        return outcome
    names = join_truncated(sorted(imported.name for imported in imports))
    of_all = f"it alone exports {pluralize(len(imports), 'import')} that no NEEDED brings: {names}"
    required = required_edit(outcome)
    attempt = find_strategy(prover.context, member, replace(required, add=(*required.add, supplier.soname)))
    if not _only_binds_more(prover, member, outcome, attempt):
        return outcome
    return replace(attempt.with_reasons_of(outcome), forgotten={supplier.soname: (of_all, why)})


def _open_imports(prover: Prover, member: str, outcome: Outcome) -> tuple[Unbound, ...]:
    """The open imports of `member` itself that could be another library's; one with a version record has its library."""
    bindings = prover.bindings(member, outcome.closure)
    return tuple(
        unbound
        for unbound in bindings.unbound
        if unbound.requester == outcome.root
        and not is_of_python(unbound)
        and unbound.file is None
        and unbound.reason == "undefined"
    )


def _only_supplier(prover: Prover, member: str, imports: Sequence[Unbound]) -> _Candidate | None:
    """Return what alone exports all of the imports: another member, by its soname, or a provider's library, each file once.

    That of ``--preload``, if there is one. No other version of it may export any of them.
    """
    context, suppliers = prover.context, prover.suppliers()

    def candidates(members: Iterable[str], sonames: Iterable[str]) -> Iterator[_Candidate]:
        others = (context.images[name].soname for name in members if name != member)
        yield from (_Candidate(soname, True) for soname in others if soname)
        yield from (_Candidate(soname, False) for soname in sonames)

    every = candidates(suppliers.members.of_all(imports), suppliers.libraries.of_all(imports))
    if context.preload:
        several = list(every)
        every = iter([candidate for candidate in several if candidate.soname in context.preload] or several)
    first, second = next(every, None), next(every, None)
    if first is None or second is not None or first.soname in context.preload:
        return first if second is None else None
    stem = soname_stem(first.soname)
    some = candidates(suppliers.members.of_some(imports), suppliers.libraries.of_some(imports))
    return first if sum(soname_stem(candidate.soname) == stem for candidate in some) == 1 else None


def _evidence(
    context: ResolveContext, member: str, supplier: _Candidate, imports: Sequence[Unbound]
) -> str | None:
    """Say what besides the symbols shows that this library is the one, or None where nothing does."""
    soname = supplier.soname
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
    if supplier.member or other_version:
        return None
    if soname in GLIBC_SONAMES:
        return "it is the target's own C library"
    if all(context.vendor.whose(soname, imported.name) == "own" for imported in imports):
        return f"all of them are its names (table {context.vendor.table})"
    return None


def _only_binds_more(prover: Prover, member: str, before: Outcome, after: Outcome) -> bool:
    """Whether the member then loads and all its imports bind, every other binding stays, and nothing comes twice.

    Two builds of one code, such as libtvm.so and libtvm_runtime.so, bind and then end the process when they register themselves.
    """
    if not after.loads or _open_imports(prover, member, after):
        return False
    if in_new_versions(before.closure, after.closure):
        return False
    if _mixed(prover, member, after) - _mixed(prover, member, before):
        return False
    return all(binding.before is None for binding in rebound(prover, member, before, after))


def _mixed(prover: Prover, member: str, outcome: Outcome) -> set[tuple[str, str]]:
    """The pairs of libraries of which one answers look-ups that belong to the other."""
    closure = outcome.closure
    pairs = duplicates(closure, prover.tables, prover.bindings(member, closure))
    return {(pair.first, pair.second) for pair in pairs if pair.mixed}
