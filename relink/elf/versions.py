"""The version records of one ELF file: what it requires of others (DT_VERNEED) and what it defines (DT_VERDEF).

Walked as ld.so walks them (``elf/dl-version.c``, `_dl_check_map_versions`): from record to record until one has no next,
whatever the counts say. Offsets only lead forward, so that a walk ends; damage becomes a problem of the :class:`Memory`.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from relink.elf.constants import DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM
from relink.elf.dynamic import Memory, Strings

VERSYM_HIDDEN: Final = 0x8000
VER_FLG_WEAK: Final = 2
# A version number has 15 bits, so that no table has more versions.
_MAX_VERSIONS: Final = 1 << 15
_MAX_BYTES: Final = 1 << 22
_MAX_NAME: Final = 1 << 10


@dataclass(frozen=True, slots=True)
class VersionDef:
    """A version node that the file defines; `base` is the file's own entry, which no reference can match."""

    name: str
    index: int
    base: bool
    weak: bool
    parents: tuple[str, ...]
    hash: int


@dataclass(frozen=True, slots=True)
class VersionRequirement:
    """A version that a file must define; `weak` ones may be missing, `hidden` ones match no unversioned definition.

    :ivar at: the file offset of the entry; `flags` and `name_at` are those that stand there. They do not count in comparisons.
    """

    name: str
    index: int
    weak: bool
    hidden: bool
    hash: int
    flags: int = field(default=0, compare=False, repr=False)
    name_at: int = field(default=0, compare=False, repr=False)
    at: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class VersionNeed:
    """One DT_VERNEED record: the versions required of the library with soname `file`; `at` is its file offset."""

    file: str
    versions: tuple[VersionRequirement, ...]
    at: int = field(default=0, compare=False, repr=False)


def version_needs(memory: Memory, strings: Strings) -> tuple[VersionNeed, ...]:
    """Return the records of DT_VERNEED."""
    needs: list[VersionNeed] = []
    for at, (_, _, file_at, *_), entries in _walk(
        memory, "DT_VERNEED", DT_VERNEED, DT_VERNEEDNUM, "HHIII", "IHHII", "versions"
    ):
        versions = tuple(
            VersionRequirement(
                _name(memory, strings, name_at, digest),
                other & ~VERSYM_HIDDEN,
                bool(flags & VER_FLG_WEAK),
                bool(other & VERSYM_HIDDEN),
                digest,
                flags,
                name_at,
                entry_at,
            )
            for entry_at, (digest, flags, other, name_at, _) in entries
        )
        needs.append(VersionNeed(_name(memory, strings, file_at), versions, at))
    return tuple(needs)


def version_defs(memory: Memory, strings: Strings) -> tuple[VersionDef, ...]:
    """Return the records of DT_VERDEF. The first name of a record is the version's, the others are its parents'."""
    nodes: list[VersionDef] = []
    for _, (_, flags, index, _, digest, *_), [(_, (own_at, _)), *parents] in _walk(
        memory, "DT_VERDEF", DT_VERDEF, DT_VERDEFNUM, "HHHHIII", "II", "names"
    ):
        name = _name(memory, strings, own_at, digest)
        above = tuple(_name(memory, strings, name_at) for _, (name_at, _) in parents)
        base, weak = bool(flags & 1), bool(flags & VER_FLG_WEAK)
        nodes.append(VersionDef(name, index & ~VERSYM_HIDDEN, base, weak, above, digest))
    return tuple(nodes)


def _walk(
    memory: Memory, name: str, tag: int, number_tag: int, record: str, entry: str, called: str
) -> Iterator[tuple[int, tuple[int, ...], list[tuple[int, tuple[int, ...]]]]]:
    """Walk a table as ld.so does: to the record without a next one, whatever its number of records says.

    Yields the file offset and the fields of each record, and the same of each of its entries, of which there is one at least.

    :param record: the types of a record's fields. The first is its layout; the last four are the number of its entries, one of
        another meaning, the way to its first entry, and the way to the next record.
    :param entry: the types of an entry's fields, of which the last is the way to the next entry.
    :param called: what the entries are called.
    """
    address = memory.dynamic.get(tag)
    if address is None:
        return
    data = memory.read(address, min(memory.available(address), _MAX_BYTES))
    start = memory.offset(address) if data else 0
    at = records = total = 0
    following = 1
    try:
        # Each record has an entry at least, so the bound of the entries bounds the records, too.
        while following:
            fields = struct.unpack_from(memory.endian + record, data, at)
            *_, count, _, first, following = fields
            if fields[0] != 1:
                memory.problem(f"{name} has a record of unknown layout {fields[0]}")
                break
            entries: list[tuple[int, tuple[int, ...]]] = []
            entry_at, step = at + first, 1
            while step and total < _MAX_VERSIONS:
                total += 1
                fields_of_entry = struct.unpack_from(memory.endian + entry, data, entry_at)
                entries.append((start + entry_at, fields_of_entry))
                step = fields_of_entry[-1]
                entry_at += step
            if step:
                memory.problem(f"{name} has more than {_MAX_VERSIONS} {called}")
                break
            yield start + at, fields, entries
            if len(entries) != count:
                memory.problem(f"a record of {name} counts {count} {called} and has {len(entries)}")
            records += 1
            at += following
    except struct.error:
        memory.problem(f"{name} has records outside of the file or of its table")
    if records != (number := memory.dynamic.get(number_tag, 0)):
        memory.problem(f"{name}NUM is {number}, the records are {records}")


def _name(memory: Memory, strings: Strings, offset: int, digest: int | None = None) -> str:
    """Return the name at `offset` of a file or a version, whose hash must be `digest`; empty if there is none."""
    name = strings.get(offset, _MAX_NAME)
    if name is None:
        memory.problem("a version record has a name outside of the string table")
        return ""
    # check_match compares hashes before names, and a hash of zero asks for no version at all.
    if digest and elf_hash(name) != digest:
        memory.problem(f"the version record of {name[:80]!r} has the wrong hash: ld.so would not match it")
    return name


@functools.lru_cache(maxsize=1024)
def elf_hash(name: str) -> int:
    """Return the hash of a version's name, as the System V ABI computes it (elf/dl-hash.h)."""
    value = 0
    for byte in name.encode("utf-8", "surrogateescape"):
        value = (value << 4) + byte
        value = (value ^ (value >> 24 & 0xF0)) & 0x0FFFFFFF
    return value
