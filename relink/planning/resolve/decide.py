"""From the images of a wheel to its plan: every member in turn, then everything that was found, at once."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from relink.elf.edit import ElfEdit
from relink.elf.image import Image
from relink.elf.symbols import SymbolTable
from relink.loader.closure import Closure, Edge
from relink.loader.loading import RootRefusedError
from relink.loader.object_graph import needed_first
from relink.loader.tables import Tables
from relink.loader.target import GLIBC_SONAMES
from relink.planning.model.files import (
    Action,
    FilePlan,
    InterpreterChange,
    NeededDecision,
    Origin,
    RpathChange,
    necessary,
)
from relink.planning.model.model import Load, Opened
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.decision_findings import decision_findings, has_vendors, mapped_for
from relink.planning.resolve.import_findings import import_findings, version_gaps
from relink.planning.resolve.proof import Prover, opened_of, with_forgotten_needed, with_known_preloads
from relink.planning.resolve.strategy import Outcome, assumed_kind
from relink.system.errors import WheelError
from relink.system.findings.model import Finding, finding
from relink.system.text import grouped, join_truncated

# Loads that each NEEDED counts for, before anything is loaded. One that nothing serves is looked for in every directory by
# every strategy: that takes about 0.15 ms, as much as a few files that are mapped already.
_SEARCHED = 4


@dataclass(frozen=True, slots=True)
class PlanDraft:
    """What is decided about linking the members, in the wheel's order; a plan has names, providers and GPUs as well.

    :ivar outcomes: the simulation behind each file's plan, by member.
    :ivar context: the context with the images as they will be.
    :ivar closures: those of the members that are served, with what is dlopened in them.
    :ivar tables: the symbols of everything in their closures.
    :ivar loads: who asks for whom in all closures.
    :ivar opened: what the objects in them open by dlopen.
    """

    files: tuple[FilePlan, ...]
    findings: tuple[Finding, ...]
    outcomes: Mapping[str, Outcome]
    context: ResolveContext
    tables: Tables
    closures: Mapping[str, Closure]
    loads: tuple[Load, ...] = ()
    opened: tuple[Opened, ...] = ()


def decide(
    context: ResolveContext,
    tables: Mapping[str, SymbolTable],
    known: Tables | None = None,
    *,
    leave_optional: bool = True,
) -> PlanDraft:
    """Plan every image of the wheel.

    Members that other members need come first, so that each is planned against the others as they will be. A variant (a
    library of which Python picks one) that the providers cannot serve is left as it is, and so is a member that the package does
    without, if a provider serves another one. One that the loader does not load has a finding and no plan.

    :param tables: the symbols of the members.
    :param known: those of other files that have been read.
    :param leave_optional: leave what the package does without.
    :raises WheelError: the members load more files than `context.most_loads`.
    """
    before, images = context, dict(context.images)
    # A mapping of its own, in which each member that is planned takes its image after the edit.
    context = replace(context, images=images)
    _refuse_more(_SEARCHED * sum(len(image.needed) for image in images.values()), context.most_loads)
    prover = Prover(context, tables, known)
    outcomes: dict[str, Outcome] = {}
    unserved: list[str] = []
    refused: list[Finding] = []
    paths = {context.layout.path_of(member) for member in context.images}
    loaded, added = 0, frozenset(context.added.values())
    for member in _leaves_first(context.images):
        try:
            outcome = prover.find_outcome(member)
            # A stub or forwarder has exactly the NEEDED that relink gave it, so none is forgotten.
            if member not in added and not context.as_it_is:
                outcome = with_known_preloads(prover, member, with_forgotten_needed(prover, member, outcome))
            outcomes[member] = outcome
            loaded += len(outcome.closure.scope)
        except RootRefusedError as error:
            # A member that is refused has a finding. Anything else that the loader refuses, such as a Python, ends the run.
            if error.path not in paths:
                raise
            refused.append(_refused(context, member, error))
            continue
        # Members that all need each other load the square of their number, so the limit is on the sum over all members.
        _refuse_more(loaded, context.most_loads)
        optional = leave_optional and context.profile.why_optional(member) is not None
        # An import that is open may be one of the library that --allow-missing promises.
        allowed = any(issue.kind == "allowed" for issue in outcome.issues)
        open_imports = optional and not allowed and bool(prover.open_imports(member, outcome))
        if (optional or context.profile.is_variant(member)) and (not outcome.loads or open_imports):
            unserved.append(member)
            # The member stays as it is, so others bind to the symbols that it has now.
            prover.adopt(member, ElfEdit())
        else:
            images[member] = outcome.image
    served = {member: outcome for member, outcome in outcomes.items() if member not in unserved}
    left = [member for member in unserved if not context.profile.is_variant(member)]
    mapped = {member: mapped_for(outcome) for member, outcome in served.items()}
    # An optional part is left only where another part gets the vendor's libraries. If none does, all parts are planned.
    if left and not any(has_vendors(context, objects) for objects in mapped.values()):
        return decide(before, tables, known, leave_optional=False)
    files = tuple(
        _file_plan(context, member, outcomes[member], served=member in served)
        for member in context.images
        if member in outcomes
    )
    closures = {member: prover.knowledge.follow(member, outcome) for member, outcome in served.items()}
    names = _names([*closures.values(), *(outcome.closure for outcome in outcomes.values())])
    told = replace(context, layout=replace(context.layout, names=names))
    gaps = version_gaps(told, served.values(), prover.tables)
    findings = (
        *refused,
        *decision_findings(told, outcomes, unserved, mapped, prover.tables, gaps),
        *import_findings(prover, told, served, closures, gaps),
    )
    loads = tuple(
        dict.fromkeys(
            load
            for member in context.images
            if member in outcomes
            for load in _loads(context, outcomes[member])
        )
    )
    opened = opened_of(told, closures.values(), prover.knowledge)
    return PlanDraft(files, findings, outcomes, context, prover.tables, closures, loads, opened)


def _names(closures: Iterable[Closure]) -> dict[str, str]:
    """For every path of a file the one that it is shown by: the shortest, of these the first in the alphabet.

    ``tensorflow/python/../libtensorflow_framework.so.2`` is ``tensorflow/libtensorflow_framework.so.2``.
    """
    # The program and the loader have one identity in every closure, and may be another file in each.
    paths = grouped(
        (loaded.identity, loaded.path)
        for closure in closures
        for loaded in closure.objects
        if loaded.identity[0] not in ("program", "loader")
    )
    names: dict[str, str] = {}
    for of_a_file in paths.values():
        shortest = min(of_a_file, key=lambda path: (len(path), path))
        names |= {path: shortest for path in of_a_file if path != shortest}
    return names


def _refused(context: ResolveContext, member: str, error: RootRefusedError) -> Finding:
    what = "it"
    if error.path != context.layout.path_of(member):
        what = f"{context.layout.shown(error.path)}, which the package loads before"
    return finding("RLK116", member, f"the loader does not load {what}: {error.reason}")


def _refuse_more(loads: int, most: int) -> None:
    if loads > most:
        raise WheelError(
            f"the ELF files of the wheel load more than {most} files, added up over all of them; --limit "
            f"loads={2 * most} allows twice as many, and takes that much time and memory"
        )


def _leaves_first(images: Mapping[str, Image]) -> list[str]:
    """Order the members so that each comes after those it needs, as far as there is no cycle."""
    by_name: dict[str, str] = {}
    for member, image in images.items():
        by_name.setdefault(image.soname or posixpath.basename(member), member)
    return needed_first(
        images,
        lambda member: (by_name[soname] for soname in images[member].needed if soname in by_name),
    )


def _file_plan(context: ResolveContext, member: str, outcome: Outcome, *, served: bool) -> FilePlan:
    closure, shown = outcome.closure, context.layout.shown
    edges = {edge.soname: edge for edge in closure.edges if edge.requester == outcome.root}
    before = outcome.original
    needed = tuple(dict.fromkeys(before.needed))
    edit = necessary(outcome.edit, needed) if served else ElfEdit()
    # What becomes of each NEEDED, in the file's order, and its name afterwards; then those that are added.
    actions: dict[str, tuple[Action, str | None]] = {soname: ("keep", soname) for soname in needed}
    actions |= dict.fromkeys(edit.remove, ("drop", None))
    actions |= {old: ("substitute", new) for old, new in edit.replace}
    actions |= {soname: ("add", soname) for soname in edit.add}
    search_path, search_kind = before.search_path, before.search_kind
    if edit.search_path is not None:
        search_path, search_kind = edit.search_path or None, edit.search_kind
    return FilePlan(
        path=member,
        strategy=outcome.strategy if served else "nothing",
        needed=tuple(
            _needed(context, outcome, soname, action, after, edges.get(after or soname))
            for soname, (action, after) in actions.items()
        ),
        rpath=RpathChange(before.search_path, search_path, before.search_kind, search_kind),
        interpreter=InterpreterChange(before.interpreter, edit.interpreter or before.interpreter),
        closure=tuple(
            (shown(loaded.image.soname or loaded.name), shown(loaded.path))
            for loaded in (closure.objects[index] for index in closure.scope)
        ),
        served=served,
        versions=edit.versions,
    )


def _needed(
    context: ResolveContext,
    outcome: Outcome,
    soname: str,
    action: Action,
    soname_after: str | None,
    edge: Edge | None,
) -> NeededDecision:
    """Say what serves one NEEDED of the file's own, and why it is kept, replaced, dropped or added."""
    shown = context.layout.shown
    path = None if edge is None or edge.target is None else outcome.closure.objects[edge.target].path
    found_by = None if edge is None or path is None else shown(str(edge.found_by))
    evidence: tuple[str, ...] = ()
    if action in ("substitute", "drop"):
        evidence = outcome.substitutions[soname].evidence
    elif soname in outcome.forgotten:
        evidence = outcome.forgotten[soname]
    elif action == "add":
        closure = outcome.closure
        who = dict.fromkeys(
            shown(closure.objects[other.requester].path)
            for other in closure.edges
            if other.soname == soname and other.requester != closure.roots[-1]
        )
        needed = f"needed by {join_truncated(list(who))}, which cannot find it by itself"
        evidence = (needed if who else "loaded first, since a library opens it (dlopen)",)
    elif found_by == "already loaded" and path in [
        context.layout.path_of(name) for name in context.profile.preload
    ]:
        evidence = (f"profile {context.profile.name}: the package loads it before",)
    origin = _origin(context, outcome, edge, soname)
    return NeededDecision(soname, action, soname_after, path and shown(path), found_by, origin, evidence)


def _loads(context: ResolveContext, outcome: Outcome) -> Iterator[Load]:
    """Yield the edges among what loading the member maps; what Python needs for itself is left out."""
    closure, shown = outcome.closure, context.layout.shown
    scope = set(closure.scope)
    for edge in closure.edges:
        if edge.requester in scope and edge.requester >= outcome.root:
            yield Load(
                shown(closure.objects[edge.requester].path),
                edge.soname,
                None if edge.target is None else shown(closure.objects[edge.target].path),
                None if edge.found_by is None else shown(str(edge.found_by)),
                _origin(context, outcome, edge, edge.soname),
            )


def _origin(context: ResolveContext, outcome: Outcome, edge: Edge | None, soname: str) -> Origin:
    if edge is None or edge.target is None:
        return "assumed" if assumed_kind(context, soname) else "missing"
    served_by = outcome.closure.objects[edge.target].identity
    if served_by[0] == "member":
        return "wheel"
    if edge.soname not in GLIBC_SONAMES and context.is_providers(served_by, edge.soname):
        return "provider"
    return "platform"
