"""The dynamic segment of one ELF file: its entries, what lies at an address, and the string table.

No section header is read: ld.so has none either. The rules are those of glibc's ``elf/get-dynamic-info.h`` (the last entry
of a tag wins). No count and no address is trusted: what does not fit becomes a problem of the :class:`Memory`, and every loop is
bounded.
"""

from __future__ import annotations

import mmap
import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Final, TypeAlias

from relink.elf.constants import (
    DT_GNU_HASH,
    DT_HASH,
    DT_JMPREL,
    DT_REL,
    DT_RELA,
    DT_STRSZ,
    DT_STRTAB,
    DT_SYMTAB,
    DT_VERDEF,
    DT_VERNEED,
    DT_VERSYM,
    PT_GNU_EH_FRAME,
)
from relink.system.errors import ElfError
from relink.system.spool import fill, take

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap
"""The bytes of one ELF file: a member inflated into memory, or a mapped file."""

# Tags of tables that end at the latest where the next one begins (`Memory.available`).
_TABLES: Final = frozenset(
    {DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_REL, DT_JMPREL, DT_GNU_HASH, DT_VERSYM, DT_VERDEF, DT_VERNEED}
)

_PAGE: Final = 4096
# Entries of the dynamic array; real files have less than a hundred.
_MAX_DYNAMIC: Final = 1 << 16
# The table is split only if it has at most so many strings for each symbol, and names that are tails of other strings are
# read only up to so many bytes for each byte of the table.
_MAX_STRINGS: Final = 4
_PLUS_NUL: Final = (1).__add__


