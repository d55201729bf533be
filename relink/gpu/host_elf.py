"""The few facts of a host's ELF file that the search for device code needs: sections, segments, relocations of a range.

Why not :func:`relink.elf.image.read_image`, whose :class:`Segment` and :class:`Section` it shares: libraries with device code
take gigabytes, so only the ranges that matter are read from a :class:`ByteSource` (`pread`, or a buffer that notes each read),
and not a whole mapped file; and where ``read_image`` refuses a damaged file, device code in it is still reported, since the
runtime finds it by other means than the loader. So sizes in hostile headers are clamped to the file, and damage is a problem.

Only 64-bit little-endian files: ROCm has no others. Section headers may be missing.
"""

from __future__ import annotations

import struct

import msgspec

from relink.elf.constants import DT_RELA, DT_RELASZ, DT_RELR, DT_RELRSZ, DT_SYMTAB, PT_DYNAMIC, SHT_NOBITS
from relink.elf.image import Section, Segment, file_offset
from relink.elf.source import ByteSource

_MAX_SECTIONS = 200_000
# Segments that are read: each pointer is looked for in all of them. Real files have some ten.
_MAX_SEGMENTS = 256
# Bytes of a relocation table that are read at a time; an Elf64_Rela has 24.
_RELOCATION_CHUNK = 24 * 65536
_R_X86_64_64, _R_X86_64_RELATIVE = 1, 8


class HostElf(msgspec.Struct, frozen=True):
    """Header facts; `sections` is empty without section headers. Every `file_size` ends within the file."""

    kind: int
    sections: tuple[Section, ...]
    segments: tuple[Segment, ...]
    problems: tuple[str, ...]

    def section(self, name: str) -> Section | None:
        """Return the first section of that name."""
        return next((s for s in self.sections if s.name == name), None)


