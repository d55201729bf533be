"""Where the relocations of one object make the loader write (see :mod:`relink.loader.scan`).

The widths are those of elf_machine_rela in glibc's sysdeps/x86_64/dl-machine.h and sysdeps/aarch64/dl-machine.h. A table of a
million relocations is checked by columns: the targets of each part of it are sorted, and a binary search for the ends of the
segments counts those inside.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Final, TypeAlias

import msgspec

AddressRange: TypeAlias = tuple[int, int]
"""Virtual addresses: the first, and the one behind the last."""

# r_offset, type, symbol, r_addend (here without its sign: addresses wrap).
_RELA = struct.Struct("<QIIQ")
_PART: Final = 1 << 16
# Relocations that are checked one by one at most; so many take 2 s.
_MAX_CHECKED: Final = 1 << 20
# Symbols that are copied; a large program copies hundreds.
_MAX_COPIES: Final = 1 << 12
_WORD: Final = 8
# Words that one bitmap of DT_RELR covers; its lowest bit marks it as a bitmap.
_BITS: Final = 63


class Refusal(msgspec.Struct, frozen=True):
    """Why a file must not be given to the real loader.

    :ivar where: the tag, the segment or the relocation.
    :ivar reason: what is wrong with it.
    """

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class Machine(msgspec.Struct, frozen=True):
    """The relocation types that have checks of their own; every other writes a word or less, or nothing."""

    copy: int
    irelative: int
    tlsdesc: int


MACHINES: Final = {62: Machine(5, 37, 36), 183: Machine(1024, 1032, 1031)}
"""By e_machine: x86-64 and AArch64."""


class MappedFile(msgspec.Struct, frozen=True):
    """The file as it is mapped.

    :ivar file_ranges: of each PT_LOAD the first address, the one after the last byte that is in the file, and the file offset.
    :ivar loads: the addresses of each PT_LOAD, in order; `writable` and `executable`: of those with PF_W or PF_X.
    """

    view: memoryview
    file_ranges: tuple[tuple[int, int, int], ...]
    writable: tuple[AddressRange, ...]
    executable: tuple[AddressRange, ...]
    loads: tuple[AddressRange, ...]

    def offset(self, address: int, size: int) -> int | None:
        """Return the file offset of `size` bytes at `address`; None if the file does not have all of them in one segment."""
        for start, end, offset in self.file_ranges:
            if start <= address and address + size <= end:
                return offset + address - start
        return None

    def address(self, offset: int) -> int | None:
        """Return the first address at which a file offset is mapped."""
        for start, end, at in self.file_ranges:
            if at <= offset < at + end - start:
                return start + offset - at
        return None

    def available(self, address: int) -> int:
        """Return how many bytes the file has from `address` to the end of its segment."""
        return next((end - address for start, end, _ in self.file_ranges if start <= address < end), 0)

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes at `address`, or as many as there are."""
        size = min(size, self.available(address))
        at = self.offset(address, size)
        return b"" if at is None else bytes(self.view[at : at + size])


class RelocationTable(msgspec.Struct, frozen=True):
    """A table of relocations, which lies in the file's part of a segment.

    :ivar relative: the first of them that the loader treats as relative, whatever their type is (DT_RELACOUNT).
    """

    name: str
    start: int
    end: int
    relative: int = 0


class _Special(msgspec.Struct, frozen=True):
    """A relocation that does not write a word: where it is in its table, and its fields."""

    table: str
    number: int
    target: int
    type: int
    symbol: int
    addend: int


def refused_writes(
    memory: MappedFile,
    machine: Machine,
    tables: Sequence[RelocationTable],
    own: Sequence[AddressRange],
    protected: Sequence[AddressRange],
    symbols: int | None,
) -> Iterator[Refusal]:
    """Yield the relocations that would write where they must not.

    :param own: where the object may write.
    :param protected: where it must not, since the loader reads these bytes later.
    :param symbols: the address of DT_SYMTAB.
    """
    specials: list[_Special] = []
    for table in tables:
        if table.name != "DT_RELR":
            specials += _specials(memory, machine, table, _MAX_CHECKED - len(specials))
    if len(specials) >= _MAX_CHECKED:
        yield Refusal("the relocations", f"{_MAX_CHECKED} or more are of an unusual type")
        return
    copies = {special.symbol for special in specials if special.type == machine.copy}
    if len(copies) > _MAX_COPIES:
        yield Refusal("the relocations", f"copy more than {_MAX_COPIES} symbols")
        return
    if copies and symbols is None:
        yield Refusal("DT_SYMTAB", "is missing, and a relocation copies a symbol")
        return
    sizes: dict[int, int] = {}
    protected = [*protected]
    for symbol in copies:
        at = (symbols or 0) + 24 * symbol
        data = memory.read(at, 24)
        if len(data) < 24:
            yield Refusal(
                "DT_SYMTAB", f"symbol {symbol}, which is copied, is not in the file's part of a segment"
            )
            return
        sizes[symbol] = struct.unpack_from("<Q", data, 16)[0]
        # The loader reads st_size when it copies: another relocation must not write a larger one before.
        protected.append((at, at + 24))
    writable = _without(own, protected)
    starts = [start for start, _ in writable]
    executable = [start for start, _ in memory.executable]
    for special in specials:
        yield from _wrong_special(special, machine, memory, writable, starts, sizes, executable)
    for table in tables:
        if table.name == "DT_RELR":
            yield from _wrong_relr(memory, table, writable, starts)
        else:
            yield from _wrong_rela(memory, machine, table, writable, starts)


