"""Executables as kernels map them, and what an edit by patchelf needs so that old kernels still run them.

The kernel maps an executable itself; libraries are mapped by ld.so, which these rules do not concern. The rules are those of
Linux 4.18, fs/binfmt_elf.c (RHEL 8 has that kernel). ``load_elf_phdrs`` refuses a table that is larger than a page.
``load_elf_binary`` maps each PT_LOAD after the first with MAP_FIXED_NOREPLACE, so two of them must not share a page, and sets
``load_addr`` to ``p_vaddr - p_offset`` of the first one. ``create_elf_tables`` passes ``load_addr + e_phoff`` as AT_PHDR: in
the usual file the first segment is at 0, so the table's segment needs ``p_vaddr == p_offset``. Linux 5.18 looks the address up.
That the first PT_LOAD must not be writable was seen on RHEL 8.10 only.

patchelf gives an ET_EXEC file a writable segment in front of the others, and moves the table of a PIE to an address that is not
its offset. So it is given an ET_EXEC file as ET_DYN, and writes what is new behind the rest; and where it moved the table, the
table is moved once more, to where both conditions hold.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from relink.elf.constants import ET_DYN, ET_EXEC, PT_LOAD, PT_PHDR
from relink.elf.dynamic import Buffer
from relink.elf.image import Image, Segment

_PF_R, _PF_W = 4, 2
_PAGE = 0x1000
# vm.mmap_min_addr, as distributions set it.
_LOWEST = 0x10000
_TYPE = 16  # offset of e_type
# Elf64_Phdr: type, flags, offset, vaddr, paddr, filesz, memsz, align.
_PROGRAM = struct.Struct("<IIQQQQQQ")


@contextmanager
def edited_as_library(path: Path, before: Image) -> Iterator[None]:
    """Let the file at `path` say that it is ET_DYN while patchelf edits it, if it is an executable at a fixed address."""
    if before.header.kind != ET_EXEC or before.interpreter is None:
        yield
        return
    _write_type(path, before, ET_DYN)
    yield
    _write_type(path, before, ET_EXEC)


def _write_type(path: Path, before: Image, kind: int) -> None:
    with path.open("r+b") as file:
        file.seek(_TYPE)
        file.write(kind.to_bytes(2, "little" if before.header.little_endian else "big"))


def place_headers(path: Path, before: Image) -> None:
    """Move the program header table of an edited file behind the rest, if no segment or a wrong one has it now.

    An executable's goes to where old kernels find it. patchelf lets the table grow past the end of the segment that was made for
    it, where another tool had moved it before; ld.so reads a library's at PT_PHDR.

    :param before: the facts of the file before it was edited; only files of 64 bits, little-endian, are changed.
    :raises OSError: the file cannot be read or written.
    """
    header = before.header
    if (header.elf_class, header.little_endian) != (64, True):
        return
    with path.open("r+b") as file:
        head = file.read(64)
        if len(head) < 64:
            return
        (at,), (row, count) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<HH", head, 54)
        size = file.seek(0, 2)
        if row != _PROGRAM.size or at + row * count > size:
            # The checks of an edit report this damage.
            return
        file.seek(at)
        rows = [list(fields) for fields in _PROGRAM.iter_unpack(file.read(row * count))]
        segments = [Segment(*segment[:4], *segment[5:]) for segment in rows]
        loads = [segment for segment in segments if segment.type == PT_LOAD]
        run = before.interpreter is not None
        if not loads or not (
            "table" in _findings(at, row * count, header.kind, segments)
            if run
            else any(segment.type == PT_PHDR for segment in segments) and not _covers(loads, at, row * count)
        ):
            return
        align = max(_PAGE, *(segment.align for segment in loads))
        shift = loads[0].address - loads[0].offset
        end = max(segment.address + segment.memory_size for segment in loads)
        # Old kernels take the first segment's distance of address and offset for the table's, too. So the place is behind all
        # segments in memory as well as in the file.
        table_at = _up(max(size, end - shift) if run else size, align)
        address = table_at + shift if run else _up(end, align)
        # One row more: the PT_LOAD that maps the table at its new place.
        length = row * (count + 1)
        fields = [_PF_R, table_at, address, address, length, length]
        for segment in rows:
            if segment[0] == PT_PHDR:
                segment[1:7] = fields
        rows.append([PT_LOAD, *fields, align])
        file.seek(table_at)
        file.write(b"".join(_PROGRAM.pack(*segment) for segment in rows))
        file.seek(32)
        file.write(struct.pack("<Q", table_at))
        file.seek(56)
        file.write(struct.pack("<H", count + 1))


def new_issues(original: Buffer, edited: Buffer, before: Image, after: Image) -> Iterator[str]:
    """Yield a sentence for each reason why an old kernel would not run an edited executable, if there was none before."""
    if after.interpreter is None:
        return
    known = _issues(original, before)
    for name, text in _issues(edited, after).items():
        if name not in known:
            yield text
    if _largest_align(after) > _largest_align(before):
        yield "a LOAD segment is aligned to more than any was before; older kernels load to page boundaries only"


def _issues(buffer: Buffer, image: Image) -> dict[str, str]:
    order, wide = "<" if image.header.little_endian else ">", image.header.elf_class == 64
    (at,) = struct.unpack_from(f"{order}Q" if wide else f"{order}I", buffer, 32 if wide else 28)
    row, count = struct.unpack_from(f"{order}HH", buffer, 54 if wide else 42)
    return _findings(at, row * count, image.header.kind, image.segments)


def _findings(at: int, size: int, kind: int, segments: Sequence[Segment]) -> dict[str, str]:
    """What the kernel would refuse or get wrong.

    :param at: file offset of the program header table; `size`: its bytes.
    :param kind: e_type.
    """
    issues: dict[str, str] = {}
    loads = [segment for segment in segments if segment.type == PT_LOAD]
    if not loads:
        return issues
    # What the kernel passes as AT_PHDR, without the address that all segments are moved by.
    told = at + loads[0].address - loads[0].offset
    covered = any(
        segment.offset <= at
        and at + size <= segment.offset + segment.file_size
        and segment.address + at - segment.offset == told
        for segment in loads
    )
    if not covered or any(segment.type == PT_PHDR and segment.address != told for segment in segments):
        issues["table"] = (
            "the program header table is not mapped where older kernels tell the loader that it is"
        )
    if size > _PAGE:
        issues["size"] = f"the program header table has more than {_PAGE} bytes, which the kernel refuses"
    if loads[0].flags & _PF_W:
        issues["writable"] = "the first LOAD segment is writable, which older kernels refuse"
    last = -1
    for load in loads:
        if load.address // _PAGE <= last:
            issues["page"] = "two LOAD segments share a page, which older kernels refuse to map"
        last = max(last, (load.address + max(load.memory_size, 1) - 1) // _PAGE)
    if kind == ET_EXEC and min(load.address for load in loads) < _LOWEST:
        issues["low"] = "a LOAD segment is at an address that programs may not map"
    return issues


def _covers(loads: Iterable[Segment], at: int, size: int) -> bool:
    return any(load.offset <= at and at + size <= load.offset + load.file_size for load in loads)


def _up(value: int, align: int) -> int:
    return -(-value // align) * align


def _largest_align(image: Image) -> int:
    return max((segment.align for segment in image.segments if segment.type == PT_LOAD), default=0)
