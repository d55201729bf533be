"""The symbol tables of the objects of a process, and the names that these objects answer to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from relink.elf.image import map_file
from relink.elf.symbols import SymbolTable, read_symbols
from relink.errors import ElfError
from relink.loader.closure import Closure, LoadedObject
from relink.loader.files import Files

__all__ = ["Tables", "breadth_first", "file_of", "names", "needed_by"]


class Tables:
    """The symbol tables of the objects of closures, read once each.

    :param members: tables of the wheel's members, which are not on disk, by the identity that :class:`Files` gives them.
    """

    def __init__(self, files: Files, members: Mapping[str, SymbolTable]) -> None:
        self._files = files
        self._members = members
        self._read: dict[tuple[object, ...], SymbolTable] = {}
        self._listed: set[int] = set()
        self._owners: dict[str, list[SymbolTable]] = {}

    def over(self, files: Files, members: Mapping[str, SymbolTable]) -> Tables:
        """Return the same for other files of members; what was read of everything else is not read again."""
        other = Tables(files, members)
        other._read, other._listed, other._owners = self._read, self._listed, self._owners
        return other

    def owners(self, name: str) -> Sequence[SymbolTable]:
        """Return the tables with definitions of a name, of all that :meth:`of` has returned so far, in no order."""
        return self._owners.get(name, ())

    def defined_twice(self) -> Iterator[tuple[str, Sequence[SymbolTable]]]:
        """Yield the names that several of these tables define."""
        return ((name, owners) for name, owners in self._owners.items() if len(owners) > 1)

    def of(self, item: LoadedObject) -> SymbolTable:
        """Return the table of one loaded object; a file that cannot be read any more has an empty one."""
        identity = file_of(item)
        if identity[0] == "member":
            return self._noted(self._members[str(identity[1])])
        table = self._read.get(identity)
        if table is None:
            try:
                with map_file(self._files.host(item.path)) as buffer:
                    table = read_symbols(buffer)
            except (OSError, ElfError):
                table = SymbolTable()
            self._read[identity] = table
        return self._noted(table)

    def _noted(self, table: SymbolTable) -> SymbolTable:
        """List the table under the names that it defines, which keeps it, so its id stays its own."""
        if id(table) not in self._listed:
            self._listed.add(id(table))
            for name in table.exports:
                self._owners.setdefault(name, []).append(table)
        return table


def file_of(item: LoadedObject) -> tuple[object, ...]:
    """Return what file an object is: its identity, but for the program and the loader, which have none in a process."""
    if item.identity[0] not in ("program", "loader"):
        return item.identity
    if not item.image.path.startswith("/"):  # an image of a member is named as in its wheel
        return ("member", item.image.path)
    return (item.identity[0], item.path)


def names(closure: Closure) -> dict[str, tuple[int, ...]]:
    """Return which objects answer to a name: `_dl_name_match_p` (elf/dl-misc.c) for all of them, in load order.

    A soname counts only once it was asked for (elf/dl-load.c, _dl_map_object), which an edge then tells; the loader's own
    always counts (elf/rtld.c). The program has no path to answer to (elf/rtld.c, dl_main).
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
    for index in order:  # grows while it is walked
        for other in needed.get(index, ()):
            if other not in found:
                found[other] = index
                order.append(other)
    return found
