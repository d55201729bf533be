"""Plan shims (``--stub SONAME:SYMBOL``): small libraries with the functions that a library lacks, which refuse as a stub's do.

The library is there, and of another release than the wheel was built with. All that it has stays its own: a shim comes behind it
in the look-up, as a NEEDED that is added to the members that import the functions. A version that the library does not define is
required of the shim instead, if nothing else is required of the library by that record; else the requirement becomes weak, and
the look-up, which compares versions and not files, finds the shim's (glibc elf/dl-version.c, elf/dl-lookup.c). Gives RLK125 and
RLK126.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from relink.elf.constants import EM_X86_64
from relink.elf.edit import VersionEdit
from relink.elf.symbols import Import, SymbolTable
from relink.loader.binding import bind, check_versions
from relink.loader.tables import Tables
from relink.planning.model import Stub, is_plain
from relink.planning.resolve.context import ResolveContext, ShimUse
from relink.planning.resolve.strategy import find_strategy
from relink.planning.resolve.stubs import (
    AUTO,
    StubPlans,
    describe_functions,
    find_data,
    is_its,
    list_functions,
    stub_member,
    unfit_level,
)
from relink.system.findings.model import finding
from relink.system.text import join_truncated


class _Lacking(msgspec.Struct):
    """What members import of a library that is there, and that lacks it.

    :ivar imports: by member, then by name and version; `versions`: by member those that the library does not define.
    """

    path: str
    imports: dict[str, dict[tuple[str, str | None], Import]] = msgspec.field(default_factory=dict)
    versions: dict[str, set[str]] = msgspec.field(default_factory=dict)


def plan_shims(
    context: ResolveContext, tables: Mapping[str, SymbolTable], wanted: Sequence[str], distribution: str
) -> StubPlans:
    """Plan the shims that the user asks for.

    :param tables: the symbols of the members.
    :param wanted: the values of ``--stub``: those with a colon, and :data:`AUTO`, are about shims.
    :param distribution: as the wheel's name has it; the shims get a directory of that name.
    """
    named = {text for text in wanted if ":" in text}
    if not (named or AUTO in wanted):
        return StubPlans()
    stubs, findings, unused = [], [], {*named}
    needed: dict[str, dict[str, str]] = {}
    versions: dict[str, tuple[VersionEdit, ...]] = {}
    for soname, library in _find_lacking(context, tables, named, every=AUTO in wanted).items():
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
        edits = {
            member: tuple(_move_versions(soname, tables[member], missing))
            for member, missing in library.versions.items()
        }
        if why := _why_not(context, soname, library, chosen, distribution):
            findings += [finding("RLK126", text, f"cannot be stubbed: {why}") for text in sorted(own)]
            continue
        described = context.describe_library(soname, library.path)
        names = sorted({name for name, _ in chosen})
        lacks = f"{described} lacks {join_truncated(names)}"
        advice = f"install a release whose {soname} has it"
        why, functions = list_functions(context, soname, chosen, "it into a shim", advice)
        name = shim_name(soname)
        nodes = tuple(dict.fromkeys(version for _, version in sorted(chosen, key=str) if version))
        stub = Stub(stub_member(name, distribution), name, why, functions, nodes, shim_of=soname)
        stubs.append(stub)
        parts = (f"{lacks}; a shim has it ({why})", *describe_functions(context, soname, stub))
        findings.append(finding("RLK125", soname, "; ".join(parts)))
        for member, imports in library.imports.items():
            if chosen.keys() & imports.keys():
                needed.setdefault(member, {})[name] = lacks
                versions[member] = (*versions.get(member, ()), *edits.get(member, ()))
    text = "--stub: no member of the wheel lacks this function of a library that it needs and that is there"
    findings += [finding("RLK126", name, text, level=unfit_level(context)) for name in sorted(unused)]
    uses = {member: ShimUse(added, versions.get(member, ())) for member, added in needed.items()}
    return StubPlans(tuple(stubs), tuple(findings), uses)


def shim_name(soname: str) -> str:
    """Return the soname of the shim for a library: no library of that name is ever installed."""
    return f"relink-shim-{soname}"


def is_answered(context: ResolveContext, soname: str, name: str) -> bool:
    """Whether a library is optional, and the refusal of this function of it is known to be an answer."""
    facts = context.stub_facts(soname)
    return facts is not None and bool(facts.why) and name in facts.functions


def _find_lacking(
    context: ResolveContext, tables: Mapping[str, SymbolTable], named: set[str], *, every: bool
) -> dict[str, _Lacking]:
    """Return the libraries that members need, that are there, and that lack what the members import of them.

    :param named: SONAME:SYMBOL; that says of a symbol without a version whose it is. `every`: also libraries that are optional.
    """
    sonames = {text.partition(":")[0] for text in named}
    lacking: dict[str, _Lacking] = {}
    known = Tables(context.files, {})
    for member in context.images:
        outcome = find_strategy(context, member)
        closure = outcome.closure
        served = {
            edge.soname: closure.objects[edge.target].path
            for edge in closure.edges
            if edge.requester == outcome.root
            and edge.target is not None
            and (edge.soname in sonames or (every and context.is_optional(edge.soname)))
        }
        if not served:
            continue
        read = known.over(context.files, tables)
        unbound = bind(closure, read, only=[outcome.root]).unbound
        # An import that makes the loader abort is one that the library has, in a way that no shim changes.
        keys = {(lost.name, lost.version) for lost in unbound if lost.reason == "undefined"}
        path = closure.objects[outcome.root].path
        missing = [gap for gap in check_versions(closure, read) if gap.requester == path]
        for soname, place in served.items():
            found = {
                (imported.name, imported.version): imported
                for imported in tables[member].imports
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


def _why_not(
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


def _move_versions(soname: str, table: SymbolTable, missing: set[str]) -> Iterator[VersionEdit]:
    """Yield the edits of the version records that name what a library does not define."""
    for need in (need for need in table.verneeds if need.file == soname and missing):
        whole = {version.name for version in need.versions} <= missing
        why = f"{soname} does not define it, and a shim has what is imported in it"
        for name in (version.name for version in need.versions if version.name in missing):
            file = shim_name(soname) if whole else soname
            yield VersionEdit(soname, name, file, name, weak=not whole, evidence=(why,))
