"""The symbol tables of the objects of a process, and the names that these objects answer to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from relink.elf.image import Image
from relink.elf.strings import library_names
from relink.elf.symbols import SymbolTable, match, read_symbols
from relink.errors import ElfError
from relink.files import map_file
from relink.loader.closure import Closure, LoadedObject
from relink.loader.files import Files
from relink.system_errors import raise_trouble

__all__ = ["DirectBindings", "Tables", "breadth_first", "file_of", "names", "needed_by"]

_DLOPEN = frozenset({"dlopen", "dlmopen"})


@dataclass(frozen=True, slots=True)
class DirectBindings:
    """What of a table's look-ups needs no walk through a scope, since one table alone has the name, in the right version.

    :ivar imports: by that table, the places in `SymbolTable.imports`.
    :ivar walked: the places of the others, but for those that no relocation names.
    :ivar references: the references that may lead to another object.
    """

    imports: tuple[tuple[SymbolTable, tuple[int, ...]], ...]
    walked: tuple[int, ...]
    references: tuple[tuple[str, str | None], ...]


class Tables:
    """The symbol tables of the objects of closures, read once each.

    :param members: tables of the wheel's members, which are not on disk, by the identity that :class:`Files` gives them.
    """

    def __init__(self, files: Files, members: Mapping[str, SymbolTable]) -> None:
        self.files = files
        self._members = members
        self._read: dict[tuple[object, ...], SymbolTable] = {}
        self._dlopened: dict[tuple[object, ...], tuple[str, ...]] = {}
        self._listed: dict[int, SymbolTable] = {}  # by id, which stays its own since the table is kept
        self._owners: dict[str, tuple[SymbolTable, ...]] = {}
        self._twice: set[str] = set()
        self._settled: dict[int, tuple[int, DirectBindings]] = {}

    def over(self, files: Files, members: Mapping[str, SymbolTable]) -> Tables:
        """Return the same for other files of members; what was read of everything else is not read again."""
        other = Tables(files, members)
        other._read, other._listed, other._settled = self._read, self._listed, self._settled
        other._dlopened = self._dlopened
        other._owners, other._twice = self._owners, self._twice
        return other

    def owners(self, name: str) -> Sequence[SymbolTable]:
        """Return the tables with definitions of a name, of all that :meth:`of` has returned so far, in no order."""
        return self._owners.get(name, ())

    def defined_twice(self) -> Iterator[tuple[str, Sequence[SymbolTable]]]:
        """Yield the names that several of these tables define."""
        return ((name, self._owners[name]) for name in self._twice)

    def settled(self, table: SymbolTable) -> DirectBindings:
        """Return what :meth:`owners` alone tells of a table's look-ups."""
        count, settled = self._settled.get(id(table), (0, None))
        if settled is None or not self._still(table, count):
            settled = self._settle(table)
        self._settled[id(table)] = len(self._listed), settled
        return settled

    def _still(self, table: SymbolTable, count: int) -> bool:
        """Whether no table but the first `count` has a name that `table` looks up."""
        later = [*islice(self._listed.values(), count, None)]
        names = {item.name for item in table.imports} if later else set()
        return all(
            other.exports.keys().isdisjoint(names) and other.exports.keys().isdisjoint(table.exports.keys())
            for other in later
        )

    def _settle(self, table: SymbolTable) -> DirectBindings:
        imports: dict[int, list[int]] = {}
        walked = []
        exact = table.exact
        for place, item in enumerate(table.imports):
            if not item.relocated:
                continue
            owner = self._sole(item.name, item.version, exact=item.index in exact)
            # A library without versions that a version record names ends the process (elf/dl-lookup.c, check_match).
            if owner is None or (item.version is not None and not (owner.verneeds or owner.verdefs)):
                walked.append(place)
            else:
                imports.setdefault(id(owner), []).append(place)
        return DirectBindings(
            tuple((self._listed[owner], tuple(places)) for owner, places in imports.items()),
            tuple(walked),
            tuple(symbol for symbol in table.references if self._sole(*symbol) is not table),
        )

    def _sole(self, name: str, version: str | None, *, exact: bool = False) -> SymbolTable | None:
        """Return the table that alone has a name, if a look-up takes it there; what is unique in a process may be elsewhere."""
        owners = self._owners.get(name, ())
        if len(owners) != 1:
            return None
        export = match(owners[0].exports[name], version, exact=exact)
        return None if export is None or export.binding == "unique" else owners[0]

    def of(self, item: LoadedObject) -> SymbolTable:
        """Return the table of one loaded object; a file that cannot be read any more has an empty one."""
        identity = file_of(item)
        if identity[0] == "member":
            return self._noted(self._members[str(identity[1])])
        return self._noted(self.read(identity, item.path))

    def read(self, identity: tuple[object, ...], path: str) -> SymbolTable:
        """Return the table of a file on disk; of one that cannot be read an empty one."""
        table = self._read.get(identity)
        if table is None:
            try:
                with map_file(self.files.host(path)) as buffer:
                    table = read_symbols(buffer)
            except OSError as error:
                raise_trouble(error, path)
                table = SymbolTable()
            except ElfError:
                table = SymbolTable()
            self._read[identity] = table
        return table

    def dlopened(self, identity: tuple[object, ...], path: str, image: Image) -> tuple[str, ...]:
        """Return the names that a file on disk may dlopen (:func:`relink.elf.strings.library_names`).

        Nothing if it does not import that, or cannot be read.
        """
        names = self._dlopened.get(identity)
        if names is None:
            names = ()
            if any(entry.name in _DLOPEN for entry in self.read(identity, path).imports):
                try:
                    with map_file(self.files.host(path)) as buffer:
                        names = library_names(buffer, image)
                except OSError as error:
                    raise_trouble(error, path)
                except ElfError:
                    pass
            self._dlopened[identity] = names
        return names

    def _noted(self, table: SymbolTable) -> SymbolTable:
        """List the table under the names that it defines."""
        if id(table) not in self._listed:
            self._listed[id(table)] = table
            shared = {name: self._owners[name] for name in table.exports.keys() & self._owners.keys()}
            self._owners.update(dict.fromkeys(table.exports, (table,)))
            self._owners.update({name: (*others, table) for name, others in shared.items()})
            self._twice.update(shared)
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
