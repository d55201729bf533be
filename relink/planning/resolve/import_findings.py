"""Report the proofs: unbound imports, changed bindings, two copies of a library in one process, and failing dlopens.

Takes the members as planned, with their closures and what is dlopened in them. Gives RLK111, RLK120, RLK130 to RLK132 and RLK302
to RLK304. Missing versions (:class:`VersionGaps`) are grouped by their cause: one supplier, or the target's C library.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from relink.elf.edit import result_of
from relink.loader.binding import Unbound, differences
from relink.loader.closest import Closest
from relink.loader.closure import Closure
from relink.loader.duplicates import SharedSymbols, TwoVersions, duplicates, two_versions
from relink.loader.tables import Tables
from relink.loader.target import GLIBC_SONAMES
from relink.loader.versions_check import check_versions
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.evidence import find_suppliers, is_of_python
from relink.planning.resolve.proof import (
    DlopenKnowledge,
    Prover,
    forwardable,
    preloaded_paths,
    profile_of,
    unloadable,
)
from relink.planning.resolve.strategy import (
    REMEDY_WITHHELD,
    Outcome,
    is_of_later_provider,
    matches_library,
    simulate,
    why_withheld,
)
from relink.planning.siblings import sibling_findings
from relink.providers.prefix import soname_stem
from relink.system.findings.model import Finding, Level, finding
from relink.system.text import grouped, join_truncated, pluralize

_MAX_SHOWN = 4
# auditwheel puts the first 8 hexadecimal digits of a copy's SHA-256 into its name.
_HASHED = re.compile(r"-[0-9a-f]{8}\.so")


def import_findings(
    prover: Prover,
    context: ResolveContext,
    outcomes: Mapping[str, Outcome],
    closures: Mapping[str, Closure],
    gaps: VersionGaps,
) -> Iterator[Finding]:
    """Yield the findings of the proofs over all members that are served.

    :param gaps: the versions that are missing: imports that are lost with them have the same cause.
    """
    unbound_imports: dict[str, dict[Unbound, Closure]] = {}
    supplied: dict[tuple[str, str], dict[str, None]] = {}
    for member, outcome in outcomes.items():
        closure = outcome.closure
        bindings = prover.bindings(member, closure)
        # What an object does not find may be in a missing library, which has a finding of its own.
        incomplete = {
            issue.edge.requester
            for issue in outcome.issues
            if issue.kind in ("missing", "allowed", "sibling")
        }
        for unbound in bindings.unbound:
            if unbound.requester in incomplete:
                continue
            unbound_imports.setdefault(context.layout.shown(unbound.path), {}).setdefault(unbound, closure)
        for imported in bindings.explained:
            if imported.kind != "process" and imported.requester == outcome.root:
                key = (context.layout.shown(imported.path), context.layout.shown(imported.by))
                supplied.setdefault(key, {})[imported.name] = None
        yield from _changed_bindings(prover, context, member, outcome)
    yield from _unbound_imports(prover, context, unbound_imports, gaps)
    preloaded = preloaded_paths(context)
    for (path, by), names in supplied.items():
        text = f"{pluralize(len(names), 'symbol')} supplied by {by}: {join_truncated(list(names))}"
        yield finding("RLK303", path, text, profile=context.profile.name if by in preloaded else None)
    yield from sibling_findings(
        context.siblings,
        {
            context.layout.shown(context.layout.path_of(name)): outcome.closure
            for name, outcome in outcomes.items()
        },
    )
    yield from duplicate_findings(prover, context, outcomes, closures)
    yield from dlopen_findings(context, closures, prover.knowledge)


def _unbound_imports(
    prover: Prover,
    context: ResolveContext,
    unbound_imports: Mapping[str, Mapping[Unbound, Closure]],
    gaps: VersionGaps,
) -> Iterator[Finding]:
    """Yield RLK302: one finding an object and cause, with the nearest names that its closure exports."""
    closest: dict[int, Closest] = {}  # by `id` of the closure
    alphabets: dict[int, list[str]] = {}
    of_python = dict.fromkeys(
        imported.name
        for imports in unbound_imports.values()
        for imported in imports
        if is_of_python(imported)
    )
    python_cause = (
        f"symbols of Python that the target's lacks are imported: {join_truncated(list(of_python))}"
    )
    by_cause = grouped(
        (
            (path, python_cause if is_of_python(one) else gaps.cause_of(one.file, one.version, path)),
            (one, closure),
        )
        for path, every in unbound_imports.items()
        for one, closure in every.items()
    )
    lost = {one.name for (_, cause), imports in by_cause.items() if cause is None for one, _ in imports}
    suppliers = find_suppliers(context, prover.members, lost)
    for (path, cause), imports in by_cause.items():
        parts = []
        for imported, closure in imports[:_MAX_SHOWN]:
            name = f"{imported.name}@{imported.version}" if imported.version else imported.name
            supplier = f" of {imported.file}" if imported.file else ""
            if id(closure) not in closest:
                closest[id(closure)] = Closest(closure, prover.tables, alphabets)
            names = closest[id(closure)].of(imported)
            near = f" (near: {', '.join(names)})" if names else ""
            parts.append(f"{name}{supplier}{near}")
        more = f" and {len(imports) - _MAX_SHOWN} more" if len(imports) > _MAX_SHOWN else ""
        text = f"imports {'; '.join(parts)}{more}, which no library that it loads has"
        remedy, steps = suppliers.advice(context, [imported for imported, _ in imports])
        steps = steps if cause is None else ()
        if first := _relinked_first(context, path):
            remedy, steps = f"Relink that package for the same libraries first: {first}", (first,)
        step, choices = (steps[0], ()) if len(steps) == 1 else (None, steps)
        yield replace(finding("RLK302", path, text, remedy, step=step), choices=choices, cause=cause)


def _relinked_first(context: ResolveContext, path: str) -> str | None:
    """Return the command that relinks the package which an object belongs to and which the wheel comes after, or None."""
    directories = {item.profile.name: item.directory for item in context.siblings if item.directory}
    name = next((name for name, place in directories.items() if path.startswith(f"{place}/")), None)
    if name is None or context.target.python is None:
        return None
    prefixes = (word for provider in context.providers for word in ("--prefix", provider.path))
    return shlex.join(["relink", "repair", name, *prefixes, "--python", context.target.python])


def _changed_bindings(
    prover: Prover, context: ResolveContext, member: str, outcome: Outcome
) -> Iterator[Finding]:
    """Yield RLK304: bindings that differ between the flattened image and one whose libraries all come from LD_LIBRARY_PATH."""
    if not outcome.edit.add:
        return
    natural_image = result_of(outcome.original, replace(outcome.edit, add=()))
    via_library_path = simulate(context, member, natural_image, via_library_path=True)
    flat = outcome.closure
    changed = differences(
        (via_library_path, prover.bindings(member, via_library_path)),
        (flat, prover.bindings(member, flat)),
    )
    # An import that was unbound before is left out: it has gained a binding, and nothing was taken over.
    groups = grouped(
        ((binding.requester, binding.before, binding.after or "nothing"), binding.name)
        for binding in changed
        if binding.before is not None
    )
    for (requester, before, after), names in groups.items():
        shown = context.layout.shown
        symbols = f"{pluralize(len(names), 'symbol')} of {shown(requester)} ({join_truncated(names)})"
        yield finding("RLK304", member, f"{symbols} bound to {shown(after)}, not to {shown(before)}")


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
    own = context.layout.own
    interposing = grouped(
        ((second, first.startswith(own) and second.startswith(own)), first) for first, second in pairs
    )
    for (second, vendors), firsts in interposing.items():
        level: Level = "info" if vendors else "warning"
        names = join_truncated([posixpath.basename(path) for path in firsts])
        cause = f"{names} export symbols of {second} too, and theirs are used" if len(firsts) > 1 else None
        for first in firsts:
            shared = pairs[first, second]
            start = f"{first} exports {pluralize(shared.count, 'symbol')} of the same name"
            end = f"and answers {shared.mixed} of them instead of this library's"
            text = f"{start} ({join_truncated(list(shared.examples))}) {end}"
            mixed = finding("RLK131", second, text, level=level, brief=f"{start} {end}")
            yield replace(mixed, cause=cause)


def _two_versions(
    prover: Prover, context: ResolveContext, closure: Closure, needed_only: Closure
) -> Iterator[tuple[tuple[str, ...], Finding]]:
    """Two files of one library in one process: an error where both are there by NEEDED.

    :param closure: with what is dlopened; `needed_only` without.
    """
    needed = {pair.paths for pair in two_versions(needed_only)}
    without_opened = {loaded.path for loaded in needed_only.objects}
    for pair in two_versions(closure):
        by_needed = pair.paths in needed
        chains = "; ".join(_arrows(chain) for chain in pair.chains)
        opened = [
            name for name, path in zip(pair.sonames, pair.paths, strict=True) if path not in without_opened
        ]
        how = "both by NEEDED" if by_needed else f"{' and '.join(opened) or pair.sonames[1]} by dlopen"
        message = f"{' and '.join(pair.sonames)} in one process, {how}: {chains}"
        links = {link for chain in pair.chains for link in pairwise(chain)}
        knowing = (
            profile_of(prover.knowledge.of(caller)[edge.soname])
            for edge in closure.dlopened
            if edge.target is not None
            and ((caller := closure.objects[edge.requester]).path, closure.objects[edge.target].path) in links
        )
        profile = None if by_needed else next(filter(None, knowing), None)
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
    if context.vendor.libraries.is_own(f"{pair.stem}.so"):
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
    return context.vendor.libraries.runtime == f"{stem}.so"


def _arrows(paths: Sequence[str]) -> str:
    """Write a chain of paths by their file names."""
    return " → ".join(posixpath.basename(path) for path in paths)


def _chain(closure: Closure, index: int) -> list[int]:
    """The indices of the objects from a root to this one, each of which needs or dlopens the next."""
    edges = [edge for edge in (*closure.edges, *closure.dlopened) if edge.target is not None]
    chain = [index]
    while True:
        step = next(
            # Libraries may need each other in a circle, so no step is taken twice.
            (edge.requester for edge in edges if edge.target == chain[-1] and edge.requester not in chain),
            None,
        )
        if step is None:
            return chain[::-1]
        chain.append(step)


def _not_opened(
    context: ResolveContext, name: str, callers: Mapping[str, str], lacking: str | None, profile: str | None
) -> Finding:
    """Return RLK132: the vendor's library that a member opens is not found where the loader looks for it, or does not load.

    :param lacking: why what is found does not load.
    :param profile: the one that knows of it, if that is how it is known.
    """
    who = "; ".join(
        f"{caller} ({'a name in its data' if how == 'string' else f'known by {how}'})"
        for caller, how in callers.items()
    )
    others = forwardable(context, name)
    has = f"the prefix has {join_truncated(others)}" if others else "no prefix has it under another number"
    members = [caller.removeprefix(context.layout.own).lstrip("/") for caller in callers]
    required = any(context.profile.requires_opened(member, name) for member in members)
    level: Level = "error" if required else "warning" if others else "info"
    if any(matches_library(pattern, name) for pattern in context.allow_missing):
        # --allow-missing says that the library will be there.
        level = "info"
    opener = join_truncated(list(dict.fromkeys(posixpath.basename(caller) for caller in callers)))
    return finding(
        "RLK132",
        name,
        f"opened by {who}; {lacking or 'not found there'}; {has}",
        f"Pass --forward {name}: the wheel gets a library of that name that leads to the prefix's."
        if others
        else None,
        level,
        profile=profile,
        brief=f"opened by {opener}; {lacking or 'not found there'}; {has}",
        step=f"--forward {shlex.quote(name)}" if others else None,
    )


def _package_of(context: ResolveContext, paths: Collection[str]) -> str | None:
    """Return the distribution of a provider that has all of these files."""
    places = (
        (package.name, f"{provider.path}/{package.directory}/")
        for provider in context.providers
        for package in provider.packages
        if package.directory
    )
    return next((name for name, place in places if all(path.startswith(place) for path in paths)), None)


def dlopen_findings(
    context: ResolveContext, closures: Mapping[str, Closure], knowledge: DlopenKnowledge
) -> Iterator[Finding]:
    """Yield RLK120: one finding a soname that would not be found, with its callers, the sources, and the option that helps.

    Yield RLK111 for one that would be found in a later prefix, which does not serve it.
    """
    missing: dict[str, dict[str, str]] = {}
    lacks: dict[str, str] = {}
    later: dict[tuple[str, str], str] = {}
    for closure in closures.values():
        failing = unloadable(closure)
        for edge in closure.dlopened:
            caller = closure.objects[edge.requester]
            if (lack := failing.get(edge)) and caller.path in context.members.at:
                opened = context.layout.shown(closure.objects[edge.target or 0].path)
                lacks[edge.soname] = f"{opened} does not load: {join_truncated(lack)} is not found"
            if edge.target is None or (lack and caller.path in context.members.at):
                missing.setdefault(edge.soname, {})[context.layout.shown(caller.path)] = knowledge.of(caller)[
                    edge.soname
                ]
            elif is_of_later_provider(context, closure, edge):
                taken = closure.objects[edge.target].path
                later[edge.soname, taken] = context.layout.shown(closure.objects[edge.requester].path)
    for (soname, taken), who in later.items():
        path = context.provider_path(soname)
        why = f"although the prefix has {path}" if path else why_withheld(context)
        remedy = (
            f"Say --preload {soname}: the prefix's own is then loaded before." if path else REMEDY_WITHHELD
        )
        step: str | None = f"--preload {shlex.quote(soname)}" if path else None
        yield finding("RLK111", soname, f"dlopened by {who}, found as {taken}; {why}", remedy, step=step)
    for soname, callers in missing.items():
        who = "; ".join(f"{caller} (known by {how})" for caller, how in callers.items())
        names = [profile_of(how) for how in callers.values()]
        profile = None if None in names else names[0]
        path = context.provider_path(soname)
        if context.vendor.libraries.is_own(soname) and any(
            caller.startswith(context.layout.own) for caller in callers
        ):
            yield _not_opened(context, soname, callers, lacks.get(soname), profile)
        elif path:
            message = f"would not be found, although the prefix has {path}; opened (dlopen) by {who}"
            remedy = (
                f"Say --preload {soname}: it is then loaded with the wheel's library and found by its soname."
            )
            who_opens = join_truncated([posixpath.basename(caller) for caller in callers])
            brief = f"not found when {who_opens} opens it (dlopen)"
            step = f"--preload {shlex.quote(soname)}"
            if package := _package_of(context, [path, *callers]):
                remedy = f"Relink {package}, too: what loads it lies beside it, and does not look there."
                step = None
            yield finding("RLK120", soname, message, remedy, profile=profile, brief=brief, step=step)
        else:
            message = f"would not be found, and no prefix has it; opened (dlopen) by {who}"
            remedy = "Install it where the library that loads it looks, if you use what it is for."
            yield finding("RLK120", soname, message, remedy, level="info", profile=profile)


@dataclass(frozen=True, slots=True)
class VersionGap:
    """What one object requires of another that does not define it.

    :ivar requester: path of the object with the version record; `supplier` of the one that lacks the versions.
    :ivar file: the soname that the record names.
    :ivar highest: the highest version of that family that there is, or a phrase.
    """

    requester: str
    file: str
    supplier: str
    versions: tuple[str, ...]
    highest: str


@dataclass(frozen=True, slots=True)
class VersionGaps:
    """All gaps of one wheel's closures.

    :ivar lost: (path of the requester, file, version) of all gaps.
    :ivar sentences: what is behind the gaps of one file, by its soname.
    :ivar mismatch: that Python has the C library of another loader, or None: what glibc's libraries lack follows from that.
    """

    gaps: tuple[VersionGap, ...]
    lost: frozenset[tuple[str, str | None, str | None]] = frozenset()
    sentences: Mapping[str, str] = field(default_factory=dict)
    mismatch: str | None = None

    def cause_of(self, file: str | None, version: str | None, requester: str) -> str | None:
        """Return the cause of an import that is lost because `file` lacks its version, or None where that is not the reason."""
        if self.mismatch is not None and file in GLIBC_SONAMES:
            return self.mismatch
        return self.sentences.get(file or "") if (requester, file, version) in self.lost else None


def python_mismatch(context: ResolveContext, outcomes: Iterable[Outcome]) -> str | None:
    """Return that the target's Python has another C library than the target's loader, in a sentence; None where it has that one.

    glibc's libraries and its loader are one thing, so such a process aborts before Python begins.
    """
    for outcome in outcomes:
        for issue in outcome.issues:
            edge, closure = issue.edge, outcome.closure
            if issue.kind == "libc" and edge.target is not None and edge.target < closure.roots[0]:
                return (
                    f"{context.target.python}, run by {context.target.interpreter}, maps {issue.served_by}: not the C library "
                    f"of that loader, which is in {context.target.libc_directory}"
                )
    return None


def version_gaps(context: ResolveContext, outcomes: Iterable[Outcome], tables: Tables) -> VersionGaps:
    """Return what the version records of the closures ask for in vain, each pair of objects once."""
    outcomes = list(outcomes)
    mismatch = python_mismatch(context, outcomes)
    versions: dict[tuple[str, str, str], dict[str, None]] = {}
    highest: dict[tuple[str, str, str], str] = {}
    shown = context.layout.shown
    for outcome in outcomes:
        for missing in check_versions(outcome.closure, tables):
            key = (shown(missing.requester), missing.file, shown(missing.supplier))
            versions.setdefault(key, {})[missing.version] = None
            highest[key] = max(missing.defined, key=_order, default="none of that family")
    gaps = tuple(VersionGap(*key, tuple(names), highest[key]) for key, names in versions.items())
    lost = frozenset((gap.requester, gap.file, version) for gap in gaps for version in gap.versions)
    # glibc's libraries are one thing with one version, that of the target's loader.
    by_supplier = grouped(("" if gap.file in GLIBC_SONAMES else gap.file, gap) for gap in gaps)
    sentences: dict[str, str] = {}
    for file, same in by_supplier.items():
        needs = f"{_requesters(context, same)} up to {max((name for gap in same for name in gap.versions), key=_order)}"
        if file:
            sentences[file] = f"{needs} of {file}; {same[0].supplier} goes up to {same[0].highest}"
        else:
            own = context.target.glibc or max((gap.highest for gap in same), key=_order)
            sentences |= dict.fromkeys(
                (gap.file for gap in same), mismatch or f"{needs}; the target has {own}"
            )
    return VersionGaps(gaps, lost, sentences, mismatch)


def _requesters(context: ResolveContext, gaps: list[VersionGap]) -> str:
    """``27 libraries of the prefix need``; the one library by its name."""
    paths = list(dict.fromkeys(gap.requester for gap in gaps))
    if len(paths) == 1:
        return f"{posixpath.basename(paths[0])} needs"
    ours = sum(any(provider.holds(path) for provider in context.providers) for path in paths)
    prefixes = "the prefix" if len(context.providers) == 1 else "the prefixes"
    parts = [
        f"{pluralize(ours, 'library', 'libraries')} of {prefixes}" if ours else "",
        pluralize(len(paths) - ours, "other file" if ours else "file") if len(paths) > ours else "",
    ]
    return f"{' and '.join(filter(None, parts))} need"


def _order(version: str) -> list[int]:
    # At most 18 digits of a number: int() of a long one takes time, and refuses more than 4,300 digits
    # (sys.get_int_max_str_digits). A hostile version may have as many.
    return [int(number) for number in re.findall(r"\d{1,18}", version)]


def loader_of_a_prefix(context: ResolveContext) -> str | None:
    """Return the loader that a prefix carries: it was built with another C library than the target's."""
    own = context.target.interpreter
    directories = (directory for provider in context.providers for directory in provider.directories)
    paths = (posixpath.join(directory, posixpath.basename(own)) for directory in directories)
    return next((path for path in paths if path != own and context.files.open(path).image is not None), None)
