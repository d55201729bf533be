"""Prove an edit before it is made: what the closure of a member binds and dlopens, and which NEEDED may change.

Takes a :class:`~relink.planning.resolve.context.ResolveContext`. Gives the :class:`~relink.planning.resolve.strategy.Outcome` of
each member; :mod:`relink.planning.resolve.import_findings` reports it.

*Dlopen*: a library that an object dlopens is known by a note (the dlopen metadata of PT_NOTE, systemd's ELF_NOTE_DLOPEN), by the
vendor's table, by the package's profile, or by a string in the file.

*Preloading*: a library that is known to be dlopened, and would not be found, is added to NEEDED if that changes nothing else.
What another object dlopens is then mapped already under its soname (glibc elf/dl-load.c, _dl_map_object), wherever the caller
would search. A string in a file proves nothing: RLK120 names the option then.

*Forgotten NEEDED*: a member imports what libraries export, and names no library for it. Such a member loads only where something
else has mapped the library before. The smallest set of libraries of one provider and one release is added that exports every
open import with its version, if there is one such set, and if of each library something besides the symbols says that it is the
one: other members of the wheel need the same soname, the vendor's table gives it all of the names, it is the target's own C
library, or ``--preload`` names it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal

import msgspec
from msgspec.structs import replace

from relink.elf.edit import ElfEdit, edit_symbols
from relink.elf.symbols import SymbolTable
from relink.loader.binding import Bindings, Difference, Unbound, bind, differences, duplicates, two_versions
from relink.loader.closure import Closure, Edge, LoadedObject, breadth_first, file_of, needed_by
from relink.loader.search import Environment, Requester, search
from relink.loader.tables import Tables
from relink.loader.target import GLIBC_SONAMES
from relink.planning.model import DlopenEdge
from relink.planning.resolve.context import ResolveContext, ShimUse
from relink.planning.resolve.evidence import (
    SubstituteCandidate,
    SubstitutionDecision,
    Suppliers,
    evaluate_substitution,
    find_suppliers,
)
from relink.planning.resolve.strategy import (
    AddedNeeded,
    Outcome,
    find_own_libc,
    find_strategy,
    matches_library,
    simulate_loading,
)
from relink.providers.distribution import is_platform_library
from relink.providers.prefix import soname_stem
from relink.providers.profiles import match_names
from relink.system.text import group_pairs, join_truncated, join_with_and, pluralize

_OF_A_COPY = "the DT_SONAME of the wheel's own copy, which is left out"
# Every Python maps libm: CPython's makefile links the program and libpython with it.
_OF_EVERY_PYTHON = "libm.so.6"


class DlopenSource(msgspec.Struct, frozen=True):
    """How it is known that an object dlopens a library: by a note or a string in its file, or by a profile.

    :ivar profile: the profile, or the vendor's table; None for a note and a string.
    """

    kind: Literal["note", "string", "profile"]
    profile: str | None = None
    why: str = ""

    def __str__(self) -> str:
        return self.kind if self.profile is None else f"profile {self.profile}: {self.why}"


class DlopenKnowledge:
    """What each object dlopens and how that is known.

    A string is a weak sign: it counts only in what imports dlopen, and where a provider has a library of that name, or a
    profile says the same.
    """

    def __init__(self, context: ResolveContext, tables: Tables) -> None:
        self.context, self.tables = context, tables
        self._available = tuple(name for provider in context.providers for name in provider.libraries)
        self._sources: dict[tuple[object, ...], dict[str, DlopenSource]] = {}

    def sources_of(self, caller: LoadedObject) -> Mapping[str, DlopenSource]:
        """Return soname → how it is known that `caller` dlopens it."""
        # The key is the identity of the file: the program and the loader have one identity as objects, whatever their file.
        file = file_of(caller)
        sources = self._sources.get(file)
        if sources is None:
            sources = self._sources[file] = self._find(caller)
        return sources

    def may_open(self, member: str) -> bool:
        """Whether anything says that a member dlopens a library."""
        context, image = self.context, self.context.images[member]
        known = context.vendor.libraries.dlopens_of(image.soname or "", ())
        return any((known, image.dlopen_notes, context.opens.get(member), context.profile.dlopens(member)))

    def _find(self, caller: LoadedObject) -> dict[str, DlopenSource]:
        context, own = self.context, caller.image.soname or caller.name
        stubs = context.added.values()
        if own in GLIBC_SONAMES or (caller.identity[0] == "member" and caller.identity[1] in stubs):
            # A stub or a forwarder has the name of a library, and none of its code.
            return {}
        sources = {
            note.sonames[0]: DlopenSource("note") for note in caller.image.dlopen_notes if note.sonames
        }
        vendor, profile = context.vendor, context.profile
        member = context.members.at.get(caller.path)
        # What a package opens by a name of the vendor's counts whether or not a provider has a library of that name; another
        # name where a provider has it under a number.
        for name in self.strings_of(caller):
            if name not in sources and (
                self._is_soname(name, caller)
                or (member and (vendor.libraries.is_own(name) or find_forwardable(context, name)))
            ):
                sources[name] = DlopenSource("string")
        stems = {soname_stem(name) for name in sources}
        # A package that brings a library along brings what that dlopens.
        beside = context.members.sonames if member else {}
        available = [*self._available, *beside]
        if context.as_it_is and caller.identity[0] != "member":
            # No provider has been named, and the question is what loads now: libraries beside the caller count.
            directory = posixpath.dirname(context.files.canonical(caller.path))
            available += (name for name in context.files.names_in(directory) if ".so" in name)
        for name, why in vendor.libraries.dlopens_of(own, tuple(available)).items():
            # The table knows better than a string, which may be there for another reason.
            known = sources.get(name)
            fits = name in beside or (soname_stem(name) not in stems and self._fits(own, name, caller))
            if (known is not None and known.kind == "string") or fits:
                sources[name] = DlopenSource("profile", vendor.name, why)
        if member:
            # A glob of the package's profile that matches no available library is a name of its own.
            matching = match_names(profile.dlopens(member).items(), self._available)
            sources |= {name: DlopenSource("profile", profile.name, why) for name, why in matching.items()}
        return sources

    def strings_of(self, caller: LoadedObject) -> tuple[str, ...]:
        """Return the library names in the read-only data of a member, or of a provider's library."""
        context = self.context
        if member := context.members.at.get(caller.path):
            return context.opens.get(member, ())
        platform = is_platform_library(caller.image.soname or "", context.target.header.machine)
        if platform or not context.is_held(caller.path):
            return ()
        return self.tables.dlopened(file_of(caller), caller.image)

    def _is_soname(self, name: str, caller: LoadedObject) -> bool:
        """Whether a provider has a library whose soname this is; links for compilers and full version names are not dlopened."""
        path = self.context.provider_path(name) or self.context.withheld_path(name)
        if path is None and self.context.as_it_is:
            path = posixpath.join(posixpath.dirname(self.context.files.canonical(caller.path)), name)
        image = self.context.files.open(path).image if path else None
        return image is not None and image.soname == name

    def _fits(self, own: str, name: str, caller: LoadedObject) -> bool:
        """Whether the caller would dlopen this version of a library: of several versions, the one of the caller's own version."""
        if "*" in name:
            # A name is a glob only where no library matched it, and is then reported as missing.
            return True
        if not self._is_soname(name, caller):
            return False
        own_version = soname_stem(name) + own[len(soname_stem(own)) :]
        # Where another version of the caller is there, that one opens this version.
        other_caller = soname_stem(own) + name[len(soname_stem(name)) :]
        if name == own_version or self.context.provider_path(own_version) is not None:
            return name == own_version
        return self.context.provider_path(other_caller) is None

    def follow(self, member: str, outcome: Outcome) -> Closure:
        """Load `member` as planned and follow what its closure dlopens."""
        closure, context = outcome.closure, self.context
        images = (loaded.image for loaded in closure.objects if loaded.image is not outcome.image)
        as_now = all(context.images.get(image.path, image) is image for image in images)
        if as_now and not any(self.sources_of(closure.objects[index]) for index in closure.scope):
            # No image in the closure has changed since, and nothing is dlopened, so the closure still holds.
            return closure
        return simulate_loading(context, member, outcome.image, dlopens=self.sources_of)


