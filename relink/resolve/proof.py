"""Proof before edit: whether the closure binds, a soname may change, flattening moves a symbol, or anything is there twice."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from relink.elf.patchelf import ElfEdit, result_of
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import SymbolTable
from relink.errors import ElfError
from relink.files import map_file
from relink.findings.model import Finding, Level, finding
from relink.loader.binding import Bindings, Tables, Unbound, bind, differences
from relink.loader.closest import Closest
from relink.loader.closure import Closure
from relink.loader.duplicates import TwoVersions, duplicates, two_versions
from relink.providers.prefix import soname_stem
from relink.resolve.dlopen import DlopenKnowledge, dlopen_findings, profile_of, with_dlopens
from relink.resolve.strategy import Outcome, ResolveContext, find_strategy, matches_library, simulate
from relink.resolve.substitution import Candidate, SubstitutionDecision, evaluate_substitution
from relink.system_errors import raise_trouble
from relink.text import join_truncated, pluralize

__all__ = ["Prover"]

_MAX_SHOWN = 4


@dataclass(slots=True)
class Prover:
    """What the proofs of one wheel share: symbol tables, read once, and what is known of dlopen.

    :ivar members: the symbol tables of the wheel's members.
    :ivar known: symbol tables of other files that have been read.
    """

    context: ResolveContext
    members: Mapping[str, SymbolTable]
    known: Tables | None = None
    tables: Tables = field(init=False)
    knowledge: DlopenKnowledge = field(init=False)
    _bound: dict[int, tuple[Closure, Bindings]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = self.known or Tables(self.context.files, {})
        self.tables = known.over(self.context.files, self.members)
        self.knowledge = DlopenKnowledge(self.context, self.tables)

    def bindings(self, context: ResolveContext, member: str, closure: Closure) -> Bindings:
        """Bind the closure of `member`; what the package preloads, and the user vouches for, counts as supplied."""
        known = self._bound.get(id(closure))
        if known is None:
            known = self._bound[id(closure)] = closure, self._bind(context, member, closure)
        return known[1]  # the closure is kept with it, so its id stays its own

    def _bind(
        self, context: ResolveContext, member: str, closure: Closure, only: Collection[int] | None = None
    ) -> Bindings:
        loaded = {item.image.path for item in closure.objects}
        outside = {
            context.layout.shown(context.layout.path_of(name)): frozenset(self.members[name].exports)
            for name in context.profile.preload
            if name in self.members and name != member and name not in loaded
        }
        return bind(closure, self.tables, assume=context.assume_symbols, extra_exports=outside, only=only)

    def settle(self, context: ResolveContext, member: str) -> Outcome:
        """Find the strategy for one member, with NEEDED replaced, dropped or preloaded where that is proved or asked for."""
        outcome = find_strategy(context, member)
        required_edit = ElfEdit()
        verdicts: dict[str, SubstitutionDecision] = {}
        missing = [
            trouble.edge.soname
            for trouble in outcome.issues
            if trouble.kind == "missing" and _own(outcome, outcome.closure, trouble.edge.requester)
        ]
        if missing:
            verdicts = self._weigh(context, member, outcome, list(dict.fromkeys(missing)))
            required_edit = ElfEdit(
                replace=tuple(
                    (soname, verdict.candidate)
                    for soname, verdict in verdicts.items()
                    if verdict.action == "substitute" and verdict.candidate
                ),
                remove=tuple(soname for soname, verdict in verdicts.items() if verdict.action == "drop"),
            )
            if required_edit:
                outcome = find_strategy(context, member, required_edit)
        added = self._preloads(context, member, outcome)
        if added:
            outcome = find_strategy(context, member, replace(required_edit, add=added))
        return replace(outcome, verdicts=verdicts)

    def _weigh(
        self, context: ResolveContext, member: str, outcome: Outcome, missing: Sequence[str]
    ) -> dict[str, SubstitutionDecision]:
        closure = outcome.closure
        own = [index for index in range(len(closure.objects)) if _own(outcome, closure, index)]
        bindings = self._bind(context, member, closure, own)
        lost = {(item.name, item.version) for item in bindings.unbound}
        imports = self.members[member].imports
        unbound = [item for item in imports if (item.name, item.version) in lost]
        verdicts = evaluate_substitution(
            missing, imports, unbound, {soname: self._candidates(context, soname) for soname in missing}
        )
        assumed = self._assumed(context, member, closure, bindings)
        if assumed:  # that all others bind is proved only if these are supplied
            profile = context.profile.name
            evidence = f"profile {profile}: the package loads what supplies {join_truncated(assumed)} before"
            for soname, verdict in verdicts.items():
                if verdict.action == "drop":
                    verdicts[soname] = replace(
                        verdict, evidence=(*verdict.evidence, evidence), profile=profile
                    )
        return verdicts

    def _assumed(
        self, context: ResolveContext, member: str, closure: Closure, bindings: Bindings
    ) -> list[str]:
        """The imports of `member` itself that only a member supplies which the profile says is loaded before."""
        preloaded = _preloaded(context)
        own = context.layout.path_of(member)
        return [
            item.name
            for item in bindings.explained
            if closure.objects[item.requester].path == own and context.layout.shown(item.by) in preloaded
        ]

    def _candidates(self, context: ResolveContext, soname: str) -> list[Candidate]:
        """The libraries of the providers that could stand for `soname`: what the user names alone, or all of that name."""
        told = [new for old, new in context.substitutes if old == soname]
        names = told or list(
            dict.fromkeys(name for provider in context.providers for name in provider.nearest(soname))
        )
        found: dict[object, Candidate] = {}
        for name in names:
            path = context.provider_path(name)
            if path is None:
                continue
            opened = context.files.open(path)
            if opened.image is None or opened.image.soname not in (name, None):
                continue  # another name of a file that is listed under its soname
            reason, profile = ("--substitute says so", None) if told else _vouched(context, soname, name)
            table = self._table(context, path)
            found.setdefault(opened.identity, Candidate(name, path, table, reason, profile))
        return list(found.values())

    def _table(self, context: ResolveContext, path: str) -> SymbolTable:
        try:
            with map_file(context.files.host(path)) as buffer:
                return read_symbols(buffer)
        except OSError as error:
            raise_trouble(error, path)
            return SymbolTable()
        except ElfError:
            return SymbolTable()

    def _preloads(self, context: ResolveContext, member: str, outcome: Outcome) -> tuple[str, ...]:
        """Which of the sonames to preload something in the closure of `member` dlopens, and is not there yet."""
        if not context.preload:
            return ()
        closure = with_dlopens(context, member, outcome, self.knowledge.of)
        asked = {edge.soname for edge in closure.dlopened}
        return tuple(
            soname
            for soname in context.preload
            if soname not in outcome.original.needed
            and context.provider_path(soname)
            and any(matches_library(soname, name) for name in asked)
        )

    def closures(self, context: ResolveContext, outcomes: Mapping[str, Outcome]) -> dict[str, Closure]:
        """The closures of members as planned, with what is dlopened in them."""
        return {
            member: with_dlopens(context, member, item, self.knowledge.of)
            for member, item in outcomes.items()
        }

    def findings(
        self, context: ResolveContext, outcomes: Mapping[str, Outcome], closures: Mapping[str, Closure]
    ) -> Iterator[Finding]:
        """Everything that the proofs have to say, over all members that are served."""
        open_symbols: dict[str, dict[Unbound, Closure]] = {}
        explained: dict[tuple[str, str], dict[str, None]] = {}
        for member, item in outcomes.items():
            closure = item.closure
            bindings = self.bindings(context, member, closure)
            for lost in _unexplained(item, bindings):
                open_symbols.setdefault(context.layout.shown(lost.path), {}).setdefault(lost, closure)
            for found in bindings.explained:
                if found.kind != "process" and _own(item, closure, found.requester):
                    key = (context.layout.shown(found.path), context.layout.shown(found.by))
                    explained.setdefault(key, {})[found.name] = None
            yield from self._changed_bindings(context, member, item)
        yield from self._open_symbols(open_symbols)
        preloaded = _preloaded(context)
        for (path, by), names in explained.items():
            text = f"{pluralize(len(names), 'symbol')} supplied by {by}: {join_truncated(list(names))}"
            yield finding("RLK303", path, text, profile=context.profile.name if by in preloaded else None)
        yield from self._duplicate_libraries(context, outcomes, closures)
        yield from dlopen_findings(context, closures, self.knowledge)

    def _open_symbols(self, open_symbols: Mapping[str, Mapping[Unbound, Closure]]) -> Iterator[Finding]:
        nearest: dict[int, Closest] = {}
        for path, lost in open_symbols.items():
            parts = []
            for item, closure in list(lost.items())[:_MAX_SHOWN]:
                name = f"{item.name}@{item.version}" if item.version else item.name
                blamed = f" of {item.file}" if item.file else ""
                if id(closure) not in nearest:
                    nearest[id(closure)] = Closest(closure, self.tables)
                found = nearest[id(closure)].of(item)
                near = f" (near: {', '.join(found)})" if found else ""
                parts.append(f"{name}{blamed}{near}")
            more = f" and {len(lost) - _MAX_SHOWN} more" if len(lost) > _MAX_SHOWN else ""
            yield finding(
                "RLK302", path, f"imports {'; '.join(parts)}{more}, which nothing in its closure exports"
            )

    def _asked_for_another(
        self, context: ResolveContext, closure: Closure
    ) -> Iterator[tuple[tuple[str, ...], Finding]]:
        """What is dlopened asks for another version of a library that is there, and would get it if it were installed."""
        there = {soname_stem(item.image.soname): item for item in closure.objects if item.image.soname}
        for edge in closure.edges:
            if edge.target is not None or edge.requester in closure.scope:
                continue
            twin = there.get(soname_stem(edge.soname))
            own = twin.image.soname if twin else None
            if twin is None or own is None or own == edge.soname:
                continue
            key = tuple(sorted((own, edge.soname)))
            shown = context.layout.shown
            way = _arrows([closure.objects[step].path for step in _way(closure, edge.requester)])
            message = f"{own} is loaded ({shown(twin.path)}), and {way}, which arrives by dlopen, needs {edge.soname}"
            yield key, finding("RLK130", soname_stem(own).removesuffix(".so"), message, level="warning")

    def _versions_of(self, closure: Closure, by_itself: Closure) -> Iterator[tuple[tuple[str, ...], Finding]]:
        """Two files of one library in one process: an error where both are there by NEEDED.

        :param closure: with what is dlopened; `by_itself` without.
        """
        needed = {pair.paths for pair in two_versions(by_itself)}
        # With the dlopen edges as links, a chain leads from the root to what arrives by dlopen, too.
        linked = replace(closure, edges=(*closure.edges, *closure.dlopened))
        for pair in two_versions(linked):
            by_needed = pair.paths in needed
            chains = "; ".join(_arrows(chain) for chain in pair.chains)
            how = "both by NEEDED" if by_needed else f"{_later(pair, by_itself)} by dlopen"
            message = f"{' and '.join(pair.sonames)} in one process, {how}: {chains}"
            rests = None if by_needed else self._profile_of(linked, pair.chains)
            level: Level = "error" if by_needed else "warning"
            yield (
                tuple(sorted(pair.sonames)),
                finding("RLK130", pair.stem, message, level=level, profile=rests),
            )

    def _profile_of(self, closure: Closure, chains: Iterable[Sequence[str]]) -> str | None:
        """The profile that knows of a dlopen in one of the chains of paths, if one does."""
        links = {link for chain in chains for link in pairwise(chain)}
        for edge in closure.dlopened:
            caller = closure.objects[edge.requester]
            if edge.target is not None and (caller.path, closure.objects[edge.target].path) in links:
                name = profile_of(self.knowledge.of(caller)[edge.soname])
                if name:
                    return name
        return None

    def _changed_bindings(self, context: ResolveContext, member: str, outcome: Outcome) -> Iterator[Finding]:
        """Compare what flattening leads to with the providers' libraries found by themselves."""
        if not outcome.edit.add:
            return
        natural_image = result_of(outcome.original, replace(outcome.edit, add=()))
        via_library_path = simulate(context, member, natural_image, via_library_path=True, standalone=True)
        flat = outcome.closure  # is alone already where no Python was named
        if context.target.python is not None:
            flat = simulate(context, member, outcome.image, standalone=True)
        moved = differences(
            (via_library_path, self.bindings(context, member, via_library_path)),
            (flat, self.bindings(context, member, flat)),
        )
        groups: dict[tuple[str, str, str], list[str]] = {}
        for item in moved:
            if item.before is None:
                continue  # flattening serves what was open before
            key = (item.requester, item.before, item.after or "nothing")
            groups.setdefault(key, []).append(item.name)
        for (requester, before, after), names in groups.items():
            shown = context.layout.shown
            moved_symbols = (
                f"{pluralize(len(names), 'symbol')} of {shown(requester)} ({join_truncated(names)})"
            )
            message = f"{moved_symbols} bound to {shown(after)}, not to {shown(before)}"
            yield finding("RLK304", member, message)

    def _duplicate_libraries(
        self, context: ResolveContext, outcomes: Mapping[str, Outcome], closures: Mapping[str, Closure]
    ) -> Iterator[Finding]:
        shown = context.layout.shown
        # One finding a pair: where two members differ, the error, whichever member comes first.
        pairs: dict[tuple[str, ...], Finding] = {}
        for member, closure in closures.items():
            for key, found in (
                *self._versions_of(closure, outcomes[member].closure),
                *self._asked_for_another(context, closure),
            ):
                if key not in pairs or (found.level == "error" and pairs[key].level != "error"):
                    pairs[key] = found
        yield from pairs.values()
        shared_seen: set[tuple[str, str]] = set()
        for member in closures:
            outcome = outcomes[member]
            bindings = self.bindings(context, member, outcome.closure)
            for shared in duplicates(outcome.closure, self.tables, bindings):
                if not shared.mixed or (shared.first, shared.second) in shared_seen:
                    continue
                shared_seen.add((shared.first, shared.second))
                same = pluralize(shared.count, "symbol")
                message = (
                    f"{shown(shared.first)} exports {same} of the same name ({join_truncated(list(shared.examples))}) and "
                    f"answers {shared.mixed} of them in this library's place"
                )
                yield finding("RLK131", shown(shared.second), message)


