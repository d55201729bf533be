"""Tiny shared objects that really load, written from Python: no compiler, and thousands of them in a second.

One PT_LOAD holds everything. What is not asked for is not there: no hash table without symbols, no section headers at all.
"""

from __future__ import annotations

import platform
import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 2**32
WHY_NOT = "the built objects are x86_64 ones, and this machine cannot load those"

EM_386, EM_X86_64, EM_AARCH64 = 3, 62, 183
ET_EXEC, ET_DYN = 2, 3
DF_1_NODEFLIB, DF_1_NOOPEN, DF_1_PIE = 0x800, 0x40, 0x08000000
GLOBAL, WEAK = 1, 2

_EXIT = b"\x31\xff\xb8\xe7\x00\x00\x00\x0f\x05"  # xor %edi,%edi; mov $231,%eax (exit_group); syscall
_ALL = (1 << 64) - 1
_R_X86_64_64, _R_X86_64_GLOB_DAT = 1, 6
_DT = {
    "NEEDED": 1, "HASH": 4, "STRTAB": 5, "SYMTAB": 6, "RELA": 7, "RELASZ": 8, "RELAENT": 9, "STRSZ": 10, "SYMENT": 11,
    "SONAME": 14, "RPATH": 15, "RUNPATH": 29, "GNU_HASH": 0x6FFFFEF5, "VERSYM": 0x6FFFFFF0, "FLAGS_1": 0x6FFFFFFB,
    "VERDEF": 0x6FFFFFFC, "VERDEFNUM": 0x6FFFFFFD, "VERNEED": 0x6FFFFFFE, "VERNEEDNUM": 0x6FFFFFFF,
    "RELRSZ": 35, "RELR": 36, "RELRENT": 37, "AUXILIARY": 0x7FFFFFFD, "FILTER": 0x7FFFFFFF,
}  # fmt: skip


@dataclass(frozen=True)
class Export:
    """A defined symbol; `hidden` makes its version a non-default one (``name@version``)."""

    name: str
    version: str | None = None
    hidden: bool = False
    binding: int = GLOBAL


@dataclass(frozen=True)
class Import:
    """An undefined symbol with one relocation; `version` is looked for in the library named `file`."""

    name: str
    version: str | None = None
    file: str | None = None
    binding: int = GLOBAL
    relocation: int = _R_X86_64_GLOB_DAT


