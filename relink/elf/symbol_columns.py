"""The symbol table of one ELF file by columns, as its hash tables bound and order it.

Takes the :class:`~relink.elf.dynamic.Memory` of a file. Gives each field of all symbols as one array, which is what makes 100,000
symbols quick to go through. The rules are those of glibc's ``elf/dl-setup_hash.c`` (DT_GNU_HASH wins over DT_HASH) and
``elf/dl-lookup.c`` (the order in a chain). No count is trusted: what does not fit becomes a problem, and every loop is bounded.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from relink.elf.constants import (
    DT_GNU_HASH,
    DT_HASH,
    DT_JMPREL,
    DT_PLTREL,
    DT_PLTRELSZ,
    DT_REL,
    DT_RELA,
    DT_RELASZ,
    DT_RELSZ,
    DT_SYMENT,
    DT_SYMTAB,
)
from relink.elf.dynamic import Memory

# Flags of a symbol: the hash table has it, a relocation names it.
HASHED, RELOCATED = 1, 2

# Symbols in one bucket of a GNU hash table; a chain of a damaged file may have no end.
_MAX_CHAIN: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Columns:
    """The symbol table by columns (st_name, st_info, …), which is what makes it quick to go through: the null symbol first.

    :ivar flags: HASHED, RELOCATED.
    """

    names: array[int]
    infos: bytes
    others: bytes
    sections: array[int]
    values: array[int]
    flags: bytes

    def __len__(self) -> int:
        return len(self.names)

    def select(self, order: Sequence[int]) -> Columns:
        """Return the symbols with these indices, in this order."""
        return Columns(
            array("I", map(self.names.__getitem__, order)),
            bytes(map(self.infos.__getitem__, order)),
            bytes(map(self.others.__getitem__, order)),
            array("H", map(self.sections.__getitem__, order)),
            array(self.values.typecode, map(self.values.__getitem__, order)),
            bytes(map(self.flags.__getitem__, order)),
        )


def symbol_columns(memory: Memory) -> tuple[Columns, list[int]]:
    """Return the symbol table, and the order in which ld.so meets the symbols: indices, or nothing for the table's own order.

    DT_SYMTAB has no size. The end of the last chain of DT_GNU_HASH gives it, or nchain of DT_HASH, or the relocations. For
    DT_GNU_HASH the linker sorts the symbols by bucket, so the order of the table is that of the chains.
    """
    size = 24 if memory.wide else 16
    if (declared := memory.dynamic.get(DT_SYMENT, 0)) != size:
        memory.problem(f"DT_SYMENT is {declared}, not {size}")
    limit = memory.available(memory.dynamic[DT_SYMTAB]) // size
    gnu = _gnu_hash(memory, limit)
    sysv = _sysv_hash(memory, limit)
    relocated = _relocated(memory)
    first, count = gnu or (limit, 0)
    if sysv:
        if count > sysv[0]:
            memory.problem(f"DT_HASH counts {sysv[0]} symbols, DT_GNU_HASH {count}")
        count = max(count, sysv[0])
    elif count <= first:
        # Nothing is exported, or no hash table is usable. GNU ld writes a first symbol of 1 then, whatever is imported:
        # the highest symbol that a relocation names counts.
        count = max(count, 1 + max(relocated, default=0))
    if count > limit:
        memory.problem(f"the symbol table has room for {limit} symbols, not for {count}")
    data = memory.read(memory.dynamic[DT_SYMTAB], min(count, limit) * size)
    count = len(data) // size
    order: list[int] = []
    if gnu or not sysv:
        flags = bytearray(min(first, count)).ljust(count, bytes((HASHED,)))
    else:
        order, flags = _chains(memory, *sysv[1:], count)
        # ld.so finds none of these symbols; they stay in the table, since imports may be among them.
        order += [i for i, hashed in enumerate(flags) if not hashed]
    for i in relocated:
        if i < count:
            flags[i] |= RELOCATED
    return columns_of(memory, data[: count * size], bytes(flags)), order


def columns_of(memory: Memory, data: bytes, flags: bytes) -> Columns:
    """Split a symbol table into columns: each is a slice with the size of an entry as its step.

    Elf64_Sym: name info other shndx value size; Elf32_Sym: name value size info other shndx.
    """
    names, sections = memory.numbers("I", data), memory.numbers("H", data)
    if memory.wide:
        values = memory.numbers("Q", data)
        return Columns(names[::6], data[4::24], data[5::24], sections[3::12], values[1::3], flags)
    return Columns(names[::4], data[12::16], data[13::16], sections[7::8], names[1::4], flags)


def _gnu_hash(memory: Memory, limit: int) -> tuple[int, int] | None:
    """Return the first symbol in DT_GNU_HASH and the end of its last chain (equal where all buckets are empty)."""
    address = memory.dynamic.get(DT_GNU_HASH)
    if address is None:
        return None
    header = memory.words(address, 4)
    available = memory.available(address) // 4
    if len(header) < 4:
        memory.problem("DT_GNU_HASH lies outside of the file")
        return None
    number, first, bloom, _ = header
    start = 4 + bloom * (2 if memory.wide else 1)
    if start + number > available:
        memory.problem(
            f"DT_GNU_HASH claims {number} buckets and {bloom} filter words: more than there is room for"
        )
        return None
    # _dl_setup_hash asserts that this is a power of two.
    if bloom & (bloom - 1) or not bloom:
        memory.problem(f"DT_GNU_HASH has {bloom} filter words, which is not a power of two")
    buckets = memory.words(address + 4 * start, number)
    last = max(buckets, default=0)
    if last >= limit or min(filter(None, buckets), default=first) < first:
        memory.problem(f"DT_GNU_HASH has buckets outside of the {limit} symbols there is room for")
        last = max((bucket for bucket in buckets if first <= bucket < limit), default=0)
    if not last:
        return first, first
    chains = address + 4 * (start + number - first)
    for at in range(last, min(limit, last + _MAX_CHAIN), 1024):
        block = memory.words(chains + 4 * at, min(1024, limit - at))
        for i, value in enumerate(block, at + 1):
            if value & 1:
                return first, i
    memory.problem("the last chain of DT_GNU_HASH has no end")
    return first, last + 1


def _sysv_hash(memory: Memory, limit: int) -> tuple[int, array[int], array[int]] | None:
    """Return the number of symbols, the buckets and the chains of DT_HASH."""
    address = memory.dynamic.get(DT_HASH)
    if address is None:
        return None
    # 64-bit s390 and Alpha have entries of eight bytes (Elf_Symndx).
    kind, width = ("Q", 8) if memory.wide and memory.machine in (22, 0x9026) else ("I", 4)
    header = memory.words(address, 2, kind)
    if len(header) < 2 or sum(header) + 2 > memory.available(address) // width:
        memory.problem(
            "DT_HASH lies outside of the file, or claims more buckets and symbols than there is room for"
        )
        return None
    number, count = header
    buckets = memory.words(address + 2 * width, number, kind)
    if count > limit:
        memory.problem(f"DT_HASH counts {count} symbols, there is room for {limit}")
    return min(count, limit), buckets, memory.words(address + (2 + number) * width, count, kind)


def _chains(
    memory: Memory, buckets: array[int], chains: array[int], count: int
) -> tuple[list[int], bytearray]:
    """Walk the chains of DT_HASH: the symbols in the order ld.so meets them, and a flag for each symbol of the table."""
    order: list[int] = []
    seen = bytearray(count)
    for bucket in buckets:
        at = bucket
        while at:
            if at >= min(count, len(chains)) or seen[at]:
                memory.problem("a chain of DT_HASH leaves the table, meets another or runs in a circle")
                break
            seen[at] = HASHED
            order.append(at)
            at = chains[at]
    return order, seen


def _relocated(memory: Memory) -> set[int]:
    """Return the indices of the symbols that relocations name (r_info)."""
    dynamic = memory.dynamic
    # Words in an entry of DT_JMPREL: three with an addend, two without.
    plt_step = 3 if dynamic.get(DT_PLTREL) == DT_RELA else 2
    kind, width, shift = ("Q", 8, 32) if memory.wide else ("I", 4, 8)
    symbols: set[int] = set()
    for table, size, step in (
        (DT_RELA, DT_RELASZ, 3),
        (DT_REL, DT_RELSZ, 2),
        (DT_JMPREL, DT_PLTRELSZ, plt_step),
    ):
        address = dynamic.get(table, 0)
        length = dynamic.get(size, 0) if address else 0
        # DT_RELASZ may include the entries of DT_JMPREL: these are read by themselves, and a set has each symbol once.
        available = memory.available(address)
        if length and not available:
            memory.problem("a relocation table lies outside of the file")
        infos = set(memory.words(address, min(length, available) // width, kind)[1::step])
        symbols |= {info >> shift for info in infos}
    return symbols
