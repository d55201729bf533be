"""Which forwarders are written: libraries of the name that a member opens, which lead to a provider's library of another name.

Development packages have ``librocblas.so`` as a link to ``librocblas.so.5``. Where they are not installed,
dlopen("librocblas.so") fails although the library is there. A forwarder has the name, no symbols, and the numbered soname as
NEEDED: dlsym(3) looks in the dependencies of a handle. Takes what the user asks for (``--forward``). Gives
:class:`~relink.planning.model.additions.Stub`, RLK133 and RLK134.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from relink.elf.constants import EM_X86_64
from relink.elf.symbols import SymbolTable
from relink.loader.closure import Closure
from relink.loader.duplicates import two_versions
from relink.loader.tables import Tables
from relink.planning.model.additions import STUB_DIRECTORY, Stub, is_plain
from relink.planning.resolve.added_libraries import with_known_preloads
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.dlopen import DlopenKnowledge, forwardable, unloadable
from relink.planning.resolve.proof import Prover
from relink.planning.resolve.strategy import find_strategy
from relink.planning.resolve.stubs import AUTO, StubPlans, with_stubs
from relink.system.findings.model import Finding, finding
from relink.system.text import join_truncated

__all__ = ["plan_forwarders"]


def plan_forwarders(
    context: ResolveContext, tables: Mapping[str, SymbolTable], wanted: Sequence[str], distribution: str
) -> StubPlans:
    """Plan the forwarders that the user asks for, each in a process that has the ones before.

    :param tables: the symbols of the members.
    :param wanted: names that members open, or ``auto`` for all of which a provider has a library with a number.
    :param distribution: as the wheel's name has it; the forwarders get a directory of that name.
    """
    if not wanted:
        return StubPlans()
    openers: dict[str, list[str]] = {}
    for member in context.images:
        for name in _unfound(context, tables, member):
            if name in wanted or (AUTO in wanted and forwardable(context, name)):
                openers.setdefault(name, []).append(member)
    stubs: list[Stub] = []
    findings: list[Finding] = [
        finding("RLK134", name, "--forward: no member of the wheel opens it in vain")
        for name in wanted
        if name != AUTO and name not in openers
    ]
    for name, members in openers.items():
        stub = _forwarder(context, tables, name, members, distribution)
        if isinstance(stub, str):
            if name in wanted:
                findings.append(finding("RLK134", name, stub))
            continue  # RLK132 says that it is not found
        stubs.append(stub)
        context, tables = with_stubs(context, tables, [stub])
        by = join_truncated([posixpath.basename(member) for member in members])
        findings.append(finding("RLK133", name, f"leads to {stub.needed[0]}; {by} opens it"))
    return StubPlans(tuple(stubs), tuple(findings))


def _unfound(context: ResolveContext, tables: Mapping[str, SymbolTable], member: str) -> Iterator[str]:
    """Yield the names without a number that a member opens, and that the loader does not find, or that do not load."""
    path = context.layout.path_of(member)
    closure = _opened(context, tables, member)
    failing = unloadable(closure)
    for edge in closure.dlopened:
        if (
            (edge.target is None or edge in failing)
            and closure.objects[edge.requester].path == path
            and edge.soname.endswith(".so")
        ):
            yield edge.soname


def _opened(context: ResolveContext, tables: Mapping[str, SymbolTable], member: str) -> Closure:
    """Return the closure of a member as it will be, with what the objects in it open."""
    knowledge = DlopenKnowledge(context, Tables(context.files, tables))
    return knowledge.follow(member, find_strategy(context, member))


def _forwarder(
    context: ResolveContext,
    tables: Mapping[str, SymbolTable],
    name: str,
    members: Sequence[str],
    distribution: str,
) -> Stub | str:
    """Return the forwarder to the first library that loads and brings no second version of another; or why there is none."""
    path = f"{distribution}.libs/{STUB_DIRECTORY}/{name}"
    if not is_plain(name) or context.target.header.machine != EM_X86_64:
        return "cannot be forwarded: forwarders are written for x86-64, and for plain file names"
    if path in context.images:
        return "cannot be forwarded: the wheel has a member where the forwarder would be"
    refused: list[str] = []
    before = {member: _pairs(_opened(context, tables, member)) for member in members}
    for soname in forwardable(context, name):
        plain = Stub(path, name, f"leads to {soname}", needed=(soname,))
        prover = Prover(*with_stubs(context, tables, [plain]))
        outcome = with_known_preloads(prover, path, prover.find_outcome(path))
        if not outcome.loads:
            refused.append(f"{soname} does not load")
            continue
        image = outcome.image
        stub = replace(
            plain, needed=image.needed, search_path=image.search_path, search_kind=image.search_kind
        )
        after, symbols = with_stubs(context, tables, [stub])
        closures = {member: _opened(after, symbols, member) for member in members}
        if any(_pairs(closure) - before[member] for member, closure in closures.items()):
            refused.append(f"{soname} brings a second version of a library that is loaded")
        elif all(_leads(closure, name, after.layout.path_of(path)) for closure in closures.values()):
            return stub
        else:
            refused.append(f"{soname} would not be found by the search path of what opens it")
    return (
        f"cannot be forwarded: {'; '.join(refused) or 'no prefix has a library of that name with a number'}"
    )


def _pairs(closure: Closure) -> set[tuple[str, str]]:
    """Return the libraries that are there in two versions, with what is opened."""
    linked = replace(closure, edges=(*closure.edges, *closure.dlopened))
    return {pair.sonames for pair in two_versions(linked)}


def _leads(closure: Closure, name: str, path: str) -> bool:
    targets = [
        closure.objects[edge.target].path for edge in closure.dlopened if edge.soname == name and edge.target
    ]
    return bool(targets) and all(posixpath.normpath(target) == path for target in targets)
