"""Which symbols two tables both export, so that one definition interposes the other where both are in one scope."""

from __future__ import annotations

from collections.abc import Sequence

from relink.elf.symbols import Export, SymbolTable

__all__ = ["shared_names"]

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


def shared_names(first: SymbolTable, second: SymbolTable) -> frozenset[str]:
    """Return the names that both tables export as strong, default-visible symbols of one version."""
    return frozenset(
        name
        for name in (first.exports.keys() & second.exports.keys()) - _COMMON
        if _of_one_version(name, first.exports[name], second.exports[name])
    )


def _of_one_version(name: str, first: Sequence[Export], second: Sequence[Export]) -> bool:
    """Whether both have a strong definition of one version.

    The linker exports the name of every version node as a symbol of that version; nothing refers to those.
    """
    versions = {export.version for export in first if _strong(export)} - {name}
    return any(_strong(export) and export.version in versions for export in second)


def _strong(export: Export) -> bool:
    return export.binding == "global" and export.visibility == "default" and not export.undefined
