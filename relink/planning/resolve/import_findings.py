"""Report the proofs: unbound imports, changed bindings, two copies of a library in one process, and failing dlopens.

Takes the members as planned, with their closures and what is dlopened in them. Gives RLK111, RLK120, RLK130 to RLK132 and RLK302
to RLK304. Missing versions (:class:`VersionGaps`) are grouped by their cause: one supplier, or the target's C library.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from relink.elf.edit import predict_edit
from relink.loader.binding import (
    Closest,
    SharedSymbols,
    Unbound,
    check_versions,
    differences,
    duplicates,
    name_stem,
    two_versions,
)
from relink.loader.closure import Closure
from relink.loader.process import Dlopen, Process
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import GLIBC_SONAMES, Target
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.evidence import (
    broken_alone_remedy,
    find_suppliers,
    find_unbound_alone,
    is_of_python,
)
from relink.planning.resolve.proof import DlopenSource, Prover, find_forwardable, find_unloadable
from relink.planning.resolve.strategy import (
    REMEDY_WITHHELD,
    Outcome,
    explain_withheld,
    is_of_later_provider,
    matches_library,
    simulate_loading,
)
from relink.planning.resolve.stubs import is_answered, is_its
from relink.planning.siblings import sibling_findings
from relink.providers.prefix import Provider, soname_stem
from relink.system.findings.model import Finding, Level, finding
from relink.system.text import group_pairs, join_truncated, pluralize

_MAX_SHOWN = 4
# The most imports of one file whose libraries are looked for.
_MOST_OWNED = 20
# auditwheel puts the first 8 hexadecimal digits of a copy's SHA-256 into its name.
_HASHED = re.compile(r"-[0-9a-f]{8}\.so")


class VersionGap(msgspec.Struct, frozen=True):
    """The versions that one object requires of another that does not define them.

    :ivar requester: path of the object with the version record; `supplier` of the one that lacks the versions.
    :ivar file: the soname that the record names.
    :ivar highest: the highest version of that family that there is, or a phrase.
    """

    requester: str
    file: str
    supplier: str
    versions: tuple[str, ...]
    highest: str


class VersionGaps(msgspec.Struct, frozen=True):
    """All gaps of one wheel's closures.

    :ivar lost: (path of the requester, file, version) of all gaps.
    :ivar sentences: what is behind the gaps of one file, by its soname.
    :ivar mismatch: that Python has the C library of another loader, or None: what glibc's libraries lack follows from that.
    """

    gaps: tuple[VersionGap, ...]
    lost: frozenset[tuple[str, str | None, str | None]] = frozenset()
    sentences: Mapping[str, str] = msgspec.field(default_factory=dict)
    mismatch: str | None = None


def find_version_gaps(context: ResolveContext, outcomes: Iterable[Outcome], tables: Tables) -> VersionGaps:
    """Return the versions that records of the closures require in vain, each pair of objects once."""
    outcomes, target, shown = list(outcomes), context.target, context.layout.shown
    # glibc's libraries and its loader are one build, so such a process aborts before Python begins.
    mapped = (
        f"{target.python}, run by {target.interpreter}, maps {issue.served_by}: not the C library of that loader, which is in "
        f"{target.libc_directory}"
        for outcome in outcomes
        for issue in outcome.issues
        if issue.kind == "libc"
        and issue.edge.target is not None
        and issue.edge.target < outcome.closure.roots[0]
    )
    mismatch = next(mapped, None)
    versions: dict[tuple[str, str, str], dict[str, None]] = {}
    highest: dict[tuple[str, str, str], str] = {}
    for missing in (missing for outcome in outcomes for missing in check_versions(outcome.closure, tables)):
        key = (shown(missing.requester), missing.file, shown(missing.supplier))
        versions.setdefault(key, {})[missing.version] = None
        highest[key] = max(missing.defined, key=order_versions, default="none of that family")
    gaps = tuple(VersionGap(*key, tuple(names), highest[key]) for key, names in versions.items())
    lost = frozenset((gap.requester, gap.file, version) for gap in gaps for version in gap.versions)
    # glibc's libraries are one thing with one version, that of the target's loader.
    by_supplier = group_pairs(("" if gap.file in GLIBC_SONAMES else gap.file, gap) for gap in gaps)
    sentences: dict[str, str] = {}
    for file, same in by_supplier.items():
        needs = f"{_requesters(context, same)} up to {max((name for gap in same for name in gap.versions), key=order_versions)}"
        if file:
            supplier = context.describe_library(file, same[0].supplier)
            sentences[file] = f"{needs} of {file}; {supplier} goes up to {same[0].highest}"
        else:
            own = target.glibc or max((gap.highest for gap in same), key=order_versions)
            cause = mismatch or f"{needs}; the target has {own}"
            sentences |= dict.fromkeys((gap.file for gap in same), cause)
    return VersionGaps(gaps, lost, sentences, mismatch)


def _requesters(context: ResolveContext, gaps: list[VersionGap]) -> str:
    """Return who requires: ``27 libraries of the prefix need``, or the only library by its name."""
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


def order_versions(version: str) -> list[int]:
    """Return the numbers of a version's name, by which it is higher than others of its family; none of a mark."""
    # At most 18 digits of a number: int() of a long one takes time, and refuses more than 4,300 digits
    # (sys.get_int_max_str_digits). A hostile version may have as many.
    # GLIBC_ABI_DT_X86_64_PLT marks how a library was linked, and is no release.
    return [] if "_ABI_" in version else [int(number) for number in re.findall(r"\d{1,18}", version)]