def list_opened(
    context: ResolveContext, closures: Iterable[Closure], knowledge: DlopenKnowledge
) -> tuple[DlopenEdge, ...]:
    """Return what the objects of closures open, each name of each object once, in the order of the closures."""
    shown = context.layout.shown
    by_name: dict[tuple[str, str, str | None], DlopenEdge] = {}
    for objects, edge in ((closure.objects, edge) for closure in closures for edge in closure.dlopened):
        caller = objects[edge.requester]
        opener = shown(posixpath.normpath(caller.path))
        path = None if edge.target is None else shown(posixpath.normpath(objects[edge.target].path))
        rule = None if edge.found_by is None else shown(str(edge.found_by))
        known_by = str(knowledge.sources_of(caller)[edge.soname])
        by_name.setdefault((opener, edge.soname, path), DlopenEdge(opener, edge.soname, known_by, path, rule))
    return tuple(by_name.values())


def find_forwardable(context: ResolveContext, name: str) -> list[str]:
    """Return the sonames of the providers' libraries that differ from a name without a number in their number, newest last."""
    if not name.endswith(".so"):
        return []
    sonames = dict.fromkeys(near for provider in context.providers for near in provider.nearest(name))
    images = {
        near: context.files.open(path).image for near in sonames if (path := context.provider_path(near))
    }
    return [near for near, image in images.items() if image is not None and image.soname == near]


