"""Proof before edit: whether the closure of a member binds, and whether a missing NEEDED may be replaced or dropped.

Takes a :class:`~relink.planning.resolve.context.ResolveContext` and the symbol tables of the members. Gives the
:class:`~relink.planning.resolve.strategy.Outcome` of each member. :mod:`relink.planning.resolve.findings.imports` has
the findings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from relink.elf.edit import ElfEdit
from relink.elf.symbols import Import, SymbolTable
from relink.elf.version_edits import edited_table
from relink.loader.binding import Bindings, bind
from relink.loader.closure import Closure
from relink.loader.search import Environment, Requester, search
from relink.loader.tables import Tables
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.dlopen import DlopenKnowledge
from relink.planning.resolve.strategy import Outcome, find_strategy
from relink.planning.resolve.substitution import (
    SubstituteCandidate,
    SubstitutionDecision,
    evaluate_substitution,
)
from relink.planning.resolve.suppliers import Suppliers, find_suppliers
from relink.planning.resolve.unserved_edges import matches_library, own_libc
from relink.providers.prefix import soname_stem
from relink.system.text import grouped, join_truncated

_OF_A_COPY = "the DT_SONAME of the wheel's own copy, which is left out"
# Every Python maps libm: CPython's makefile links the program and libpython with it.
_OF_EVERY_PYTHON = "libm.so.6"


@dataclass
class Prover:
    """What the proofs of one wheel share: symbol tables, read once, and what each object dlopens.

    :ivar originals: the symbol tables of the wheel's members as they are in the input; `members` as planned so far.
    :ivar known: symbol tables of other files that have been read.
    """

    context: ResolveContext
    originals: Mapping[str, SymbolTable]
    known: Tables | None = None
    members: dict[str, SymbolTable] = field(init=False)
    tables: Tables = field(init=False)
    knowledge: DlopenKnowledge = field(init=False)
    _bound: dict[int, tuple[Closure, Bindings]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.members = dict(self.originals)
        self.tables = (self.known or Tables(self.context.files, {})).over(self.context.files, self.members)
        self.knowledge = DlopenKnowledge(self.context, self.tables)

    def bindings(self, member: str, closure: Closure) -> Bindings:
        """Bind the closure of `member`; what the package preloads, and the user vouches for, counts as supplied."""
        cached = self._bound.get(id(closure))
        if cached is None:
            cached = self._bound[id(closure)] = closure, self._bind(member, closure)
        # id() is a safe key: the cache holds the closure, so no other object gets its id.
        return cached[1]

    def _bind(self, member: str, closure: Closure, only: Collection[int] | None = None) -> Bindings:
        loaded = {entry.image.path for entry in closure.objects}
        outside = {
            self.context.layout.shown(self.context.layout.path_of(name)): frozenset(
                self.members[name].exports
            )
            for name in self.context.profile.preload
            if name in self.members and name != member and name not in loaded
        }
        if (
            # Where no Python is named, libm is in no closure, and yet any Python that loads the member has mapped it.
            self.context.target.python is None
            and (path := own_libc(self.context, _OF_EVERY_PYTHON)) is not None
        ):
            outside[path] = frozenset(self._table(path).exports)
        return bind(
            closure, self.tables, assume=self.context.assume_symbols, extra_exports=outside, only=only
        )

    @cached_property
    def suppliers(self) -> Suppliers:
        """Who exports what members import; edits change none of it."""
        names = {imported.name for table in self.originals.values() for imported in table.imports}
        return find_suppliers(self.context, self.originals, names)

    def find_outcome(self, member: str) -> Outcome:
        """Find the strategy for one member, with NEEDED replaced or dropped where that is proved, and what the user preloads."""
        # A copy that is left out may have the name of a link for compilers (libx.so), which in a prefix leads to the newest
        # version. So NEEDED gets the soname of the copy.
        copies = tuple(
            (name, self.context.left_out[name])
            for name in dict.fromkeys(self.context.images[member].needed)
            if self.context.left_out.get(name, name) != name
        )
        required_edit = ElfEdit(replace=copies)
        outcome = find_strategy(self.context, member, required_edit)
        if self.context.as_it_is:
            return outcome
        substitutions: dict[str, SubstitutionDecision] = {}
        missing = {
            issue.edge.soname: issue.kind
            for issue in outcome.issues
            if issue.kind in ("missing", "allowed") and issue.edge.requester == outcome.root
        }
        if missing:
            substitutions = self._evaluate_missing(member, outcome, list(missing))
            # A library of --allow-missing is evaluated like the others, so that no decision about another one rests on the
            # option. The NEEDED of that library stays.
            acted = [decision for soname, decision in substitutions.items() if missing[soname] == "missing"]
            required_edit = ElfEdit(
                replace=(
                    *copies,
                    *(
                        (decision.soname, decision.candidate)
                        for decision in acted
                        if decision.action == "substitute" and decision.candidate
                    ),
                ),
                remove=tuple(decision.soname for decision in acted if decision.action == "drop"),
                versions=tuple(
                    edit for decision in acted if decision.action != "keep" for edit in decision.versions
                ),
            )
            if required_edit.replace != copies or required_edit.remove:
                outcome = find_strategy(self.context, member, required_edit)
        substitutions |= {
            name: SubstitutionDecision(name, "substitute", soname, (_OF_A_COPY,)) for name, soname in copies
        }
        if added := self._preloads(member, outcome):
            outcome = find_strategy(self.context, member, replace(required_edit, add=added))
        self.adopt(member, required_edit)
        return replace(outcome, substitutions=substitutions, preloaded=dict.fromkeys(added))

    def open_imports(self, member: str, outcome: Outcome) -> list[str]:
        """The names that `member` imports, that nothing in its closure exports, and that no Python supplies."""
        unbound = self.bindings(member, outcome.closure).unbound
        own = (imported for imported in unbound if imported.requester == outcome.root)
        return [imported.name for imported in own if not imported.name.startswith(("Py", "_Py"))]

    def adopt(self, member: str, edit: ElfEdit) -> None:
        """Bind with the symbols that `member` has after an edit from now on."""
        after = edited_table(self.originals[member], dict(edit.replace), edit.versions)
        if after != self.members[member]:
            self.members[member] = after
            self.tables.replace(member, after)
            # Any closure that is bound already may have this member in it.
            self._bound.clear()

    def _evaluate_missing(
        self, member: str, outcome: Outcome, missing: Sequence[str]
    ) -> dict[str, SubstitutionDecision]:
        """Decide of each missing NEEDED whether the imports of `member` prove that it may be replaced or dropped."""
        closure = outcome.closure
        # The imports of the member alone say what its own NEEDED are for, so nothing else is bound.
        bindings = self._bind(member, closure, [outcome.root])
        unbound_names = {(imported.name, imported.version) for imported in bindings.unbound}
        imports = self.members[member].imports
        unbound = [imported for imported in imports if (imported.name, imported.version) in unbound_names]
        substitutions = evaluate_substitution(
            missing,
            imports,
            unbound,
            {soname: self._candidates(member, soname) for soname in missing},
            self.context.vendor,
            self.members[member].verneeds,
            [soname for soname in outcome.original.needed if soname not in missing],
            _by_another_version(outcome, bindings, imports, missing),
        )
        preloaded = preloaded_paths(self.context)
        assumed = [
            imported.name
            for imported in bindings.explained
            if imported.requester == outcome.root and self.context.layout.shown(imported.by) in preloaded
        ]
        # These imports count as bound, which is true only if the package loads what supplies them: the evidence has to say so.
        if assumed:
            profile = self.context.profile.name
            evidence = f"profile {profile}: the package loads what supplies {join_truncated(assumed)} before"
            for soname, decision in substitutions.items():
                if decision.action == "drop":
                    substitutions[soname] = replace(
                        decision, evidence=(*decision.evidence, evidence), profile=profile
                    )
        return substitutions

    def _candidates(self, member: str, soname: str) -> list[SubstituteCandidate]:
        """The libraries that could replace `soname`: those that the user names, or else all of its stem, or of its upstream."""
        named = [new for old, new in self.context.substitutes if old == soname]
        copy = None if named else self.context.vendor.libraries.copy_of(soname)
        names = named or list(
            dict.fromkeys(name for provider in self.context.providers for name in provider.nearest(soname))
        )
        candidates: dict[object, SubstituteCandidate] = {}
        for name in (*names, *(copy.sonames if copy else ())):
            copied = copy is not None and name in copy.sonames
            path = self.context.provider_path(name)
            if path is None and copied:
                path = system_path(self.context, member, name)
            if path is None:
                continue
            opened = self.context.files.open(path)
            if opened.image is None or opened.image.soname not in (name, None):
                # A link to a file that is a candidate under its own soname.
                continue
            vendor, own = self.context.vendor, self.context.profile
            reason: str | None
            profile: str | None
            if copy is not None and copied:
                reason, profile = copy.why, vendor.name
            elif named:
                reason, profile = "--substitute says so", None
            elif why := own.why_equal(soname, name):
                reason, profile = why, own.name
            else:
                reason = vendor.libraries.same_abi(soname, name)
                profile = vendor.name if reason else None
            candidates.setdefault(
                opened.identity, SubstituteCandidate(name, path, self._table(path), reason, profile, copied)
            )
        return list(candidates.values())

    def _table(self, path: str) -> SymbolTable:
        """Return the symbols of a library; that of a file that cannot be read is empty, so it proves nothing."""
        identity = self.context.files.open(path).identity
        return SymbolTable() if identity is None else self.tables.read(identity, path)

    def _preloads(self, member: str, outcome: Outcome) -> tuple[str, ...]:
        """The sonames of ``--preload`` that an object in the closure of `member` dlopens, and that `member` does not need yet."""
        if not self.context.preload:
            return ()
        dlopened = {edge.soname for edge in self.knowledge.follow(member, outcome).dlopened}
        return tuple(
            soname
            for soname in self.context.preload
            if soname not in outcome.original.needed
            and self.context.provider_path(soname)
            and any(matches_library(soname, name) for name in dlopened)
        )


def system_path(context: ResolveContext, member: str, soname: str) -> str | None:
    """Return the library that the target's loader finds by itself: in its cache or its default directories."""
    # Without a search path of the member only the loader's cache and default directories are left.
    image = replace(context.images[member], rpath=None, runpath=None)
    requester = Requester(context.layout.path_of(member), image, None, None)
    candidate = search(soname, requester, None, Environment(context.target, context.files)).candidate
    return None if candidate is None else candidate.path


def preloaded_paths(context: ResolveContext) -> set[str]:
    """The members that the profile says are loaded before others, as they are shown."""
    shown, path_of = context.layout.shown, context.layout.path_of
    return {shown(path_of(name)) for name in context.profile.preload}


def _by_another_version(
    outcome: Outcome,
    bindings: Bindings,
    imports: Sequence[Import],
    missing: Sequence[str],
) -> dict[str, list[Import]]:
    """The imports that bind to a library of the stem of a missing one: another version, which something else brought."""
    stems = {soname_stem(soname): soname for soname in missing}
    names: dict[tuple[str, str | None], str] = {}
    for index, target, symbols in bindings.bound:
        library = outcome.closure.objects[target]
        soname = stems.get(soname_stem(library.image.soname or library.name))
        if index == outcome.root and soname is not None:
            names |= dict.fromkeys(symbols, soname)
    found = ((names.get((wanted.name, wanted.version)), wanted) for wanted in imports if wanted.file is None)
    return grouped((soname, wanted) for soname, wanted in found if soname)
