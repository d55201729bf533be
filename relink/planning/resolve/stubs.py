"""Which stubs are written in place of libraries that nobody has: only by name, or for what is known to be optional.

Takes what the user asks for (``--stub``) and the members that miss a library. Gives
:class:`~relink.planning.model.model.Stub`, and RLK125
and RLK126. A stub has the functions that a member imports from the library and that nothing else in its closure has: those with
a version of the library, and those without one that begin as its own names do. Data cannot be stubbed: there is no value that
says "not supported".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from relink.elf.constants import EM_X86_64
from relink.elf.dynamic import Buffer
from relink.elf.image import read_image
from relink.elf.stub import StubFunction
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import Import, SymbolTable
from relink.loader.binding import bind
from relink.loader.tables import Tables
from relink.planning.model.additions import STUB_DIRECTORY, Stub, check_places, is_plain
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.strategy import find_strategy
from relink.providers.profiles import OptionalLibrary
from relink.system.findings.model import Finding, finding
from relink.system.text import join_truncated, pluralize

__all__ = ["AUTO", "StubPlans", "plan_stubs", "with_stubs"]

AUTO = "auto"
"""As a value of ``--stub``: every library that is known to be optional."""


@dataclass(frozen=True, slots=True)
class StubPlans:
    """The stubs of one wheel, and the findings about them."""

    stubs: tuple[Stub, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True)
class _Wanted:
    """What the members import from one library: symbols, each with whether it can be stubbed, and version nodes."""

    imports: dict[tuple[str, str | None], Import] = field(default_factory=dict)
    versions: dict[str, None] = field(default_factory=dict)
    copied: dict[str, None] = field(default_factory=dict)


def plan_stubs(
    context: ResolveContext,
    tables: Mapping[str, SymbolTable],
    wanted: Sequence[str],
    distribution: str,
) -> StubPlans:
    """Plan the stubs that the user asks for.

    :param tables: the symbols of the members.
    :param wanted: sonames, or :data:`AUTO`.
    :param distribution: as the wheel's name has it; the stubs get a directory of that name.
    """
    if not wanted:
        return StubPlans()
    by_soname: dict[str, _Wanted] = {}
    missed: dict[str, None] = {}
    known = Tables(context.files, {})
    for member in context.images:
        outcome = find_strategy(context, member)
        missing = {
            issue.edge.soname
            for issue in outcome.issues
            if issue.kind == "missing" and issue.edge.requester == outcome.root
        }
        missed |= dict.fromkeys(missing)
        asked = [name for name in missing if _asked(context, wanted, name)]
        if asked:
            bindings = bind(outcome.closure, known.over(context.files, tables), only=[outcome.root])
            unbound = {(imported.name, imported.version) for imported in bindings.unbound}
            for soname in sorted(asked):
                _note(by_soname.setdefault(soname, _Wanted()), context, tables[member], soname, unbound)
    stubs: list[Stub] = []
    findings = [
        finding("RLK126", soname, "--stub: no member of the wheel misses a library of that name")
        for soname in wanted
        if soname != AUTO and soname not in missed
    ]
    for soname, library in by_soname.items():
        if soname not in wanted and not (library.imports or library.versions or library.copied):
            continue  # nothing of it is used, so its NEEDED may be dropped, and nobody asked for this stub
        why = _why_not(context, soname, library, distribution)
        if why:
            findings.append(finding("RLK126", soname, why))
            continue
        stub = _stub(context, soname, library, distribution)
        stubs.append(stub)
        findings.append(finding("RLK125", soname, _message(stub, context.stub_facts(soname))))
    return StubPlans(tuple(stubs), tuple(findings))


def _note(
    library: _Wanted,
    context: ResolveContext,
    table: SymbolTable,
    soname: str,
    unbound: AbstractSet[tuple[str, str | None]],
) -> None:
    """Add what one member imports of a library and nothing exports."""
    needs = [need for need in table.verneeds if need.file == soname]
    library.versions |= dict.fromkeys(version.name for need in needs for version in need.versions)
    facts = context.vendor.optional(soname)
    for imported in table.imports:
        key = (imported.name, imported.version)
        if key in unbound and _is_its(context, imported, soname, facts):
            library.imports.setdefault(key, imported)
    library.copied |= dict.fromkeys(
        imported.name for imported in table.copies if _is_its(context, imported, soname, facts)
    )


def with_stubs(
    context: ResolveContext, tables: Mapping[str, SymbolTable], stubs: Sequence[Stub]
) -> tuple[ResolveContext, Mapping[str, SymbolTable]]:
    """Return the context and the symbols with the stubs as members of the wheel.

    :raises UsageError: a stub, which a plan that somebody saved may name, is not where stubs are.
    """
    if not stubs:
        return context, tables
    check_places(stubs)
    contents: dict[str, Buffer] = {stub.path: stub.content() for stub in stubs}
    directories = {context.layout.path_of(stub.path).rpartition("/")[0] for stub in stubs}
    images = {path: read_image(content, path) for path, content in contents.items()}
    context = replace(
        context,
        images={**context.images, **images},
        added={**context.added, **{stub.soname: stub.path for stub in stubs}},
        member_directories=context.member_directories | directories,
    )
    return context, {**tables, **{path: read_symbols(content) for path, content in contents.items()}}


def _asked(context: ResolveContext, wanted: Sequence[str], soname: str) -> bool:
    return soname in wanted or (AUTO in wanted and context.is_optional(soname))


def _is_its(context: ResolveContext, imported: Import, soname: str, facts: OptionalLibrary | None) -> bool:
    """Whether an import is of that library: by its version record, or by its name where it has no version."""
    if imported.file is not None:
        return imported.file == soname
    if facts is not None and re.match(facts.names, imported.name):
        return True
    return context.vendor.whose(soname, imported.name) == "own"


def _why_not(context: ResolveContext, soname: str, library: _Wanted, distribution: str) -> str | None:
    """Return why there can be no stub, or None."""
    if not is_plain(soname):
        return "cannot be stubbed: that is no plain file name"
    if _member(soname, distribution) in context.images:
        return "cannot be stubbed: the wheel has a member where the stub would be"
    if context.target.header.machine != EM_X86_64:
        return "cannot be stubbed: stubs are written for x86-64 only"
    facts = context.vendor.optional(soname)
    known = facts.functions if facts else frozenset()
    data = [
        imported.name
        for imported in library.imports.values()
        if imported.type not in ("func", "notype")
        or (imported.type == "notype" and imported.name not in known)
    ]
    if data := [*data, *library.copied]:
        return f"cannot be stubbed, since {join_truncated(data)} may be data: a stub has functions only"
    if not library.imports and not library.versions:
        return "cannot be stubbed: no import is known to be of this library"
    return None


def _stub(context: ResolveContext, soname: str, library: _Wanted, distribution: str) -> Stub:
    facts = context.stub_facts(soname)
    why = (facts.why if facts else "") or "--stub asks for it"
    functions = []
    # Sorted, so that the bytes of a stub do not depend on the order of the members.
    for name, version in sorted(library.imports, key=lambda key: (key[0], key[1] or "")):
        answer = facts.answer if facts and name in facts.functions else None
        kind = context.vendor.text_of(name)
        text, sentence = None, ""
        advice = f"({why}): install the library, or do without what calls it"
        if kind is not None and (kind == "stored") == (answer is not None):
            text = f"relink wrote this {soname} as a stub {advice}"
        elif answer is None:
            sentence = f"{name} of {soname} was called, and relink wrote this {soname} as a stub {advice}."
        functions.append(StubFunction(name, version, answer, sentence, text))
    return Stub(_member(soname, distribution), soname, why, tuple(functions), tuple(library.versions))


def _member(soname: str, distribution: str) -> str:
    return f"{distribution}.libs/{STUB_DIRECTORY}/{soname}"


def _message(stub: Stub, facts: OptionalLibrary | None) -> str:
    answering = sum(function.answer is not None for function in stub.functions)
    texts = sum(function.text is not None for function in stub.functions)
    refusing = (function for function in stub.functions if function.answer is None)
    ending = [function.name for function in refusing if function.text is None]
    parts = [f"a stub with {pluralize(len(stub.functions), 'function')} stands in for it ({stub.why})"]
    if facts and answering:
        parts.append(f"returning {facts.status}: {answering}")
    if texts:
        parts.append(f"giving a constant text: {texts}")
    if ending:
        parts.append(f"aborting with a message: {join_truncated(ending)}")
    return "; ".join(parts)