def _without(own: Iterable[AddressRange], kept: Iterable[AddressRange]) -> list[AddressRange]:
    """Return what is left of `own` without `kept`, in order. Neither overlaps itself in a way that matters."""
    left = []
    kept = sorted(kept)
    for start, end in sorted(own):
        for first, last in kept:
            if last <= start or first >= end:
                continue
            if first > start:
                left.append((start, first))
            # The loop goes on with what is left of this range behind the kept one.
            start = max(start, last)  # noqa: PLW2901
        if start < end:
            left.append((start, end))
    return left


def _inside(writable: Sequence[AddressRange], starts: Sequence[int], target: int, size: int) -> bool:
    at = bisect_right(starts, target) - 1
    return at >= 0 and target + size <= writable[at][1]


def _parts(memory: MappedFile, table: RelocationTable) -> Iterator[tuple[int, bytes]]:
    """Yield a table in parts: the number of the first relocation, and the bytes."""
    at = memory.offset(table.start, table.end - table.start)
    if at is None:
        return
    end, step = at + table.end - table.start, _PART * _RELA.size
    for number, start in enumerate(range(at, end, step)):
        yield number * _PART, bytes(memory.view[start : min(end, start + step)])


def _specials(memory: MappedFile, machine: Machine, table: RelocationTable, most: int) -> list[_Special]:
    """Return the relocations of a table that do not write a word, `most` at most."""
    types = (machine.copy, machine.irelative, machine.tlsdesc)
    specials: list[_Special] = []
    for first, data in _parts(memory, table):
        # The lowest byte of each relocation's type: searching these bytes finds the few special ones fast.
        low = data[8 :: _RELA.size]
        for kind in types:
            byte = kind & 0xFF
            at = low.find(byte, max(0, table.relative - first))
            while at >= 0:
                target, real, symbol, addend = _RELA.unpack_from(data, at * _RELA.size)
                if real == kind:
                    specials.append(_Special(table.name, first + at, target, real, symbol, addend))
                    if len(specials) >= most:
                        return specials
                at = low.find(byte, at + 1)
    return specials


def _wrong_special(
    special: _Special,
    machine: Machine,
    memory: MappedFile,
    writable: Sequence[AddressRange],
    starts: Sequence[int],
    sizes: dict[int, int],
    executable: Sequence[int],
) -> Iterator[Refusal]:
    where = f"relocation {special.number} of {special.table}"
    size = _WORD
    if special.type == machine.copy:
        size = sizes[special.symbol]
    elif special.type == machine.tlsdesc:
        size = 2 * _WORD
    elif not _inside(memory.executable, executable, special.addend, 1):
        yield Refusal(
            where, f"IRELATIVE: its resolver at {special.addend:#x} is not in an executable segment"
        )
    if size and not _inside(writable, starts, special.target, size):
        yield _refused(where, special.target, size)


def _refused(where: str, target: int, size: int) -> Refusal:
    return Refusal(
        where,
        f"writes {size} bytes at {target:#x}, which is not inside of the object's own writable segments, or is what the "
        "loader has yet to read",
    )


def _wrong_rela(
    memory: MappedFile,
    machine: Machine,
    table: RelocationTable,
    writable: Sequence[AddressRange],
    starts: Sequence[int],
) -> Iterator[Refusal]:
    """Check all relocations of a table as if each wrote a word; `_wrong_special` checks those that do not."""
    checked = 0
    # Types that do not write a word: a copy, whose size is the symbol's, and R_*_NONE, which writes nothing.
    own = {machine.copy, 0}
    for first, data in _parts(memory, table):
        targets = _words(data)[::3]
        ordered = sorted(targets)
        inside = sum(
            bisect_right(ordered, end - _WORD) - bisect_left(ordered, start)
            for start, end in writable
            if end - start >= _WORD
        )
        if inside == len(ordered):
            continue
        checked += len(ordered)
        if checked > _MAX_CHECKED:
            yield Refusal(table.name, "too many relocations are of an unusual type")
            return
        for at, target in enumerate(targets):
            if not _inside(writable, starts, target, _WORD):
                kind = _RELA.unpack_from(data, at * _RELA.size)[1]
                if kind not in own or first + at < table.relative:
                    yield _refused(f"relocation {first + at} of {table.name}", target, _WORD)
                    return


def _wrong_relr(
    memory: MappedFile, table: RelocationTable, writable: Sequence[AddressRange], starts: Sequence[int]
) -> Iterator[Refusal]:
    """Check DT_RELR: an address is written, and the words after it that the following bitmaps name (elf/dynamic-link.h)."""
    at: int | None = None
    # The piece of `writable` that the last write was in.
    low, high = 0, 0
    numbers = count()
    for _, data in _parts(memory, table):
        for word in _words(data):
            where = f"entry {next(numbers)} of {table.name}"
            if not word & 1:
                first = last = word
                at = word + _WORD
            elif at is None:
                yield Refusal(where, "is a bitmap with no address before it")
                return
            else:
                bits, base = word >> 1, at
                at += _BITS * _WORD
                if not bits:
                    continue
                first = base + ((bits & -bits).bit_length() - 1) * _WORD
                last = base + (bits.bit_length() - 1) * _WORD
            if low <= first and last + _WORD <= high:
                continue
            piece = bisect_right(starts, first) - 1
            low, high = writable[piece] if piece >= 0 else (0, 0)
            if low <= first and last + _WORD <= high:
                continue
            targets = [first]
            if word & 1:
                targets = [base + bit * _WORD for bit in range(_BITS) if bits >> bit & 1]
            for target in targets:
                if not _inside(writable, starts, target, _WORD):
                    yield _refused(where, target, _WORD)
                    return


def _words(data: bytes) -> array[int]:
    numbers = array("Q", data[: len(data) // _WORD * _WORD])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
