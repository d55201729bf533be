"""Which symbols two tables both export, so that one definition interposes the other where both are in one scope.

Takes symbol tables as they are read, gives the names by pair of tables. Which of the two comes first is the closure's matter;
that both have the symbol is not, so each pair is compared once, however many closures have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from relink.elf.symbols import Export, SymbolTable

__all__ = ["SharedExports", "SharedNames"]

_EXAMPLES = 3
# Every object may bring its own of these (crti.o, the linkers' scripts).
_COMMON = frozenset(
    {"_init", "_fini", "__bss_start", "_edata", "_end", "__end", "_bss_end__", "__bss_end__", "__data_start"}
    | {
        "_start",
        "main",
        "data_start",
        "_IO_stdin_used",
        "__dso_handle",
        "__gmon_start__",
        "end",
        "edata",
        "etext",
    }
)


@dataclass(frozen=True, slots=True)
class SharedNames:
    """The names that two tables both export as strong, default-visible symbols of one version; `examples` are three of them."""

    names: frozenset[str]
    examples: tuple[str, ...]


class SharedExports:
    """The names that pairs of tables share.

    :param owners: gives the tables that define a name, in the order in which they were added here.
    """

    def __init__(self, owners: Callable[[str], Sequence[SymbolTable]]) -> None:
        self._owners = owners
        self._added: list[SymbolTable] = []
        self._pairs: dict[tuple[int, int], SharedNames] = {}

    def add(self, table: SymbolTable) -> None:
        """Add a table, which must stay in memory: its `id` names it."""
        self._added.append(table)

    def pairs(self) -> Mapping[tuple[int, int], SharedNames]:
        """Return what is shared, by the `id` of the two tables, the one that was added first before the other."""
        for table in self._added:
            found: dict[tuple[int, int], list[str]] = {}
            for name, exports in table.exports.items():
                owners = self._owners(name)
                if len(owners) == 1 or name in _COMMON:
                    continue
                for other in owners:
                    if other is table:
                        break  # the others were added later, and are compared with this one then
                    if _of_one_version(name, other.exports[name], exports):
                        found.setdefault((id(other), id(table)), []).append(name)
            for pair, names in found.items():
                self._pairs[pair] = SharedNames(frozenset(names), tuple(sorted(names)[:_EXAMPLES]))
        self._added.clear()
        return self._pairs


def _of_one_version(name: str, first: Sequence[Export], second: Sequence[Export]) -> bool:
    """Whether both have a strong definition of one version.

    The linker exports the name of every version node as a symbol of that version; nothing refers to those.
    """
    versions = {export.version for export in first if _strong(export)} - {name}
    return any(_strong(export) and export.version in versions for export in second)


def _strong(export: Export) -> bool:
    return export.binding == "global" and export.visibility == "default" and not export.undefined