def find_unloadable(closure: Closure) -> dict[Edge, list[str]]:
    """Return, of what is opened and found, what does not load, each with the sonames that are not found for it."""
    lacking = group_pairs((edge.requester, edge.soname) for edge in closure.missing)
    needed = needed_by(closure) if lacking else {}
    found: dict[Edge, list[str]] = {}
    for edge in closure.dlopened if lacking else ():
        reached = () if edge.target is None else breadth_first(needed, [edge.target])
        if names := [name for index in reached for name in lacking.get(index, ())]:
            found[edge] = names
    return found


def find_system_library(context: ResolveContext, member: str, soname: str) -> str | None:
    """Return the library that the target's loader finds by itself: in its cache or its default directories."""
    # Without a search path of the member only the loader's cache and default directories are left.
    image = replace(context.images[member], rpath=None, runpath=None)
    requester = Requester(context.layout.path_of(member), image, None, None)
    candidate = search(soname, requester, None, Environment(context.target, context.files)).candidate
    return None if candidate is None else candidate.path


class Prover:
    """What the proofs of one wheel share: symbol tables, read once, and what each object dlopens.

    :ivar tables: those of the wheel's members as planned so far.
    """

    def __init__(self, context: ResolveContext) -> None:
        self.tables = context.open_tables()
        self.context = replace(context, seen=self.tables)
        self.knowledge = DlopenKnowledge(context, self.tables)
        self._bound: dict[int, tuple[Closure, Bindings]] = {}

    def bindings(self, member: str, closure: Closure) -> Bindings:
        """Bind the closure of `member`; what the package preloads, and the user vouches for, counts as supplied."""
        cached = self._bound.get(id(closure))
        if cached is None:
            cached = self._bound[id(closure)] = closure, self._bind(member, closure)
        # id() is a safe key: the cache holds the closure, so no other object gets its id.
        return cached[1]

    def _bind(self, member: str, closure: Closure, only: Collection[int] | None = None) -> Bindings:
        context = self.context
        loaded = {entry.image.path for entry in closure.objects}
        outside = {
            context.layout.shown(context.layout.path_of(name)): frozenset(self.tables.members[name].exports)
            for name in context.profile.preload
            if name in self.tables.members and name != member and name not in loaded
        }
        # Where no Python is named, libm is in no closure, and yet any Python that loads the member has mapped it.
        path = find_own_libc(context, _OF_EVERY_PYTHON) if context.target.python is None else None
        if path is not None:
            outside[path] = frozenset(self._table(path).exports)
        return bind(closure, self.tables, assume=context.assume_symbols, extra_exports=outside, only=only)

    @cached_property
    def suppliers(self) -> Suppliers:
        """Who exports what members import; edits change none of it."""
        originals = self.context.tables
        names = {imported.name for table in originals.values() for imported in table.imports}
        return find_suppliers(self.context, originals, names)

    def find_outcome(self, member: str) -> Outcome:
        """Find the strategy for one member, with NEEDED replaced or dropped where that is proved, and what the user preloads."""
        context = self.context
        # A copy that is left out may have the name of a link for compilers (libx.so), which in a prefix leads to the newest
        # version. So NEEDED gets the soname of the copy.
        copies = tuple(
            (name, context.left_out[name])
            for name in dict.fromkeys(context.images[member].needed)
            if context.left_out.get(name, name) != name
        )
        use = context.shims.get(member, ShimUse())
        shims = tuple(AddedNeeded(soname, "imported", None, (why,)) for soname, why in use.needed.items())
        required = ElfEdit(replace=copies, versions=use.versions)
        outcome = find_strategy(context, member, required, shims)
        if context.as_it_is:
            return outcome
        kinds = {
            issue.edge.soname: issue.kind
            for issue in outcome.issues
            if issue.kind in ("missing", "allowed") and issue.edge.requester == outcome.root
        }
        substitutions = self._evaluate_missing(member, outcome, list(kinds)) if kinds else {}
        # A library of --allow-missing is evaluated like the others, so that no decision about another one rests on the option.
        # The NEEDED of that library stays.
        acted = [decision for soname, decision in substitutions.items() if kinds[soname] == "missing"]
        replaced = [
            (one.soname, one.candidate) for one in acted if one.action == "substitute" and one.candidate
        ]
        moved = [edit for one in acted if one.action != "keep" for edit in one.versions]
        dropped = tuple(one.soname for one in acted if one.action == "drop")
        proved = ElfEdit(replace=(*copies, *replaced), remove=dropped, versions=(*use.versions, *moved))
        if proved != required:
            outcome = find_strategy(context, member, proved, shims)
        dlopened: set[str] = set()
        if context.preload:
            dlopened.update(edge.soname for edge in self.knowledge.follow(member, outcome).dlopened)
        added = tuple(
            AddedNeeded(soname, "dlopened")
            for soname in context.preload
            if soname not in outcome.original.needed
            and context.provider_path(soname)
            and any(matches_library(soname, name) for name in dlopened)
        )
        if added:
            outcome = find_strategy(context, member, proved, (*shims, *added))
        self.adopt(member, proved)
        for name, soname in copies:
            substitutions[name] = SubstitutionDecision(name, "substitute", soname, (_OF_A_COPY,))
        return replace(outcome, substitutions=substitutions)

    def add_needed(self, member: str, outcome: Outcome, more: Sequence[AddedNeeded]) -> Outcome:
        """Find the strategy with more libraries in NEEDED; the earlier evidence stays."""
        reasons = (*(reason for reason in outcome.needed if reason.reason != "unfound"), *more)
        # Neither the search path nor what flattening added: the strategies decide both anew.
        edit = outcome.edit
        required = ElfEdit(replace=edit.replace, remove=edit.remove, versions=edit.versions)
        attempt = find_strategy(self.context, member, required, reasons)
        return replace(attempt, substitutions=outcome.substitutions)

    def open_imports(self, member: str, outcome: Outcome) -> list[Unbound]:
        """Return the imports of `member` itself that nothing in its closure exports, and that no Python supplies."""
        unbound = self.bindings(member, outcome.closure).unbound
        return [
            imported
            for imported in unbound
            if imported.requester == outcome.root and not imported.name.startswith(("Py", "_Py"))
        ]

    def adopt(self, member: str, edit: ElfEdit) -> None:
        """Bind with the symbols that `member` has after an edit from now on."""
        after = edit_symbols(self.context.tables[member], dict(edit.replace), edit.versions)
        if after != self.tables.members[member]:
            self.tables.replace(member, after)
            # Any closure that is bound already may have this member in it.
            self._bound.clear()

    def _evaluate_missing(
        self, member: str, outcome: Outcome, missing: Sequence[str]
    ) -> dict[str, SubstitutionDecision]:
        """Decide of each missing NEEDED whether the imports of `member` prove that it may be replaced or dropped."""
        context, objects = self.context, outcome.closure.objects
        # The imports of the member alone say what its own NEEDED are for, so nothing else is bound.
        bindings = self._bind(member, outcome.closure, [outcome.root])
        unbound_names = {(imported.name, imported.version) for imported in bindings.unbound}
        imports = self.tables.members[member].imports
        # The imports that bind to a library of the stem of a missing one: another version, which something else brought.
        stems = {soname_stem(soname): soname for soname in missing}
        names: dict[tuple[str, str | None], str] = {}
        for index, target, symbols in bindings.bound:
            library = objects[target]
            other = stems.get(soname_stem(library.image.soname or library.name))
            if index == outcome.root and other is not None:
                names |= dict.fromkeys(symbols, other)
        versionless = (imported for imported in imports if imported.file is None)
        found = ((names.get((imported.name, imported.version)), imported) for imported in versionless)
        substitutions = evaluate_substitution(
            missing,
            imports,
            [imported for imported in imports if (imported.name, imported.version) in unbound_names],
            {soname: self._candidates(member, soname) for soname in missing},
            context.vendor,
            self.tables.members[member].verneeds,
            [soname for soname in outcome.original.needed if soname not in missing],
            group_pairs((soname, imported) for soname, imported in found if soname),
        )
        shown, profile = context.layout.shown, context.profile
        preloaded = {shown(context.layout.path_of(name)) for name in profile.preload}
        assumed = [
            imported.name
            for imported in bindings.explained
            if imported.requester == outcome.root and shown(imported.by) in preloaded
        ]
        # These imports count as bound, which is true only if the package loads what supplies them: the evidence has to say so.
        for soname, decision in substitutions.items() if assumed else ():
            if decision.action == "drop":
                text = f"profile {profile.name}: the package loads what supplies {join_truncated(assumed)} before"
                evidence = (*decision.evidence, text)
                substitutions[soname] = replace(decision, evidence=evidence, profile=profile.name)
        return substitutions

    def _candidates(self, member: str, soname: str) -> list[SubstituteCandidate]:
        """Return the libraries that could replace `soname`: those that the user names, or all of its stem, or of its upstream."""
        context, vendor, own = self.context, self.context.vendor, self.context.profile
        named = [new for old, new in context.substitutes if old == soname]
        copies, why_copy = (None if named else vendor.libraries.copy_of(soname)) or ((), "")
        nearest = (name for provider in context.providers for name in provider.nearest(soname))
        candidates: dict[object, SubstituteCandidate] = {}
        for name in (*(named or dict.fromkeys(nearest)), *copies):
            path = context.provider_path(name)
            if path is None and name in copies:
                path = find_system_library(context, member, name)
            if path is None:
                continue
            opened = context.files.open(path)
            if opened.image is None or opened.image.soname not in (name, None):
                # A link to a file that is a candidate under its own soname.
                continue
            reason: str | None
            profile: str | None
            if name in copies:
                reason, profile = why_copy, vendor.name
            elif named:
                reason, profile = "--substitute says so", None
            elif why := own.why_equal(soname, name):
                reason, profile = why, own.name
            else:
                reason = vendor.libraries.same_abi(soname, name)
                profile = vendor.name if reason else None
            candidate = SubstituteCandidate(name, path, self._table(path), reason, profile, name in copies)
            candidates.setdefault(opened.identity, candidate)
        return list(candidates.values())

    def _table(self, path: str) -> SymbolTable:
        """Return the symbols of a library; that of a file that cannot be read is empty, so it proves nothing."""
        identity = self.context.files.open(path).identity
        return SymbolTable() if identity is None else self.tables.read(identity, path)