def count_mapped(address: int, file_size: int, memory_size: int) -> int:
    """Return how many bytes at the address of a PT_LOAD come from the file: whole pages, if nothing is cleared behind its end.

    The smallest page that a kernel has is 4 KiB (elf/dl-map-segments.h; patchelf left programs in which that is needed).
    """
    if memory_size > file_size:
        return file_size
    return -(-(address + file_size) // _PAGE) * _PAGE - address


class Memory:
    """One buffer, addressed as the loaded file would be. It only hands out copies, so that the buffer can be closed."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.endian = "<"
        self.wide = True
        self.machine = 0
        # Of each PT_LOAD, the last one first, the address, the bytes that the file has, and their offset.
        self.loads: list[tuple[int, int, int]] = []
        # The dynamic array as it stands, as pairs of tag and value, without its DT_NULL.
        self.entries: list[tuple[int, int]] = []
        self.dynamic: dict[int, int] = {}  # of each tag the last
        self.frames = 0  # the address of .eh_frame_hdr; 0 without one
        self.problems: list[str] = []
        # Those of them that concern what ld.so does not read.
        self.unread: list[str] = []

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
        # Elf64_Phdr: type flags offset vaddr paddr filesz memsz; Elf32_Phdr: type offset vaddr paddr filesz memsz
        row = struct.Struct(self.endian + ("I4xQQ8xQQ" if self.wide else "III4xII"))
        if number and (size < row.size or start + number * size > len(view)):
            raise ElfError(
                f"the {number} program headers of {size} bytes at {start:#x} lie outside of the file"
            )
        dynamic = None
        fill(view, start, start + number * size)
        for at in range(start, start + number * size, size or 1):
            kind, offset, address, length, size_in_memory = row.unpack_from(view, at)
            if kind == 1:  # PT_LOAD
                length = count_mapped(address, length, size_in_memory)
                # What is mapped later takes the place of what was there.
                self.loads.insert(0, (address, min(length, max(0, len(view) - offset)), offset))
            elif kind == 2:  # PT_DYNAMIC
                # Of several PT_DYNAMIC the last one counts (elf/dl-load.c).
                dynamic = address
            elif kind == PT_GNU_EH_FRAME:
                self.frames = address
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

    def problem(self, sentence: str, *, read: bool = True) -> None:
        """Add `sentence` to the problems, unless it is there.

        :param read: whether ld.so reads what is wrong.
        """
        if sentence not in self.problems:
            self.problems.append(sentence)
            if not read:
                self.unread.append(sentence)

    def unpack(self, kind: str, offset: int, count: int) -> tuple[int, ...]:
        """Return `count` integers of struct type `kind` at file `offset`."""
        return struct.unpack_from(f"{self.endian}{count}{kind}", self.view, offset)

    def offset(self, address: int) -> int:
        """Return the file offset of a virtual `address`.

        :raises ElfError: the file has no byte for it.
        """
        for start, length, offset in self.loads:
            if start <= address < start + length:
                return offset + address - start
        raise ElfError(f"no PT_LOAD segment has the address {address:#x}")

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes at a virtual `address`, or as many as the segment has in the file."""
        for start, length, offset in self.loads:
            if start <= address < start + length:
                at = offset + address - start
                return take(self.view, at, at + min(size, start + length - address))
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


@contextmanager
def open_memory(buffer: Buffer) -> Iterator[Memory]:
    """Address the bytes of a whole file as the loaded one would be; the buffer may be closed behind the block.

    :raises ElfError: this is not ELF, or its program headers lie outside of it.
    """
    with memoryview(buffer) as raw, raw.cast("B") as view:
        memory = Memory(view)
        memory.read_header()
        yield memory


class Strings:
    """DT_STRTAB. Undecodable names survive as surrogates.

    ld.so does not ask how large the table is: where DT_STRSZ is not right, all bytes up to the next table are it.

    :param most: bytes of the table that are read, each of which takes three of memory.
    """

    def __init__(self, memory: Memory, most: int = sys.maxsize) -> None:
        address, size = memory.dynamic.get(DT_STRTAB), memory.dynamic.get(DT_STRSZ)
        # A file without DT_STRTAB has no strings; what lies at address 0 is its header.
        available = 0 if address is None else memory.available(address)
        if size is None or size > available:
            memory.problem(
                "DT_STRSZ is missing, or reaches outside of the file or into the next table", read=False
            )
        self._memory = memory
        self._address = address or 0
        self._room = min(available, most)
        self.data = memory.read(self._address, min(available if size is None else size, self._room))
        if not self.data.endswith(b"\0"):
            memory.problem("the string table is empty or does not end in a zero byte", read=False)
            self._widen()
        if not self.data.endswith(b"\0"):
            memory.problem("the string table has no end")
            self.data += b"\0"

    def _widen(self) -> bool:
        """Read all that may be the table, up to the last zero byte; tell whether that is more than before."""
        data = self._memory.read(self._address, self._room) if len(self.data) < self._room else b""
        self._room = 0
        data = data[: data.rfind(b"\0") + 1]
        if len(data) <= len(self.data):
            return False
        self._memory.problem("strings lie behind the end that DT_STRSZ gives the string table", read=False)
        self.data = data
        return True

    def get(self, offset: int, longest: int) -> str | None:
        """Return the string at `offset`; None if it lies outside of the table or has more than `longest` bytes."""
        end = self.data.find(b"\0", offset, offset + longest + 1)
        if end < 0 and offset >= len(self.data) and self._widen():
            end = self.data.find(b"\0", offset, offset + longest + 1)
        return None if end < 0 else self._name(offset, end)

    def names(self, offsets: Sequence[int]) -> tuple[list[str], int]:
        """Return the strings at `offsets`, and how many of these lie outside of the table, whose strings are empty.

        Where strings overlap far beyond the size of the table, it becomes a problem, and the rest is empty, too.
        """
        known: dict[int, str] = {}
        # A table of zeros has one empty string for each byte: splitting it would take much memory.
        if self.data.count(b"\0") <= _MAX_STRINGS * (len(offsets) + 1024):
            # One decoding for the whole table. Latin-1 has one character for each byte, so that the lengths are right.
            texts = self.data.decode("latin-1").split("\0")[:-1]
            begins = accumulate(map(_PLUS_NUL, map(len, texts)), initial=0)
            if not self.data.isascii():
                texts = [text.encode("latin-1").decode("utf-8", "surrogateescape") for text in texts]
            known = dict(zip(begins, texts, strict=False))
        names = [*map(known.get, offsets)]
        outside = 0
        left = _MAX_STRINGS * len(self.data) + (1 << 20)
        # A linker lets one name be the tail of another; a hostile table could have nothing but long tails.
        for number in [number for number, name in enumerate(names) if name is None]:
            start = offsets[number]
            end = self.data.find(b"\0", start)
            outside += end < 0
            left -= max(0, end - start)
            if left < 0:
                self._memory.problem(
                    "the symbols' names overlap far beyond the size of the string table: the rest is left out"
                )
                break
            names[number] = self._name(start, end)
        if outside and self._widen():
            return self.names(offsets)
        return [name or "" for name in names], outside

    def _name(self, start: int, end: int) -> str:
        return self.data[start:end].decode("utf-8", "surrogateescape")