def find_prefix_loader(providers: Iterable[Provider], target: Target, files: Files) -> str | None:
    """Return the loader that a prefix carries: it was built with another C library than the target's."""
    own = target.interpreter
    for directory in (directory for provider in providers for directory in provider.directories):
        path = posixpath.join(directory, posixpath.basename(own))
        if path != own and files.open(path).image is not None:
            return path
    return None


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
    shown = context.layout.shown
    unbound_imports: dict[str, dict[Unbound, Closure]] = {}
    supplied: dict[tuple[str, str], dict[str, None]] = {}
    for member, outcome in outcomes.items():
        bindings = prover.bindings(member, outcome.closure)
        # What an object does not find may be in a missing library, which has a finding of its own.
        incomplete = {
            issue.edge.requester
            for issue in outcome.issues
            if issue.kind in ("missing", "allowed", "sibling")
        }
        for unbound in bindings.unbound:
            if unbound.requester not in incomplete:
                unbound_imports.setdefault(shown(unbound.path), {}).setdefault(unbound, outcome.closure)
        for imported in bindings.explained:
            if imported.kind != "process" and imported.requester == outcome.root:
                supplied.setdefault((shown(imported.path), shown(imported.by)), {})[imported.name] = None
        yield from _changed_bindings(prover, context, member, outcome)
    yield from _unbound_imports(prover, context, unbound_imports, gaps)
    preloaded = {shown(context.layout.path_of(name)) for name in context.profile.preload}
    for (path, by), names in supplied.items():
        text = f"{pluralize(len(names), 'symbol')} supplied by {by}: {join_truncated(list(names))}"
        yield finding("RLK303", path, text, profile=context.profile.name if by in preloaded else None)
    needing = {shown(context.layout.path_of(name)): outcome.closure for name, outcome in outcomes.items()}
    yield from sibling_findings(context.siblings, needing)
    yield from duplicate_findings(prover, context, outcomes, closures)
    yield from dlopen_findings(prover, context, closures)
    yield from _find_broken_opened(prover, context, outcomes, closures)


