"""Evaluate what imports prove: whether a NEEDED may be replaced or dropped, and which library exports an unbound import.

A changed soname is an ABI claim, so it needs evidence (docs/architecture.md, decision 4).
Replacing ``libX.so.A`` by ``libX.so.B`` takes three things: (a) B exports every symbol, with its version, that the image imports
from A; (b) the same stem; (c) a profile that knows the two as one ABI, or the user's ``--substitute``. With (a) and (b) alone it
remains an error that names the flag. Dropping takes two: no strong import has a version of it, and every strong import binds
without it, or is none of this library's: another missing library has it, or the vendor's table of names says so. Its version
records go to a library that stays, and become weak.

A library that the vendor's table names as the same upstream under another name takes (a) alone, and its version records may be
edited: versions that a vendor has renamed say nothing of the ABI. Of the edits that let each import bind, symbol by symbol, the
one that keeps most of the claim is taken: none; another name; weak; weak and without a version.

The suppliers of unbound imports are members of the wheel, libraries of a prefix, or another Python. Each library of the providers
is read once, and only if there are such imports.
"""

from __future__ import annotations

import math
import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from relink.elf.edit import VersionEdit
from relink.elf.symbols import Export, Import, SymbolTable, VersionNeed, VersionRequirement, hash_names, match
from relink.loader.binding import Unbound, bind
from relink.loader.loading import RootRefusedError, trace
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.tables import Tables, read_table
from relink.loader.target import GLIBC_SONAMES, Target
from relink.planning.resolve.context import ResolveContext
from relink.providers.distribution import is_platform_library
from relink.providers.prefix import soname_stem
from relink.system.findings.model import RULES
from relink.system.text import group_pairs, join_truncated
from relink.vendors.protocol import NO_VENDOR, Vendor

_MAX_SHOWN = 3
# The largest product of missing libraries and imports that are open without them. Vendors' files have a few ten thousand.
_MOST_COMPARED = 1_000_000
# The most libraries that are proposed together for one file.
_MOST_TOGETHER = 4
# No set of several libraries is looked for where every import has more exporters than this.
_MOST_OWNERS = 8
# Groups of libraries that export one import each. With more groups no set of several libraries is looked for.
_MOST_DIFFERENT = 200
_MOST_CHOICES = 2  # sets that are proposed
# The names of Python's symbols, by the same pattern as in relink.loader.binding.
_OF_PYTHON = re.compile(r"_?Py")


class SubstituteCandidate(msgspec.Struct, frozen=True):
    """A library that could replace a missing one.

    :ivar reason: why it counts as the same ABI: a profile's sentence or the user's flag; None without either.
    :ivar profile: the profile that says so, None where it is the user.
    :ivar copy: it is the same upstream under other names of libraries and versions, so version records may be edited.
    """

    soname: str
    path: str
    table: SymbolTable
    reason: str | None = None
    profile: str | None = None
    copy: bool = False

    def exports(self, imported: Import) -> bool:
        """Whether the library would satisfy an import, name and version."""
        return match(self.table.exports.get(imported.name, ()), imported.version) is not None


class SubstitutionDecision(msgspec.Struct, frozen=True):
    """The decision about one missing NEEDED, with its evidence.

    :ivar action: ``substitute``, ``drop`` or ``keep`` (nothing is proved, so it stays missing).
    :ivar candidate: the soname that would replace it, where there is one.
    :ivar evidence: one sentence a fact, for the plan.
    :ivar wanted: how many imports count as this library's.
    :ivar lacking: those that the candidate does not export, as ``name`` or ``name@VERSION``; `serving` those that it does.
    :ivar profile: the profile that the action rests on, besides the symbols.
    :ivar versions: the edits of version records, besides that they follow a NEEDED that is replaced.
    """

    soname: str
    action: str
    candidate: str | None = None
    evidence: tuple[str, ...] = ()
    wanted: int = 0
    lacking: tuple[str, ...] = ()
    profile: str | None = None
    serving: tuple[str, ...] = ()
    versions: tuple[VersionEdit, ...] = ()