def add_known_preloads(prover: Prover, member: str, outcome: Outcome) -> Outcome:
    """Preload what the package's profile or the vendor's table knows to be dlopened in the closure of `member`.

    A library is left out if any import then binds to another file than before, or if two versions of a library would meet.
    Libraries of the wheel are left out, too: a ROCm that a wheel brings along must not be mixed with the provider's.
    """
    context, tried = prover.context, set[str]()
    if not (context.preload_known and outcome.loads):
        return outcome
    closure = prover.knowledge.follow(member, outcome)
    while True:
        # One library a round, since a library that is preloaded may dlopen another one.
        for edge in closure.dlopened:
            caller = closure.objects[edge.requester]
            if edge.target is not None or edge.soname in tried or not context.is_held(caller.path):
                continue
            source = prover.knowledge.sources_of(caller)[edge.soname]
            if source.profile is not None and context.provider_path(edge.soname) is not None:
                break
        else:
            return outcome
        tried.add(edge.soname)
        reason = AddedNeeded(edge.soname, "dlopened", source.profile)
        attempt = prover.add_needed(member, outcome, [reason])
        after = prover.knowledge.follow(member, attempt)
        second = has_new_versions(closure, after)
        if attempt.loads and not second and not _rebound(prover, member, outcome, attempt):
            outcome, closure = attempt, after


