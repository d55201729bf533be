"""The objects of a closure as a graph: whose file an object is, and which needs which."""

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