def evaluate_substitution(
    missing: Sequence[str],
    imports: Sequence[Import],
    unbound: Collection[Import],
    candidates: Mapping[str, Sequence[SubstituteCandidate]],
    vendor: Vendor = NO_VENDOR,
    needs: Sequence[VersionNeed] = (),
    kept: Sequence[str] = (),
    by_another_version: Mapping[str, Sequence[Import]] | None = None,
) -> dict[str, SubstitutionDecision]:
    """Decide of every missing NEEDED of one image what the evidence allows.

    An import with a version belongs to the library that its version record names, and says nothing of another one. One without
    a version that the vendor's table gives to a missing library counts against that one alone.

    :param missing: its NEEDED entries that nothing serves, whether the user allows that or not: what is decided of one library
        does not depend on what is allowed for another.
    :param imports: all imports of the image.
    :param unbound: its strong imports that bind to nothing in the closure without the missing libraries, and that no
        supplier outside of the closure is known for.
    :param candidates: by missing soname, the libraries of the same stem that there are, the preferred one first.
    :param vendor: whose names are known.
    :param needs: the image's version records.
    :param kept: its NEEDED entries that are served, one of which can take the record of a library that is dropped.
    :param by_another_version: by missing soname, the imports that bind to another version of that library, which something else
        has brought: the claim about the ABI is the same as for a substitute.
    """
    elsewhere = by_another_version or {}
    # An import belongs to the library that its version record names: the linker found the symbol there.
    named = group_pairs((imported.file, imported) for imported in imports)
    open_imports = [imported for imported in unbound if imported.file is None]
    if len(missing) * len(open_imports) > _MOST_COMPARED:
        evidence = f"{len(missing)} missing libraries and {len(open_imports)} open imports are more than relink compares"
        return {soname: SubstitutionDecision(soname, "keep", evidence=(evidence,)) for soname in missing}
    relations = {
        soname: {imported: vendor.libraries.whose(soname, imported.name) for imported in open_imports}
        for soname in missing
    }
    own = {
        soname: [
            *(imported for imported, relation in relations[soname].items() if relation == "own"),
            *elsewhere.get(soname, ()),
        ]
        for soname in missing
    }
    owned = {imported for claims in own.values() for imported in claims}
    possible = {
        soname: [
            imported
            for imported in (*open_imports, *elsewhere.get(soname, ()))
            if imported in own[soname]
            or relations[soname][imported] == "shared"
            or (imported not in owned and relations[soname][imported] == "unknown")
        ]
        for soname in missing
    }
    chosen: dict[str, SubstituteCandidate | None] = {}
    for soname in missing:
        # One that a profile or the user says is the same ABI, else the one that exports most.
        wanted = [*named.get(soname, ()), *own[soname], *possible[soname]]
        chosen[soname] = max(
            candidates.get(soname, ()),
            key=lambda candidate: math.inf if candidate.reason else sum(map(candidate.exports, wanted)),
            default=None,
        )
    claimed = {
        imported
        for soname, candidate in chosen.items()
        if candidate is not None
        for imported in filter(candidate.exports, possible[soname])
    }
    unserved = sum(candidate is None for candidate in chosen.values())
    return {
        soname: _decide(
            soname,
            _Claims(
                tuple(need for need in needs if need.file == soname),
                named.get(soname, ()),
                own[soname],
                possible[soname],
                [imported for imported in possible[soname] if imported not in claimed | owned],
            ),
            kept,
            chosen[soname],
            # True where no other missing library is without a candidate.
            standalone=unserved == (chosen[soname] is None),
            table=vendor.name if len(possible[soname]) < len(open_imports) else None,
        )
        for soname in missing
    }


class _Claims(msgspec.Struct, frozen=True):
    """The version records of one missing library, and the imports that may be its.

    :ivar named: the imports whose version record names it.
    :ivar own: the unbound imports without a version that the vendor's table says are its own.
    :ivar possible: its own, and unbound imports that no table gives to another library.
    :ivar unexplained: those of `possible` that nobody owns and no candidate exports.
    """

    needs: tuple[VersionNeed, ...]
    named: Sequence[Import]
    own: Sequence[Import]
    possible: Sequence[Import]
    unexplained: Sequence[Import]


