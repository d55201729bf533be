"""Who would supply imports that nothing in a closure exports: a member of the wheel, a library of a prefix, or another Python.

Takes the unbound imports of all members; reads each library of the providers once, and only if there are such imports.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import Export, SymbolTable, match
from relink.errors import ElfError
from relink.files import map_file
from relink.loader.binding import Unbound
from relink.providers.prefix import soname_stem
from relink.resolve.strategy import ResolveContext
from relink.system_errors import raise_trouble
from relink.text import join_truncated

__all__ = ["Suppliers", "find_suppliers", "is_of_python", "step_of"]

_OF_PYTHON = re.compile(r"_?Py")  # as relink.loader.binding takes them


@dataclass(frozen=True, slots=True)
class Suppliers:
    """What exports some of the unbound imports, outside of the closures that lack them.

    :ivar members: member as shown → its exports of these names; `libraries` the same by the soname of a provider's library.
    """

    members: Mapping[str, Mapping[str, Collection[Export]]] = field(default_factory=dict)
    libraries: Mapping[str, Mapping[str, Collection[Export]]] = field(default_factory=dict)

    def remedy(self, imports: Collection[Unbound]) -> str | None:
        """Return what to do about `imports`, or None where no one supplier of all of them is known."""
        if all(is_of_python(item) for item in imports):
            return (
                "The target's Python does not have them: pass the Python that the wheel is for (--python), or take the wheel "
                "for this one."
            )
        assume = "if something does, pass --assume-symbols GLOB."
        members = [name for name, exports in self.members.items() if _has_all(exports, imports)]
        if members:
            return f"{members[0]} exports all of them: the package has to load it before, with RTLD_GLOBAL; {assume}"
        libraries = [name for name, exports in self.libraries.items() if _has_all(exports, imports)]
        if libraries:
            verb = "exports" if len(libraries) == 1 else "each export"
            stems = {soname_stem(name) for name in libraries}
            some = [
                name
                for name, exports in self.libraries.items()
                if exports and name not in libraries and soname_stem(name) in stems
            ]
            partly = f" ({join_truncated(some)} some of them)" if some else ""
            which = " or ".join(f"--preload {name}" for name in libraries[:2])
            return (
                f"{join_truncated(libraries)} of the prefix {verb} all of them{partly}, and no NEEDED leads there: "
                f"if you know that the file was built for it, pass {which}; {assume}"
            )
        return None


def step_of(suppliers: Suppliers, imports: Collection[Unbound]) -> str | None:
    """Return the option that adds the one library that exports all of `imports`, or None where there is not exactly one."""
    if not imports or all(is_of_python(item) for item in imports):
        return None
    if any(_has_all(exports, imports) for exports in suppliers.members.values()):
        return None
    libraries = [name for name, exports in suppliers.libraries.items() if _has_all(exports, imports)]
    some = {name for name, exports in suppliers.libraries.items() if exports and name not in libraries}
    if len(libraries) != 1 or any(soname_stem(name) == soname_stem(libraries[0]) for name in some):
        return None
    return f"--preload {shlex.quote(libraries[0])}"


def is_of_python(item: Unbound) -> bool:
    """Whether an import is one that a Python supplies."""
    return item.version is None and _OF_PYTHON.match(item.name) is not None


def find_suppliers(
    context: ResolveContext, members: Mapping[str, SymbolTable], imports: Iterable[Unbound]
) -> Suppliers:
    """Look for the names of `imports` among the exports of the wheel's members and of the providers' libraries."""
    names = {item.name for item in imports if not is_of_python(item)}
    if not names:
        return Suppliers()
    of_members = {
        context.layout.shown(context.layout.path_of(member)): _exported(table, names)
        for member, table in members.items()
    }
    of_libraries: dict[str, Mapping[str, Collection[Export]]] = {}
    seen: set[tuple[object, ...]] = set()
    for provider in context.providers:
        for soname, paths in provider.libraries.items():
            opened = context.files.open(paths[0])
            if opened.image is None or opened.identity is None or opened.identity in seen:
                continue
            seen.add(opened.identity)
            own = opened.image.soname or posixpath.basename(soname)
            of_libraries[own] = _exported(_table(context, paths[0]), names)
    return Suppliers(of_members, of_libraries)


def _exported(table: SymbolTable, names: Collection[str]) -> dict[str, Collection[Export]]:
    return {name: table.exports[name] for name in names if name in table.exports}


def _has_all(exports: Mapping[str, Collection[Export]], imports: Collection[Unbound]) -> bool:
    return all(match(tuple(exports.get(item.name, ())), item.version) is not None for item in imports)


def _table(context: ResolveContext, path: str) -> SymbolTable:
    """Read the symbols of a library; that of a file that cannot be read is empty."""
    try:
        with map_file(context.files.host(path)) as buffer:
            return read_symbols(buffer)
    except OSError as error:
        raise_trouble(error, path)
        return SymbolTable()
    except ElfError:
        return SymbolTable()
