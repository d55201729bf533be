"""The version records of one ELF file: what it requires of others (DT_VERNEED) and what it defines (DT_VERDEF).

Walked as ld.so walks them (``elf/dl-version.c``, `_dl_check_map_versions`): from record to record until one has no next,
whatever the counts say. Offsets only lead forward, so that a walk ends; damage becomes a problem of the :class:`Memory`.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, field
from typing import Final

from relink.elf.constants import DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM
from relink.elf.dynamic import Memory, Strings

VERSYM_HIDDEN: Final = 0x8000
VER_FLG_WEAK: Final = 2
_MAX_VERSIONS: Final = 1 << 15  # a version number has 15 bits
_MAX_BYTES: Final = 1 << 22
_MAX_NAME: Final = 1 << 10  # bytes of a soname or a version


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
    """Walk DT_VERNEED as ld.so does: to the record without a next one, whatever DT_VERNEEDNUM says."""
    address = memory.dynamic.get(DT_VERNEED)
    if address is None:
        return ()
    data = memory.read(address, min(memory.available(address), _MAX_BYTES))
    start = memory.offset(address) if data else 0
    needs: list[VersionNeed] = []
    at = total = 0
    try:
        while True:
            layout, count, file_at, first, following = struct.unpack_from(memory.endian + "HHIII", data, at)
            if layout != 1:
                memory.problem(f"DT_VERNEED has a record of unknown layout {layout}")
                break
            versions: list[VersionRequirement] = []
            aux = at + first
            while total < _MAX_VERSIONS:
                total += 1
                digest, flags, other, name_at, step = struct.unpack_from(memory.endian + "IHHII", data, aux)
                name = _name(memory, strings, name_at, digest)
                weak, hidden = bool(flags & VER_FLG_WEAK), bool(other & VERSYM_HIDDEN)
                versions.append(
                    VersionRequirement(
                        name, other & ~VERSYM_HIDDEN, weak, hidden, digest, flags, name_at, start + aux
                    )
                )
                aux += step
                if not step:
                    break
            else:
                memory.problem(f"DT_VERNEED has more than {_MAX_VERSIONS} versions")
                break
            if len(versions) != count:
                memory.problem(f"a record of DT_VERNEED counts {count} versions and has {len(versions)}")
            needs.append(VersionNeed(_name(memory, strings, file_at), tuple(versions), start + at))
            at += following
            if not following:
                break
    except struct.error:
        memory.problem("DT_VERNEED has records outside of the file or of its table")
    if len(needs) != (number := memory.dynamic.get(DT_VERNEEDNUM, 0)):
        memory.problem(f"DT_VERNEEDNUM is {number}, the records are {len(needs)}")
    return tuple(needs)


def version_defs(memory: Memory, strings: Strings) -> tuple[VersionDef, ...]:
    """Walk DT_VERDEF like DT_VERNEED. The first name of a record is the version's, the others are its parents'."""
    address = memory.dynamic.get(DT_VERDEF)
    if address is None:
        return ()
    data = memory.read(address, min(memory.available(address), _MAX_BYTES))
    nodes: list[VersionDef] = []
    at = total = 0
    try:
        while True:
            record = struct.unpack_from(memory.endian + "HHHHIII", data, at)
            layout, flags, index, count, digest, first, following = record
            if layout != 1:
                memory.problem(f"DT_VERDEF has a record of unknown layout {layout}")
                break
            names: list[str] = []
            aux = at + first
            while total < _MAX_VERSIONS:
                total += 1
                name_at, step = struct.unpack_from(memory.endian + "II", data, aux)
                names.append(_name(memory, strings, name_at, None if names else digest))
                aux += step
                if not step:
                    break
            else:
                memory.problem(f"DT_VERDEF has more than {_MAX_VERSIONS} names")
                break
            if len(names) != count:
                memory.problem(f"a record of DT_VERDEF counts {count} names and has {len(names)}")
            base, weak = bool(flags & 1), bool(flags & VER_FLG_WEAK)
            nodes.append(VersionDef(names[0], index & ~VERSYM_HIDDEN, base, weak, tuple(names[1:]), digest))
            at += following
            if not following:
                break
    except struct.error:
        memory.problem("DT_VERDEF has records outside of the file or of its table")
    if len(nodes) != (number := memory.dynamic.get(DT_VERDEFNUM, 0)):
        memory.problem(f"DT_VERDEFNUM is {number}, the records are {len(nodes)}")
    return tuple(nodes)


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