def _decide(
    soname: str,
    claims: _Claims,
    kept: Sequence[str],
    candidate: SubstituteCandidate | None,
    *,
    standalone: bool,
    table: str | None,
) -> SubstitutionDecision:
    """Decide of one missing NEEDED: drop, substitute, or keep.

    :param kept: as for :func:`evaluate_substitution`.
    :param standalone: no other library without a candidate is missing, to which the unexplained imports could belong.
    :param table: the vendor's table, if it says that some unbound imports are not this library's.
    """
    named, possible = claims.named, claims.possible
    exported_by_it = list(filter(candidate.exports, possible)) if candidate is not None else []
    # Where imports are open, the library is needless only if each of them is another missing library's own name, or is exported
    # by the substitute of one.
    needless = not possible or not (claims.own or exported_by_it or claims.unexplained)
    # A strong import whose version record names the library is that library's, whatever else has the name.
    weak = all(imported.binding == "weak" for imported in named)
    dropped = _drop(soname, claims, kept, table) if needless and weak else None
    if dropped is not None and (not named or candidate is None):
        return dropped
    if candidate is None:
        wanted = [*named, *claims.own, *claims.unexplained]
        return SubstitutionDecision(soname, "keep", wanted=len(wanted), lacking=tuple(map(_label, wanted)))
    # An import that no library is known for counts against this one, unless another missing library may have had it. A vendor
    # that renames versions gives one to each symbol, so none without a version is such a library's.
    rest = claims.unexplained if standalone and not (candidate.copy and named) else ()
    wanted = list(dict.fromkeys([*named, *claims.own, *exported_by_it, *rest]))
    edits: list[VersionEdit] = []
    lost = [imported for imported in wanted if not candidate.exports(imported)]
    if candidate.copy:
        edits, lacking = version_moves(claims.needs, named, candidate.soname, candidate.table)
        lost = [*lacking, *(imported for imported in lost if imported.file is None)]
    exported = [imported for imported in wanted if imported not in lost]
    same = candidate.copy or soname_stem(candidate.soname) == soname_stem(soname)
    proved = bool(wanted) and not lost and same and bool(candidate.reason)
    # Here only weak imports name the library. A proved substitute goes before dropping, since they bind to the substitute.
    if dropped is not None and not proved:
        return dropped
    names = ", ".join(map(_label, exported[:_MAX_SHOWN])) + (" …" if len(exported) > _MAX_SHOWN else "")
    evidence = [
        f"{len(exported)} of {len(wanted)} imported symbols are exported by {candidate.path}: {names}"
    ]
    if not named:
        evidence.append("no version record names it")
    if candidate.reason:
        named_by = f"profile {candidate.profile}: " if candidate.profile else ""
        evidence.append(f"{named_by}{candidate.reason}")
    evidence += [sentence for edit in edits for sentence in edit.evidence]
    return SubstitutionDecision(
        soname,
        "substitute" if proved else "keep",
        candidate.soname,
        tuple(evidence),
        len(wanted),
        tuple(map(_label, lost)),
        candidate.profile,
        tuple(map(_label, exported)),
        tuple(edits),
    )


def _drop(
    soname: str, claims: _Claims, kept: Sequence[str], table: str | None
) -> SubstitutionDecision | None:
    """Return the decision to drop a library; None where no other library can take its version record."""
    reason = "every strong import of the file binds without it"
    if not claims.possible and table is not None:
        reason = f"no symbol that is missing without it is one of its names (table {table})"
    elif not claims.possible:
        reason += ": the file was linked against it and does not use it"
    if not claims.needs:
        return SubstitutionDecision(
            soname, "drop", evidence=("no version record names it", reason), profile=table
        )
    # libc is in every process, so its record is always satisfied. Without libc in NEEDED, any library that stays will do.
    takers = [name for name in kept if name.startswith("libc.so.")] or kept
    if not takers:
        return None
    taker = takers[0]
    why = f"its library is dropped: the record becomes weak and names {taker}, since ld.so asserts that what it names is loaded"
    edits = tuple(
        VersionEdit(need.file, version.name, taker, version.name, weak=True, evidence=(why,))
        for need in claims.needs
        for version in need.versions
    )
    evidence = (reason, why) if edits else (reason,)
    return SubstitutionDecision(soname, "drop", evidence=evidence, profile=table, versions=edits)


def _label(imported: Import) -> str:
    return f"{imported.name}@{imported.version}" if imported.version else imported.name