def _changed_bindings(
    prover: Prover, context: ResolveContext, member: str, outcome: Outcome
) -> Iterator[Finding]:
    """Yield RLK304: bindings that differ between the flattened image and one whose libraries all come from LD_LIBRARY_PATH."""
    if not outcome.edit.add:
        return
    natural_image = predict_edit(outcome.original, replace(outcome.edit, add=()))
    natural, flat = simulate_loading(context, member, natural_image, via_library_path=True), outcome.closure
    changed = differences((natural, prover.bindings(member, natural)), (flat, prover.bindings(member, flat)))
    # An import that was unbound before is left out: it has gained a binding, and nothing was taken over.
    groups = group_pairs(
        ((binding.requester, binding.before, binding.after or "nothing"), binding.name)
        for binding in changed
        if binding.before is not None
    )
    for (requester, before, after), names in groups.items():
        shown = context.layout.shown
        symbols = f"{pluralize(len(names), 'symbol')} of {shown(requester)} ({join_truncated(names)})"
        yield finding("RLK304", member, f"{symbols} bound to {shown(after)}, not to {shown(before)}")


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
        unbound.name for imports in unbound_imports.values() for unbound in imports if is_of_python(unbound)
    )
    of_python_text = (
        f"symbols of Python that the target's lacks are imported: {join_truncated(list(of_python))}"
    )

    def find_cause(path: str, unbound: Unbound) -> str | None:
        if is_of_python(unbound):
            return of_python_text
        if gaps.mismatch is not None and unbound.file in GLIBC_SONAMES:
            return gaps.mismatch
        is_lost = (path, unbound.file, unbound.version) in gaps.lost
        return gaps.sentences.get(unbound.file or "") if is_lost else None

    by_cause = group_pairs(
        ((path, find_cause(path, unbound)), (unbound, closure))
        for path, imports in unbound_imports.items()
        for unbound, closure in imports.items()
    )
    lost = {
        unbound.name for (_, cause), imports in by_cause.items() if cause is None for unbound, _ in imports
    }
    suppliers = find_suppliers(context, prover.tables.members, lost)
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
        # glibc's versions are the target's, and no library beside it has them.
        file = imports[0][0].file or ""
        is_owned = cause is None or (cause == gaps.sentences.get(file) and file not in GLIBC_SONAMES)
        # Soname and path of the library that each import of a member is known to be of, and that the member needs.
        owners = {
            imported.name: (edge.soname, closure.objects[edge.target].path)
            for imported, closure in (imports if is_owned and len(imports) <= _MOST_OWNED else ())
            if imported.path in context.members.at
            for edge in closure.edges
            if edge.requester == imported.requester and edge.target and is_its(context, imported, edge.soname)
        }
        held = [owner for owner in dict.fromkeys(owners.values()) if context.is_held(owner[1])]
        if held:
            text += f"; looked for in {', '.join(context.describe_library(*owner) for owner in held)}"
        shims = [(owner[0], name) for name, owner in owners.items() if is_answered(context, owner[0], name)]
        if not steps and len(shims) == len(imports):
            steps = (" ".join(f"--stub {shlex.quote(f'{soname}:{name}')}" for soname, name in shims),)
            facts = context.stub_facts(shims[0][0])
            why = f" ({facts.why})" if facts else ""
            remedy = (
                f"If you do without it{why}, pass {steps[0]}: what calls it is told that it is not supported."
            )
        # What a package has mapped before decides: that package is relinked first, for the same libraries.
        suppliers_of = (
            closure.objects[edge.target].path
            for imported, closure in imports
            for edge in closure.edges
            if edge.soname == imported.file and edge.target is not None
        )
        for place in (path, *suppliers_of, *(place for _, place in owners.values())):
            if first := advise_relinking_first(context, place):
                remedy, steps = first[0], (first[1],)
                break
        library = imports[0][0].path
        if cause is None and any(provider.holds(library) for provider in context.providers):
            # A provider's library that lacks all of these without the wheel, too.
            alone = find_unbound_alone(library, context.target, prover.tables)
            if {imported.name for imported, _ in imports} <= {unbound.name for unbound in alone}:
                remedy, steps = broken_alone_remedy(library, context.files), ()
        step, choices = (steps[0], ()) if len(steps) == 1 else (None, steps)
        yield replace(finding("RLK302", path, text, remedy, step=step), choices=choices, cause=cause)


