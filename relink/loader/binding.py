"""Which import binds to which object: every version record checked and every symbol looked up as ld.so does it.

Versions are checked before any symbol is looked up (glibc elf/dl-version.c: find_needed, match_symbol, _dl_check_map_versions).

Duplicates in one process are symbols that two libraries export, and libraries of one name in two versions. The first definition
in the scope interposes all others (elf/dl-lookup.c), also for the library that has the second: two libraries that export the same
name are mixed, unless version nodes or DT_SYMBOLIC keep them apart.

Scopes and the look-up in them: :mod:`relink.loader.tables`. Only what a relocation names is looked up (elf/dl-reloc.c), and
all of it at once, as with LD_BIND_NOW; with lazy binding a function may be missing until it is called.

A process has hundreds of thousands of bindings, and most callers ask which objects are bound to which, or for a few symbols. So
the symbols stay in the groups that the look-ups gave; :func:`by_symbol` makes a dictionary of these where a caller asks for one.
"""

from __future__ import annotations

import bisect
import difflib
import fnmatch
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal, TypeAlias

import msgspec

from relink.elf.symbols import Import
from relink.loader.closure import Closure, breadth_first, file_of, needed_by
from relink.loader.tables import Reason, Scope, Scopes, SymbolReference, Tables
from relink.loader.target import GLIBC_SONAMES

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


class Unbound(msgspec.Struct, frozen=True):
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


class Explained(msgspec.Struct, frozen=True):
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
    kind: Kind
    by: str
    target: int | None = None


class Bindings(msgspec.Struct, frozen=True):
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