def version_moves(
    needs: Sequence[VersionNeed], imports: Sequence[Import], soname: str, table: SymbolTable
) -> tuple[list[VersionEdit], list[Import]]:
    """Return the edits that let a library of the same upstream take the place of another, and the imports that it lacks even so.

    :param needs: the records of the library that is replaced.
    :param imports: the imports whose version record names it.
    :param soname: the library that replaces it, and `table` its symbols.
    """
    edits: list[VersionEdit] = []
    lacking: list[Import] = []
    for file, requirement in ((need.file, requirement) for need in needs for requirement in need.versions):
        old = requirement.name
        own = [imported for imported in imports if imported.version == old]
        # The first way by which all imports bind, or else the one by which most do.
        best: VersionEdit | None = None
        served: list[Import] = []
        for name, weak, unversioned, reason in _ways(requirement, soname, table):
            version = None if unversioned else name
            exact = requirement.hidden and version is not None
            serving = [
                imported
                for imported in own
                if match(table.exports.get(imported.name, ()), version, exact=exact) is not None
            ]
            if best is None or len(serving) > len(served):
                best = VersionEdit(file, old, soname, name, weak, unversioned, (reason,))
                served = serving
            if len(served) == len(own):
                break
        lacking += [imported for imported in own if imported not in served]
        if best is not None and (best.version_after, best.weak, best.unversioned) != (old, False, False):
            edits.append(best)
    return edits, lacking


def _ways(
    requirement: VersionRequirement, soname: str, table: SymbolTable
) -> Iterator[tuple[str, bool, bool, str]]:
    """Yield the ways to require a version of a library, the one that keeps most of the claim first.

    Each is a version, whether it is weak, whether its symbols are looked up without a version, and the reason.
    """
    defined = [node.name for node in table.verdefs if not node.base]
    name = requirement.name
    without = f"{soname} has no version {name}"
    # ld.so reads version numbers of a file with version records only, and stops at a versioned reference to one without.
    readable = table.has_versym and bool(table.verdefs or table.verneeds)
    if readable and (not defined or name in defined or requirement.weak):
        yield name, False, False, ""
    # A version that a vendor renamed ends in upstream's own name of that version. The longest match keeps most of the claim.
    nodes = (node for node in defined if node != name and name.endswith(node))
    for node in sorted(nodes, key=len, reverse=True):
        yield node, False, False, f"version {name} becomes {node}, which {soname} defines"
    if readable and defined and name not in defined:
        yield name, True, False, f"{without}, and has the symbols without a version: it becomes weak"
    yield name, True, True, f"{without}: it becomes weak, and its symbols are looked up without a version"


class Exporters:
    """The members or libraries that export some names.

    :param exports: what each exports of them; answers have the same order.
    """

    def __init__(self, exports: Mapping[str, Mapping[str, Collection[Export]]]) -> None:
        self._exports = exports
        self._owners = group_pairs((name, who) for who, names in exports.items() for name in names)

    def exporters_of(self, imported: Unbound) -> Iterator[str]:
        """Return who exports an import in its version."""
        return (who for who in self._owners.get(imported.name, ()) if self._has(who, imported))

    def _has(self, who: str, imported: Unbound) -> bool:
        return match(tuple(self._exports[who].get(imported.name, ())), imported.version) is not None

    def exporters_of_all(self, imports: Collection[Unbound]) -> list[str]:
        """Return who exports all of `imports`, each in its version."""
        # Only who exports the rarest name can export all of them.
        fewest = min((self._owners.get(imported.name, []) for imported in imports), key=len, default=[])
        return [who for who in fewest if all(self._has(who, imported) for imported in imports)]

    def exporters_of_some(self, imports: Iterable[Unbound]) -> list[str]:
        """Return who exports any of `imports`, in whatever version."""
        exporters = {who for imported in imports for who in self._owners.get(imported.name, ())}
        return [who for who in self._exports if who in exporters]


