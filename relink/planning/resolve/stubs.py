"""Plan the libraries that relink writes: stubs of missing libraries, shims, and forwarders to libraries of another name.

A stub is written only by name (``--stub``), or for what is known to be optional. It has the functions that a member imports from
the library and that nothing else in its closure has: those with a version of the library, and those without one that begin as its
own names do. Data cannot be stubbed: there is no value that says "not supported". Gives RLK125 and RLK126.

A shim (``--stub SONAME:SYMBOL``) has the functions that a library lacks, which is there, and of another release than the wheel
was built with. All that the library has stays its own: a shim comes behind it in the look-up, as a NEEDED that is added to the
members that import the functions. A version that the library does not define is required of the shim instead, if nothing else is
required of the library by that record; else the requirement becomes weak, and the look-up, which compares versions and not files,
finds the shim's (glibc elf/dl-version.c, elf/dl-lookup.c).

Development packages have ``librocblas.so`` as a link to ``librocblas.so.5``. Where they are not installed,
dlopen("librocblas.so") fails although the library is there. A forwarder (``--forward``) has the name, no symbols, and the
numbered soname as NEEDED: dlsym(3) looks in the dependencies of a handle. Gives RLK133 and RLK134.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from relink.elf.constants import EM_X86_64
from relink.elf.dynamic import Buffer
from relink.elf.edit import VersionEdit
from relink.elf.image import read_image
from relink.elf.stub import StubFunction
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import Import
from relink.loader.binding import Unbound, bind, check_versions
from relink.loader.closure import Closure
from relink.planning.model import STUB_DIRECTORY, Stub, check_places, is_plain
from relink.planning.resolve.context import ResolveContext, ShimUse
from relink.planning.resolve.proof import (
    DlopenKnowledge,
    Prover,
    add_known_preloads,
    find_forwardable,
    find_unloadable,
    has_new_versions,
)
from relink.planning.resolve.strategy import find_strategy
from relink.system.findings.model import Finding, Level, finding
from relink.system.text import join_truncated, pluralize

AUTO = "auto"
"""As a value of ``--stub``: every library that is known to be optional."""


class StubPlans(msgspec.Struct, frozen=True):
    """The stubs of one wheel, and the findings about them.

    :ivar uses: the members that use shims.
    """

    stubs: tuple[Stub, ...] = ()
    findings: tuple[Finding, ...] = ()
    uses: Mapping[str, ShimUse] = msgspec.field(default_factory=dict)


class _StubImports(msgspec.Struct):
    """The imports of members from one library: symbols, version nodes, and names of copied variables."""

    imports: dict[tuple[str, str | None], Import] = msgspec.field(default_factory=dict)
    versions: dict[str, None] = msgspec.field(default_factory=dict)
    copied: dict[str, None] = msgspec.field(default_factory=dict)


def plan_stubs(context: ResolveContext, wanted: Sequence[str], distribution: str) -> StubPlans:
    """Plan the stubs that the user asks for.

    :param wanted: sonames, or :data:`AUTO`.
    :param distribution: as the wheel's name has it; the stubs get a directory of that name.
    """
    if not wanted:
        return StubPlans()
    by_soname: dict[str, _StubImports] = {}
    missed: set[str] = set()
    tables, every = context.open_tables(), AUTO in wanted
    for member, image in context.images.items():
        names = [name for name in image.needed if name in wanted or (every and context.is_optional(name))]
        if not names:
            continue
        outcome = find_strategy(context, member)
        issues = (issue for issue in outcome.issues if issue.kind == "missing")
        missing = {issue.edge.soname for issue in issues if issue.edge.requester == outcome.root}
        missed.update(asked := missing.intersection(names))
        if not asked:
            continue
        table = context.tables[member]
        bindings = bind(outcome.closure, tables, only=[outcome.root])
        unbound = {(imported.name, imported.version) for imported in bindings.unbound}
        for soname in sorted(asked):
            library = by_soname.setdefault(soname, _StubImports())
            needs = [need for need in table.verneeds if need.file == soname]
            library.versions |= dict.fromkeys(version.name for need in needs for version in need.versions)
            for imported in table.imports:
                key = (imported.name, imported.version)
                if key in unbound and is_its(context, imported, soname):
                    library.imports.setdefault(key, imported)
            # Copy relocations are for variables: a program that has one needs data of the library.
            library.copied |= dict.fromkeys(
                imported.name for imported in table.copies if is_its(context, imported, soname)
            )
    stubs: list[Stub] = []
    unfit = unfit_level(context)
    findings = [
        finding("RLK126", soname, "--stub: no member of the wheel misses a library of that name", level=unfit)
        for soname in wanted
        if soname != AUTO and ":" not in soname and soname not in missed
    ]
    for soname, library in by_soname.items():
        if soname not in wanted and not (library.imports or library.versions or library.copied):
            # Nothing of it is used, so its NEEDED may be dropped, and nobody asked for this stub.
            continue
        if why := _why_not(context, soname, library, distribution):
            findings.append(finding("RLK126", soname, why))
            continue
        written = f"this {soname} as a stub"
        why, functions = list_functions(context, soname, library.imports, written, "install the library")
        stub = Stub(stub_member(soname, distribution), soname, why, functions, tuple(library.versions))
        stubs.append(stub)
        count = pluralize(len(stub.functions), "function")
        parts = [
            f"a stub with {count} stands in for it ({stub.why})",
            *describe_functions(context, soname, stub),
        ]
        findings.append(finding("RLK125", soname, "; ".join(parts)))
    return StubPlans(tuple(stubs), tuple(findings))


def is_its(context: ResolveContext, imported: Import | Unbound, soname: str) -> bool:
    """Whether an import is of that library: by its version record, or by its name where it has no version."""
    if imported.file is not None:
        return imported.file == soname
    facts = context.vendor.libraries.optional(soname)
    if facts is not None and re.match(facts.names, imported.name):
        return True
    return context.vendor.libraries.whose(soname, imported.name) == "own"


def unfit_level(context: ResolveContext) -> Level:
    """Return the level of a finding about a name that fits nothing of the wheel."""
    return "info" if context.several else "error"


def _why_not(context: ResolveContext, soname: str, library: _StubImports, distribution: str) -> str | None:
    """Return why there can be no stub, or None."""
    if not is_plain(soname):
        return "cannot be stubbed: that is no plain file name"
    if stub_member(soname, distribution) in context.images:
        return "cannot be stubbed: the wheel has a member where the stub would be"
    if context.target.header.machine != EM_X86_64:
        return "cannot be stubbed: stubs are written for x86-64 only"
    data = find_data(context, soname, library.imports.values())
    if data := [*data, *library.copied]:
        return f"cannot be stubbed, since {join_truncated(data)} may be data: a stub has functions only"
    if not library.imports and not library.versions:
        return "cannot be stubbed: no import is known to be of this library"
    return None


def find_data(context: ResolveContext, soname: str, imports: Iterable[Import]) -> list[str]:
    """Return the names of imports that may be data: an undefined symbol may have no type (STT_NOTYPE), and then only the vendor's
    table can say that it is a function.
    """
    facts = context.vendor.libraries.optional(soname)
    known = facts.functions if facts else frozenset()
    return [
        imported.name
        for imported in imports
        if imported.type != "func" and not (imported.type == "notype" and imported.name in known)
    ]


def describe_functions(context: ResolveContext, soname: str, stub: Stub) -> list[str]:
    """Say what the functions of a stub do."""
    facts, functions = context.stub_facts(soname), stub.functions
    answering = sum(function.answer is not None for function in functions)
    texts = sum(function.text is not None for function in functions)
    ending = [one.name for one in functions if one.answer is None and one.text is None]
    return [
        *([f"returning {facts.status}: {answering}"] if facts and answering else []),
        *([f"giving a constant text: {texts}"] if texts else []),
        *([f"aborting with a message: {join_truncated(ending)}"] if ending else []),
    ]


def list_functions(
    context: ResolveContext, soname: str, imports: Iterable[tuple[str, str | None]], written: str, advice: str
) -> tuple[str, tuple[StubFunction, ...]]:
    """Return why programs do without a library's functions, and functions that refuse.

    :param imports: their names and versions.
    :param written: what relink writes; `advice`: what a user can do instead.
    """
    facts = context.stub_facts(soname)
    why = (facts.why if facts else "") or "--stub asks for it"
    functions = []
    # Sorted, so that the bytes of a stub do not depend on the order of the members.
    for name, version in sorted(imports, key=lambda key: (key[0], key[1] or "")):
        answer = facts.answer if facts and name in facts.functions else None
        kind = context.vendor.libraries.text_of(name)
        text, sentence = None, ""
        reason = f"({why}): {advice}, or do without what calls it"
        if kind is not None and (kind == "stored") == (answer is not None):
            text = f"relink wrote {written} {reason}"
        elif answer is None:
            sentence = f"{name} of {soname} was called, and relink wrote {written} {reason}."
        functions.append(StubFunction(name, version, answer, sentence, text))
    return why, tuple(functions)


def stub_member(soname: str, distribution: str) -> str:
    """Return the name of the member that a stub is."""
    return f"{distribution}.libs/{STUB_DIRECTORY}/{soname}"


def add_stubs(context: ResolveContext, stubs: Sequence[Stub]) -> ResolveContext:
    """Return the context with the stubs as members of the wheel.

    :raises UsageError: a stub, which a plan that somebody saved may name, is not where stubs are.
    """
    if not stubs:
        return context
    check_places(stubs)
    contents: dict[str, Buffer] = {stub.path: stub.content() for stub in stubs}
    directories = {context.layout.path_of(stub.path).rpartition("/")[0] for stub in stubs}
    images = {path: read_image(content, path) for path, content in contents.items()}
    return replace(
        context,
        images={**context.images, **images},
        tables={**context.tables, **{path: read_symbols(content) for path, content in contents.items()}},
        added={**context.added, **{stub.soname: stub.path for stub in stubs}},
        member_directories=context.member_directories | directories,
    )


_Openers: TypeAlias = Mapping[str, tuple[int, Closure]]
"""For each member its index in its closure, and the closure with what is opened in it."""


def plan_forwarders(context: ResolveContext, wanted: Sequence[str], distribution: str) -> StubPlans:
    """Plan the forwarders that the user asks for, each in a process that has the ones before.

    :param wanted: names that members open, or ``auto`` for all of which a provider has a library with a number.
    :param distribution: as the wheel's name has it; the forwarders get a directory of that name.
    """
    if not wanted:
        return StubPlans()
    before = dict(_follow(context, context.images))
    # The names without a number that a member opens, and that the loader does not find, or that do not load.
    openers: dict[str, list[str]] = {}
    for member, (root, closure) in before.items():
        failing = find_unloadable(closure)
        for edge in closure.dlopened:
            name, in_vain = edge.soname, edge.target is None or edge in failing
            if edge.requester != root or not in_vain or not name.endswith(".so"):
                continue
            if name in wanted or (AUTO in wanted and find_forwardable(context, name)):
                openers.setdefault(name, []).append(member)
    stubs: list[Stub] = []
    findings: list[Finding] = [
        finding(
            "RLK134", name, "--forward: no member of the wheel opens it in vain", level=unfit_level(context)
        )
        for name in wanted
        if name != AUTO and name not in openers
    ]
    for name, members in openers.items():
        if stubs:
            before |= _follow(context, members)
        stub = _forwarder(context, name, {member: before[member] for member in members}, distribution)
        if isinstance(stub, str):
            if name in wanted:
                findings.append(finding("RLK134", name, stub))
            # A name that auto alone asks for has no finding here: RLK132 says that it is not found.
            continue
        stubs.append(stub)
        context = add_stubs(context, [stub])
        by = join_truncated([posixpath.basename(member) for member in members])
        findings.append(finding("RLK133", name, f"leads to {stub.needed[0]}; {by} opens it"))
    return StubPlans(tuple(stubs), tuple(findings))


def _follow(context: ResolveContext, members: Iterable[str]) -> _Openers:
    """Load members that may open something, as they will be, with what the objects in their closures open."""
    knowledge = DlopenKnowledge(context, context.open_tables())
    outcomes = {member: find_strategy(context, member) for member in filter(knowledge.may_open, members)}
    return {member: (outcome.root, knowledge.follow(member, outcome)) for member, outcome in outcomes.items()}


def _forwarder(context: ResolveContext, name: str, before: _Openers, distribution: str) -> Stub | str:
    """Return the forwarder to the first library that loads and brings no second version of another; or why there is none.

    :param before: the members that open the name.
    """
    path = stub_member(name, distribution)
    if not is_plain(name) or context.target.header.machine != EM_X86_64:
        return "cannot be forwarded: forwarders are written for x86-64, and for plain file names"
    if path in context.images:
        return "cannot be forwarded: the wheel has a member where the forwarder would be"
    refused: list[str] = []
    for soname in find_forwardable(context, name):
        # The forwarder is planned like any member, since it has to find the library that it leads to.
        plain = Stub(path, name, f"leads to {soname}", needed=(soname,))
        prover = Prover(add_stubs(context, [plain]))
        outcome = add_known_preloads(prover, path, prover.find_outcome(path))
        if not outcome.loads:
            refused.append(f"{soname} does not load")
            continue
        image = outcome.image
        stub = replace(
            plain, needed=image.needed, search_path=image.search_path, search_kind=image.search_kind
        )
        after = add_stubs(context, [stub])
        place = after.layout.path_of(path)
        second, leads = False, True
        for member, (_, closure) in _follow(after, before).items():
            second |= has_new_versions(before[member][1], closure)
            targets = [edge.target for edge in closure.dlopened if edge.soname == name and edge.target]
            found = [posixpath.normpath(closure.objects[target].path) == place for target in targets]
            leads &= bool(found) and all(found)
        if leads and not second:
            return stub
        refused.append(
            f"{soname} brings a second version of a library that is loaded"
            if second
            else f"{soname} would not be found by the search path of what opens it"
        )
    return (
        f"cannot be forwarded: {'; '.join(refused) or 'no prefix has a library of that name with a number'}"
    )


class _Lacking(msgspec.Struct):
    """What members import of a library that is there, and that lacks it.

    :ivar imports: by member, then by name and version; `versions`: by member those that the library does not define.
    """

    path: str
    imports: dict[str, dict[tuple[str, str | None], Import]] = msgspec.field(default_factory=dict)
    versions: dict[str, set[str]] = msgspec.field(default_factory=dict)


def plan_shims(context: ResolveContext, wanted: Sequence[str], distribution: str) -> StubPlans:
    """Plan the shims that the user asks for.

    :param wanted: the values of ``--stub``: those with a colon, and :data:`AUTO`, are about shims.
    :param distribution: as the wheel's name has it; the shims get a directory of that name.
    """
    named = {text for text in wanted if ":" in text}
    if not (named or AUTO in wanted):
        return StubPlans()
    stubs, findings, unused = [], [], {*named}
    needed: dict[str, dict[str, str]] = {}
    versions: dict[str, list[VersionEdit]] = {}
    for soname, library in _find_lacking(context, named, every=AUTO in wanted).items():
        chosen = {
            key: imported
            for imports in library.imports.values()
            for key, imported in imports.items()
            if f"{soname}:{imported.name}" in named
            or (AUTO in wanted and is_answered(context, soname, imported.name))
        }
        own = {f"{soname}:{name}" for name, _ in chosen} & unused
        unused -= own
        if not chosen:
            continue
        if why := _why_no_shim(context, soname, library, chosen, distribution):
            findings += [finding("RLK126", text, f"cannot be stubbed: {why}") for text in sorted(own)]
            continue
        described = context.describe_library(soname, library.path)
        names = sorted({name for name, _ in chosen})
        lacks = f"{described} lacks {join_truncated(names)}"
        advice = f"install a release whose {soname} has it"
        why, functions = list_functions(context, soname, chosen, "it into a shim", advice)
        name = shim_name(soname)
        moved = f"{soname} does not define it, and a shim has what is imported in it"
        nodes = tuple(dict.fromkeys(version for _, version in sorted(chosen, key=str) if version))
        stub = Stub(stub_member(name, distribution), name, why, functions, nodes, shim_of=soname)
        stubs.append(stub)
        parts = (f"{lacks}; a shim has it ({why})", *describe_functions(context, soname, stub))
        findings.append(finding("RLK125", soname, "; ".join(parts)))
        for member in (
            member for member, imports in library.imports.items() if chosen.keys() & imports.keys()
        ):
            needed.setdefault(member, {})[name] = lacks
            # The version records that name what the library does not define.
            missing = library.versions[member]
            for need in (need for need in context.tables[member].verneeds if need.file == soname and missing):
                weak = not {version.name for version in need.versions} <= missing
                versions.setdefault(member, []).extend(
                    VersionEdit(soname, one, soname if weak else name, one, weak=weak, evidence=(moved,))
                    for one in (version.name for version in need.versions if version.name in missing)
                )
    text = "--stub: no member of the wheel lacks this function of a library that it needs and that is there"
    findings += [finding("RLK126", name, text, level=unfit_level(context)) for name in sorted(unused)]
    uses = {member: ShimUse(added, tuple(versions.get(member, ()))) for member, added in needed.items()}
    return StubPlans(tuple(stubs), tuple(findings), uses)


def shim_name(soname: str) -> str:
    """Return the soname of the shim for a library: no library of that name is ever installed."""
    return f"relink-shim-{soname}"


def is_answered(context: ResolveContext, soname: str, name: str) -> bool:
    """Whether a library is optional, and the refusal of this function of it is known to be an answer."""
    facts = context.stub_facts(soname)
    return facts is not None and bool(facts.why) and name in facts.functions


def _find_lacking(context: ResolveContext, named: set[str], *, every: bool) -> dict[str, _Lacking]:
    """Return the libraries that members need, that are there, and that lack what the members import of them.

    :param named: SONAME:SYMBOL; that says of a symbol without a version whose it is. `every`: also libraries that are optional.
    """
    sonames = {text.partition(":")[0] for text in named}
    lacking: dict[str, _Lacking] = {}
    tables = context.open_tables()
    for member, image in context.images.items():
        names = [name for name in image.needed if name in sonames or (every and context.is_optional(name))]
        if not names:
            continue
        outcome = find_strategy(context, member)
        closure = outcome.closure
        served = {
            edge.soname: closure.objects[edge.target].path
            for edge in closure.edges
            if edge.requester == outcome.root and edge.target is not None and edge.soname in names
        }
        if not served:
            continue
        unbound = bind(closure, tables, only=[outcome.root]).unbound
        # An import that makes the loader abort is one that the library has, in a way that no shim changes.
        keys = {(lost.name, lost.version) for lost in unbound if lost.reason == "undefined"}
        path = closure.objects[outcome.root].path
        missing = [gap for gap in check_versions(closure, tables) if gap.requester == path]
        for soname, place in served.items():
            found = {
                (imported.name, imported.version): imported
                for imported in context.tables[member].imports
                if (imported.name, imported.version) in keys
                and (
                    is_its(context, imported, soname)
                    or (imported.file is None and f"{soname}:{imported.name}" in named)
                )
            }
            if found:
                library = lacking.setdefault(soname, _Lacking(place))
                library.imports[member] = found
                library.versions[member] = {gap.version for gap in missing if gap.file == soname}
    return lacking


def _why_no_shim(
    context: ResolveContext,
    soname: str,
    library: _Lacking,
    chosen: Mapping[tuple[str, str | None], Import],
    distribution: str,
) -> str | None:
    """Return why there can be no shim, or None."""
    name = shim_name(soname)
    if context.target.header.machine != EM_X86_64 or not is_plain(name):
        return "shims are written for x86-64, and for plain file names"
    if stub_member(name, distribution) in context.images:
        return "the wheel has a member where the shim would be"
    if data := find_data(context, soname, chosen.values()):
        return f"{join_truncated(data)} may be data, and a shim has functions only"
    for member, versions in library.versions.items():
        others = sorted(
            {key[0] for key in library.imports[member].keys() - chosen.keys() if key[1] in versions}
        )
        if others:
            where = f"{soname} does not define {join_truncated(sorted(versions))}"
            return f"{where}, of which {member} imports {join_truncated(others)} as well"
    return None