def advise_relinking_first(context: ResolveContext, path: str) -> tuple[str, str] | None:
    """Return the remedy, with its command, where a file belongs to a package that is imported before; None for any other."""
    facts = context.target.python_facts
    for sibling in context.siblings:
        if facts is not None and sibling.directory and path.startswith(f"{sibling.directory}/"):
            name = sibling.profile.name
            prefixes = (word for provider in context.providers for word in ("--prefix", provider.path))
            # The program of a virtual environment is often a link to the Python that it was made with.
            inside = facts.file.startswith(f"{facts.prefix}/")
            program = facts.file if inside else f"{facts.prefix}/bin/python3"
            command = shlex.join(["relink", "repair", name, *prefixes, "--python", program])
            return f"{name} is imported before: relink it for the same libraries first: {command}", command
    return None


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
    if not any(_is_runtime(context, reported.subject) for reported in pairs.values()):
        yield from _find_runtimes_of_members(context, closures)
    shown, own = context.layout.shown, context.layout.own
    # One finding a pair of files, whatever paths lead to them, with one cause a library that is answered for.
    mixed: dict[tuple[str, str], SharedSymbols] = {}
    for member in closures:
        closure = outcomes[member].closure
        for shared in duplicates(closure, prover.tables, prover.bindings(member, closure)):
            if shared.mixed:
                mixed.setdefault((shown(shared.first), shown(shared.second)), shared)
    interposing = group_pairs(
        ((second, first.startswith(own) and second.startswith(own)), first) for first, second in mixed
    )
    for (second, of_the_wheel), firsts in interposing.items():
        # Between two members of the wheel it is an info: what the vendor built together is the vendor's to mix.
        level: Level = "info" if of_the_wheel else "warning"
        names = join_truncated([posixpath.basename(path) for path in firsts])
        cause = f"{names} export symbols of {second} too, and theirs are used" if len(firsts) > 1 else None
        for first in firsts:
            shared = mixed[first, second]
            start = f"{first} exports {pluralize(shared.count, 'symbol')} of the same name"
            end = f"and answers {shared.mixed} of them instead of this library's"
            text = f"{start} ({join_truncated(list(shared.examples))}) {end}"
            yield replace(finding("RLK131", second, text, level=level, brief=f"{start} {end}"), cause=cause)


def _find_runtimes_of_members(context: ResolveContext, closures: Mapping[str, Closure]) -> Iterator[Finding]:
    """Yield RLK130 where members map different files of the vendor's runtime, each alone: a process that loads both has two."""
    found: dict[str, str] = {}
    for member, closure in closures.items():
        for loaded in closure.objects:
            stem = name_stem(loaded.image.soname or posixpath.basename(loaded.name))
            is_added = loaded.identity[0] == "member" and loaded.identity[1] in context.added.values()
            if stem and _is_runtime(context, stem) and not is_added:
                path = context.layout.shown(context.files.canonical(posixpath.normpath(loaded.path)))
                found.setdefault(path, posixpath.basename(member))
    if len(found) > 1:
        who = " and ".join(f"{path} by {member}" for path, member in found.items())
        text = f"two are in a process that loads all of the wheel's files: {who}"
        remedy = (
            "Do not use both in one process, or take a wheel that brings all of the runtime or nothing of it."
        )
        yield finding(
            "RLK130", context.vendor.libraries.runtime.removesuffix(".so"), text, remedy, level="warning"
        )


def _two_versions(
    prover: Prover, context: ResolveContext, closure: Closure, needed_only: Closure
) -> Iterator[tuple[tuple[str, ...], Finding]]:
    """Yield two files of one library in one process: an error where both are there by NEEDED.

    :param closure: with what is dlopened; `needed_only` without.
    """
    needed = {pair.paths for pair in two_versions(needed_only)}
    without_opened = {loaded.path for loaded in needed_only.objects}
    for pair in two_versions(closure):
        by_needed = pair.paths in needed
        chains = "; ".join(" → ".join(map(posixpath.basename, chain)) for chain in pair.chains)
        named = list(zip(pair.sonames, pair.paths, strict=True))
        opened = [name for name, path in named if path not in without_opened] or [pair.sonames[1]]
        how = "both by NEEDED" if by_needed else f"{' and '.join(opened)} by dlopen"
        message = f"{' and '.join(pair.sonames)} in one process, {how}: {chains}"
        links = {link for chain in pair.chains for link in pairwise(chain)}
        profiles = [
            prover.knowledge.sources_of(caller)[edge.soname].profile
            for edge in closure.dlopened
            if edge.target is not None
            and ((caller := closure.objects[edge.requester]).path, closure.objects[edge.target].path) in links
        ]
        profile = None if by_needed else ([*filter(None, profiles), None])[0]
        own = context.vendor.libraries.is_own(f"{pair.stem}.so")
        level: Level = "error" if (by_needed and own) or _is_runtime(context, pair.stem) else "warning"
        remedy = None
        # A library of the vendor's own never counts as a copy that auditwheel has renamed by a hash.
        copies = [
            name for name, path in named if _HASHED.search(name) and posixpath.dirname(path).endswith(".libs")
        ]
        if len(copies) > 1 and not own:
            level = "info"
        elif copies and not own:
            others = " and ".join(name for name in pair.sonames if name not in copies)
            message = (
                f"{copies[0]} is a copy that auditwheel put into the wheel under a name of its own, beside "
                f"{others}; {how}: {chains}"
            )
            remedy = "Both are mapped. RLK131 tells what the one answers in the other's place, if it does."
        reported = finding("RLK130", pair.stem, message, remedy, level=level, profile=profile)
        yield tuple(sorted(pair.sonames)), reported