def has_new_versions(before: Closure, after: Closure) -> bool:
    """Whether a library is there in two versions after an edit that was there in one before."""
    pairs = {pair.sonames for pair in two_versions(before)}
    return any(pair.sonames not in pairs for pair in two_versions(after))


def _rebound(prover: Prover, member: str, before: Outcome, after: Outcome) -> list[Difference]:
    """Return the imports of a closure that bind to another file than before."""
    return differences(
        (before.closure, prover.bindings(member, before.closure)),
        (after.closure, prover.bindings(member, after.closure)),
    )


def add_forgotten_needed(prover: Prover, member: str, outcome: Outcome) -> Outcome:
    """Add the libraries that export all open imports of `member` to its NEEDED, if evidence says so and no binding changes.

    All imports must bind then, every other binding must stay, and nothing may come twice: two builds of one code, such as
    libtvm.so and libtvm_runtime.so, bind and then end the process when they register themselves.
    """
    imports = _unnamed_imports(prover, member, outcome) if outcome.loads else []
    sonames = _only_suppliers(prover, member, imports) if imports else ()
    reasons = []
    for soname in sonames:
        others = {*sonames} - {soname}
        exporters_of = prover.suppliers.libraries.exporters_of
        own = [imported for imported in imports if others.isdisjoint(exporters_of(imported))]
        why = _evidence(prover.context, member, soname, own)
        if why is None:
            return outcome
        names = join_truncated(sorted(imported.name for imported in own))
        count = f"{pluralize(len(own), 'import')} that no NEEDED brings"
        with_others = f" ({join_with_and(sorted(others))} the others of {len(imports)})" if others else ""
        alone = "exports" if others else "alone exports"
        evidence = (f"it {alone} {count}{with_others}: {names}", why)
        reasons.append(AddedNeeded(soname, "imported", evidence=evidence))
    if not reasons:
        return outcome
    attempt = prover.add_needed(member, outcome, reasons)
    if not attempt.loads or _unnamed_imports(prover, member, attempt):
        return outcome
    if has_new_versions(outcome.closure, attempt.closure):
        return outcome
    mixed = [
        {
            (pair.first, pair.second)
            for pair in duplicates(closure, prover.tables, prover.bindings(member, closure))
            if pair.mixed
        }
        for closure in (outcome.closure, attempt.closure)
    ]
    rebound = any(binding.before is not None for binding in _rebound(prover, member, outcome, attempt))
    return outcome if mixed[1] - mixed[0] or rebound else attempt


