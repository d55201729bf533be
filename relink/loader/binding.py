"""Which import binds to which object: every symbol of a closure looked up as ld.so looks it up.

Scopes and the look-up in them: :mod:`relink.loader.scopes`. Only what a relocation names is looked up (elf/dl-reloc.c), and
all of it at once, as with LD_BIND_NOW; with lazy binding a function may be missing until it is called.

A process has hundreds of thousands of bindings, and most callers ask which objects are bound to which, or for a few symbols. So
the symbols stay in the groups that the look-ups gave; :func:`by_symbol` makes a dictionary of these where a caller asks for one.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from relink.elf.symbols import Import
from relink.loader.closure import Closure
from relink.loader.object_graph import file_of
from relink.loader.scopes import Reason, Scope, Scopes
from relink.loader.symbol_index import SymbolReference
from relink.loader.tables import Tables

Symbol: TypeAlias = tuple[int, str, str | None]
"""An import: (index of the object in the closure's `objects`, name, version)."""


BoundSymbols: TypeAlias = tuple[int, int, Sequence[SymbolReference]]
"""The indices of an object and of one that symbols of it bind to, and their names with versions. A pair may come again."""


def by_symbol(groups: Iterable[BoundSymbols]) -> dict[Symbol, int]:
    """Return for each symbol the index of the object that it binds to."""
    return {
        (requester, name, version): target
        for requester, target, symbols in groups
        for name, version in symbols
    }


Kind: TypeAlias = Literal["interpreter", "process", "preload", "extra", "assumed interpreter", "assumed"]

# Every CPython exports this function: an object that does is a Python.
_CPYTHON = "Py_GetVersion"


@dataclass(frozen=True, slots=True)
class Unbound:
    """A strong import that nothing satisfies.

    :ivar requester: index of the object with the import, in the closure's `objects`; `path` is its path.
    :ivar file: the soname in the version record, which is where the linker found the symbol; None without a version.
    :ivar reason: ``undefined``: nothing in scope exports it in that version. ``aborts``: the library that the
        record names has the name but no version tables at all, and an ld.so before 2.41 stops at an assertion.
    """

    requester: int
    path: str
    name: str
    version: str | None
    file: str | None
    reason: Reason


@dataclass(frozen=True, slots=True)
class Explained:
    """A strong import that the libraries of the object's root do not satisfy, with what else satisfies it.

    :ivar kind: ``interpreter``: the program (or its libpython) that loads it; ``process``: a library that this program has
        loaded; ``preload``: a library that was loaded before into the global scope; ``extra``: one of `extra_exports`;
        ``assumed interpreter``: any Python that imports it; ``assumed``: the user says so.
    :ivar by: what supplies it: a path, the key of `extra_exports`, or the glob.
    :ivar target: index of the supplying object where it is in the closure; None where ld.so, loading this closure alone,
        would report it as undefined.
    """

    requester: int
    path: str
    name: str
    version: str | None
    file: str | None
    kind: Kind
    by: str
    target: int | None = None


@dataclass(frozen=True, slots=True)
class Bindings:
    """Where the imports of a closure lead.

    :ivar unbound: strong imports that nothing satisfies; errors.
    :ivar explained: those that something outside of the object's own libraries satisfies, or is assumed to satisfy.
    :ivar bound: every import that binds.
    :ivar interposed: the same for an object's *own* definitions that its relocations name, where another object interposes them.
    """

    unbound: tuple[Unbound, ...]
    explained: tuple[Explained, ...]
    bound: tuple[BoundSymbols, ...]
    interposed: tuple[BoundSymbols, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """An import (or own definition) of `requester` that binds to another file than before; None for nothing."""

    requester: str
    name: str
    version: str | None
    before: str | None
    after: str | None


def bind(
    closure: Closure,
    tables: Tables,
    *,
    assume: Sequence[str] = (),
    extra_exports: Mapping[str, Collection[str]] | None = None,
    only: Collection[int] | None = None,
) -> Bindings:
    """Look up every import of every object in the closure's scope, or of those that `only` names.

    The program and its libraries, preloads, and all roots before the last are the global scope. Where nothing in the process
    is a Python, unversioned ``Py…`` and ``_Py…`` are assumed to come from the one that will import the object.

    :param assume: globs (``--assume-symbols``) of names, or of ``name@VERSION``, that the user promises to supply.
    :param extra_exports: names that something outside of the closure supplies, by what it is: members that the package
        preloads, for one.
    """
    scopes, wanted = Scopes(closure, tables), set(closure.scope)
    objects = [found for found in scopes.of_objects() if found[0] in wanted]
    return bind_objects(scopes, objects, assume=assume, extra_exports=extra_exports or {}, only=only)


def bind_objects(
    scopes: Scopes,
    objects: Sequence[tuple[int, Scope, Scope]],
    *,
    assume: Sequence[str] = (),
    extra_exports: Mapping[str, Collection[str]] | None = None,
    only: Collection[int] | None = None,
) -> Bindings:
    """Look up every import of `objects`, as :meth:`relink.loader.scopes.Scopes.of_objects` yields them, or of those in `only`.

    The other parameters are those of :func:`bind`.
    """
    open_imports: list[Unbound] = []
    explained: list[Explained] = []
    bound: list[BoundSymbols] = []
    interposed: list[BoundSymbols] = []
    # Of all objects, whatever `only` names: after that the index has the tables of all of them.
    lookups = {index: scopes.lookups(index) for index, _, _ in objects}
    for index, scope, own_scope in objects:
        if only is not None and index not in only:
            continue
        table, path, own = scopes.table(index), scopes.objects[index].path, scopes.own[index]
        exact = table.exact
        find = scope.find
        searched = [*lookups[index].searched_imports]
        for candidates, places, symbols in lookups[index].imports:
            supplier = scope.first(candidates)
            # Not in scope: the search says why. In an object outside of the own libraries: that needs an explanation, below.
            if supplier is None or supplier not in own:
                searched += places
                continue
            bound.append((index, supplier, symbols))
        for wanted in (table.imports[number] for number in sorted(searched)):
            name, version, file = wanted.name, wanted.version, wanted.file
            target, reason = find(name, version, file, exact=bool(exact) and wanted.index in exact)
            if target is not None:
                bound.append((index, target, ((name, version),)))
                if target not in own and wanted.binding != "weak":
                    explained += _from_outside(scopes, own_scope, index, wanted, target)
            # A weak import that nothing satisfies is no error, unless ld.so aborts over it.
            elif wanted.binding != "weak" or reason != "undefined":
                open_imports.append(Unbound(index, path, name, version, file, reason))
        if index == 0 and table.copies:
            # A copy relocation takes the variable's value from any object but the program (ELF_RTYPE_CLASS_COPY).
            others = scopes.scope([other for other, _ in scope.order[1:]], {})
            for wanted in table.copies:
                target, reason = others.find(wanted.name, wanted.version, wanted.file)
                if target is not None:
                    bound.append((index, target, ((wanted.name, wanted.version),)))
                elif wanted.binding != "weak" or reason != "undefined":
                    open_imports.append(Unbound(0, path, wanted.name, wanted.version, wanted.file, reason))
        # Several objects may share a table: what was found of its references is right for the first of them.
        is_first = scope.index(table) == index
        references = [*(lookups[index].searched_references if is_first else table.references)]
        for candidates, symbols in lookups[index].references if is_first else ():
            first = scope.first(candidates)
            if first is not None and first != index:
                interposed.append((index, first, symbols))
        for name, version in references:
            target, reason = find(name, version, None)
            if target == index:
                continue
            own_ones = (*table.rejected.get(name, ()), *table.exports.get(name, ()))
            # Not even the object's own definition is found: it has no value, or is not in the hash table.
            if target is None:
                if all(export.binding != "weak" for export in own_ones):
                    open_imports.append(Unbound(index, path, name, version, None, reason))
            # ld.so binds a protected definition to the object itself (elf/dl-lookup.c, _dl_lookup_symbol_x).
            elif all(export.visibility != "protected" for export in own_ones if export.version == version):
                interposed.append((index, target, ((name, version),)))
    unbound: list[Unbound] = []
    open_imports.sort(key=lambda wanted: wanted.requester)
    supply = _OutsideSupply(scopes, assume, extra_exports or {})
    for lost in open_imports:
        why = supply.of(lost)
        if why is None:
            unbound.append(lost)
        else:
            explained.append(
                Explained(lost.requester, lost.path, lost.name, lost.version, lost.file, why[0], why[1])
            )
    return Bindings(
        tuple(unbound),
        tuple(explained),
        tuple(bound),
        tuple(interposed),
    )


def _from_outside(
    scopes: Scopes, own_scope: Scope, index: int, wanted: Import, supplier_index: int
) -> Iterator[Explained]:
    """Yield an import that binds to an object outside of its root's, unless its root's objects would satisfy it, too."""
    if own_scope.find(wanted.name, wanted.version, wanted.file)[0] is not None:
        return
    objects = scopes.objects
    supplier = objects[supplier_index]
    kind: Kind = "preload"
    if supplier_index in scopes.program:
        kind = "interpreter" if supplier_index == 0 or supplier.name.startswith("libpython") else "process"
    yield Explained(
        index,
        objects[index].path,
        wanted.name,
        wanted.version,
        wanted.file,
        kind,
        supplier.path,
        supplier_index,
    )


@dataclass(slots=True)
class _OutsideSupply:
    """Finds what satisfies an import that nothing in the closure does.

    :ivar assume: globs of names; `extra`: names by what supplies them; both as for :func:`bind`.
    :ivar python: something in the process is a Python, so no other one will import the objects.
    """

    scopes: Scopes
    assume: Sequence[str]
    extra: Mapping[str, Collection[str]]
    python: bool = False

    def __post_init__(self) -> None:
        tables = (self.scopes.table(index) for index in range(len(self.scopes.objects)))
        self.python = any(_CPYTHON in table.exports for table in tables) or any(
            _CPYTHON in names for names in self.extra.values()
        )

    def of(self, wanted: Unbound) -> tuple[Kind, str] | None:
        for supplier, exports in self.extra.items():
            if wanted.name in exports:
                return "extra", supplier
        full = f"{wanted.name}@{wanted.version}"
        for pattern in self.assume:
            if fnmatch.fnmatchcase(wanted.name, pattern) or fnmatch.fnmatchcase(full, pattern):
                return "assumed", pattern
        if not self.python and wanted.version is None and wanted.name.startswith(("Py", "_Py")):
            return "assumed interpreter", "the interpreter that imports it"
        return None


def differences(before: tuple[Closure, Bindings], after: tuple[Closure, Bindings]) -> list[Difference]:
    """Return the symbols of objects that both closures have and that bind to another file in the second than in the first.

    Files are compared, not paths. What nothing satisfies in either is no difference.
    """
    (closure_before, bindings_before), (closure_after, bindings_after) = before, after
    files_before = [file_of(loaded) for loaded in closure_before.objects]
    files_after = [file_of(loaded) for loaded in closure_after.objects]
    scope = set(closure_after.scope)
    there = {file: index for index, file in enumerate(files_after) if index in scope}
    common = {
        index: there[files_before[index]] for index in closure_before.scope if files_before[index] in there
    }
    kept = set(common.values())
    changed = []
    for then, now, itself in (
        (bindings_before.bound, bindings_after.bound, False),
        (bindings_before.interposed, bindings_after.interposed, True),
    ):
        old = {
            (common[index], name, version): target
            for (index, name, version), target in by_symbol(then).items()
            if index in common
        }
        new = {symbol: target for symbol, target in by_symbol(now).items() if symbol[0] in kept}
        for symbol in {**old, **new}:
            was, is_now = old.get(symbol), new.get(symbol)
            own = files_after[symbol[0]] if itself else None
            file_was = own if was is None else files_before[was]
            file_is = own if is_now is None else files_after[is_now]
            if file_was == file_is:
                continue
            path = closure_after.objects[symbol[0]].path
            default = path if itself else None
            changed.append(
                Difference(
                    path,
                    symbol[1],
                    symbol[2],
                    default if was is None else closure_before.objects[was].path,
                    default if is_now is None else closure_after.objects[is_now].path,
                )
            )
    return changed
