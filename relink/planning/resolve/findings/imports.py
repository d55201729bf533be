"""Findings of the proofs: imports that nothing exports, bindings that change, and libraries that are in one process twice.

Takes the members as planned, with their closures and what is dlopened in them. Gives RLK130, RLK131, RLK302, RLK303 and RLK304,
then those of :mod:`relink.planning.resolve.dlopen`.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from relink.elf.edit import result_of
from relink.loader.binding import Unbound, differences
from relink.loader.closest import Closest
from relink.loader.closure import Closure
from relink.loader.duplicates import SharedSymbols, TwoVersions, duplicates, two_versions
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.dlopen import dlopen_findings, profile_of
from relink.planning.resolve.proof import Prover, preloaded_paths
from relink.planning.resolve.strategy import Outcome, simulate
from relink.planning.resolve.suppliers import find_suppliers, is_of_python
from relink.planning.resolve.version_gaps import VersionGaps
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