def _unnamed_imports(prover: Prover, member: str, outcome: Outcome) -> list[Unbound]:
    """Return the open imports of `member` that could be another library's; one with a version record has its library."""
    imports = prover.open_imports(member, outcome)
    return [unbound for unbound in imports if unbound.file is None and unbound.reason == "undefined"]


def _only_suppliers(prover: Prover, member: str, imports: Sequence[Unbound]) -> tuple[str, ...]:
    """Return the only library, or the only smallest set, that exports all imports; empty if there are several.

    A library is another member, by its soname, or a provider's. Of several sets the one with most libraries of ``--preload`` is
    taken, if there is one; else no other version of it may export any of the imports. Where a member exports some of the imports,
    no set of several is taken.
    """
    context, suppliers = prover.context, prover.suppliers

    def sonames_of(members: Iterable[str]) -> Iterator[str]:
        others = (context.images[name].soname for name in members if name != member)
        return (soname for soname in others if soname)

    some = list(sonames_of(suppliers.members.exporters_of_some(imports)))
    sets = [(soname,) for soname in sonames_of(suppliers.members.exporters_of_all(imports))]
    proposed: list[tuple[str, ...]] = [
        *sets,
        *(each for each in suppliers.sets_of_all(context, imports) if len(each) == 1 or not some),
    ]
    named = [len({*sonames} & {*context.preload}) for sonames in proposed]
    most = [sonames for sonames, count in zip(proposed, named, strict=True) if count == max(named)]
    if len(most) != 1:
        return ()
    if any(named):
        return most[0]
    stems = [soname_stem(soname) for soname in (*some, *suppliers.libraries.exporters_of_some(imports))]
    return most[0] if all(stems.count(soname_stem(soname)) == 1 for soname in most[0]) else ()


def _evidence(context: ResolveContext, member: str, soname: str, imports: Sequence[Unbound]) -> str | None:
    """Say what besides the symbols shows that this library is the one, or None where nothing does."""
    if soname in context.preload:
        return "--preload names it"
    others = [name for name, image in context.images.items() if name != member and soname in image.needed]
    if others:
        verb = "needs" if len(others) == 1 else "need"
        return f"{join_truncated([posixpath.basename(name) for name in others], 3)} of the wheel {verb} it"
    stems = {soname_stem(needed) for image in context.images.values() for needed in image.needed}
    if soname in context.members.sonames or soname_stem(soname) in stems:
        return None
    if soname in GLIBC_SONAMES:
        return "it is the target's own C library"
    if all(context.vendor.libraries.whose(soname, imported.name) == "own" for imported in imports):
        return f"all of them are its names (table {context.vendor.name})"
    return None
