"""The objects of a closure as a graph: whose file an object is, by which names the loader knows it, and which needs which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relink.loader.closure import Closure, LoadedObject

__all__ = ["breadth_first", "file_of", "needed_by", "objects_by_name"]


def file_of(item: LoadedObject) -> tuple[object, ...]:
    """Return the identity of an object's file; the program and the loader have none in the link map, so it is made up here."""
    if item.identity[0] not in ("program", "loader"):
        return item.identity
    if not item.image.path.startswith("/"):  # the image of a member has its name in the wheel as its path
        return ("member", item.image.path)
    return (item.identity[0], item.path)


def objects_by_name(closure: Closure) -> dict[str, tuple[int, ...]]:
    """Return the indices of the objects with a name, in load order: those for which `_dl_name_match_p` (elf/dl-misc.c) is true.

    A soname is a name of the object only after it was requested (elf/dl-load.c, _dl_map_object), so it is taken from the edges;
    that of the loader always is one (elf/rtld.c). The program has no path among its names (elf/rtld.c, dl_main).
    """
    found: dict[str, dict[int, None]] = {}
    for index, item in enumerate(closure.objects):
        if item.identity[0] == "program":
            continue
        own = [item.path, item.name]
        if item.identity[0] == "loader" and item.image.soname:
            own.append(item.image.soname)
        for name in own:
            found.setdefault(name, {})[index] = None
    for edge in closure.edges:
        if edge.target is not None:
            found.setdefault(edge.soname, {})[edge.target] = None
    return {name: tuple(sorted(indices)) for name, indices in found.items()}


def needed_by(closure: Closure) -> dict[int, list[int]]:
    """Return the objects that serve the NEEDED entries of each object, in order, without what is missing."""
    found: dict[int, list[int]] = {}
    for edge in closure.edges:
        if edge.target is not None:
            found.setdefault(edge.requester, []).append(edge.target)
    return found


def breadth_first(needed: Mapping[int, Sequence[int]], start: Sequence[int]) -> dict[int, int | None]:
    """Return the search list of `start` (elf/dl-deps.c), each object with the one that led to it first."""
    found: dict[int, int | None] = dict.fromkeys(start)
    order = list(found)
    for index in order:  # grows while it is searched
        for other in needed.get(index, ()):
            if other not in found:
                found[other] = index
                order.append(other)
    return found
