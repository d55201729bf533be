"""The symbol tables of the objects of closures, each read once, with an index by name over all of them."""

from __future__ import annotations

from collections.abc import Mapping

from relink.elf.image import Image
from relink.elf.sections import DLOPEN, library_names
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import SymbolTable
from relink.loader.closure import LoadedObject
from relink.loader.object_graph import file_of
from relink.loader.seen_files import Files
from relink.loader.symbol_index import SymbolIndex
from relink.system.errors import ElfError
from relink.system.safe_open import map_file
from relink.system.system_errors import raise_if_machine_fault


def read_table(files: Files, path: str) -> SymbolTable:
    """Read the symbols of a file on disk; that of a file that cannot be read is empty."""
    try:
        with map_file(files.host(path)) as buffer:
            return read_symbols(buffer)
    except OSError as error:
        raise_if_machine_fault(error, path)
    except ElfError:
        pass
    return SymbolTable()


class Tables:
    """The symbol tables of the objects of closures, read once each.

    :param members: tables of the wheel's members, which are not on disk, by the identity that :class:`Files` gives them.
    :ivar index: of the members' tables, and of those that :meth:`of` has returned so far.
    """

    def __init__(self, files: Files, members: Mapping[str, SymbolTable]) -> None:
        self.files = files
        self.index = SymbolIndex()
        self._members = dict(members)
        self._indexed = False
        self._read: dict[tuple[object, ...], SymbolTable] = {}
        self._dlopened: dict[tuple[object, ...], tuple[str, ...]] = {}

    def over(self, files: Files, members: Mapping[str, SymbolTable]) -> Tables:
        """Return tables for other files and members, which share what was read from the disk and the index.

        What was computed for a table here counts there where it is a member's, too.
        """
        other = Tables(files, members)
        other.index, other._read, other._dlopened = self.index, self._read, self._dlopened
        return other

    def replace(self, identity: str, table: SymbolTable) -> None:
        """Take another table for a member, by the identity that :class:`Files` gives it."""
        self._members[identity] = self.index.add(table) if self._indexed else table

    def member(self, identity: str) -> SymbolTable | None:
        """Return the table of a member, by the identity that :class:`Files` gives it."""
        return self._members.get(identity)

    def of(self, loaded: LoadedObject) -> SymbolTable:
        """Return the table of one loaded object; that of a file that cannot be read any more is empty."""
        identity = file_of(loaded)
        if identity[0] == "member":
            if not self._indexed:
                # All at once: what a table looks up is found again where one is added that defines a name of it.
                self._indexed = True
                for table in self._members.values():
                    self.index.add(table)
            return self.index.add(self._members[str(identity[1])])
        # By the path of the image: the path that the loader took may lead through a link.
        return self.index.add(self.read(identity, loaded.image.path))

    def read(self, identity: tuple[object, ...], path: str) -> SymbolTable:
        """Return the table of a file on disk; that of a file that cannot be read is empty."""
        if identity not in self._read:
            self._read[identity] = read_table(self.files, path)
        return self._read[identity]

    def dlopened(self, identity: tuple[object, ...], image: Image) -> tuple[str, ...]:
        """Return the names that a file on disk may dlopen (:func:`relink.elf.sections.library_names`).

        None of them if it does not import dlopen or dlmopen, or cannot be read.
        """
        path = image.path
        names = self._dlopened.get(identity)
        if names is None:
            names = ()
            if any(entry.name in DLOPEN for entry in self.read(identity, path).imports):
                try:
                    with map_file(self.files.host(path)) as buffer:
                        names = library_names(buffer, image)
                except OSError as error:
                    raise_if_machine_fault(error, path)
                except ElfError:
                    pass
            self._dlopened[identity] = names
        return names
