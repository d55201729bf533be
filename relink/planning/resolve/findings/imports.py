"""Findings of the proofs: imports that nothing exports, what is supplied from outside, and bindings that flattening changes.

Takes the members as planned, with their closures. Gives RLK302, RLK303 and RLK304, then those of
:mod:`relink.planning.resolve.findings.duplicate_libraries` and :mod:`relink.planning.resolve.dlopen`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from relink.elf.patchelf import result_of
from relink.loader.binding import Bindings, Unbound, differences
from relink.loader.closest import Closest
from relink.loader.closure import Closure
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.dlopen import dlopen_findings
from relink.planning.resolve.findings.duplicate_libraries import duplicate_findings
from relink.planning.resolve.proof import Prover, preloaded_paths
from relink.planning.resolve.strategy import Outcome, simulate
from relink.planning.resolve.suppliers import find_suppliers, is_of_python, steps_of
from relink.planning.resolve.version_gaps import VersionGaps
from relink.planning.siblings import sibling_findings
from relink.system.findings.model import Finding, finding
from relink.system.text import join_truncated, pluralize

__all__ = ["import_findings"]

_MAX_SHOWN = 4


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
        for unbound in _unbound_of_complete_objects(outcome, bindings):
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
    by_cause: dict[tuple[str, str | None], dict[Unbound, Closure]] = {}
    for path, every in unbound_imports.items():
        for imported, closure in every.items():
            cause = (
                python_cause
                if is_of_python(imported)
                else gaps.cause_of(imported.file, imported.version, path)
            )
            by_cause.setdefault((path, cause), {})[imported] = closure
    lost = {
        imported.name for (_, cause), imports in by_cause.items() if cause is None for imported in imports
    }
    suppliers = find_suppliers(context, prover.members, lost)
    for (path, cause), imports in by_cause.items():
        parts = []
        for imported, closure in list(imports.items())[:_MAX_SHOWN]:
            name = f"{imported.name}@{imported.version}" if imported.version else imported.name
            supplier = f" of {imported.file}" if imported.file else ""
            if id(closure) not in closest:
                closest[id(closure)] = Closest(closure, prover.tables, alphabets)
            names = closest[id(closure)].of(imported)
            near = f" (near: {', '.join(names)})" if names else ""
            parts.append(f"{name}{supplier}{near}")
        more = f" and {len(imports) - _MAX_SHOWN} more" if len(imports) > _MAX_SHOWN else ""
        text = f"imports {'; '.join(parts)}{more}, which no library that it loads has"
        steps = steps_of(context, suppliers, imports) if cause is None else ()
        remedy = suppliers.remedy(context, imports)
        if first := _relinked_first(context, path):
            remedy, steps = f"Relink that package for the same libraries first: {first}", (first,)
        unbound = finding("RLK302", path, text, remedy)
        if len(steps) == 1:
            yield replace(unbound, step=steps[0], cause=cause)
        else:
            yield replace(unbound, choices=steps, cause=cause)


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
    groups: dict[tuple[str, str, str], list[str]] = {}
    for binding in changed:
        if binding.before is None:
            continue  # unbound without flattening: nothing took a binding over
        key = (binding.requester, binding.before, binding.after or "nothing")
        groups.setdefault(key, []).append(binding.name)
    for (requester, before, after), names in groups.items():
        shown = context.layout.shown
        symbols = f"{pluralize(len(names), 'symbol')} of {shown(requester)} ({join_truncated(names)})"
        message = f"{symbols} bound to {shown(after)}, not to {shown(before)}"
        yield finding("RLK304", member, message)


def _unbound_of_complete_objects(outcome: Outcome, bindings: Bindings) -> Iterator[Unbound]:
    """Yield the unbound imports of objects whose NEEDED are all there: a missing library is a finding of its own."""
    incomplete = {
        issue.edge.requester for issue in outcome.issues if issue.kind in ("missing", "allowed", "sibling")
    }
    for unbound in bindings.unbound:
        if unbound.requester not in incomplete:
            yield unbound