def parse_host_elf(source: ByteSource) -> HostElf | None:
    """Read the headers; None when it is no 64-bit little-endian ELF."""
    header = bytes(source.read_at(0, 64))
    if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
        return None
    (kind,) = struct.unpack_from("<H", header, 16)
    phoff, shoff = struct.unpack_from("<QQ", header, 32)
    phentsize, phnum, shentsize, shnum, shstrndx = struct.unpack_from("<HHHHH", header, 54)
    problems: list[str] = []
    segments: list[Segment] = []
    if phnum and phentsize == 56:
        raw = bytes(source.read_at(phoff, 56 * min(phnum, _MAX_SEGMENTS)))
        for p_type, flags, offset, vaddr, _, size, memory_size, align in struct.iter_unpack(
            "<IIQQQQQQ", raw[: len(raw) // 56 * 56]
        ):
            file_size = max(0, min(size, source.size - offset))
            segments.append(Segment(p_type, flags, offset, vaddr, file_size, memory_size, align))
    sections: tuple[Section, ...] = ()
    if shoff and shentsize == 64:
        sections = _sections(source, shoff, shnum, shstrndx, problems)
    return HostElf(kind, sections, tuple(segments), tuple(problems))


def _sections(
    source: ByteSource, shoff: int, shnum: int, shstrndx: int, problems: list[str]
) -> tuple[Section, ...]:
    first = bytes(source.read_at(shoff, 64))
    if len(first) < 64:
        problems.append(
            f"the section headers at 0x{shoff:x} lie past the end of the file (0x{source.size:x})"
        )
        return ()
    # gABI: from 0xff00 sections on the number is in the first section header, as e_shstrndx may be.
    if shnum == 0:
        shnum = struct.unpack_from("<Q", first, 32)[0]
    if shstrndx == 0xFFFF:
        shstrndx = struct.unpack_from("<I", first, 40)[0]
    if shnum > _MAX_SECTIONS:
        problems.append(f"{shnum} section headers: only the first {_MAX_SECTIONS} are read")
        shnum = _MAX_SECTIONS
    raw = bytes(source.read_at(shoff, 64 * shnum))
    if len(raw) < 64 * shnum:
        problems.append(
            f"{shnum} section headers at 0x{shoff:x} do not fit into the file (0x{source.size:x})"
        )
    rows = list(struct.iter_unpack("<IIQQQQIIQQ", raw[: len(raw) // 64 * 64]))
    names = b""
    if shstrndx < len(rows):
        names = bytes(source.read_at(rows[shstrndx][4], min(rows[shstrndx][5], 1 << 24)))
    found = []
    for name, sh_type, flags, address, offset, size, *_ in rows:
        # A name without an end is empty: find then gives -1.
        text = names[name : max(name, names.find(b"\0", name, name + 4096))].decode("latin-1")
        file_size = 0 if sh_type == SHT_NOBITS else max(0, min(size, source.size - offset))
        if file_size < size and sh_type != SHT_NOBITS and flags & 2:
            problems.append(
                f"section {text or '?'} (0x{offset:x}, {size} bytes) reaches past the end of the file"
            )
        found.append(Section(text, sh_type, flags, address, offset, file_size, size))
    return tuple(found)


def dynamic(source: ByteSource, elf: HostElf) -> tuple[tuple[int, int], ...]:
    """Return the entries of PT_DYNAMIC up to DT_NULL, at most 4096."""
    for segment in elf.segments:
        if segment.type == PT_DYNAMIC:
            raw = bytes(source.read_at(segment.offset, min(segment.file_size, 16 * 4096)))
            entries = []
            for tag, value in struct.iter_unpack("<QQ", raw[: len(raw) // 16 * 16]):
                if tag == 0:
                    break
                entries.append((tag, value))
            return tuple(entries)
    return ()


def strings_at(source: ByteSource, elf: HostElf, tag: int) -> tuple[str, ...]:
    """Return the strings that dynamic entries with `tag` name (1: NEEDED, 14: SONAME)."""
    entries = dynamic(source, elf)
    place = next((file_offset(elf.segments, value) for t, value in entries if t == 5), None)
    if place is None:
        return ()
    texts = [
        bytes(source.read_at(place + value, 256)).partition(b"\0")[0] for t, value in entries if t == tag
    ]
    return tuple(text.decode("utf-8", "replace") for text in texts)


def pointers(
    source: ByteSource, elf: HostElf, low: int, high: int
) -> tuple[dict[int, int], frozenset[int], frozenset[int]]:
    """Return what the loader will store into 8-byte slots at addresses in [low, high).

    First the addends of DT_RELA by slot address, RELATIVE ones and those to a symbol that the file defines; then the slots that
    DT_RELR relocates in place; then those of the first that name a symbol: of a unit compiled with -fgpu-rdc, of which many share
    one bundle.
    The tables are read in pieces, whatever size they claim.
    """
    values = dict(dynamic(source, elf))
    addends: dict[int, int] = {}
    named: set[int] = set()

    def find(tag: int) -> int | None:
        return file_offset(elf.segments, values[tag]) if tag in values else None

    symbols, place = find(DT_SYMTAB), find(DT_RELA)
    if place is not None:
        end = min(place + values.get(DT_RELASZ, 0), source.size)
        for start in range(place, end, _RELOCATION_CHUNK):
            raw = source.read_at(start, min(_RELOCATION_CHUNK, end - start))
            count = len(raw) // 24
            words = struct.unpack_from(f"<{count * 3}Q", raw)
            slots = words[0::3]
            if count and max(slots) >= low and min(slots) < high:
                for i, slot in enumerate(slots):
                    if not low <= slot < high:
                        continue
                    kind, addend = words[3 * i + 1] & 0xFFFFFFFF, words[3 * i + 2]
                    if kind == _R_X86_64_RELATIVE:
                        addends[slot] = addend
                    elif kind == _R_X86_64_64 and symbols is not None:
                        # st_shndx and st_value of an Elf64_Sym of 24 bytes; a symbol of the file's own has a section.
                        at = symbols + 24 * (words[3 * i + 1] >> 32)
                        symbol = bytes(source.read_at(at, 24)) if at < source.size else b""
                        if len(symbol) == 24 and symbol[6:8] != b"\0\0":
                            addends[slot] = int.from_bytes(symbol[8:16], "little") + addend & (1 << 64) - 1
                            named.add(slot)
    in_place: set[int] = set()
    place = find(DT_RELR)
    if place is not None:
        end = min(place + values.get(DT_RELRSZ, 0), source.size)
        base = 0
        for start in range(place, end, _RELOCATION_CHUNK):
            raw = source.read_at(start, min(_RELOCATION_CHUNK, end - start))
            for (word,) in struct.iter_unpack("<Q", raw[: len(raw) // 8 * 8]):
                # An even word is an address: relocated itself, and the base of the bitmaps that follow.
                if word & 1 == 0:
                    if low <= word < high:
                        in_place.add(word)
                    base = word + 8
                else:
                    if base < high and base + 63 * 8 > low:
                        in_place.update(
                            slot
                            for i in range(63)
                            if word >> (i + 1) & 1 and low <= (slot := base + 8 * i) < high
                        )
                    base += 63 * 8
    return addends, frozenset(in_place), frozenset(named)