def _preloaded(context: ResolveContext) -> set[str]:
    """The members that the profile says are loaded before others, as they are shown."""
    shown, path_of = context.layout.shown, context.layout.path_of
    return {shown(path_of(name)) for name in context.profile.preload}


def _vouched(context: ResolveContext, soname: str, other: str) -> tuple[str | None, str | None]:
    """Why two sonames are one ABI, and the profile that says so: the package's, or the vendor's table."""
    profile = context.profile
    if why := profile.why_equal(soname, other):
        return why, profile.name
    why = context.vendor.same_abi(soname, other)
    return why, context.vendor.table if why else None


def _arrows(paths: Sequence[str]) -> str:
    return " → ".join(posixpath.basename(path) for path in paths)


def _way(closure: Closure, index: int) -> list[int]:
    """The objects from a root, or the dlopen that brought it, to this one."""
    edges = [edge for edge in (*closure.edges, *closure.dlopened) if edge.target is not None]
    way = [index]
    while True:
        step = next(
            (edge.requester for edge in edges if edge.target == way[-1] and edge.requester not in way), None
        )
        if step is None:
            return way[::-1]
        way.append(step)


def _own(outcome: Outcome, closure: Closure, requester: int) -> bool:
    """Whether an object of the closure is the member itself."""
    return closure.objects[requester].image.path == outcome.image.path


def _later(pair: TwoVersions, closure: Closure) -> str:
    """Which of the two is not there without dlopen."""
    there = {item.path for item in closure.objects}
    late = [soname for soname, path in zip(pair.sonames, pair.paths, strict=True) if path not in there]
    return " and ".join(late) or pair.sonames[1]


def _unexplained(outcome: Outcome, bindings: Bindings) -> Iterator[Unbound]:
    """The open imports that are a fault of their own: not those that a missing library or version leaves open."""
    incomplete = {
        trouble.edge.requester for trouble in outcome.issues if trouble.kind in ("missing", "allowed")
    }
    for lost in bindings.unbound:
        if lost.requester not in incomplete:
            yield lost
