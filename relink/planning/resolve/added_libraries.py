"""Libraries that are added to NEEDED by knowledge: what is known to be dlopened, and what a file imports and does not name.

Takes the outcome of one member; gives another one, or the same.

*Preloading*: a library that is known to be dlopened, and would not be found, is added if that changes nothing else. What another
object dlopens is then mapped already under its soname (glibc elf/dl-load.c, _dl_map_object), wherever the caller would search. A
string in a file is no knowledge: RLK120 names the option then (:mod:`relink.planning.resolve.dlopen`).

*Forgotten NEEDED*: a member imports what libraries export, and names no library for it. Such a member loads only where something
else has mapped the library before. The smallest set of libraries of one provider and one release is added that exports every
open import with its version, if there is one such set, and if of each library something besides the symbols says that it is the
one: other members of the wheel need the same soname, the vendor's table gives it all of the names, it is the target's own C
library, or ``--preload`` names it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from relink.elf.edit import ElfEdit
from relink.loader.binding import Difference, Unbound, differences
from relink.loader.closure import Closure
from relink.loader.duplicates import duplicates, two_versions
from relink.loader.target import GLIBC_SONAMES
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.dlopen import profile_of
from relink.planning.resolve.proof import Prover
from relink.planning.resolve.strategy import Outcome, find_strategy
from relink.planning.resolve.suppliers import is_of_python
from relink.providers.prefix import soname_stem
from relink.system.text import join_truncated, join_with_and, pluralize


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
        # One library a round, since a library that is preloaded may dlopen another one.
        known = {soname: profile for soname, profile in _not_found(prover, closure) if soname not in tried}
        if not known:
            return outcome
        soname, profile = next(iter(known.items()))
        tried.add(soname)
        more = replace(edit, add=(*edit.add, soname))
        attempt = find_strategy(prover.context, member, more)
        after = prover.knowledge.follow(member, attempt)
        second = _in_new_versions(closure, after)
        if attempt.loads and not second and not _rebound(prover, member, outcome, attempt):
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


def _in_new_versions(before: Closure, after: Closure) -> bool:
    """Whether a library is there in two versions after an edit that was there in one before."""
    pairs = {pair.sonames for pair in two_versions(before)}
    return any(pair.sonames not in pairs for pair in two_versions(after))


def _rebound(prover: Prover, member: str, before: Outcome, after: Outcome) -> list[Difference]:
    """Return the imports of a closure that bind to another file than before."""
    return differences(
        (before.closure, prover.bindings(member, before.closure)),
        (after.closure, prover.bindings(member, after.closure)),
    )


def with_forgotten_needed(prover: Prover, member: str, outcome: Outcome) -> Outcome:
    """Add the libraries that export all open imports of `member` to its NEEDED, if evidence says so and no binding changes."""
    imports = _open_imports(prover, member, outcome) if outcome.loads else ()
    if not imports:
        return outcome
    sonames = _only_suppliers(prover, member, imports)
    forgotten: dict[str, tuple[str, str]] = {}
    for soname in sonames:
        others = {*sonames} - {soname}
        own = [imported for imported in imports if others.isdisjoint(prover.suppliers.libraries.of(imported))]
        why = _evidence(prover.context, member, soname, own)
        if why is None:
            return outcome
        names = join_truncated(sorted(imported.name for imported in own))
        count = f"{pluralize(len(own), 'import')} that no NEEDED brings"
        with_others = f" ({join_with_and(sorted(others))} the others of {len(imports)})" if others else ""
        alone = "exports" if others else "alone exports"
        forgotten[soname] = (f"it {alone} {count}{with_others}: {names}", why)
    required = required_edit(outcome)
    attempt = find_strategy(prover.context, member, replace(required, add=(*required.add, *sonames)))
    if not sonames or not _only_binds_more(prover, member, outcome, attempt):
        return outcome
    return replace(attempt.with_reasons_of(outcome), forgotten=forgotten)


def _open_imports(prover: Prover, member: str, outcome: Outcome) -> tuple[Unbound, ...]:
    """The open imports of `member` itself that could be another library's; one with a version record has its library."""
    return tuple(
        unbound
        for unbound in prover.bindings(member, outcome.closure).unbound
        if unbound.requester == outcome.root
        and not is_of_python(unbound)
        and unbound.file is None
        and unbound.reason == "undefined"
    )


def _only_suppliers(prover: Prover, member: str, imports: Sequence[Unbound]) -> tuple[str, ...]:
    """Return what alone exports all of the imports: another member, by its soname, or the smallest set of a provider's libraries.

    That with most libraries of ``--preload``, if there is one; else no other version of it may export any of them. Empty where
    there is no such set, or more than one; where a member exports some of the imports, no set of several is taken.
    """
    context, suppliers = prover.context, prover.suppliers

    def sonames_of(members: Iterable[str]) -> Iterator[str]:
        others = (context.images[name].soname for name in members if name != member)
        return (soname for soname in others if soname)

    some = list(sonames_of(suppliers.members.of_some(imports)))
    sets: list[tuple[str, ...]] = [(soname,) for soname in sonames_of(suppliers.members.of_all(imports))]
    sets += [sonames for sonames in suppliers.sets_of_all(context, imports) if len(sonames) == 1 or not some]
    named = [len({*sonames} & {*context.preload}) for sonames in sets]
    most = [sonames for sonames, count in zip(sets, named, strict=True) if count == max(named)]
    if len(most) != 1:
        return ()
    if any(named):
        return most[0]
    stems = [soname_stem(soname) for soname in (*some, *suppliers.libraries.of_some(imports))]
    return most[0] if all(stems.count(soname_stem(soname)) == 1 for soname in most[0]) else ()


def _evidence(context: ResolveContext, member: str, soname: str, imports: Sequence[Unbound]) -> str | None:
    """Say what besides the symbols shows that this library is the one, or None where nothing does."""
    if soname in context.preload:
        return "--preload names it"
    if needing := [
        name for name, image in context.images.items() if name != member and soname in image.needed
    ]:
        verb = "needs" if len(needing) == 1 else "need"
        return f"{join_truncated([posixpath.basename(name) for name in needing], 3)} of the wheel {verb} it"
    stems = {soname_stem(needed) for image in context.images.values() for needed in image.needed}
    if soname in context.members.sonames or soname_stem(soname) in stems:
        return None
    if soname in GLIBC_SONAMES:
        return "it is the target's own C library"
    if all(context.vendor.libraries.whose(soname, imported.name) == "own" for imported in imports):
        return f"all of them are its names (table {context.vendor.name})"
    return None


def _only_binds_more(prover: Prover, member: str, before: Outcome, after: Outcome) -> bool:
    """Whether the member then loads and all its imports bind, every other binding stays, and nothing comes twice.

    Two builds of one code, such as libtvm.so and libtvm_runtime.so, bind and then end the process when they register themselves.
    """
    if not after.loads or _open_imports(prover, member, after):
        return False
    if _in_new_versions(before.closure, after.closure):
        return False
    if _mixed(prover, member, after) - _mixed(prover, member, before):
        return False
    return all(binding.before is None for binding in _rebound(prover, member, before, after))


def _mixed(prover: Prover, member: str, outcome: Outcome) -> set[tuple[str, str]]:
    """The pairs of libraries of which one answers look-ups that belong to the other."""
    closure = outcome.closure
    pairs = duplicates(closure, prover.tables, prover.bindings(member, closure))
    return {(pair.first, pair.second) for pair in pairs if pair.mixed}
