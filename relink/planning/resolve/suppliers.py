"""Who would supply imports that nothing in a closure exports: a member of the wheel, a library of a prefix, or another Python.

Takes the unbound imports of all members; reads each library of the providers once, and only if there are such imports.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import Export, SymbolTable, match
from relink.loader.binding import Unbound
from relink.planning.resolve.context import ResolveContext
from relink.providers.prefix import soname_stem
from relink.system.errors import ElfError
from relink.system.safe_open import map_file
from relink.system.system_errors import raise_if_machine_fault
from relink.system.text import join_truncated

__all__ = ["Suppliers", "find_suppliers", "is_of_python", "step_of"]

_OF_PYTHON = re.compile(r"_?Py")  # as relink.loader.binding takes them


class Exporters:
    """Who exports which of some names.

    :param exports: what each exports of them; answers have the same order.
    """

    def __init__(self, exports: Mapping[str, Mapping[str, Collection[Export]]]) -> None:
        self._exports = exports
        self._order = {who: index for index, who in enumerate(exports)}
        self._owners: dict[str, list[str]] = {}
        for who, names in exports.items():
            for name in names:
                self._owners.setdefault(name, []).append(who)

    def of_all(self, imports: Collection[Unbound]) -> Iterator[str]:
        """Yield who exports all of `imports`, each in its version."""
        fewest = min((self._owners.get(imported.name, []) for imported in imports), key=len, default=[])
        for who in fewest:
            exports = self._exports[who]
            if all(
                match(tuple(exports.get(imported.name, ())), imported.version) is not None
                for imported in imports
            ):
                yield who

    def of_some(self, imports: Iterable[Unbound]) -> list[str]:
        """Return who exports any of `imports`, in whatever version."""
        exporters = {who for imported in imports for who in self._owners.get(imported.name, ())}
        return sorted(exporters, key=self._order.__getitem__)


@dataclass(frozen=True, slots=True)
class Suppliers:
    """What exports some of the unbound imports, outside of the closures that lack them.

    :ivar members: by the name of the member; `libraries` by the soname of a provider's library.
    """

    members: Exporters
    libraries: Exporters

    def remedy(self, context: ResolveContext, imports: Collection[Unbound]) -> str | None:
        """Return what to do about `imports`, or None where no one supplier of all of them is known."""
        if all(is_of_python(imported) for imported in imports):
            return (
                "The target's Python does not have them: pass the Python that the wheel is for (--python), or take the wheel "
                "for this one."
            )
        assume = "if something does, pass --assume-symbols GLOB."
        member = next(self.members.of_all(imports), None)
        if member is not None:
            shown = context.layout.shown(context.layout.path_of(member))
            return (
                f"{shown} exports all of them: the package has to load it before, with RTLD_GLOBAL; {assume}"
            )
        libraries = list(self.libraries.of_all(imports))
        if libraries:
            verb = "exports" if len(libraries) == 1 else "each export"
            stems = {soname_stem(name) for name in libraries}
            others = self.libraries.of_some(imports)
            some = [name for name in others if name not in libraries and soname_stem(name) in stems]
            partly = f" ({join_truncated(some)} some of them)" if some else ""
            which = " or ".join(f"--preload {name}" for name in libraries[:2])
            return (
                f"{join_truncated(libraries)} of the prefix {verb} all of them{partly}, and no NEEDED leads there: "
                f"if you know that the file was built for it, pass {which}; {assume}"
            )
        return None


def step_of(suppliers: Suppliers, imports: Collection[Unbound]) -> str | None:
    """Return the option that adds the one library that exports all of `imports`, or None where there is not exactly one."""
    if not imports or all(is_of_python(imported) for imported in imports):
        return None
    if any(suppliers.members.of_all(imports)):
        return None
    libraries = list(suppliers.libraries.of_all(imports))
    stems = [soname_stem(name) for name in suppliers.libraries.of_some(imports)]
    if len(libraries) != 1 or stems.count(soname_stem(libraries[0])) > 1:
        return None
    return f"--preload {shlex.quote(libraries[0])}"


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
    seen: set[tuple[object, ...]] = set()
    for provider in context.providers:
        for soname, paths in provider.libraries.items():
            opened = context.files.open(paths[0])
            if opened.image is None or opened.identity is None or opened.identity in seen:
                continue
            seen.add(opened.identity)
            own = opened.image.soname or posixpath.basename(soname)
            # The table itself is not kept: those of all libraries of a prefix are much more than the names that are looked for.
            of_libraries[own] = _exported(_table(context, paths[0]), names)
    return Suppliers(Exporters(of_members), Exporters(of_libraries))


def _exported(table: SymbolTable, names: AbstractSet[str]) -> dict[str, Collection[Export]]:
    return {name: table.exports[name] for name in table.exports.keys() & names}


def _table(context: ResolveContext, path: str) -> SymbolTable:
    """Read the symbols of a library; that of a file that cannot be read is empty."""
    try:
        with map_file(context.files.host(path)) as buffer:
            return read_symbols(buffer)
    except OSError as error:
        raise_if_machine_fault(error, path)
        return SymbolTable()
    except ElfError:
        return SymbolTable()
