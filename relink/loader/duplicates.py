"""Duplicates in one process: symbols that two libraries export, and libraries of one name in two versions.

The first definition in the scope interposes all others (elf/dl-lookup.c), also for the library that has the second: two libraries
that export the same name are mixed, unless version nodes or DT_SYMBOLIC keep them apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relink.loader.binding import Bindings
from relink.loader.closure import Closure, breadth_first, needed_by
from relink.loader.tables import Tables
from relink.loader.target import GLIBC_SONAMES

_EXAMPLES = 3
_MOST_COMPARED = 8  # files of one library
_SONAME = re.compile(
    r"(?P<stem>.+?)(?:-(?:\d+(?:\.\d+)*|(?=[a-f]*\d)[0-9a-f]{4,}))?\.so(?:\.(?P<version>[\w.]+))?"
)


@dataclass(frozen=True, slots=True)
class SharedSymbols:
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


@dataclass(frozen=True, slots=True)
class TwoVersions:
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
        parts = _SONAME.fullmatch(soname)
        if parts is None or loaded.identity[0] == "program":
            continue
        others = by_stem.setdefault(parts["stem"], [])
        for other in others[:_MOST_COMPARED]:
            first = closure.objects[other]
            first_soname = first.image.soname or first.name.rpartition("/")[2]
            if soname in first.image.needed or first_soname in loaded.image.needed:
                # One of them needs the other: a forwarder, which has nothing itself.
                continue
            pairs.append(
                TwoVersions(
                    parts["stem"],
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