class Suppliers(msgspec.Struct, frozen=True):
    """The members and libraries, outside of the closures, that export unbound imports.

    :ivar members: by the name of the member; `libraries` by the soname of a provider's library.
    :ivar sources: soname → what the user named the provider by that it comes from; `needed` → the library's NEEDED.
    """

    members: Exporters
    libraries: Exporters
    sources: Mapping[str, str] = msgspec.field(default_factory=dict)
    needed: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)

    def sets_of_all(self, context: ResolveContext, imports: Collection[Unbound]) -> list[tuple[str, ...]]:
        """Return the smallest sets of libraries of one provider and one release that together export all of `imports`.

        One or more for each release: of two HIP runtimes the one may export alone what the other exports with another library.
        """
        exporting = {frozenset(self.libraries.exporters_of(imported)) for imported in imports}
        most = _MOST_TOGETHER if len(exporting) <= _MOST_DIFFERENT else 1
        sets: dict[tuple[str, ...], None] = {}
        for source in dict.fromkeys(self.sources.values()):
            of_source = {soname for soname, other in self.sources.items() if other == source}
            for release in _releases(context.vendor, of_source):
                owners = {who & release for who in exporting}
                for size in range(1, most + 1):
                    # Sorted: the order of `owners` is that of hashes.
                    if smallest := sorted(filter(self._fit, _covers(owners, size))):
                        sets |= dict.fromkeys(smallest)
                        break
        return list(sets)

    def _fit(self, sonames: Sequence[str]) -> bool:
        """Whether none of the libraries needs another version of one of them."""
        versions = {soname_stem(soname): soname for soname in sonames}
        needed = (name for soname in sonames for name in self.needed.get(soname, ()))
        return all(versions.get(soname_stem(name), name) == name for name in needed)

    def advice(
        self, context: ResolveContext, imports: Collection[Unbound]
    ) -> tuple[str | None, tuple[str, ...]]:
        """Return the advice for unbound imports and the option to pass; one option per set of libraries that exports them all.

        No advice where nothing is known; no option where a member of the wheel exports them, and where another version of
        the only set exports some of them.
        """
        if all(map(is_of_python, imports)):
            return (
                "The target's Python does not have them: pass the Python that the wheel is for (--python), or take the wheel "
                "for this one."
            ), ()
        assume = "if something does, pass --assume-symbols GLOB."
        if members := self.members.exporters_of_all(imports):
            shown = context.layout.shown(context.layout.path_of(members[0]))
            return (
                f"{shown} exports all of them: the package has to load it before, with RTLD_GLOBAL; {assume}"
            ), ()
        sets = self.sets_of_all(context, imports)
        if not sets:
            return self._partly(context, imports)
        options = tuple(
            " ".join(f"--preload {shlex.quote(soname)}" for soname in sonames) for sonames in sets
        )[:_MOST_CHOICES]
        verb = "each export" if len(sets) > 1 else "exports" if len(sets[0]) == 1 else "export"
        # The libraries that export some of the imports and differ from one of the sets in the version only.
        chosen = {soname for sonames in sets for soname in sonames}
        stems = {soname_stem(soname) for soname in chosen}
        partly = [
            soname
            for soname in self.libraries.exporters_of_some(imports)
            if soname not in chosen and soname_stem(soname) in stems
        ]
        some = f" ({join_truncated(partly)} some of them)" if partly else ""
        named = join_truncated([" with ".join(sonames) for sonames in sets])
        remedy = (
            f"{named} of the prefix {verb} all of them{some}, and no NEEDED leads there: "
            f"if you know that the file was built for it, pass {' or '.join(options)}; {assume}"
        )
        return remedy, () if len(sets) == 1 and partly else options

    def _partly(
        self, context: ResolveContext, imports: Collection[Unbound]
    ) -> tuple[str | None, tuple[str, ...]]:
        """Say which library exports most of `imports`, and which one of the release no provider has that the others may be of."""
        vendor, about = context.vendor, (context.distribution, context.providers)
        counts = Counter(who for imported in imports for who in self.libraries.exporters_of(imported))
        rest = [imported.name for imported in imports if not any(self.libraries.exporters_of(imported))]
        sonames = [
            soname
            for soname in (sorted(context.of_release) if rest else ())
            if context.provider_path(soname) is None
            and all(vendor.libraries.whose(soname, name) == "own" for name in rest)
        ]
        if not (counts or sonames):
            return None, ()
        nowhere = join_truncated(rest)
        text = f"nothing in the prefix exports {nowhere}"
        if counts:
            ((most, count),) = counts.most_common(1)
            text = f"{most} of the prefix has {count} of {len(imports)} symbols used"
            text += f", and nothing there {nowhere}" if nowhere else ""
        if sonames:
            text += f", which may be of {' or '.join(sonames)} (table {vendor.name})"
        fix = RULES["RLK302"].fix
        where = (vendor.libraries.where_to_get(name, *about) for name in sonames)
        step = vendor.libraries.install(sonames[0], *about) if len(sonames) == 1 else None
        advice = " ".join([f"{text}: {fix[:1].lower()}{fix[1:]}", *filter(None, where)])
        return advice, (step,) if step else ()


