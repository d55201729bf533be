"""Plan every member of a wheel in turn, then report all findings at once."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from relink.elf.edit import ElfEdit
from relink.loader.closure import Closure, Edge, needed_first
from relink.loader.loading import RootRefusedError
from relink.loader.target import GLIBC_SONAMES
from relink.planning.model import (
    Action,
    DlopenEdge,
    FilePlan,
    InterpreterChange,
    Load,
    NeededDecision,
    Origin,
    RpathChange,
)
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.decision_findings import decision_findings, has_vendors, list_mapped
from relink.planning.resolve.import_findings import find_version_gaps, import_findings
from relink.planning.resolve.proof import Prover, add_forgotten_needed, add_known_preloads, list_opened
from relink.planning.resolve.strategy import Outcome, clear_stack, find_assumed_kind
from relink.system.findings.model import Finding, finding
from relink.system.text import group_pairs, join_truncated

# Loads that each NEEDED counts for, before anything is loaded. One that nothing serves is looked for in every directory by
# every strategy: that takes about 0.15 ms, as much as a few files that are mapped already.
_SEARCHED = 4


ALONE: Mapping[str, frozenset[str]] = {
    "RLK101": frozenset({"missing"}),
    "RLK105": frozenset({"refused"}),
    "RLK116": frozenset({"refused"}),
    "RLK301": frozenset({"versions"}),
    "RLK302": frozenset({"symbols", "missing"}),
    "RLK305": frozenset({"aborts"}),
}
"""The errors about a file that is opened by itself → the causes (`Failure.cause`) for which it fails in a process then."""


class PlanDraft(msgspec.Struct, frozen=True):
    """The decisions about linking the members, in the wheel's order; a plan has names, providers and GPUs as well.

    :ivar outcomes: the simulation behind each file's plan, by member.
    :ivar context: the context with the images as they will be, and the symbols of everything in their closures.
    :ivar closures: those of the members that are served, with what is dlopened in them.
    :ivar loads: who asks for whom in all closures.
    :ivar is_in_vain: whether optional parts were left although no other part gets the vendor's libraries.
    :ivar opened: what the objects in them open by dlopen.
    :ivar carried: members that do not load alone, and do where another member needs them; the files stay as they are.
    """

    files: tuple[FilePlan, ...]
    findings: tuple[Finding, ...]
    outcomes: Mapping[str, Outcome]
    context: ResolveContext
    closures: Mapping[str, Closure]
    loads: tuple[Load, ...] = ()
    opened: tuple[DlopenEdge, ...] = ()
    is_in_vain: bool = False
    carried: frozenset[str] = frozenset()

    @property
    def lacks(self) -> bool:
        """Whether a file does not load by itself."""
        codes = {reported.code for reported in self.findings if reported.level == "error"}
        return not codes.isdisjoint(ALONE)


def decide(context: ResolveContext, *, leave_optional: bool = True) -> PlanDraft:
    """Plan every image of the wheel.

    Members that other members need come first, so that each is planned against the others as they will be. A variant (a
    library of which Python picks one) that the providers cannot serve is left as it is, and so is a member that the package does
    without, if a provider serves another one. One that the loader does not load has a finding and no plan.

    :param leave_optional: leave what the package does without.
    :raises BudgetError: the members load more files than they may.
    """
    before, images, profile, layout = context, dict(context.images), context.profile, context.layout
    loaded = _SEARCHED * sum(len(image.needed) for image in images.values())
    budget = context.files.budget
    budget.check_loads(loaded)
    # A mapping of its own, in which each member that is planned takes its image after the edit.
    prover = Prover(replace(context, images=images))
    context = prover.context
    outcomes: dict[str, Outcome] = {}
    unserved: list[str] = []
    findings: list[Finding] = []
    paths = {layout.path_of(member) for member in images}
    loaded, added = 0, frozenset(context.added.values())
    # Each member comes after those that it needs, as far as there is no cycle.
    by_name: dict[str, str] = {}
    for member, image in images.items():
        # A copy may be needed by the name of its file, which is not its soname (pytorch.org's libamdhip64.so).
        for name in filter(None, (image.soname, posixpath.basename(member))):
            by_name.setdefault(name, member)
    for member in needed_first(
        before.images, lambda name: (by_name[of] for of in before.images[name].needed if of in by_name)
    ):
        try:
            outcome = prover.find_outcome(member)
            # A stub or forwarder has exactly the NEEDED that relink gave it, so none is forgotten.
            if member not in added and not context.as_it_is:
                outcome = add_forgotten_needed(prover, member, outcome)
                outcome = add_known_preloads(prover, member, outcome)
        except RootRefusedError as error:
            # A member that is refused has a finding. Anything else that the loader refuses, such as a Python, ends the run.
            if error.path not in paths:
                raise
            name = "it"
            if error.path != layout.path_of(member):
                name = f"{layout.shown(error.path)}, which the package loads before"
            text = f"the loader does not load {name}: {error.reason}"
            findings.append(finding("RLK116", member, text))
            continue
        outcomes[member] = outcome = clear_stack(context, member, outcome)
        # Members that all need each other load the square of their number, so the limit is on the sum over all members.
        loaded += len(outcome.closure.scope)
        budget.check_loads(loaded)
        by_profile = profile.why_optional(member) is not None
        optional = (leave_optional and by_profile) or member in context.optional
        # An import that is open may be one of the library that --allow-missing promises.
        allowed = any(issue.kind == "allowed" for issue in outcome.issues)
        open_imports = optional and not allowed and bool(prover.open_imports(member, outcome))
        if (optional or profile.is_variant(member)) and (not outcome.loads or open_imports):
            unserved.append(member)
            # The member stays as it is, so others bind to the symbols that it has now.
            prover.adopt(member, ElfEdit())
        else:
            images[member] = outcome.image
    # Members that do not load alone, and that a member which loads maps, are judged there: a library of NAME.libs often has no
    # search path, and the DT_RPATH of what needs it serves it (glibc elf/dl-load.c).
    identities = (
        outcome.closure.objects[index].identity
        for outcome in (outcomes.values() if context.as_it_is else ())
        if outcome.loads
        for index in outcome.closure.scope
    )
    of_others = {identity[-1] for identity in identities if identity[0] == "member"}
    carried = frozenset(name for name, outcome in outcomes.items() if not outcome.loads and name in of_others)
    outcomes = {member: outcome for member, outcome in outcomes.items() if member not in carried}
    unserved = [member for member in unserved if member not in carried]
    served = {member: outcome for member, outcome in outcomes.items() if member not in unserved}
    mapped = {member: list_mapped(outcome) for member, outcome in served.items()}
    # An optional part is left only where another part gets the vendor's libraries. If none does, all parts are to be planned.
    left = [one for one in unserved if not (profile.is_variant(one) or one in context.optional)]
    in_vain = bool(left) and not any(has_vendors(context, objects) for objects in mapped.values())
    closures = {member: prover.knowledge.follow(member, outcome) for member, outcome in served.items()}
    # A file is shown by the shortest of its paths: tensorflow/libtensorflow_framework.so.2 for
    # tensorflow/python/../libtensorflow_framework.so.2. The program and the loader may be another file in each closure.
    paths_of = group_pairs(
        (entry.identity, entry.path)
        for closure in (*closures.values(), *(outcome.closure for outcome in outcomes.values()))
        for entry in closure.objects
        if entry.identity[0] not in ("program", "loader")
    )
    names: dict[str, str] = {}
    for several in paths_of.values():
        shortest = min(several, key=lambda path: (len(path), path))
        names |= {path: shortest for path in several if path != shortest}
    named = replace(context, layout=dataclasses.replace(layout, names=names))
    gaps = find_version_gaps(named, served.values(), prover.tables)
    findings += decision_findings(named, outcomes, unserved, mapped, prover.tables, gaps)
    findings += import_findings(prover, named, served, closures, gaps)
    files: list[FilePlan] = []
    loads: dict[Load, None] = {}
    for member in context.images:
        if member in outcomes:
            outcome, shown = outcomes[member], layout.shown
            closure, scope = outcome.closure, set(outcome.closure.scope)
            files.append(_plan_file(context, member, outcome, served=member in served))
            # The edges among what loading the member maps; what Python needs for itself is left out.
            loads |= dict.fromkeys(
                Load(
                    shown(closure.objects[edge.requester].path),
                    edge.soname,
                    None if edge.target is None else shown(closure.objects[edge.target].path),
                    None if edge.found_by is None else shown(str(edge.found_by)),
                    _origin(context, outcome, edge, edge.soname),
                )
                for edge in closure.edges
                if edge.requester in scope and edge.requester >= outcome.root
            )
    opened = list_opened(named, closures.values(), prover.knowledge)
    return PlanDraft(
        tuple(files),
        tuple(findings),
        outcomes,
        context,
        closures,
        tuple(loads),
        opened,
        is_in_vain=in_vain,
        carried=carried,
    )


def _plan_file(context: ResolveContext, member: str, outcome: Outcome, *, served: bool) -> FilePlan:
    """Write down what becomes of one file: each NEEDED with what serves it and the reason, the search path, the interpreter."""
    closure, layout, profile, before = outcome.closure, context.layout, context.profile, outcome.original
    shown = layout.shown
    edges = {edge.soname: edge for edge in closure.edges if edge.requester == outcome.root}
    needed = tuple(dict.fromkeys(before.needed))
    edit = normalize_edit(outcome.edit, needed) if served else ElfEdit()
    # What becomes of each NEEDED, in the file's order, and its name afterwards; then those that are added.
    actions: dict[str, tuple[Action, str | None]] = {soname: ("keep", soname) for soname in needed}
    actions |= dict.fromkeys(edit.remove, ("drop", None))
    actions |= {old: ("substitute", new) for old, new in edit.replace}
    actions |= {soname: ("add", soname) for soname in edit.add}
    reasons = {reason.soname: reason for reason in outcome.needed}
    decisions = []
    for soname, (action, after) in actions.items():
        edge = edges.get(after or soname)
        served_by = None if edge is None or edge.target is None else closure.objects[edge.target]
        evidence: tuple[str, ...] = ()
        if action in ("substitute", "drop"):
            evidence = outcome.substitutions[soname].evidence
        elif action == "add" and reasons[soname].reason == "imported":
            evidence = reasons[soname].evidence
        elif action == "add" and reasons[soname].reason == "dlopened":
            evidence = ("loaded first, since a library opens it (dlopen)",)
        elif action == "add":
            who = dict.fromkeys(
                shown(closure.objects[other.requester].path)
                for other in closure.edges
                if other.soname == soname and other.requester != outcome.root
            )
            evidence = (f"needed by {join_truncated(list(who))}, which cannot find it by itself",)
        elif edge is not None and served_by is not None and edge.found_by is not None:
            early = served_by.identity in [("member", name) for name in profile.preload]
            if early and edge.found_by.rule == "loaded":
                evidence = (f"profile {profile.name}: the package loads it before",)
        decisions.append(
            NeededDecision(
                soname,
                action,
                after,
                None if served_by is None else shown(served_by.path),
                None if served_by is None or edge is None else shown(str(edge.found_by)),
                _origin(context, outcome, edge, soname),
                evidence,
            )
        )
    search_path, search_kind = before.search_path, before.search_kind
    if edit.search_path is not None:
        search_path, search_kind = edit.search_path or None, edit.search_kind
    return FilePlan(
        path=member,
        strategy=outcome.strategy if served else "nothing",
        needed=tuple(decisions),
        rpath=RpathChange(before.search_path, search_path, before.search_kind, search_kind),
        interpreter=InterpreterChange(before.interpreter, edit.interpreter or before.interpreter),
        closure=tuple(
            (shown(loaded.image.soname or loaded.name), shown(loaded.path))
            for loaded in (closure.objects[index] for index in closure.scope)
        ),
        served=served,
        versions=edit.versions,
        clear_stack=edit.clear_stack,
    )


def normalize_edit(edit: ElfEdit, needed: Sequence[str]) -> ElfEdit:
    """Return `edit` with its sonames in the order of a file's NEEDED, and without additions that the file has already.

    :param needed: each soname once.
    """
    replaced, removed = dict(edit.replace), frozenset(edit.remove)
    after = {replaced.get(soname, soname) for soname in needed if soname not in removed}
    return replace(
        edit,
        replace=tuple((soname, replaced[soname]) for soname in needed if soname in replaced),
        remove=tuple(soname for soname in needed if soname in removed),
        add=tuple(soname for soname in dict.fromkeys(edit.add) if soname not in after),
    )


def _origin(context: ResolveContext, outcome: Outcome, edge: Edge | None, soname: str) -> Origin:
    if edge is None or edge.target is None:
        return "assumed" if find_assumed_kind(context, soname) else "missing"
    served_by = outcome.closure.objects[edge.target].identity
    if served_by[0] == "member":
        return "wheel"
    if edge.soname not in GLIBC_SONAMES and context.is_providers(served_by, edge.soname):
        return "provider"
    return "platform"
