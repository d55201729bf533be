"""Reading what one ELF file imports and exports, as ld.so sees it: from the dynamic segment alone.

The rules are glibc's: ``elf/dl-lookup.c`` (`check_match`, `do_lookup_x`: which symbols can satisfy a reference) and
``elf/dl-version.c`` (`_dl_check_map_versions`: how versions are numbered). Damaged tables become entries of
:attr:`SymbolTable.problems`; what can still be read is given.

A closure may have 100,000 symbols, so the table is read by columns, and all symbols that differ only in their names share one
:class:`Export`. The result has no reference to the buffer: an mmap may be closed afterwards.

The hash tables bound and order the symbols by the rules of glibc's ``elf/dl-setup_hash.c`` (DT_GNU_HASH wins over DT_HASH) and
``elf/dl-lookup.c`` (the order in a chain). Version records are walked as ld.so walks them: from record to record until one has no
next, whatever the counts say. No count is trusted: what does not fit becomes a problem of the
:class:`~relink.elf.dynamic.Memory`, and every loop is bounded.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from operator import attrgetter
from typing import Final, TypeAlias

import msgspec

from relink.elf import constants as c
from relink.elf.dynamic import Buffer, Memory, Strings, open_memory
from relink.elf.symbols import (
    VER_FLG_WEAK,
    VERSYM_HIDDEN,
    Binding,
    Export,
    Import,
    SymbolTable,
    SymbolType,
    VersionDef,
    VersionNeed,
    VersionRequirement,
    Visibility,
    elf_hash,
)

# A version number has 15 bits, so that no table has more versions.
_MAX_VERSIONS: Final = 1 << 15
# VER_FLG_BASE: the record of the file itself.
_BASE: Final = 1
_MAX_BYTES: Final = 1 << 22
_MAX_NAME: Final = 1 << 10

# Flags of a symbol: the hash table has it, a relocation names it, one its place in the static TLS block, one its TLS descriptor.
HASHED, RELOCATED, STATIC_TLS, DESCRIBED_TLS = 1, 2, 4, 8
# By e_machine the relocation whose object dlopen gives static TLS (CHECK_STATIC_TLS in sysdeps/*/dl-machine.h): TPOFF64, TPREL64.
_R_STATIC_TLS: Final = {62: 18, 183: 1030}
# Those to which it gives that where there is room (TRY_STATIC_TLS): TLSDESC.
_R_DESCRIBED_TLS: Final = {62: 36, 183: 1031}

# Symbols in one bucket of a GNU hash table; a chain of a damaged file may have no end.
_MAX_CHAIN: Final = 1 << 20
# Buckets that lead elsewhere, and the words that are read there: a damaged file may have many.
_MAX_STRAY: Final = 64


class Columns(msgspec.Struct, frozen=True):
    """The symbol table by columns (st_name, st_info, …), which is what makes it quick to go through: the null symbol first.

    :ivar flags: HASHED, RELOCATED, STATIC_TLS.
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


def symbol_columns(memory: Memory, hashes: Collection[int] = ()) -> tuple[Columns, list[int] | None]:
    """Return the symbol table, and the order in which ld.so meets those that are read; None: the table's own order, all of it."""
    table = memory.dynamic.get(c.DT_GNU_HASH) if hashes else None
    relocated = _relocated(memory) if table is None else set[int]()
    count, flags, order = _extent(memory, lambda: relocated)
    if table is not None:
        number, first, bloom, _ = (*memory.words(table, 4), 0, 0, 0, 0)[:4]
        start = table + 16 + bloom * (8 if memory.wide else 4) + 4 * number
        chains = memory.words(start, max(0, count - first))
        order = [place for place, word in enumerate(chains, first) if word in hashes]
    shift = 32 if memory.wide else 8
    kinds = {
        _R_STATIC_TLS.get(memory.machine): STATIC_TLS,
        _R_DESCRIBED_TLS.get(memory.machine): DESCRIBED_TLS,
    }
    for info in relocated:
        if info >> shift < count:
            flags[info >> shift] |= RELOCATED | (kinds.get(info & 0xFFFFFFFF, 0) if memory.wide else 0)
    data = memory.read(memory.dynamic[c.DT_SYMTAB], count * _entry_size(memory))
    return columns_of(memory, data, bytes(flags)), order if order or table is not None else None


def count_symbols(memory: Memory) -> int:
    """Return the number of symbols in the symbol table, without reading the table: that of :func:`symbol_columns`."""
    return _extent(memory, lambda: _relocated(memory))[0]