def _covers(owners: Collection[AbstractSet[str]], size: int) -> Iterator[tuple[str, ...]]:
    """Yield the sets of `size` libraries, each in the alphabet's order, that have a member in each of `owners`."""
    # Every set needs a member of the smallest group, so the search branches least when it begins there.
    fewest = min(owners, key=len, default=frozenset())
    if size == 1:
        yield from ((who,) for who in sorted(fewest) if all(who in others for others in owners))
    elif len(fewest) <= _MOST_OWNERS:
        for who in sorted(fewest):
            rest = {others for others in owners if who not in others}
            yield from (tuple(sorted((who, *more))) for more in _covers(rest, size - 1))


def _releases(vendor: Vendor, sonames: AbstractSet[str]) -> list[AbstractSet[str]]:
    """Return which of `sonames` may be of one release: for each that the vendor's table knows, and for those it does not."""
    rows = (row for component in vendor.libraries.components() for row in component.sonames.items())
    releases = group_pairs((major, name) for major, names in rows if major != "any" for name in names)
    known = {name for names in releases.values() for name in names}
    stems = {soname_stem(name) for name in known}
    of_any = {soname for soname in sonames if soname_stem(soname) not in stems}
    return [of_any | ({*names} & sonames) for names in (*releases.values(), sonames - known)]


def find_unbound_alone(path: str, target: Target, tables: Tables) -> list[Unbound]:
    """Return the imports of a library that nothing has where it is loaded without any wheel: its installation lacks something.

    What it lacks of a library that every Linux has is left out: that depends on the target, and not on the installation.
    """
    libc = posixpath.join(target.libc_directory, "libc.so.6")
    environment = Environment(target, tables.files)
    try:
        closure = trace(environment, path, [libc] if tables.files.open(libc).image else [])
    except RootRefusedError:
        return []
    # What is in a library that is not found is nobody's fault here.
    return [
        unbound
        for unbound in bind(closure, tables).unbound
        if not closure.missing
        and unbound.path == path
        and not (unbound.file and is_platform_library(unbound.file, target.header.machine))
    ]


def broken_alone_remedy(path: str, files: Files) -> str:
    """Return what to do about a library that lacks symbols by itself."""
    image = files.open(path).image
    needed = [name for name in (image.needed if image else ()) if name not in GLIBC_SONAMES]
    others = f" and what it needs ({join_truncated(needed)})" if needed else ""
    return (
        f"{posixpath.basename(path)} lacks this without any wheel, too: what is installed there does not belong together. "
        f"Install it{others} again, of one release, or use another prefix."
    )


def is_of_python(imported: Unbound) -> bool:
    """Whether an import is one that a Python supplies."""
    return imported.version is None and _OF_PYTHON.match(imported.name) is not None


def find_suppliers(
    context: ResolveContext, members: Mapping[str, SymbolTable], names: AbstractSet[str]
) -> Suppliers:
    """Find the members of the wheel and the libraries of the providers that export some names; looks at all of them."""
    if not names:
        return Suppliers(Exporters({}), Exporters({}))

    def exported(table: SymbolTable) -> dict[str, Collection[Export]]:
        # Only the names that are looked for are kept: the tables of all libraries of a prefix are much larger.
        return {name: table.exports[name] for name in table.exports.keys() & names}

    hashes = hash_names(names)
    of_libraries: dict[str, Mapping[str, Collection[Export]]] = {}
    sources: dict[str, str] = {}
    needed: dict[str, Sequence[str]] = {}
    seen: set[tuple[object, ...]] = set()
    for provider in context.providers:
        for soname, paths in provider.libraries.items():
            opened = context.files.open(paths[0])
            # A prefix has most libraries under several names, which are links to one file.
            if opened.image is None or opened.identity is None or opened.identity in seen:
                continue
            seen.add(opened.identity)
            own = opened.image.soname or posixpath.basename(soname)
            # The first provider that has a soname serves it.
            if own not in sources:
                sources[own] = provider.named
                needed[own] = opened.image.needed
                of_libraries[own] = exported(read_table(context.files, paths[0], hashes))
    of_members = {member: exported(table) for member, table in members.items()}
    return Suppliers(Exporters(of_members), Exporters(of_libraries), sources, needed)
