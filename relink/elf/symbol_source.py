"""What the symbols of an ELF file are read from, as a digest: whether another file has the same symbols, without reading them.

An edit by patchelf moves the tables, appends names to the string table and renumbers the sections of symbols. What the file
imports and exports stays the same.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from relink.elf.dynamic import Strings
from relink.elf.symbol_columns import Columns

__all__ = ["SymbolSource", "same_source", "source_of"]

_SHN_UNDEF, _SHN_ABS = 0, 0xFFF1


@dataclass(frozen=True, slots=True)
class SymbolSource:
    """The tables that symbols were read from.

    :ivar strings: bytes of the string table.
    :ivar digest: SHA-256 of these, of the symbols' columns, and of the other facts.
    """

    strings: int
    digest: bytes


def source_of(
    columns: Columns, versyms: array[int], strings: Strings, facts: Collection[object]
) -> SymbolSource | None:
    """Return the source of symbols; None where a name does not end inside of the string table.

    :param columns: in the table's own order; `versyms`: their version numbers.
    :param facts: all other facts that the symbols depend on; equal facts have equal representations (``repr``).
    """
    return _source(columns, versyms, strings, facts, len(strings.text))


def same_source(
    source: SymbolSource, columns: Columns, versyms: array[int], strings: Strings, facts: Collection[object]
) -> bool:
    """Whether symbols with these tables are those that were read from `source`; the string table may be longer."""
    return source == _source(columns, versyms, strings, facts, source.strings)


def _source(
    columns: Columns, versyms: array[int], strings: Strings, facts: Collection[object], size: int
) -> SymbolSource | None:
    names = strings.text[:size]
    if len(names) < size or not names.endswith("\0") or max(columns.names, default=0) >= size:
        return None
    digest = hashlib.sha256(repr((len(columns), *facts)).encode("utf-8", "surrogateescape"))
    for column in (columns.names, columns.infos, columns.others, columns.values, columns.flags, versyms):
        digest.update(column)
    digest.update(bytes(map(_KINDS.__getitem__, columns.sections)))
    digest.update(names.encode("latin-1"))
    return SymbolSource(size, digest.digest())


class _Kinds(dict[int, int]):
    """What matters of a section's index: whether it is none, an absolute value, or a section."""

    def __missing__(self, section: int) -> int:
        return 1 if section == _SHN_UNDEF else 2 if section == _SHN_ABS else 0


_KINDS: Final = _Kinds()
