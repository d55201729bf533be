"""ELF files with symbol tables, hash tables and version records made by hand, so that each of their words can lie."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

from relink.elf import symbol_reader
from relink.elf.dynamic import Buffer
from relink.elf.symbols import Export, Import, SymbolTable

SYMTAB, STRTAB, STRSZ, SYMENT, HASH, GNU_HASH = 6, 5, 10, 11, 4, 0x6FFFFEF5
RELA, RELASZ, REL, RELSZ, JMPREL, PLTRELSZ, PLTREL = 7, 8, 17, 18, 23, 2, 20
VERSYM, VERDEF, VERDEFNUM, VERNEED, VERNEEDNUM = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF


def read_symbols(buffer: Buffer) -> SymbolTable:
    """The same, and the version needs alone are those that it has."""
    table = symbol_reader.read_symbols(buffer)
    assert symbol_reader.read_version_needs(buffer) == table.verneeds
    return table


def read(path: Path) -> SymbolTable:
    return read_symbols(path.read_bytes())


def one(table: SymbolTable, name: str) -> Export:
    (export,) = table.exports[name]
    return export


def script(directory: Path, text: str) -> str:
    path = directory / "versions.map"
    path.write_text(text)
    return f"-Wl,--version-script={path}"


# A file built by hand: every width and byte order, and every lie


def elf_hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ (value >> 24 & 0xF0)) & 0x0FFFFFFF
    return value


@dataclass
class Handmade:
    """One PT_LOAD, five symbols: null, need@V1 (libdep.so), perhaps (weak), call@ONE, call@@TWO."""

    wide: bool = True
    endian: str = "<"
    machine: int = 62
    tables: tuple[str, ...] = ("gnu", "versions", "rela")
    tags: dict[int, int | None] = field(default_factory=dict)
    words: dict[tuple[str, int], int] = field(default_factory=dict)  # (table, byte offset): 32 bits
    halves: dict[tuple[str, int], int] = field(default_factory=dict)
    octets: dict[tuple[str, int], int] = field(default_factory=dict)
    names: tuple[str, ...] = ("need", "perhaps", "call", "libdep.so", "V1", "self", "ONE", "TWO")
    tails: dict[str, bytes] = field(default_factory=dict)
    base: int = 0x40000

    def symbol(self, name: int, info: int, shndx: int, value: int) -> bytes:
        if self.wide:
            return struct.pack(self.endian + "IBBHQQ", name, info, 0, shndx, value, 4)
        return struct.pack(self.endian + "IIIBBH", name, value, 4, info, 0, shndx)

    def build(self) -> bytes:
        e = self.endian
        strings, at = b"\0", {}
        for name in self.names:
            at[name] = len(strings)
            strings += name.encode() + b"\0"
        blobs = {
            "sym": self.symbol(0, 0, 0, 0)
            + self.symbol(at["need"], 0x12, 0, 0)
            + self.symbol(at["perhaps"], 0x20, 0, 0)
            + self.symbol(at["call"], 0x12, 7, 0x100)
            + self.symbol(at["call"], 0x12, 7, 0x200),
            "str": strings,
        }
        tags: dict[int, int | None] = {SYMENT: 24 if self.wide else 16, STRSZ: len(strings)}
        if "gnu" in self.tables:
            blobs["gnu"] = struct.pack(e + "IIII", 1, 3, 1, 0) + b"\xff" * (8 if self.wide else 4)
            blobs["gnu"] += struct.pack(e + "III", 3, 0x10, 0x11)
        if "sysv" in self.tables:  # one bucket, the later symbols first, as GNU ld writes it
            kind = "Q" if self.wide and self.machine in (22, 0x9026) else "I"
            blobs["sysv"] = struct.pack(f"{e}8{kind}", 1, 5, 4, 0, 0, 1, 2, 3)
        if "versions" in self.tables:
            blobs["versym"] = struct.pack(e + "5H", 0, 4, 1, 0x8002, 3)
            blobs["verneed"] = struct.pack(e + "HHIII", 1, 1, at["libdep.so"], 16, 0)
            blobs["verneed"] += struct.pack(e + "IHHII", elf_hash("V1"), 0, 4, at["V1"], 0)
            blobs["verdef"] = b""
            for index, (name, flags, step) in enumerate((("self", 1, 28), ("ONE", 0, 28), ("TWO", 2, 0)), 1):
                record = (1, flags, index, 1 + (name == "TWO"), elf_hash(name), 20, step)
                blobs["verdef"] += struct.pack(e + "HHHHIII", *record)
                blobs["verdef"] += struct.pack(e + "II", at[name], 8 * (name == "TWO"))
            blobs["verdef"] += struct.pack(e + "II", at["ONE"], 0)
            tags |= {VERNEEDNUM: 1, VERDEFNUM: 3}
        # Two relocations that name "perhaps"; their addends would name "need" if they were taken for r_info.
        word, shift = ("Q", 32) if self.wide else ("I", 8)
        place, info, addend = 0x300, 2 << shift | 6, 1 << shift
        for name, size in (("rela", RELASZ), ("rel", RELSZ), ("plt", PLTRELSZ)):
            if name in self.tables:
                entries = (place, 6, place, info) if name == "rel" else (place, info, addend) * 2
                blobs[name] = struct.pack(f"{e}{len(entries)}{word}", *entries)
                tags[size] = len(blobs[name])
        tags[PLTREL] = RELA if "plt" in self.tables else None
        header, entry = (64, 56) if self.wide else (52, 32)
        body = bytearray(header + 2 * entry)
        places = {}
        for name, tail in self.tails.items():
            blobs[name] += tail
        for name, blob in blobs.items():
            body += b"\0" * (-len(body) % 8)
            places[name] = len(body)
            body += blob
        for packing, edits in (("I", self.words), ("H", self.halves), ("B", self.octets)):
            for (name, offset), value in edits.items():
                struct.pack_into(e + packing, body, places[name] + offset, value)
        number = {"sym": SYMTAB, "str": STRTAB, "gnu": GNU_HASH, "sysv": HASH, "versym": VERSYM, "rela": RELA}
        number |= {"rel": REL, "plt": JMPREL}
        number |= {"verneed": VERNEED, "verdef": VERDEF}
        tags |= {number[name]: self.base + place for name, place in places.items()}
        tags |= self.tags
        body += b"\0" * (-len(body) % 8)
        dynamic = len(body)
        pair = e + ("QQ" if self.wide else "II")
        for tag, value in [*((t, v) for t, v in tags.items() if v is not None), (0, 0)]:
            body += struct.pack(pair, tag, value)
        ident = b"\x7fELF" + bytes((1 + self.wide, 1 + (e == ">"), 1)) + b"\0" * 9
        word = "Q" if self.wide else "I"
        head = struct.pack(f"{e}HHI{word}{word}{word}", 3, self.machine, 1, 0, header, 0)
        head += struct.pack(e + "IHHHHHH", 0, header, entry, 2, 0, 0, 0)
        body[:header] = ident + head
        for row, (segment, offset, size) in enumerate(((1, 0, len(body)), (2, dynamic, len(body) - dynamic))):
            address = self.base + offset
            if self.wide:
                data = struct.pack(e + "IIQQQQQQ", segment, 4, offset, address, address, size, size, 8)
            else:
                data = struct.pack(e + "IIIIIIII", segment, offset, address, address, size, size, 4, 8)
            body[header + row * entry : header + (row + 1) * entry] = data
        return bytes(body)


ONE = Export("ONE", True, "global", "func", "default", 2)
TWO = Export("TWO", False, "global", "func", "default", 3)
IMPORTS = {
    Import("need", "V1", "libdep.so", "global", "func", 4, relocated=False),
    Import("perhaps", None, None, "weak", "notype", 1, relocated=True),
}


# Lies. Each is named by its problem; what is left is still given.


def told_quickly(made: Handmade, problem: str, cut: int = 0) -> None:
    data = made.build()
    start = time.process_time()
    table = read_symbols(data[: len(data) - cut])
    assert time.process_time() - start < 1
    assert any(problem in found for found in table.problems), table.problems