class Difference(msgspec.Struct, frozen=True):
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
    explain: bool = True,
) -> Bindings:
    """Look up every import of `objects`, as :meth:`relink.loader.tables.Scopes.of_objects` yields them, or of those in `only`.

    The other parameters are those of :func:`bind`.

    :param explain: False: what the process has mapped before needs no explanation; a Python has it for each extension module.
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
            if supplier is None or (explain and supplier not in own):
                searched += places
                continue
            decided = scope.find_decided(candidates, symbols)
            searched += (number for number in places if decided and table.imports[number].name in decided)
            bound.append((index, supplier, _without(symbols, decided)))
        for wanted in (table.imports[number] for number in sorted(searched)):
            name, version, file = wanted.name, wanted.version, wanted.file
            target, reason = find(name, version, file, exact=bool(exact) and wanted.index in exact)
            if target is not None:
                bound.append((index, target, ((name, version),)))
                if explain and target not in own and wanted.binding != "weak":
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
            decided = scope.find_decided(candidates, symbols)
            references += (symbol for symbol in symbols if decided and symbol[0] in decided)
            if first is not None and first != index:
                interposed.append((index, first, _without(symbols, decided)))
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
    extra = extra_exports or {}
    # Where something in the process is a Python, no other one will import the objects.
    process = (scopes.table(index).exports for index in range(len(scopes.objects)))
    python = any(_CPYTHON in names for names in chain(process, extra.values()))
    for lost in open_imports:
        why = _supplied_from_outside(lost, assume, extra, python=python)
        if why is None:
            unbound.append(lost)
        else:
            explained.append(Explained(lost.requester, lost.path, lost.name, lost.version, why[0], why[1]))
    return Bindings(tuple(unbound), tuple(explained), tuple(bound), tuple(interposed))


def _without(symbols: tuple[SymbolReference, ...], names: Collection[str]) -> tuple[SymbolReference, ...]:
    return tuple(symbol for symbol in symbols if symbol[0] not in names) if names else symbols


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
        index, objects[index].path, wanted.name, wanted.version, kind, supplier.path, supplier_index
    )


def _supplied_from_outside(
    wanted: Unbound, assume: Sequence[str], extra: Mapping[str, Collection[str]], *, python: bool
) -> tuple[Kind, str] | None:
    """Return what satisfies an import that nothing in the closure does, and how; parameters as for :func:`bind`."""
    for supplier, exports in extra.items():
        if wanted.name in exports:
            return "extra", supplier
    full = f"{wanted.name}@{wanted.version}"
    for pattern in assume:
        if fnmatch.fnmatchcase(wanted.name, pattern) or fnmatch.fnmatchcase(full, pattern):
            return "assumed", pattern
    if not python and wanted.version is None and wanted.name.startswith(("Py", "_Py")):
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


class MissingVersion(msgspec.Struct, frozen=True):
    """A version that one object requires of another that does not define it.

    :ivar requester: path of the object with the version record.
    :ivar file: the soname that the record names.
    :ivar supplier: path of the object with that name.
    :ivar defined: the versions of the same family (``GLIBC``) that it does define, as in the file.
    """

    requester: str
    file: str
    version: str
    supplier: str
    defined: tuple[str, ...]


class UnservedRecord(msgspec.Struct, frozen=True):
    """A version record of `requester` that names a `file` that no object of the process is: the loader aborts.

    It is what remains where a NEEDED entry is removed or renamed and its record is not.
    """

    requester: str
    file: str


def check_records(closure: Closure, tables: Tables) -> Iterator[MissingVersion | UnservedRecord]:
    """Check every version record of every object in scope against the object that serves its file name, in the loader's order.

    A weak requirement, and one of a library that defines no versions at all, is not an error to the loader (it warns with
    LD_WARN).
    """
    for index in closure.scope:
        loaded = closure.objects[index]
        for need in tables.of(loaded).verneeds:
            # elf/dl-version.c, find_needed:
            # > for (tmap = GL(dl_ns)[map->l_ns]._ns_loaded; tmap != NULL;
            # >      tmap = tmap->l_next)
            # >   if (_dl_name_match_p (name, tmap))
            # >     return tmap;
            # The name of the main program, which comes first, is empty (elf/rtld.c).
            if not need.file:
                continue
            suppliers = closure.names.get(need.file)
            if not suppliers:
                # > assert (needed != NULL);
                yield UnservedRecord(loaded.path, need.file)
                continue
            supplier = closure.objects[suppliers[0]]
            defined = [node.name for node in tables.of(supplier).verdefs]
            for requirement in need.versions if defined else ():
                if requirement.name not in defined and not requirement.weak:
                    family = requirement.name.split("_", 1)[0]
                    known = tuple(name for name in defined if name.startswith(family + "_"))
                    yield MissingVersion(loaded.path, need.file, requirement.name, supplier.path, known)


def check_versions(closure: Closure, tables: Tables) -> list[MissingVersion]:
    """Return the versions that objects in scope require of others that do not define them."""
    found = check_records(closure, tables)
    return [*dict.fromkeys(record for record in found if isinstance(record, MissingVersion))]


def unserved_records(closure: Closure, tables: Tables) -> list[UnservedRecord]:
    """Return the version records that name a file that was not loaded, though nothing that is needed is missing.

    ``Inconsistency detected by ld.so: dl-version.c: … Assertion `needed != NULL' failed!`` Where the file is needed and missing,
    the missing edge is the reason.
    """
    lost = {edge.soname for edge in closure.missing}
    found = check_records(closure, tables)
    return [record for record in found if isinstance(record, UnservedRecord) and record.file not in lost]


_MAX_CLOSEST = 3
_NEIGHBOURS = 24
_MAX_COMPARED = 256  # characters of a name
_ALIKE = 0.75  # difflib's ratio


class Closest:
    """The exports of one closure that come nearest to what it lacks. Comparing names is slow, so ask only for what is shown.

    :param alphabets: the sorted exports of tables, by their `id`: closures that have libraries in common share it.
    """

    def __init__(
        self, closure: Closure, tables: Tables, alphabets: dict[int, list[str]] | None = None
    ) -> None:
        self._objects = closure.objects
        self._tables = tables
        self._by_name = closure.names
        self._needed = needed_by(closure)
        self._alphabets = {} if alphabets is None else alphabets

    def of(self, lost: Unbound) -> tuple[str, ...]:
        """Return up to three exports, ``name@VERSION in libx.so.1``.

        The same name in other versions comes first, or where it is hidden; else names like it in the library that the
        version record blames, or in those that the object needs.
        """
        return self._same(lost.name) or self._like(lost)

    def _same(self, name: str) -> tuple[str, ...]:
        same = [
            f"{name}@{export.version} in {self._label(index)}"
            if export.version
            else f"{name} without a version in {self._label(index)}"
            for index, loaded in enumerate(self._objects)
            for export in self._tables.of(loaded).exports.get(name, ())
            if not export.undefined
        ]
        same += [
            f"{name} in {self._label(index)}, but {export.visibility} there"
            for index, loaded in enumerate(self._objects)
            for export in self._tables.of(loaded).rejected.get(name, ())
            if export.visibility in ("hidden", "internal")
        ]
        return tuple(dict.fromkeys(same))[:_MAX_CLOSEST]

    def _like(self, lost: Unbound) -> tuple[str, ...]:
        blamed = self._by_name.get(lost.file, ()) if lost.file is not None else ()
        near: list[tuple[float, str, int]] = []
        matcher = difflib.SequenceMatcher(None, "", lost.name[:_MAX_COMPARED])
        for index in blamed or self._needed.get(lost.requester, ()):
            table = self._tables.of(self._objects[index])
            if id(table) not in self._alphabets:
                self._alphabets[id(table)] = sorted(table.exports)
            alphabet = self._alphabets[id(table)]
            position = bisect.bisect(alphabet, lost.name)
            for other in alphabet[max(0, position - _NEIGHBOURS) : position + _NEIGHBOURS]:
                matcher.set_seq1(other[:_MAX_COMPARED])
                # The upper bounds of the ratio first: they cost a tenth of it, and most names are not alike.
                if matcher.real_quick_ratio() >= _ALIKE and matcher.quick_ratio() >= _ALIKE:
                    ratio = matcher.ratio()
                    if ratio >= _ALIKE:
                        near.append((-ratio, other, index))
        return tuple(f"{other} in {self._label(index)}" for _, other, index in sorted(near)[:_MAX_CLOSEST])

    def _label(self, index: int) -> str:
        loaded = self._objects[index]
        return loaded.image.soname or loaded.path.rpartition("/")[2]


_EXAMPLES = 3
_MOST_COMPARED = 8  # files of one library
_SONAME = re.compile(
    r"(?P<stem>.+?)(?:-(?:\d+(?:\.\d+)*|(?=[a-f]*\d)[0-9a-f]{4,}))?\.so(?:\.(?P<version>[\w.]+))?"
)


class SharedSymbols(msgspec.Struct, frozen=True):
    """Two objects of one process that export the same strong, default-visible symbols in the same version.

    :ivar first: path of the object that interposes; `second`: of the one later in the scope.
    :ivar count: how many symbols; `examples` are three of them.
    :ivar mixed: how many of them bind to the first although what looks them up belongs to the second: references of the
        second itself, and imports of objects that need the second and not the first.
    """

    first: str
    second: str
    count: int
    examples: tuple[str, ...]
    mixed: int


class TwoVersions(msgspec.Struct, frozen=True):
    """Two files of one library in one process, such as libamdhip64.so.6 and .7.

    :ivar stem: what their sonames have in common, ``libamdhip64``.
    :ivar sonames: of the two, in load order; `paths` likewise.
    :ivar chains: for each, the paths of the objects from the root (or the program) to it, each needing (or dlopening) the next.
    """

    stem: str
    sonames: tuple[str, str]
    paths: tuple[str, str]
    chains: tuple[tuple[str, ...], tuple[str, ...]]


def duplicates(closure: Closure, tables: Tables, bindings: Bindings) -> list[SharedSymbols]:
    """Return the pairs of objects that export the same symbols and mix them, most mixed first.

    Only pairs that a binding leads to are compared. None of which the target's own C library is one is returned.
    """
    needed = needed_by(closure)
    places = _places(closure, tables, needed)

    # The same two objects come with many groups of symbols.
    @functools.cache
    def shared(first: int, second: int) -> frozenset[str]:
        if places.get(first, len(places)) >= places.get(second, -1):
            return frozenset()
        return tables.index.shared(tables.of(closure.objects[first]), tables.of(closure.objects[second]))

    mixed: dict[tuple[int, int], set[str]] = {}
    for index, target, symbols in bindings.interposed:
        if names := shared(target, index):
            mixed.setdefault((target, index), set()).update(name for name, _ in symbols if name in names)
    for index, target, symbols in bindings.bound:
        direct = dict.fromkeys(needed.get(index, ()))
        if target in direct or target == index:
            continue
        pairs = [(other, names) for other in direct if (names := shared(target, other))]
        for name, _ in symbols if pairs else ():
            for other, names in pairs:
                if name in names:
                    mixed.setdefault((target, other), set()).add(name)
    doubles = [
        SharedSymbols(
            closure.objects[first].path,
            closure.objects[second].path,
            len(names),
            tuple(sorted(names)[:_EXAMPLES]),
            len(mixed[first, second]),
        )
        for first, second in sorted(mixed)
        if mixed[first, second] and (names := shared(first, second))
    ]
    return sorted(doubles, key=lambda pair: (-pair.mixed, -pair.count))


def _places(closure: Closure, tables: Tables, needed: dict[int, list[int]]) -> dict[int, int]:
    """Return the place of each object in the last root's scope; of several with one table, only the first has one."""
    preloads = [index for index in closure.roots if closure.objects[index].found_by.rule == "preload"]
    order = breadth_first(needed, [0, *preloads])
    for root in closure.roots:
        if root not in (0, *preloads):
            order |= breadth_first(needed, [root])
    first: dict[int, int] = {}
    for index in order:
        loaded = closure.objects[index]
        if loaded.identity[0] != "loader" and not GLIBC_SONAMES & {loaded.name, loaded.image.soname or ""}:
            first.setdefault(id(tables.of(loaded)), index)
    return {index: position for position, index in enumerate(first.values())}


def name_stem(soname: str) -> str | None:
    """Return a soname without its number and without the hash that auditwheel puts into it; None for other names."""
    parts = _SONAME.fullmatch(soname)
    return parts["stem"] if parts else None


def two_versions(closure: Closure) -> list[TwoVersions]:
    """Return every two different files of one library in the process, with how each came in.

    Of very many files each is paired with the first few only: the pairs of all would be as many as their square.

    ``libX.so.6`` and ``libX.so.7``; ``libLLVM-17.so.1`` and ``libLLVM.so.20``; ``libgomp-a34b3233.so.1`` and ``libgomp.so.1``.
    """
    needed = needed_by(closure)
    roots = [*dict.fromkeys([*closure.roots, 0])]
    for edge in closure.dlopened:
        if edge.target is not None:
            needed.setdefault(edge.requester, []).append(edge.target)
    trees = [breadth_first(needed, [root]) for root in roots]
    pairs = []
    by_stem: dict[str, list[int]] = {}
    for index, loaded in enumerate(closure.objects):
        soname = loaded.image.soname or loaded.name.rpartition("/")[2]
        stem = name_stem(soname)
        if stem is None or loaded.identity[0] == "program":
            continue
        others = by_stem.setdefault(stem, [])
        for other in others[:_MOST_COMPARED]:
            first = closure.objects[other]
            first_soname = first.image.soname or first.name.rpartition("/")[2]
            if soname in first.image.needed or first_soname in loaded.image.needed:
                # One of them needs the other: a forwarder, which has nothing itself.
                continue
            pairs.append(
                TwoVersions(
                    stem,
                    (first_soname, soname),
                    (first.path, loaded.path),
                    (_chain(closure, trees, other), _chain(closure, trees, index)),
                )
            )
        others.append(index)
    return pairs


def _chain(closure: Closure, trees: Sequence[Mapping[int, int | None]], index: int) -> tuple[str, ...]:
    """Return the paths of the shortest chain of NEEDED (or dlopen) from a root to an object.

    :param trees: of each root, the objects that it leads to, each with the one that led to it.
    """
    for needed_first in trees:
        if index in needed_first:
            chain = [index]
            while (before := needed_first[chain[-1]]) is not None:
                chain.append(before)
            return tuple(closure.objects[step].path for step in reversed(chain))
    return (closure.objects[index].path,)
