"""Whether the objects of a closure fit together: versions now, symbols with them.

The rules are those of glibc elf/dl-version.c (match_symbol, _dl_check_map_versions) and elf/dl-lookup.c.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relink.elf.image import map_file
from relink.elf.symbols import SymbolTable, read_symbols
from relink.errors import ElfError
from relink.loader.closure import Closure, LoadedObject
from relink.loader.files import Files

__all__ = ["MissingVersion", "Tables", "check_versions"]


@dataclass(frozen=True, slots=True)
class MissingVersion:
    """A version that one object requires of another that does not define it.

    :ivar requester: path of the object with the version record.
    :ivar file: the soname that the record names.
    :ivar supplier: path of the object that serves that soname.
    :ivar defined: the versions of the same family (``GLIBC``) that it does define, as in the file.
    """

    requester: str
    file: str
    version: str
    supplier: str
    defined: tuple[str, ...]


class Tables:
    """The symbol tables of the objects of closures, read once each.

    :param members: tables of the wheel's members, which are not on disk, by the identity that :class:`Files` gives them.
    """

    def __init__(self, files: Files, members: Mapping[str, SymbolTable]) -> None:
        self._files = files
        self._members = members
        self._read: dict[tuple[object, ...], SymbolTable] = {}

    def of(self, item: LoadedObject) -> SymbolTable:
        """Return the table of one loaded object; a file that cannot be read any more has an empty one."""
        if item.identity[0] == "member":
            return self._members[str(item.identity[1])]
        key = item.identity if item.identity[0] != "loader" else ("loader", item.path)
        table = self._read.get(key)
        if table is None:
            try:
                with map_file(self._files.host(item.path)) as buffer:
                    table = read_symbols(buffer)
            except (OSError, ElfError):
                table = SymbolTable()
            self._read[key] = table
        return table


def check_versions(closure: Closure, tables: Tables) -> list[MissingVersion]:
    """Check every version record of every object in scope against the object that serves its file name.

    A weak requirement, and one of a library that defines no versions at all, is not an error to the loader. A record that
    names a file that was not loaded makes it abort; the missing edge tells that already.
    """
    missing = []
    by_name: dict[str, LoadedObject] = {}
    for item in closure.objects:
        for name in (item.name, item.image.soname):
            if name:
                by_name.setdefault(name, item)
    for edge in closure.edges:
        if edge.target is not None:
            by_name.setdefault(edge.soname, closure.objects[edge.target])
    for index in closure.scope:
        item = closure.objects[index]
        for need in tables.of(item).verneeds:
            supplier = by_name.get(need.file)
            if supplier is None:
                continue
            defined = [node.name for node in tables.of(supplier).verdefs]
            if not defined:
                continue
            for requirement in need.versions:
                if requirement.name not in defined and not requirement.weak:
                    family = requirement.name.split("_", 1)[0]
                    known = tuple(name for name in defined if name.startswith(family + "_"))
                    missing.append(
                        MissingVersion(item.path, need.file, requirement.name, supplier.path, known)
                    )
    return missing
