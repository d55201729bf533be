"""The dynamic segment of one ELF file: addresses, strings, and the symbol table as the hash tables bound and order it.

No section header is read: ld.so has none either. The rules are those of glibc's ``elf/get-dynamic-info.h`` (the last entry
of a tag wins), ``elf/dl-setup_hash.c`` (DT_GNU_HASH wins over DT_HASH) and ``elf/dl-lookup.c`` (the order in a chain). No
count and no address is trusted: what does not fit becomes a problem of the :class:`Memory`, and every loop is bounded.
"""

from __future__ import annotations

import mmap
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, TypeAlias

from relink.errors import ElfError

__all__ = ["HASHED", "RELOCATED", "Buffer", "Columns", "Memory", "Strings", "symbol_columns"]

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap
"""The bytes of one ELF file: a member inflated into memory, or a mapped file."""

# Tags of the dynamic array (elf/elf.h).
DT_PLTRELSZ, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_STRSZ, DT_SYMENT = 2, 4, 5, 6, 7, 8, 10, 11
DT_REL, DT_RELSZ, DT_PLTREL, DT_JMPREL, DT_GNU_HASH, DT_VERSYM = 17, 18, 20, 23, 0x6FFFFEF5, 0x6FFFFFF0
DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM = range(0x6FFFFFFC, 0x70000000)
_TABLES: Final = frozenset(
    {DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_REL, DT_JMPREL, DT_GNU_HASH, DT_VERSYM, DT_VERDEF, DT_VERNEED}
)

HASHED, RELOCATED = 1, 2  # flags of a symbol: the hash table has it, a relocation names it

_MAX_DYNAMIC: Final = 1 << 16  # entries; real ones have under a hundred
# Strings in the table for each symbol, and bytes of names for each byte of the table: more are not split or read at once.
_MAX_STRINGS: Final = 4
_PLUS_NUL: Final = (1).__add__  # from the length of a string to its size in the table
_MAX_CHAIN: Final = (
    1 << 20
)  # symbols in one bucket of a GNU hash table; a chain of a damaged file may have no end