def _other_version_requested(
    context: ResolveContext, closure: Closure
) -> Iterator[tuple[tuple[str, ...], Finding]]:
    """Yield a dlopened object that needs another version of a loaded library: both would be loaded if that one were installed."""
    loaded = {
        soname_stem(library.image.soname): library for library in closure.objects if library.image.soname
    }
    scope = set(closure.scope)
    callers = [edge for edge in (*closure.edges, *closure.dlopened) if edge.target is not None]
    for edge in closure.edges:
        if edge.target is not None or edge.requester in scope:
            continue
        other = loaded.get(soname_stem(edge.soname))
        own = other.image.soname if other else None
        if other is None or own is None or own == edge.soname:
            continue
        # The objects from a root to the requester, backwards. Libraries may need each other in a circle, so no step is taken
        # twice.
        chain: list[int] = []
        steps = [edge.requester]
        while steps:
            chain.append(steps[0])
            steps = [
                step.requester for step in callers if step.target == chain[-1] and step.requester not in chain
            ]
        arrows = " → ".join(posixpath.basename(closure.objects[index].path) for index in reversed(chain))
        where = context.layout.shown(other.path)
        message = (
            f"{own} is loaded ({where}), and {arrows}, which is opened later (dlopen), needs {edge.soname}"
        )
        stem = soname_stem(own).removesuffix(".so")
        level: Level | None = None if _is_runtime(context, stem) else "warning"
        yield tuple(sorted((own, edge.soname))), finding("RLK130", stem, message, level=level)


def _is_runtime(context: ResolveContext, stem: str) -> bool:
    """Whether it is the vendor's runtime: two of these do not know of each other's memory, however the second one arrives."""
    return context.vendor.libraries.runtime == f"{stem}.so"


def dlopen_findings(
    prover: Prover, context: ResolveContext, closures: Mapping[str, Closure]
) -> Iterator[Finding]:
    """Yield RLK120 or RLK132: one finding a soname that would not be found, with its callers, the sources, and what helps.

    Yield RLK111 for one that would be found in a later prefix, which does not serve it.
    """
    shown, own = context.layout.shown, context.layout.own
    missing: dict[str, dict[str, DlopenSource]] = {}
    lacks: dict[str, str] = {}
    later: dict[tuple[str, str], str] = {}
    for closure in closures.values():
        failing = find_unloadable(closure)
        for edge in closure.dlopened:
            caller = closure.objects[edge.requester]
            lack = failing.get(edge) if caller.path in context.members.at else None
            if lack:
                opened = shown(closure.objects[edge.target or 0].path)
                lacks[edge.soname] = f"{opened} does not load: {join_truncated(lack)} is not found"
            if edge.target is None or lack:
                source = prover.knowledge.sources_of(caller)[edge.soname]
                missing.setdefault(edge.soname, {})[shown(caller.path)] = source
            elif is_of_later_provider(context, closure, edge):
                later[edge.soname, closure.objects[edge.target].path] = shown(caller.path)
    for (soname, taken), who in later.items():
        path = context.provider_path(soname)
        why, remedy, step = explain_withheld(context), REMEDY_WITHHELD, None
        if path:
            why, step = f"although the prefix has {path}", f"--preload {shlex.quote(soname)}"
            remedy = f"Say --preload {soname}: the prefix's own is then loaded before."
        yield finding("RLK111", soname, f"dlopened by {who}, found as {taken}; {why}", remedy, step=step)
    for soname, callers in missing.items():
        who = "; ".join(f"{caller} (known by {source})" for caller, source in callers.items())
        names = [source.profile for source in callers.values()]
        profile = None if None in names else names[0]
        path = context.provider_path(soname)
        is_told = context.vendor.libraries.is_own(soname) or find_forwardable(context, soname)
        if is_told and any(caller.startswith(own) for caller in callers):
            yield _not_opened(context, soname, callers, lacks.get(soname), profile)
        elif path:
            who_opens = join_truncated([posixpath.basename(caller) for caller in callers])
            # A distribution of a provider that has all of these files is relinked itself.
            packages = [
                package.name
                for provider in context.providers
                for package in provider.packages
                if package.directory
                and all(file.startswith(f"{provider.path}/{package.directory}/") for file in (path, *callers))
            ]
            remedy = (
                f"Relink {packages[0]}, too: what loads it lies beside it, and does not look there."
                if packages
                else f"Say --preload {soname}: it is then loaded with the wheel's library and found by its soname."
            )
            yield finding(
                "RLK120",
                soname,
                f"would not be found, although the prefix has {path}; opened (dlopen) by {who}",
                remedy,
                profile=profile,
                brief=f"not found when {who_opens} opens it (dlopen)",
                step=None if packages else f"--preload {shlex.quote(soname)}",
            )
        else:
            message = f"would not be found, and no prefix has it; opened (dlopen) by {who}"
            remedy = "Install it where the library that loads it looks, if you use what it is for."
            yield finding("RLK120", soname, message, remedy, level="info", profile=profile)


