"""The objects of a closure as a graph: whose file an object is, by which names the loader knows it, and which needs which."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

from relink.loader.closure import Closure, LoadedObject
from relink.system.text import grouped

_Node = TypeVar("_Node", bound=Hashable)


def file_of(loaded: LoadedObject) -> tuple[object, ...]:
    """Return the identity of an object's file; the program and the loader have none in the link map, so it is made up here."""
    if loaded.identity[0] not in ("program", "loader"):
        return loaded.identity
    # The image of a member has its name in the wheel as its path.
    if not loaded.image.path.startswith("/"):
        return ("member", loaded.image.path)
    return (loaded.identity[0], loaded.path)


def objects_by_name(closure: Closure) -> dict[str, tuple[int, ...]]:
    """Return the indices of the objects with a name, in load order: those for which `_dl_name_match_p` (elf/dl-misc.c) is true.

    A soname is a name of the object only after it was requested (elf/dl-load.c, _dl_map_object), so it is taken from the edges;
    that of the loader always is one (elf/rtld.c). The program has no path among its names (elf/rtld.c, dl_main).
    """
    by_name: dict[str, dict[int, None]] = {}
    for index, loaded in enumerate(closure.objects):
        if loaded.identity[0] == "program":
            continue
        own = [loaded.path, loaded.name]
        if loaded.identity[0] == "loader" and loaded.image.soname:
            own.append(loaded.image.soname)
        for name in own:
            by_name.setdefault(name, {})[index] = None
    for edge in closure.edges:
        if edge.target is not None:
            by_name.setdefault(edge.soname, {})[edge.target] = None
    return {name: tuple(sorted(indices)) for name, indices in by_name.items()}


def needed_by(closure: Closure) -> dict[int, list[int]]:
    """Return the objects that serve the NEEDED entries of each object, in order, without what is missing."""
    return grouped((edge.requester, edge.target) for edge in closure.edges if edge.target is not None)


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