class Memory:
    """One buffer, addressed as the loaded file would be. It only hands out copies, so that the buffer can be closed."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.endian = "<"
        self.wide = True
        self.machine = 0
        self.loads: list[tuple[int, int, int]] = []  # address, bytes in the file, offset
        self.entries: list[
            tuple[int, int]
        ] = []  # tag, value: the dynamic array as it stands, without its end
        self.dynamic: dict[int, int] = {}  # of each tag the last
        self.problems: list[str] = []

    def read_header(self) -> None:
        """Read the segments and the dynamic array.

        :raises ElfError: this is not ELF, or its program headers lie outside of the file.
        """
        view = self.view
        if len(view) < 52 or bytes(view[:4]) != b"\x7fELF" or view[4] not in (1, 2) or view[5] not in (1, 2):
            raise ElfError("this is not an ELF file: its first bytes are not an ELF header")
        self.wide = view[4] == 2
        self.endian = "<" if view[5] == 1 else ">"
        if self.wide and len(view) < 64:
            raise ElfError("the ELF header is cut off: the file is shorter than its header")
        self.machine = self.unpack("H", 18, 1)[0]
        start = self.unpack("Q", 32, 1)[0] if self.wide else self.unpack("I", 28, 1)[0]
        size, number = self.unpack("H", 54 if self.wide else 42, 2)
        # Elf64_Phdr: type flags offset vaddr paddr filesz; Elf32_Phdr: type offset vaddr paddr filesz
        row = struct.Struct(self.endian + ("I4xQQ8xQ" if self.wide else "III4xI"))
        if number and (size < row.size or start + number * size > len(view)):
            raise ElfError(
                f"the {number} program headers of {size} bytes at {start:#x} lie outside of the file"
            )
        dynamic = None
        for at in range(start, start + number * size, size or 1):
            kind, offset, address, length = row.unpack_from(view, at)
            if kind == 1:  # PT_LOAD
                self.loads.append((address, min(length, max(0, len(view) - offset)), offset))
            elif kind == 2:  # PT_DYNAMIC
                dynamic = address
        if dynamic is not None:
            self.read_dynamic(dynamic)

    def read_dynamic(self, address: int) -> None:
        """Read the dynamic array, whose end is its DT_NULL and whose later entries win (elf/get-dynamic-info.h)."""
        pair = struct.Struct(self.endian + ("qQ" if self.wide else "iI"))
        data = self.read(address, pair.size * _MAX_DYNAMIC)
        for tag, value in pair.iter_unpack(data[: len(data) // pair.size * pair.size]):
            if tag == 0:
                return
            self.entries.append((tag, value))
            self.dynamic[tag] = value
        self.problem("the dynamic segment has no end, or lies outside of the file")

    def problem(self, sentence: str) -> None:
        """Add `sentence` to the problems, unless it is there."""
        if sentence not in self.problems:
            self.problems.append(sentence)

    def unpack(self, kind: str, offset: int, count: int) -> tuple[int, ...]:
        """Return `count` integers of struct type `kind` at file `offset`."""
        return struct.unpack_from(f"{self.endian}{count}{kind}", self.view, offset)

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes at a virtual `address`, or as many as the segment has in the file."""
        for start, length, offset in self.loads:
            if start <= address < start + length:
                at = offset + address - start
                return bytes(self.view[at : at + min(size, start + length - address)])
        return b""

    def available(self, address: int) -> int:
        """Return the bytes from `address` to the end of its segment, or to the next dynamic table: tables do not overlap."""
        ends = [start + length for start, length, _ in self.loads if start <= address < start + length]
        nexts = [at for tag in _TABLES if (at := self.dynamic.get(tag, 0)) > address]
        return max(0, min(ends + nexts) - address) if ends else 0

    def words(self, address: int, count: int, kind: str = "I") -> array[int]:
        """Return `count` integers at `address`, fewer if the segment ends."""
        data = self.read(address, count * array(kind).itemsize)
        return self.numbers(kind, data)

    def numbers(self, kind: str, data: bytes) -> array[int]:
        """Return the integers in `data`; bytes at its end that make no whole one are ignored."""
        numbers = array(kind)
        numbers.frombytes(data[: len(data) // numbers.itemsize * numbers.itemsize])
        if (self.endian == "<") != (sys.byteorder == "little"):
            numbers.byteswap()
        return numbers


class Strings:
    """DT_STRTAB. One decoding for the whole table where it is ASCII; undecodable names survive as surrogates."""

    def __init__(self, memory: Memory) -> None:
        address, size = memory.dynamic.get(DT_STRTAB), memory.dynamic.get(DT_STRSZ)
        # A file without DT_STRTAB has no strings; what lies at address 0 is its header.
        available = 0 if address is None else memory.available(address)
        if size is None or size > available:
            memory.problem("DT_STRSZ is missing, or reaches outside of the file or into the next table")
        data = memory.read(address or 0, available if size is None else min(size, available))
        self._memory = memory
        if not data.endswith(b"\0"):
            memory.problem("the string table is empty or does not end in a zero byte")
            data += b"\0"
        self.ascii = data.isascii()
        # Latin-1 has one character for each byte, so offsets stay valid; a name that is not ASCII is decoded again (`proper`).
        self.text = data.decode("latin-1")

    def get(self, offset: int, longest: int) -> str | None:
        """Return the string at `offset`; None if it lies outside of the table or has more than `longest` bytes."""
        end = self.text.find("\0", offset, offset + longest + 1)
        return None if end < 0 else self.proper(self.text[offset:end])

    def names(self, offsets: Sequence[int]) -> tuple[list[str], int]:
        """Return the strings at `offsets`, and how many of these lie outside of the table, whose strings are empty.

        Where strings overlap far beyond the size of the table, it becomes a problem, and the rest is empty, too.
        """
        known: dict[int, str] = {}
        # A table of zeros has one empty string for each byte: splitting it would take much memory.
        if self.text.count("\0") <= _MAX_STRINGS * (len(offsets) + 1024):
            texts = self.text.split("\0")[:-1]
            begins = accumulate(map(_PLUS_NUL, map(len, texts)), initial=0)
            known = dict(zip(begins, texts if self.ascii else map(self.proper, texts), strict=False))
        names = [*map(known.get, offsets)]
        outside = 0
        left = _MAX_STRINGS * len(self.text) + (1 << 20)
        # A linker lets one name be the tail of another; a hostile table could have nothing but long tails.
        for place in [place for place, name in enumerate(names) if name is None]:
            start = offsets[place]
            end = self.text.find("\0", start)
            outside += end < 0
            left -= max(0, end - start)
            if left < 0:
                self._memory.problem(
                    "the symbols' names overlap far beyond the size of the string table: the rest is left out"
                )
                break
            names[place] = self.proper(self.text[start:end])
        return [name or "" for name in names], outside

    def proper(self, text: str) -> str:
        """Return a slice of `text` as the UTF-8 that it most likely is."""
        return text if self.ascii else text.encode("latin-1").decode("utf-8", "surrogateescape")


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
        order += [i for i, hashed in enumerate(flags) if not hashed]
    for i in relocated:
        if i < count:
            flags[i] |= RELOCATED
    return _columns(memory, data[: count * size], bytes(flags)), order


def _columns(memory: Memory, data: bytes, flags: bytes) -> Columns:
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
    if bloom & (bloom - 1) or not bloom:  # _dl_setup_hash asserts it
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
    plt_step = 3 if dynamic.get(DT_PLTREL) == DT_RELA else 2  # words in an entry: with and without an addend
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