def _entry_size(memory: Memory) -> int:
    return 24 if memory.wide else 16


def _extent(memory: Memory, relocated: Callable[[], set[int]]) -> tuple[int, bytearray, list[int]]:
    """Return the number of symbols, for each whether it is HASHED, and the order in which ld.so meets them.

    DT_SYMTAB has no size. The end of the last chain of DT_GNU_HASH gives it, or nchain of DT_HASH, or the relocations. For
    DT_GNU_HASH the linker sorts the symbols by bucket, so the order of the table is that of the chains.

    :param relocated: gives r_info of the relocations, which are asked for only where the hash tables do not tell.
    """
    size = _entry_size(memory)
    if (declared := memory.dynamic.get(c.DT_SYMENT, 0)) != size:
        memory.problem(f"DT_SYMENT is {declared}, not {size}", read=False)
    limit = memory.available(memory.dynamic[c.DT_SYMTAB]) // size
    gnu = _gnu_hash(memory, limit)
    sysv = _sysv_hash(memory, limit, read=c.DT_GNU_HASH not in memory.dynamic)
    shift = 32 if memory.wide else 8
    first, count = gnu or (limit, 0)
    order: list[int] = []
    hashed = bytearray()
    if sysv:
        if count > sysv[0]:
            memory.problem(f"DT_HASH counts {sysv[0]} symbols, DT_GNU_HASH {count}", read=False)
        count = max(count, sysv[0])
        if not gnu:
            order, hashed = _chains(memory, *sysv[1:])
            named = (number for info in relocated() if (number := info >> shift) < limit)
            if (highest := max((0, *order, *named))) >= count:
                memory.problem(f"DT_HASH counts {count} symbols, and there are more", read=False)
                count = highest + 1
    elif count <= first:
        # Nothing is exported, or no hash table is usable. GNU ld writes a first symbol of 1 then, whatever is imported:
        # the highest symbol that a relocation names counts.
        count = max(count, 1 + max((info >> shift for info in relocated()), default=0))
    if count > limit:
        memory.problem(f"the symbol table has room for {limit} symbols, not for {count}")
        count = limit
    if gnu or not sysv:
        return count, bytearray(min(first, count)).ljust(count, bytes((HASHED,))), order
    flags = hashed[:count].ljust(count, b"\0")
    # ld.so finds none of these symbols; they stay in the table, since imports may be among them.
    return count, flags, order + [i for i, flag in enumerate(flags) if not flag]


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
    address = memory.dynamic.get(c.DT_GNU_HASH)
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
    chains = address + 4 * (start + number - first)
    if stray := {bucket for bucket in buckets if bucket and not first <= bucket < limit}:
        # do_lookup_x compares the words from there on with a name's hash, to the first odd one; no bound is asked.
        ends = len(stray) <= _MAX_STRAY and all(
            any(word & 1 for word in memory.words(chains + 4 * bucket, _MAX_STRAY)) for bucket in stray
        )
        text = f"DT_GNU_HASH has buckets outside of the {limit} symbols there is room for"
        memory.problem(text, read=not ends)
        last = max({*buckets} - stray, default=0)
    if not last:
        return first, first
    for at in range(last, min(limit, last + _MAX_CHAIN), 1024):
        block = memory.words(chains + 4 * at, min(1024, limit - at))
        for i, value in enumerate(block, at + 1):
            if value & 1:
                return first, i
    memory.problem("the last chain of DT_GNU_HASH has no end")
    return first, last + 1


def _sysv_hash(memory: Memory, limit: int, *, read: bool) -> tuple[int, array[int], array[int]] | None:
    """Return the number of symbols, the buckets and the chains of DT_HASH. ld.so does not read the number.

    :param read: whether ld.so reads the table: there is no DT_GNU_HASH.
    """
    address = memory.dynamic.get(c.DT_HASH)
    if address is None:
        return None
    # 64-bit s390 and Alpha have entries of eight bytes (Elf_Symndx).
    kind, width = ("Q", 8) if memory.wide and memory.machine in (22, 0x9026) else ("I", 4)
    header = memory.words(address, 2, kind)
    available = memory.available(address) // width
    if len(header) < 2 or header[0] + 2 > available:
        memory.problem(
            "DT_HASH lies outside of the file, or claims more buckets than there is room for", read=read
        )
        return None
    number, count = header
    room = min(limit, available - 2 - number)
    if count > room:
        memory.problem(f"DT_HASH counts {count} symbols, there is room for {room}", read=False)
    buckets = memory.words(address + 2 * width, number, kind)
    return min(count, room), buckets, memory.words(address + (2 + number) * width, room, kind)