def _find_broken_opened(
    prover: Prover, context: ResolveContext, outcomes: Mapping[str, Outcome], closures: Mapping[str, Closure]
) -> Iterator[Finding]:
    """Yield RLK132 for each library that a member's note calls required, which is found and which dlopen refuses."""
    if (python := context.target.python) is None:
        return
    for member, closure in closures.items():
        path = context.layout.path_of(member)
        required = {
            soname
            for note in outcomes[member].image.dlopen_notes
            if note.priority == "required"
            for soname in note.sonames
        }
        for edge in closure.dlopened:
            if (
                edge.soname not in required
                or edge.target is None
                or closure.objects[edge.requester].path != path
            ):
                continue
            files = context.members.with_image(path, outcomes[member].image)
            process = Process(Environment(context.target, files), prover.tables, python)
            process.dlopen(Dlopen(path))
            failure = process.dlopen(Dlopen(edge.soname, caller=path)).failure
            if failure is not None and failure.cause != "caller":
                found = context.layout.shown(closure.objects[edge.target].path)
                text = f"opened by {context.layout.shown(path)}, whose note calls it required; {found} does not load: {failure}"
                yield finding("RLK132", edge.soname, text, level="error")


def _not_opened(
    context: ResolveContext,
    name: str,
    callers: Mapping[str, DlopenSource],
    lacking: str | None,
    profile: str | None,
) -> Finding:
    """Return RLK132: the vendor's library that a member opens is not found where the loader looks for it, or does not load.

    :param lacking: why what is found does not load.
    :param profile: the one that knows of it, if that is how it is known.
    """
    who = "; ".join(
        f"{caller} ({'a name in its data' if source.kind == 'string' else f'known by {source}'})"
        for caller, source in callers.items()
    )
    option, others = "--forward", find_forwardable(context, name)
    remedy = f"Pass --forward {name}: the wheel gets a library of that name that leads to the prefix's."
    if not lacking and context.provider_path(name):
        option, others = "--preload", [name]
        remedy = f"Pass --preload {name}: it is then loaded with the wheel's library and found by its soname."
    has = f"the prefix has {join_truncated(others)}" if others else "no prefix has it under another number"
    members = [caller.removeprefix(context.layout.own).lstrip("/") for caller in callers]
    required = any(context.profile.requires_opened(member, name) for member in members)
    level: Level = "error" if required else "warning" if others else "info"
    if any(matches_library(pattern, name) for pattern in context.allow_missing):
        # --allow-missing says that the library will be there.
        level = "info"
    opener = join_truncated(list(dict.fromkeys(posixpath.basename(caller) for caller in callers)))
    how = f"{lacking or 'not found there'}; {has}"
    return finding(
        "RLK132",
        name,
        f"opened by {who}; {how}",
        remedy if others else None,
        level,
        profile=profile,
        brief=f"opened by {opener}; {how}",
        step=f"{option} {shlex.quote(name)}" if others else None,
    )
