"""What a load maps: the objects, their order, which object serves each NEEDED, and the graph that these are.

These are facts; :mod:`relink.loader.loading` computes them by simulating ld.so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeAlias, TypeVar

import msgspec

from relink.elf.image import Image
from relink.loader.search import FoundBy, Tried
from relink.system.text import group_pairs


class LoadedObject(msgspec.Struct, frozen=True):
    """One object of a process.

    :ivar image: its facts; of a member, those that the simulated edit gives it.
    :ivar identity: the same for two paths of one file: ``("program",)``, ``("loader",)``, or that of
        :class:`relink.loader.seen_files.OpenedFile`.
    :ivar path: the path as found, not cleaned up: what the loader's own map shows.
    :ivar name: the name by which it was first requested.
    :ivar found_by: the rule that led to it.
    :ivar loader: the index of the object that it was loaded for, in the closure's `objects`.
    :ivar origin: the value of ``$ORIGIN`` in its entries.
    """

    path: str
    name: str
    image: Image
    identity: tuple[object, ...]
    found_by: FoundBy
    loader: int | None = None
    origin: str | None = None


class Edge(msgspec.Struct, frozen=True):
    """One NEEDED entry of one object, and what became of it.

    :ivar requester: index of the object that needs it, in the closure's `objects`.
    :ivar target: index of the object that serves it, or None where nothing does.
    :ivar found_by: by which rule; ``loaded`` where it was loaded already.
    :ivar tried: the paths that were tried before, without success.
    """

    requester: int
    soname: str
    target: int | None
    found_by: FoundBy | None
    tried: tuple[Tried, ...] = ()


class Opening(msgspec.Struct, frozen=True):
    """The start of a program, or one dlopen, as far as the look-up of symbols goes.

    :ivar roots: the program and what is preloaded, or the object that is opened.
    :ivar scope: the objects that symbols are looked up in, breadth first (l_searchlist).
    :ivar mapped: the objects that were not mapped before, in load order.
    :ivar flags: of dlopen: RTLD_GLOBAL and RTLD_DEEPBIND count.
    """

    roots: tuple[int, ...]
    scope: tuple[int, ...]
    mapped: tuple[int, ...]
    flags: int


class Closure(msgspec.Struct, frozen=True):
    """What a load maps.

    :ivar objects: in load order, beginning with the program and its libraries.
    :ivar scope: indices of the objects in the order of symbol look-up for the roots (breadth first).
    :ivar edges: every NEEDED of every object, in the order in which the loader serves them.
    :ivar roots: indices of the objects that the caller of the simulation wanted loaded.
    :ivar dlopened: what objects in scope dlopen themselves, if the caller says what that is. What this loads is in `objects` and
        `edges` too, and not in `scope`.
    :ivar glibc: the version of the loader's glibc, in numbers.
    :ivar names: the objects with a name, in load order: those for which `_dl_name_match_p` (elf/dl-misc.c) is true. A soname is a
        name of an object only after it was requested; that of the loader always is one. The program has no path among its names.
    :ivar openings: the start and each dlopen, in order.
    :ivar fatal: why the loader gives up (a file under a needed name that is no library), or None.
    """

    objects: tuple[LoadedObject, ...]
    scope: tuple[int, ...]
    edges: tuple[Edge, ...]
    roots: tuple[int, ...]
    fatal: str | None = None
    dlopened: tuple[Edge, ...] = ()
    glibc: tuple[int, ...] = ()
    names: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    openings: tuple[Opening, ...] = ()

    @property
    def missing(self) -> tuple[Edge, ...]:
        """The edges that nothing serves."""
        return tuple(edge for edge in self.edges if edge.target is None)


DlopenNames: TypeAlias = Callable[[LoadedObject], Iterable[str]]
"""Returns the sonames that a loaded object dlopens."""


_Node = TypeVar("_Node", bound=Hashable)


def file_of(loaded: LoadedObject) -> tuple[object, ...]:
    """Return the identity of an object's file; the program and the loader have none in the link map, so it is made up here."""
    if loaded.identity[0] not in ("program", "loader"):
        return loaded.identity
    # The image of a member has its name in the wheel as its path.
    if not loaded.image.path.startswith("/"):
        return ("member", loaded.image.path)
    return (loaded.identity[0], loaded.path)


def needed_by(closure: Closure) -> dict[int, list[int]]:
    """Return the objects that serve the NEEDED entries of each object, in order, without what is missing."""
    return group_pairs((edge.requester, edge.target) for edge in closure.edges if edge.target is not None)


def breadth_first(
    needed: Mapping[_Node, Iterable[_Node]], start: Iterable[_Node]
) -> dict[_Node, _Node | None]:
    """Return the search list of `start` (elf/dl-deps.c), each object with the one that led to it first."""
    reached: dict[_Node, _Node | None] = dict.fromkeys(start)
    order = list(reached)
    # `order` grows while it is walked.
    for index in order:
        for other in needed.get(index, ()):
            if other not in reached:
                reached[other] = index
                order.append(other)
    return reached


def needed_first(starts: Iterable[_Node], needs: Callable[[_Node], Iterable[_Node]]) -> list[_Node]:
    """Return what `starts` reach, each after all that it needs, as far as there is no cycle (depth first)."""
    order: list[_Node] = []
    visited: set[_Node] = set()
    for start in starts:
        # A list of iterators in place of recursion: a chain of libraries may be longer than Python's stack.
        path = [(start, iter(needs(start)))] if start not in visited else []
        visited.add(start)
        while path:
            node, others = path[-1]
            step = next((other for other in others if other not in visited), None)
            if step is None:
                order.append(node)
                path.pop()
            else:
                visited.add(step)
                path.append((step, iter(needs(step))))
    return order
