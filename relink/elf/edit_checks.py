"""What must still be true of an ELF file after it was edited. Every check has seen a tool break it."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator

from relink.elf.image import Buffer, Image, Section, Segment, file_offset, read_sections
from relink.elf.symbols import read_symbols

__all__ = ["check_edit"]

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_PHDR = 1, 2, 3, 6
_PF_W = 2
_SHF_ALLOC = 2
_CHUNK = 8 << 20  # bytes compared at a time

# What patchelf is there to change.
_REWRITTEN = frozenset({".dynamic", ".dynstr", ".interp", ".gnu.version_r", ".shstrtab"})
# Tables that only the loader reads, through .dynamic, so they may move; anything else is reached from code.
_MOVABLE = frozenset(
    {
        *(
            ".dynamic",
            ".dynstr",
            ".dynsym",
            ".interp",
            ".hash",
            ".gnu.hash",
            ".gnu.version",
            ".gnu.version_r",
        ),
        *(
            ".gnu.version_d",
            ".rela.dyn",
            ".rel.dyn",
            ".rela.plt",
            ".rel.plt",
            ".relr.dyn",
            ".gnu.liblist",
            ".gnu.conflict",
        ),
    }
)
_WRAPPER = struct.Struct(
    "<IIQQ"
)  # clang's __CudaFatBinary wrapper: magic, version, pointer to the bundle, reserved
_WRAPPER_MAGIC = 0x48495046  # "HIPF"
_R_X86_64_RELATIVE = 8


def check_edit(original: Buffer, edited: Buffer, before: Image, after: Image, planned: Image) -> list[str]:
    """Compare an edited file with the original and with what was planned; returns one sentence a defect, none if it holds.

    :param original: the bytes before, `before` their facts.
    :param edited: the bytes after, `after` their facts, re-read from them.
    :param planned: the facts that were asked for (:func:`relink.elf.patchelf.result_of`).
    """
    return [
        *_check_dynamic(after, planned),
        *_check_version_records(edited, after),
        *_check_segments(after, len(edited)),
        *_check_sections(original, edited, before, after),
        *_check_fatbin_pointers(original, edited, before, after),
    ]


def _check_dynamic(after: Image, planned: Image) -> Iterator[str]:
    for name in ("needed", "rpath", "runpath", "interpreter", "soname", "flags_1", "header", "filters"):
        got, wanted = getattr(after, name), getattr(planned, name)
        if got != wanted:
            yield f"{name} is {got!r} where {wanted!r} was planned"


def _check_version_records(edited: Buffer, after: Image) -> Iterator[str]:
    """ld.so asserts that every file that a version record names is NEEDED (glibc elf/dl-version.c)."""
    for need in read_symbols(edited).verneeds:
        if need.file not in after.needed:
            yield f"a version record names {need.file}, which is not NEEDED any more; ld.so would abort"


def _check_segments(after: Image, size: int) -> Iterator[str]:
    loads = [segment for segment in after.segments if segment.type == _PT_LOAD]
    for number, load in enumerate(loads):
        if load.offset + load.file_size > size:
            yield f"LOAD segment {number} ends past the end of the file"
        if load.align > 1 and (load.address - load.offset) % load.align:
            yield f"LOAD segment {number}: address {load.address:#x} and offset {load.offset:#x} differ modulo {load.align:#x}"
        if number and load.address < loads[number - 1].address + loads[number - 1].memory_size:
            yield f"LOAD segment {number} overlaps the one before it or is out of order"
    for segment in after.segments:
        if segment.type == _PT_DYNAMIC and not any(
            _holds(load, segment) and load.flags & _PF_W for load in loads
        ):
            yield ".dynamic is not inside of a writable LOAD segment; ld.so would crash"
        if segment.type in (_PT_PHDR, _PT_INTERP) and not any(_holds(load, segment) for load in loads):
            yield "the program header table or the interpreter's name is not covered by a LOAD segment"


def _holds(load: Segment, inner: Segment) -> bool:
    start, end = inner.address, inner.address + inner.memory_size
    same_delta = load.address - load.offset == inner.address - inner.offset
    return load.address <= start and end <= load.address + load.memory_size and same_delta


def _check_sections(original: Buffer, edited: Buffer, before: Image, after: Image) -> Iterator[str]:
    """Every allocated section that was not to change holds the same bytes, at the same address unless only ld.so reads it."""
    rest = list(read_sections(edited, after.path))
    for section in read_sections(original, before.path):
        if not section.flags & _SHF_ALLOC:
            continue
        twin = next(
            (other for other in rest if other.name == section.name and _same_kind(section, other)), None
        )
        if twin is None:
            yield f"section {section.name} is gone"
            continue
        rest.remove(twin)
        if (
            twin.address != section.address
            and section.name not in _MOVABLE
            and not section.name.startswith(".note")
        ):
            yield f"section {section.name} moved from {section.address:#x} to {twin.address:#x}"
        if section.name in _REWRITTEN or section.name == ".dynsym":
            continue  # .dynsym carries section indices, which are renumbered; its names and values are compared below
        if twin.file_size != section.file_size:
            yield f"section {section.name} changed its size from {section.file_size} to {twin.file_size} bytes"
        elif not _equal(original, section.offset, edited, twin.offset, section.file_size):
            yield f"section {section.name} changed its contents"
    if _symbols(original, before) != _symbols(edited, after):
        yield "the dynamic symbol table changed"


def _same_kind(section: Section, other: Section) -> bool:
    return section.type == other.type or {section.type, other.type} <= {-1}


def _equal(left: Buffer, left_at: int, right: Buffer, right_at: int, size: int) -> bool:
    for done in range(0, size, _CHUNK):
        step = min(_CHUNK, size - done)
        if left[left_at + done : left_at + done + step] != right[right_at + done : right_at + done + step]:
            return False
    return True


def _symbols(buffer: Buffer, image: Image) -> bytes:
    """A digest of the dynamic symbols without their section index and string offset, which an edit may renumber."""
    digest = hashlib.sha256()
    section = next((found for found in read_sections(buffer, image.path) if found.name == ".dynsym"), None)
    if section is None or image.header.elf_class != 64:
        return b""
    order = "<" if image.header.little_endian else ">"
    raw = bytes(buffer[section.offset : section.offset + section.file_size - section.file_size % 24])
    for _name, info, other, index, value, size in struct.iter_unpack(order + "IBBHQQ", raw):
        kind = index if index in (0, 0xFFF1) else 1
        moved = 0 if info & 15 == 3 else value  # STT_SECTION stands for a section that may have moved
        digest.update(struct.pack("<BBHQQ", info, other, kind, moved, size))
    return digest.digest()


def _check_fatbin_pointers(original: Buffer, edited: Buffer, before: Image, after: Image) -> Iterator[str]:
    """Each device-code wrapper still points to its bundle: patchelf is known to have broken CUDA fat binaries that way."""
    pointers = _fatbin_pointers(original, before)
    if _fatbin_pointers(edited, after) != pointers:
        yield "the pointers of .hipFatBinSegment changed"
        return
    for wrapper, bundle in pointers.items():
        old, new = file_offset(before.segments, bundle), file_offset(after.segments, bundle)
        if old is None:
            continue  # kpack references and the like; the section comparison has them
        if new is None or original[old : old + 64] != edited[new : new + 64]:
            yield f"the device code wrapper at {wrapper:#x} does not point to its bundle any more"


def _fatbin_pointers(buffer: Buffer, image: Image) -> dict[int, int]:
    """Address of each wrapper's pointer → address of its bundle. The value is a relocation's addend: LLD leaves 0 in place."""
    sections = {section.name: section for section in read_sections(buffer, image.path)}
    segment = sections.get(".hipFatBinSegment")
    if segment is None or image.header.elf_class != 64 or not image.header.little_endian:
        return {}
    slots: dict[int, int] = {}
    raw = bytes(buffer[segment.offset : segment.offset + segment.file_size // _WRAPPER.size * _WRAPPER.size])
    for index, (magic, _version, pointer, _reserved) in enumerate(_WRAPPER.iter_unpack(raw)):
        if magic == _WRAPPER_MAGIC:
            slots[segment.address + index * _WRAPPER.size + 8] = pointer
    relocations = sections.get(".rela.dyn")
    if relocations is not None:
        table = buffer[relocations.offset : relocations.offset + relocations.file_size // 24 * 24]
        for address, info, addend in struct.iter_unpack("<QQq", table):
            if info & 0xFFFFFFFF == _R_X86_64_RELATIVE and address in slots:
                slots[address] = addend
    return slots