def _chains(memory: Memory, buckets: array[int], chains: array[int]) -> tuple[list[int], bytearray]:
    """Walk the chains of DT_HASH: the symbols in the order ld.so meets them, and a flag for each symbol of the table."""
    order: list[int] = []
    seen = bytearray(len(chains))
    for bucket in buckets:
        at, begin = bucket, len(order)
        while at:
            if at >= len(chains) or (seen[at] and at in order[begin:]):
                memory.problem("a chain of DT_HASH leaves the table or runs in a circle")
                break
            if seen[at]:
                # The rest is that of another chain.
                break
            seen[at] = HASHED
            order.append(at)
            at = chains[at]
    return order, seen


def _relocated(memory: Memory) -> set[int]:
    """Return symbol and type of the relocations, each pair once (r_info)."""
    dynamic = memory.dynamic
    # Words in an entry of DT_JMPREL: three with an addend, two without.
    plt_step = 3 if dynamic.get(c.DT_PLTREL) == c.DT_RELA else 2
    kind, width = ("Q", 8) if memory.wide else ("I", 4)
    found: set[int] = set()
    for table, size, step in (
        (c.DT_RELA, c.DT_RELASZ, 3),
        (c.DT_REL, c.DT_RELSZ, 2),
        (c.DT_JMPREL, c.DT_PLTRELSZ, plt_step),
    ):
        address = dynamic.get(table, 0)
        length = dynamic.get(size, 0) if address else 0
        # ld.so takes an entry of which the size has only a part (elf/do-rel.h).
        length = -(-length // (step * width)) * step * width
        # DT_RELASZ may include the entries of DT_JMPREL: these are read by themselves, and a set has each symbol once.
        available = memory.available(address)
        if length and not available:
            memory.problem("a relocation table lies outside of the file")
        found |= set(memory.words(address, min(length, available) // width, kind)[1::step])
    return found


def version_needs(memory: Memory, strings: Strings) -> tuple[VersionNeed, ...]:
    """Return the records of DT_VERNEED."""
    needs: list[VersionNeed] = []
    for at, (_, _, file_at, *_), entries in _walk(
        memory, "DT_VERNEED", c.DT_VERNEED, c.DT_VERNEEDNUM, "HHIII", "IHHII", "versions"
    ):
        versions = tuple(
            VersionRequirement(
                _version_name(memory, strings, name_at, digest),
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
        needs.append(VersionNeed(_version_name(memory, strings, file_at), versions, at))
    return tuple(needs)


def version_defs(memory: Memory, strings: Strings) -> tuple[VersionDef, ...]:
    """Return the records of DT_VERDEF. The first name of a record is the version's, the others are its parents'.

    ld.so reads the first alone, and none of the file's own record (VER_FLG_BASE).
    """
    nodes: list[VersionDef] = []
    for _, (_, flags, index, _, digest, *_), entries in _walk(
        memory, "DT_VERDEF", c.DT_VERDEF, c.DT_VERDEFNUM, "HHHHIII", "II", "names"
    ):
        base, weak = bool(flags & _BASE), bool(flags & VER_FLG_WEAK)
        names = [
            _version_name(memory, strings, name_at, None if number else digest, read=not (number or base))
            for number, (_, (name_at, _)) in enumerate(entries)
        ]
        name, *above = names or [""]
        nodes.append(VersionDef(name, index & ~VERSYM_HIDDEN, base, weak, tuple(above), digest))
    return tuple(nodes)


def _walk(
    memory: Memory, name: str, tag: int, number_tag: int, record: str, entry: str, called: str
) -> Iterator[tuple[int, tuple[int, ...], list[tuple[int, tuple[int, ...]]]]]:
    """Walk a table as ld.so does: to the record without a next one, whatever its number of records says.

    Yields the file offset and the fields of each record, and the same of each of its entries, of which there is one at least,
    but for those of DT_VERDEF that ld.so does not read.

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
                # Of DT_VERNEED ld.so looks at the first one's, of DT_VERDEF only for what requires versions (match_symbol).
                read = tag == c.DT_VERNEED and not records
                memory.problem(f"{name} has a record of unknown layout {fields[0]}", read=read)
            entries: list[tuple[int, tuple[int, ...]]] = []
            entry_at, step = at + first, 1
            while step and total < _MAX_VERSIONS:
                total += 1
                unread = tag == c.DT_VERDEF and (entries or fields[1] & _BASE)
                if unread and entry_at + struct.calcsize(entry) > len(data):
                    memory.problem(f"{name} has names outside of its table", read=False)
                    break
                fields_of_entry = struct.unpack_from(memory.endian + entry, data, entry_at)
                entries.append((start + entry_at, fields_of_entry))
                step = fields_of_entry[-1]
                entry_at += step
            if total >= _MAX_VERSIONS:
                memory.problem(f"{name} has more than {_MAX_VERSIONS} {called}")
                break
            yield start + at, fields, entries
            if len(entries) != count:
                memory.problem(
                    f"a record of {name} counts {count} {called} and has {len(entries)}", read=False
                )
            records += 1
            at += following
    except struct.error:
        memory.problem(f"{name} has records outside of the file or of its table")
    if records != (number := memory.dynamic.get(number_tag, 0)):
        memory.problem(f"{name}NUM is {number}, the records are {records}", read=False)


def _version_name(
    memory: Memory, strings: Strings, offset: int, digest: int | None = None, *, read: bool = True
) -> str:
    """Return the name at `offset` of a file or a version, whose hash must be `digest`; empty if there is none.

    :param read: whether ld.so reads it.
    """
    name = strings.get(offset, _MAX_NAME)
    if name is None:
        memory.problem("a version record has a name outside of the string table", read=read)
        return ""
    # check_match compares hashes before names, and a hash of zero asks for no version at all.
    if digest and elf_hash(name) != digest:
        memory.problem(
            f"the version record of {name[:80]!r} has the wrong hash: ld.so would not match it", read=read
        )
    return name


_BINDINGS: Final[dict[int, Binding]] = {0: "local", 1: "global", 2: "weak", 10: "unique"}
_TYPES: Final[dict[int, SymbolType]] = {
    **dict[int, SymbolType](enumerate(("notype", "object", "func", "section", "file", "common", "tls"))),
    10: "ifunc",
}
_VISIBILITIES: Final[tuple[Visibility, ...]] = ("default", "internal", "hidden", "protected")
# ALLOWED_STT of elf/dl-lookup.c: notype, object, func, common, tls, ifunc.
_CANDIDATE_TYPES: Final = frozenset({0, 1, 2, 5, 6, 10})
_CANDIDATE_BINDINGS: Final = frozenset({1, 2, 10})
# STV_INTERNAL and STV_HIDDEN (dl_symbol_visibility_binds_local_p).
_BINDS_LOCAL: Final = (1, 2)
# STT_TLS: the value is an offset into a thread's block, so that zero is a value (check_match).
_TLS = 6
# By e_machine the type of a copy relocation (elf/elf.h).
_R_COPY: Final = {3: 5, 40: 20, 62: 5, 183: 1024, 243: 4}
# Bytes: of real libraries with version definitions the names take a tenth of it.
MOST_STRINGS: Final = 16 << 20
# By version number its name, and the file that the record blames; None for a version of the file's own.
_Records: TypeAlias = Mapping[int, tuple[str, str | None]]


def read_symbols(buffer: Buffer, hashes: Collection[int] = ()) -> SymbolTable:
    """Read the dynamic symbols of the ELF file in `buffer` (the whole file, 32 or 64 bits, either byte order).

    A file without a dynamic segment has an empty table. Time and memory are linear in the size of the tables,
    whatever they say.

    :param hashes: only exports of names with these (:func:`relink.elf.symbols.hash_names`) are asked for: of a file with
        DT_GNU_HASH, which has the hash of each, the others are left out, and relocations are not read.
    :raises ElfError: this is not ELF, or its program headers lie outside of it.
    """
    with open_memory(buffer) as memory:
        return _read(memory, hashes)


def read_version_needs(buffer: Buffer) -> tuple[VersionNeed, ...]:
    """Read the `verneeds` of :func:`read_symbols` alone.

    :raises ElfError: as there.
    """
    with open_memory(buffer) as memory:
        dynamic = memory.dynamic
        has_symbols = dynamic.get(c.DT_SYMTAB) and dynamic.get(c.DT_STRTAB)
        return version_needs(memory, Strings(memory)) if has_symbols else ()


def read_version_defs(buffer: Buffer) -> tuple[VersionDef, ...]:
    """Read the `verdefs` of :func:`read_symbols` alone; names past the first 16 MiB of the string table are empty.

    :raises ElfError: as there.
    """
    with open_memory(buffer) as memory:
        return version_defs(memory, Strings(memory, MOST_STRINGS))


def _read(memory: Memory, hashes: Collection[int]) -> SymbolTable:
    dynamic = memory.dynamic
    if not dynamic.get(c.DT_SYMTAB) or not dynamic.get(c.DT_STRTAB):
        if dynamic:
            memory.problem("the dynamic segment names no symbol table or no string table")
        return SymbolTable(problems=tuple(memory.problems))
    strings = Strings(memory)
    verneeds = version_needs(memory, strings)
    verdefs = version_defs(memory, strings)
    records, highest = _records(verneeds, verdefs)
    symbols, order = symbol_columns(memory, hashes)
    address = dynamic.get(c.DT_VERSYM, 0)
    versyms = memory.words(address, len(symbols), "H") if address else array("H")
    has_versym = bool(versyms)
    if address and len(versyms) < len(symbols):
        memory.problem(f"DT_VERSYM has {len(versyms)} entries for {len(symbols)} symbols")
    if highest and not address:
        memory.problem("there are version records but no DT_VERSYM")
    most = max(highest, 1)
    unknown = {number for number in {*versyms} if number & ~VERSYM_HIDDEN > most}
    if beyond := sum(map(versyms.count, unknown)):
        memory.problem(f"{beyond} symbols have a version number above the highest record, {highest}")
    # Without version records ld.so does not look at DT_VERSYM (elf/dl-version.c): every symbol then counts as global, 1.
    versyms = versyms if highest else array("H")
    versyms.extend([1] * (len(symbols) - len(versyms)))
    copied = _copied(memory)
    symbolic = c.DT_SYMBOLIC in dynamic or bool(dynamic.get(c.DT_FLAGS, 0) & c.DF_SYMBOLIC)
    if order is not None:
        symbols = symbols.select(order)
        versyms = array("H", map(versyms.__getitem__, order))
        copied = {position for position, i in enumerate(order) if i in copied}
    names, outside = strings.names(symbols.names)
    if outside:
        memory.problem(f"{outside} symbols have names outside of the string table")
    imports, exports, rejected, references = _sort(names, symbols, versyms, records)
    return SymbolTable(
        imports=imports,
        exports=exports,
        rejected=rejected,
        has_versym=has_versym,
        verdefs=verdefs,
        verneeds=verneeds,
        count=len(symbols),
        problems=tuple(memory.problems),
        unread=tuple(memory.unread),
        references=references,
        copies=tuple(
            _import(names[i], symbols.infos[i], versyms[i], records)
            for i in sorted(copied)
            if i < len(symbols) and names[i]
        ),
        symbolic=symbolic,
        static_tls=frozenset(compress(names, map(STATIC_TLS.__and__, symbols.flags))),
        described_tls=frozenset(
            compress(names, map(DESCRIBED_TLS.__and__, symbols.flags))
            if max(symbols.flags, default=0) >= DESCRIBED_TLS
            else ()
        ),
    )


def _copied(memory: Memory) -> set[int]:
    """Return the symbols with a copy relocation. Only executables have any, and only they have DT_DEBUG."""
    dynamic = memory.dynamic
    kind = _R_COPY.get(memory.machine)
    if kind is None or c.DT_DEBUG not in dynamic or not dynamic.get(c.DT_RELA):
        return set()
    width, letter, shift = (8, "Q", 32) if memory.wide else (4, "I", 8)
    size = min(dynamic.get(c.DT_RELASZ, 0), memory.available(dynamic[c.DT_RELA]))
    infos = set(memory.words(dynamic[c.DT_RELA], size // width, letter)[1::3])
    return {info >> shift for info in infos if info & ((1 << shift) - 1) == kind}


def _records(verneeds: Iterable[VersionNeed], verdefs: Iterable[VersionDef]) -> tuple[_Records, int]:
    """Return what dl-version.c keeps as `l_versions`, and the highest version number.

    Requirements come first, definitions over them; a zero hash is no version. The base entry has a number but no name to
    match. Where the highest number is 0, ld.so does not look at DT_VERSYM.
    """
    records: dict[int, tuple[str, str | None]] = {}
    highest = 0
    for need in verneeds:
        for version in need.versions:
            highest = max(highest, version.index)
            if version.hash:
                records[version.index] = (version.name, need.file)
    for node in verdefs:
        highest = max(highest, node.index)
        if node.hash and not node.base:
            records[node.index] = (node.name, None)
    return records, highest


class _Class(msgspec.Struct, frozen=True):
    """How all symbols with the same fields but the name are classified."""

    imported: bool
    referred: bool
    exported: bool
    rejected: bool
    definition: tuple[Export]


class _Classes(dict[tuple[int, int, int, bool, int, int], _Class]):
    """Classes by (st_info, st_other, st_shndx, whether st_value is not 0, version number, flags), made when first needed."""

    def __init__(self, records: _Records) -> None:
        super().__init__()
        self._records = records

    def __missing__(self, row: tuple[int, int, int, bool, int, int]) -> _Class:
        info, other, section, valued, versym, flags = row
        outside = info >> 4 != 0 and other & 3 not in _BINDS_LOCAL
        # Undefined, but with a value: the PLT entry of an executable (do_lookup_x accepts it for references to an address).
        defined = section != 0 or (valued and bool(flags & HASHED))
        exported = (
            bool(flags & HASHED)
            and (valued or section == c.SHN_ABS or info & 15 == _TLS)
            and info >> 4 in _CANDIDATE_BINDINGS
            and info & 15 in _CANDIDATE_TYPES
            and other & 3 not in _BINDS_LOCAL
        )
        fact = self[row] = _Class(
            imported=not section and outside,
            referred=section != 0 and outside and bool(flags & RELOCATED),
            exported=defined and exported,
            rejected=defined and not exported,
            definition=(_export(info, other, versym, self._records, undefined=not section),),
        )
        return fact


def _sort(
    names: Sequence[str], symbols: Columns, versyms: Sequence[int], records: _Records
) -> tuple[
    tuple[Import, ...],
    dict[str, tuple[Export, ...]],
    dict[str, tuple[Export, ...]],
    tuple[tuple[str, str | None], ...],
]:
    """Divide `symbols` into imports, exports, rejected definitions, and references.

    :param versyms: their version numbers, with the hidden bit.
    """
    rows = zip(
        symbols.infos,
        symbols.others,
        symbols.sections,
        map(bool, symbols.values),
        versyms,
        symbols.flags,
        strict=True,
    )
    facts = [*map(_Classes(records).__getitem__, rows)]
    definitions = [fact.definition for fact in facts]
    imports = tuple(
        _import(names[i], symbols.infos[i], versyms[i], records, relocated=bool(symbols.flags[i] & RELOCATED))
        for i in compress(range(len(facts)), map(attrgetter("imported"), facts))
        if names[i]
    )
    referred = [fact.referred for fact in facts]
    references = tuple(
        (name, definition[0].version)
        for name, definition in zip(compress(names, referred), compress(definitions, referred), strict=True)
        if name
    )
    exports = _by_name(names, definitions, [fact.exported for fact in facts])
    rejected = _by_name(names, definitions, [fact.rejected for fact in facts])
    return imports, exports, rejected, references


def _by_name(
    names: Sequence[str], definitions: Sequence[tuple[Export]], chosen: Sequence[bool]
) -> dict[str, tuple[Export, ...]]:
    """Return the chosen definitions by name, in order; symbols without a name are left out."""
    by_name: dict[str, tuple[Export, ...]] = dict(
        zip(compress(names, chosen), compress(definitions, chosen), strict=True)
    )
    # Fewer names than symbols were chosen: some names have definitions in several versions.
    if len(by_name) < sum(chosen):
        lists: dict[str, list[Export]] = {}
        for name, definition in zip(compress(names, chosen), compress(definitions, chosen), strict=True):
            lists.setdefault(name, []).extend(definition)
        by_name = {name: tuple(exports) for name, exports in lists.items()}
    by_name.pop("", None)
    return by_name


def _import(name: str, info: int, versym: int, records: _Records, *, relocated: bool = True) -> Import:
    index = versym & ~VERSYM_HIDDEN
    version, file = records.get(index, (None, None))
    return Import(
        name,
        version,
        file,
        _BINDINGS.get(info >> 4, "other"),
        _TYPES.get(info & 15, "other"),
        index,
        relocated,
    )


def _export(info: int, other: int, versym: int, records: _Records, *, undefined: bool) -> Export:
    """Spell out the packed facts of a symbol."""
    index = versym & ~VERSYM_HIDDEN
    return Export(
        version=records[index][0] if index in records else None,
        hidden=bool(versym & VERSYM_HIDDEN),
        binding=_BINDINGS.get(info >> 4, "other"),
        type=_TYPES.get(info & 15, "other"),
        visibility=_VISIBILITIES[other & 3],
        index=index,
        undefined=undefined,
    )
