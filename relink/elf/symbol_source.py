"""What the symbols of an ELF file are read from, as a digest: whether another file has the same symbols, without reading them.

An edit by patchelf moves the tables, appends names to the string table, writes over the old search path in it, and renumbers the
sections of symbols. What the file imports and exports stays the same.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from relink.elf.constants import SHN_ABS
from relink.elf.symbol_columns import Columns

__all__ = ["SymbolSource", "same_source", "source_of"]

_SHN_UNDEF: Final = 0


@dataclass(frozen=True, slots=True)
class SymbolSource:
    """The tables that symbols were read from.

    :ivar strings: bytes of the string table.
    :ivar unused: ranges of it in which no symbol has its name.
    :ivar digest: SHA-256 of the rest of it, of the symbols' columns, and of the other facts.
    """

    strings: int
    unused: tuple[range, ...]
    digest: bytes


def source_of(
    columns: Columns,
    more: array[int],
    strings: str,
    facts: Collection[object],
    search_paths: Iterable[int],
) -> SymbolSource | None:
    """Return the source of symbols; None where a name does not end inside of the string table.

    :param columns: in the table's own order; `more`: one more number of each symbol.
    :param strings: the string table, a character for each byte.
    :param facts: all other facts that the symbols depend on; equal facts have equal representations (``repr``).
    :param search_paths: where in the string table DT_RPATH and DT_RUNPATH begin.
    """
    unused = tuple(_unused(columns, strings, at) for at in search_paths)
    return _source(columns, more, strings, facts, len(strings), unused)


def same_source(
    source: SymbolSource, columns: Columns, more: array[int], strings: str, facts: Collection[object]
) -> bool:
    """Whether symbols with these tables are those that were read from `source`; the string table may be longer."""
    return source == _source(columns, more, strings, facts, source.strings, source.unused)


def _unused(columns: Columns, strings: str, start: int) -> range:
    """Return the string at `start`, without its end; nothing where a symbol's name is a part of it, or ends with it."""
    end = strings.find("\0", start)
    if strings[max(start - 1, 0) : start] == "\0" and not any(start <= name <= end for name in columns.names):
        return range(start, end)
    return range(0)


def _source(
    columns: Columns,
    more: array[int],
    strings: str,
    facts: Collection[object],
    size: int,
    unused: tuple[range, ...],
) -> SymbolSource | None:
    names = strings[:size]
    if len(names) < size or not names.endswith("\0") or max(columns.names, default=0) >= size:
        return None
    digest = hashlib.sha256(repr((len(columns), *facts)).encode("utf-8", "surrogateescape"))
    for column in (columns.names, columns.infos, columns.others, columns.values, columns.flags, more):
        digest.update(column)
    digest.update(bytes(map(_KINDS.__getitem__, columns.sections)))
    data = bytearray(names.encode("latin-1"))
    for part in unused:
        data[part.start : part.stop] = bytes(len(part))
    digest.update(data)
    return SymbolSource(size, unused, digest.digest())


class _Kinds(dict[int, int]):
    """What matters of a section's index: whether it is none, an absolute value, or a section."""

    def __missing__(self, section: int) -> int:
        return 1 if section == _SHN_UNDEF else 2 if section == SHN_ABS else 0


_KINDS: Final = _Kinds()