@dataclass(frozen=True)
class Library:
    """What to write. Everything is as it stands in the file; nothing is checked.

    :ivar interpreter: makes it a program, which exits with 0 when it is run.
    :ivar versions: version nodes to define besides those of the exports.
    :ivar weak_versions: needed version nodes that carry VER_FLG_WEAK, as (file, version).
    :ivar entries: more dynamic entries, as (tag, value); a text is put into the string table.
    :ivar relocations: more of them behind those of the imports, as (target, type, symbol, addend).
    :ivar relr: the words of DT_RELR.
    :ivar hash: ``gnu``, ``sysv``, ``both`` or ``none``.
    :ivar memory: p_memsz of the PT_LOAD, in bytes, if it is not the file's size; `align` is its p_align.
    :ivar skew: how much higher addresses are than file offsets, in bytes.
    :ivar code: machine code directly behind the program headers, which makes the segment executable.
    """

    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    flags_1: int = 0
    machine: int = EM_X86_64
    elf_class: int = 64
    osabi: int = 0
    abi_version: int = 0
    kind: int = ET_DYN
    interpreter: str | None = None
    exports: tuple[Export, ...] = ()
    imports: tuple[Import, ...] = ()
    versions: tuple[str, ...] = ()
    weak_versions: tuple[tuple[str, str], ...] = ()
    hash: str = "gnu"
    stack_flags: int | None = 6
    filters: tuple[str, ...] = ()
    auxiliaries: tuple[str, ...] = ()
    memory: int | None = None
    align: int = 0x1000
    skew: int = 0
    entries: tuple[tuple[int, int | str], ...] = ()
    relocations: tuple[tuple[int, int, int, int], ...] = ()
    relr: tuple[int, ...] = ()
    code: bytes = b""

    def write(self, path: Path | str) -> Path:
        """Write it to `path`, whose directory is made if it is not there."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(build(self))
        path.chmod(0o755)
        return path


class _Strings:
    def __init__(self) -> None:
        self.data = bytearray(b"\0")
        self._known: dict[bytes, int] = {b"": 0}

    def add(self, text: str) -> int:
        raw = text.encode("utf-8", "surrogateescape")
        if raw not in self._known:
            self._known[raw] = len(self.data)
            self.data += raw + b"\0"
        return self._known[raw]


def sysv_hash(name: str) -> int:
    """gABI, "Hash Table"; version names are hashed with it too."""
    value = 0
    for byte in name.encode("utf-8", "surrogateescape"):
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


def gnu_hash(name: str) -> int:
    value = 5381
    for byte in name.encode("utf-8", "surrogateescape"):
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def build(library: Library) -> bytes:
    """Return the bytes of `library`."""
    if library.elf_class == 32:
        return _build_foreign(library)
    strings = _Strings()
    buckets = max(1, len(library.exports) // 4)
    exports = sorted(library.exports, key=lambda symbol: gnu_hash(symbol.name) % buckets)
    names = ["", *(symbol.name for symbol in library.imports), *(symbol.name for symbol in exports)]
    versions = _Versions(library, exports, strings)

    chunks: list[tuple[str, bytes]] = []  # name, bytes; each starts at a multiple of 8
    program_headers = 3 + 2 * (library.interpreter is not None) - (library.stack_flags is None)
    position = 64 + 56 * program_headers
    places: dict[str, int] = {}

    def put(name: str, data: bytes) -> None:
        nonlocal position
        padding = -position % 8
        places[name] = position + padding
        chunks.append((name, b"\0" * padding + data))
        position += padding + len(data)

    if library.interpreter is not None:
        put("interp", library.interpreter.encode("utf-8", "surrogateescape") + b"\0")
        put("text", _EXIT)
    if library.code:
        put("code", library.code)
    put("slots", b"\0" * 8 * max(1, len(library.imports) + len(exports)))
    first_export = 1 + len(library.imports)
    symbols = bytearray(24)
    for symbol in library.imports:
        symbols += struct.pack("<IBBHQQ", strings.add(symbol.name), symbol.binding << 4 | 1, 0, 0, 0, 0)
    for index, export in enumerate(exports):
        address = places["slots"] + 8 * (len(library.imports) + index) + library.skew
        symbols += struct.pack("<IBBHQQ", strings.add(export.name), export.binding << 4 | 1, 0, 1, address, 8)
    entries: list[tuple[str, int]] = [("NEEDED", strings.add(name)) for name in library.needed]
    entries += [("FILTER", strings.add(name)) for name in library.filters]
    entries += [("AUXILIARY", strings.add(name)) for name in library.auxiliaries]
    for tag, text in (("SONAME", library.soname), ("RPATH", library.rpath), ("RUNPATH", library.runpath)):
        if text is not None:
            entries.append((tag, strings.add(text)))
    if library.flags_1:
        entries.append(("FLAGS_1", library.flags_1))
    put("SYMTAB", bytes(symbols))
    if exports and library.hash in ("gnu", "both"):
        put("GNU_HASH", _gnu_table(names, first_export, buckets))
    if library.hash in ("sysv", "both") and len(names) > 1:
        put("HASH", _sysv_table(names))
    raw = [(tag, strings.add(value) if isinstance(value, str) else value) for tag, value in library.entries]
    if library.imports or library.relocations:
        rela = b"".join(
            struct.pack(
                "<QQq", places["slots"] + 8 * index + library.skew, (index + 1) << 32 | symbol.relocation, 0
            )
            for index, symbol in enumerate(library.imports)
        )
        rela += b"".join(
            struct.pack("<QIIQ", target & _ALL, kind, number, addend & _ALL)
            for target, kind, number, addend in library.relocations
        )
        put("RELA", rela)
        entries += [("RELASZ", len(rela)), ("RELAENT", 24)]
    if library.relr:
        put("RELR", struct.pack(f"<{len(library.relr)}Q", *(word & _ALL for word in library.relr)))
        entries += [("RELRSZ", 8 * len(library.relr)), ("RELRENT", 8)]
    if versions.any:
        put("VERSYM", versions.table())
        if versions.defined:
            put("VERDEF", versions.definitions())
            entries.append(("VERDEFNUM", len(versions.defined) + 1))
        if versions.wanted:
            put("VERNEED", versions.needs())
            entries.append(("VERNEEDNUM", len(versions.wanted)))
    put("STRTAB", bytes(strings.data))
    entries += [(name, places[name] + library.skew) for name in places if name in _DT]
    entries += [("STRSZ", len(strings.data)), ("SYMENT", 24)]
    numbers = [*((_DT[tag], value) for tag, value in entries), *raw]
    dynamic = b"".join(struct.pack("<QQ", tag, value & _ALL) for tag, value in numbers) + bytes(16)
    put("dynamic", dynamic)

    return _headers(library, places, program_headers, position, len(dynamic)) + b"".join(
        data for _, data in chunks
    )


def _headers(library: Library, places: dict[str, int], count: int, size: int, dynamic_size: int) -> bytes:
    def segment(
        kind: int, flags: int, offset: int, length: int, align: int, memory: int | None = None
    ) -> bytes:
        address = offset + library.skew
        memory = length if memory is None else memory
        return struct.pack("<IIQQQQQQ", kind, flags, offset, address, address, length, memory, align)

    segments = []
    flags = 6
    if library.interpreter is not None:
        segments.append(
            segment(6, 4, 64, 56 * count, 8)
        )  # PT_PHDR, by which the loader learns where a program lies
        segments.append(
            segment(
                3, 4, places["interp"], len(library.interpreter.encode("utf-8", "surrogateescape")) + 1, 1
            )
        )
        flags = 7
    if library.code:
        flags = 7
    segments.append(segment(1, flags, 0, size, library.align, library.memory))
    segments.append(segment(2, 6, places["dynamic"], dynamic_size, 8))
    if library.stack_flags is not None:
        segments.append(segment(0x6474E551, library.stack_flags, 0, 0, 16))
    header = _ident(library) + struct.pack(
        "<HHIQQQIHHHHHH",
        library.kind,
        library.machine,
        1,
        places.get("text", 0),
        64,
        0,
        0,
        64,
        56,
        count,
        64,
        0,
        0,
    )
    return header + b"".join(segments)


def _ident(library: Library) -> bytes:
    return b"\x7fELF" + bytes((library.elf_class // 32, 1, 1, library.osabi, library.abi_version)) + bytes(7)


def _build_foreign(library: Library) -> bytes:
    """A 32 bit one, to be passed over: header, one PT_LOAD and a dynamic section with the soname."""
    strings = _Strings()
    name = strings.add(library.soname or "")
    base = 52 + 2 * 32
    dynamic = struct.pack("<iIiIiIiI", 14, name, 5, base, 10, len(strings.data), 0, 0)
    at = base + len(strings.data)
    size = at + len(dynamic)
    header = _ident(library) + struct.pack(
        "<HHIIIIIHHHHHH", library.kind, library.machine, 1, 0, 52, 0, 0, 52, 32, 2, 40, 0, 0
    )
    load = struct.pack("<IIIIIIII", 1, 0, 0, 0, size, size, 6, 0x1000)
    where = struct.pack("<IIIIIIII", 2, at, at, at, len(dynamic), len(dynamic), 6, 4)
    return header + load + where + bytes(strings.data) + dynamic


def _sysv_table(names: Sequence[str]) -> bytes:
    count = max(1, len(names) // 2)
    heads = [0] * count
    chain = [0] * len(names)
    for index in range(1, len(names)):
        bucket = sysv_hash(names[index]) % count
        chain[index], heads[bucket] = heads[bucket], index
    return struct.pack(f"<II{count}I{len(names)}I", count, len(names), *heads, *chain)


def _gnu_table(names: Sequence[str], first: int, count: int) -> bytes:
    words = 1 << max(0, (len(names) - first - 1).bit_length() - 3)
    shift = 6
    bloom = [0] * words
    heads = [0] * count
    values = []
    for index in range(first, len(names)):
        value = gnu_hash(names[index])
        bucket = value % count
        bloom[value // 64 % words] |= 1 << value % 64 | 1 << (value >> shift) % 64
        heads[bucket] = heads[bucket] or index
        last = index + 1 == len(names) or gnu_hash(names[index + 1]) % count != bucket
        values.append(value & ~1 | last)
    return struct.pack(
        f"<IIII{words}Q{count}I{len(values)}I", count, first, words, shift, *bloom, *heads, *values
    )


class _Versions:
    """The three version sections (Drepper, "How to write shared libraries", and the LSB's "Symbol Versioning")."""

    def __init__(self, library: Library, exports: Sequence[Export], strings: _Strings) -> None:
        self._library, self._exports, self.strings_of = library, exports, strings
        own = (symbol.version for symbol in exports if symbol.version)
        self.defined = list(dict.fromkeys((*library.versions, *own)))
        self.wanted: dict[str, list[str]] = {}
        for symbol in library.imports:
            if symbol.version and symbol.file:
                self._want(symbol.file, symbol.version)
        for file, version in library.weak_versions:
            self._want(file, version)
        self.any = bool(self.defined or self.wanted)
        self._number = {version: index for index, version in enumerate(self.defined, 2)}
        pairs = [(file, version) for file, listed in self.wanted.items() for version in listed]
        self._wanted_number = {pair: index for index, pair in enumerate(pairs, 2 + len(self.defined))}
        for text in (*self.defined, *self.wanted, *(version for _, version in pairs), library.soname or ""):
            strings.add(text)

    def _want(self, file: str, version: str) -> None:
        listed = self.wanted.setdefault(file, [])
        if version not in listed:
            listed.append(version)

    def table(self) -> bytes:
        numbers = [0]
        for symbol in self._library.imports:
            pair = (symbol.file or "", symbol.version or "")
            numbers.append(self._wanted_number.get(pair, 1))
        for export in self._exports:
            number = self._number.get(export.version or "", 1)
            numbers.append(number | 0x8000 if export.hidden else number)
        return struct.pack(f"<{len(numbers)}H", *numbers)

    def definitions(self) -> bytes:
        base = self._library.soname or ""
        rows = [(1, 1, base), *((0, self._number[version], version) for version in self.defined)]
        packed = b""
        for position, (flags, index, name) in enumerate(rows):
            step = 28 if position + 1 < len(rows) else 0
            packed += struct.pack("<HHHHIII", 1, flags, index, 1, sysv_hash(name), 20, step)
            packed += struct.pack("<II", self.strings_of.add(name), 0)
        return packed

    def needs(self) -> bytes:
        packed = b""
        for position, (file, listed) in enumerate(self.wanted.items()):
            step = 16 + 16 * len(listed) if position + 1 < len(self.wanted) else 0
            packed += struct.pack("<HHIII", 1, len(listed), self.strings_of.add(file), 16, step)
            for place, version in enumerate(listed):
                flags = 2 if (file, version) in self._library.weak_versions else 0
                number = self._wanted_number[file, version]
                after = 16 if place + 1 < len(listed) else 0
                packed += struct.pack(
                    "<IHHII", sysv_hash(version), flags, number, self.strings_of.add(version), after
                )
        return packed


def write_all(directory: Path, libraries: Iterable[tuple[str, Library]]) -> None:
    """Write several: (path below `directory`, what)."""
    for name, library in libraries:
        library.write(directory / name)
