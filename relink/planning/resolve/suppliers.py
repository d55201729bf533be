"""Who would supply imports that nothing in a closure exports: a member of the wheel, a library of a prefix, or another Python.

Takes the unbound imports of all members; reads each library of the providers once, and only if there are such imports.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from relink.elf.symbols import Export, SymbolTable, match
from relink.loader.binding import Unbound
from relink.loader.tables import read_table
from relink.planning.resolve.context import ResolveContext
from relink.providers.prefix import soname_stem
from relink.system.findings.model import RULES
from relink.system.text import grouped, join_truncated
from relink.vendors.protocol import Vendor

# The most libraries that are proposed together for one file.
_MOST_TOGETHER = 4
# No set of several libraries is looked for where every import has more exporters than this.
_MOST_OWNERS = 8
# Groups of libraries that export one import each. With more groups no set of several libraries is looked for.
_MOST_DIFFERENT = 200
_MOST_CHOICES = 2  # sets that are proposed
# The names of Python's symbols, by the same pattern as in relink.loader.binding.
_OF_PYTHON = re.compile(r"_?Py")


class Exporters:
    """Who exports which of some names.

    :param exports: what each exports of them; answers have the same order.
    """

    def __init__(self, exports: Mapping[str, Mapping[str, Collection[Export]]]) -> None:
        self._exports = exports
        self._order = {who: index for index, who in enumerate(exports)}
        self._owners = grouped((name, who) for who, names in exports.items() for name in names)

    def of_all(self, imports: Collection[Unbound]) -> Iterator[str]:
        """Return who exports all of `imports`, each in its version."""
        # Only who exports the rarest name can export all of them.
        fewest = min((self._owners.get(imported.name, []) for imported in imports), key=len, default=[])
        return (who for who in fewest if all(self._has(who, imported) for imported in imports))

    def _has(self, who: str, imported: Unbound) -> bool:
        return match(tuple(self._exports[who].get(imported.name, ())), imported.version) is not None

    def of(self, imported: Unbound) -> Iterator[str]:
        """Return who exports an import in its version."""
        return (who for who in self._owners.get(imported.name, ()) if self._has(who, imported))

    def of_some(self, imports: Iterable[Unbound]) -> list[str]:
        """Return who exports any of `imports`, in whatever version."""
        exporters = {who for imported in imports for who in self._owners.get(imported.name, ())}
        return sorted(exporters, key=self._order.__getitem__)


@dataclass(frozen=True, slots=True)
class Suppliers:
    """What exports some of the unbound imports, outside of the closures that lack them.

    :ivar members: by the name of the member; `libraries` by the soname of a provider's library.
    :ivar sources: soname → what the user named the provider by that it comes from; `needed` → the library's NEEDED.
    """

    members: Exporters
    libraries: Exporters
    sources: Mapping[str, str] = field(default_factory=dict)
    needed: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def sets_of_all(self, context: ResolveContext, imports: Collection[Unbound]) -> list[tuple[str, ...]]:
        """Return the smallest sets of libraries of one provider and one release that together export all of `imports`.

        One or more for each release: of two HIP runtimes the one may export alone what the other exports with another library.
        """
        exporting = {frozenset(self.libraries.of(imported)) for imported in imports}
        most = _MOST_TOGETHER if len(exporting) <= _MOST_DIFFERENT else 1
        sets: dict[tuple[str, ...], None] = {}
        for source in dict.fromkeys(self.sources.values()):
            of_source = {soname for soname, other in self.sources.items() if other == source}
            for release in _releases(context.vendor, of_source):
                owners = {who & release for who in exporting}
                covers = (_covers(owners, size) for size in range(1, most + 1))
                by_size = (dict.fromkeys(filter(self._fit, of_size)) for of_size in covers)
                # The sets of the smallest size for which there are any.
                sets |= next(filter(None, by_size), {})
        return list(sets)

    def _fit(self, sonames: Sequence[str]) -> bool:
        """Whether none of the libraries needs another version of one of them."""
        versions = {soname_stem(soname): soname for soname in sonames}
        needed = (name for soname in sonames for name in self.needed.get(soname, ()))
        return all(versions.get(soname_stem(name), name) == name for name in needed)

    def advice(
        self, context: ResolveContext, imports: Collection[Unbound]
    ) -> tuple[str | None, tuple[str, ...]]:
        """Return what to do about `imports`, and what to type: several where several sets of libraries export all of them.

        Nothing where nothing is known; nothing to type where a member of the wheel exports them, and where another version of
        the only set exports some of them.
        """
        if all(map(is_of_python, imports)):
            return (
                "The target's Python does not have them: pass the Python that the wheel is for (--python), or take the wheel "
                "for this one."
            ), ()
        assume = "if something does, pass --assume-symbols GLOB."
        if (member := next(self.members.of_all(imports), None)) is not None:
            shown = context.layout.shown(context.layout.path_of(member))
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
        partly = self._other_versions(imports, sets)
        some = f" ({join_truncated(partly)} some of them)" if partly else ""
        named = join_truncated([" with ".join(sonames) for sonames in sets])
        remedy = (
            f"{named} of the prefix {verb} all of them{some}, and no NEEDED leads there: "
            f"if you know that the file was built for it, pass {' or '.join(options)}; {assume}"
        )
        return remedy, () if len(sets) == 1 and partly else options

    def _other_versions(self, imports: Collection[Unbound], sets: Collection[Sequence[str]]) -> list[str]:
        """Return the libraries that export some of `imports` and differ from one of `sets` in the version only."""
        chosen = {soname for sonames in sets for soname in sonames}
        stems = {soname_stem(soname) for soname in chosen}
        others = (soname for soname in self.libraries.of_some(imports) if soname not in chosen)
        return [soname for soname in others if soname_stem(soname) in stems]

    def _partly(
        self, context: ResolveContext, imports: Collection[Unbound]
    ) -> tuple[str | None, tuple[str, ...]]:
        """Say which library exports most of `imports`, and which one of the release no provider has that the others may be of."""
        counts = Counter(who for imported in imports for who in self.libraries.of(imported))
        rest = [imported.name for imported in imports if not any(self.libraries.of(imported))]
        sonames = [
            soname
            for soname in sorted(context.of_release)
            if rest
            and context.provider_path(soname) is None
            and all(context.vendor.libraries.whose(soname, name) == "own" for name in rest)
        ]
        nowhere = join_truncated(rest)
        if not (counts or sonames):
            return None, ()
        text = f"nothing in the prefix exports {nowhere}"
        if counts:
            ((most, count),) = counts.most_common(1)
            text = f"{most} of the prefix has {count} of {len(imports)} symbols used"
            text += f", and nothing there {nowhere}" if nowhere else ""
        if sonames:
            text += f", which may be of {' or '.join(sonames)} (table {context.vendor.name})"
        fix = RULES["RLK302"].fix
        vendor, about = context.vendor, (context.distribution, context.providers)
        where = (vendor.libraries.where_to_get(name, *about) for name in sonames)
        step = vendor.libraries.install(sonames[0], *about) if len(sonames) == 1 else None
        return " ".join([f"{text}: {fix[:1].lower()}{fix[1:]}", *filter(None, where)]), (
            step,
        ) if step else ()


def _covers(owners: Collection[AbstractSet[str]], size: int) -> Iterator[tuple[str, ...]]:
    """Yield the sets of `size` libraries, in the alphabet's order, that have a member in each of `owners`."""
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
    releases = grouped((major, name) for major, names in rows if major != "any" for name in names)
    known = {name for names in releases.values() for name in names}
    stems = {soname_stem(name) for name in known}
    of_any = {soname for soname in sonames if soname_stem(soname) not in stems}
    return [of_any | ({*names} & sonames) for names in (*releases.values(), sonames - known)]


def is_of_python(imported: Unbound) -> bool:
    """Whether an import is one that a Python supplies."""
    return imported.version is None and _OF_PYTHON.match(imported.name) is not None


def find_suppliers(
    context: ResolveContext, members: Mapping[str, SymbolTable], names: AbstractSet[str]
) -> Suppliers:
    """Look for names among the exports of the wheel's members and of the providers' libraries, which are all read for it."""
    if not names:
        return Suppliers(Exporters({}), Exporters({}))
    of_members = {member: _exported(table, names) for member, table in members.items()}
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
                # Only the names that are looked for are kept: the tables of all libraries of a prefix are much larger.
                of_libraries[own] = _exported(read_table(context.files, paths[0]), names)
    return Suppliers(Exporters(of_members), Exporters(of_libraries), sources, needed)


def _exported(table: SymbolTable, names: AbstractSet[str]) -> dict[str, Collection[Export]]:
    return {name: table.exports[name] for name in table.exports.keys() & names}
