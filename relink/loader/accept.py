"""Whether ld.so accepts a file that it has opened, skips it, or gives up.

Sources: glibc elf/dl-load.c, open_verify and _dl_map_object_from_fd.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from relink.elf.constants import DF_1_PIE, ET_DYN, ET_EXEC, PT_DYNAMIC, PT_LOAD
from relink.elf.image import Header, machine_name
from relink.loader.seen_files import OpenedFile

# The smallest page of all machines that ROCm runs on.
_PAGE = 4096
# LIBC_ABI_MAX of glibc's libc-abis; only GNU's OSABI may carry a version.
_ABI_MAX = 4


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why ld.so does not accept a file; `fatal`: it gives up at once instead of searching on."""

    reason: str
    fatal: bool


def reject(candidate: OpenedFile, wanted: Header, *, program: bool = False) -> Rejected | None:
    """Apply ld.so's checks of a file it opened (open_verify, then _dl_map_object_from_fd); None means that it is accepted.

    A library of another class or machine is skipped; anything else that is not a loadable ELF file ends the load.

    :param program: it is to be the program itself, which may be ET_EXEC or position-independent executable.
    """
    if candidate.head is not None:
        refused = reject_header(candidate.head, wanted)
        if refused:
            return refused
    image = candidate.image
    if image is None:
        return Rejected(candidate.problem or "cannot be read", fatal=True)
    if candidate.head is None:
        refused = _reject_facts(image.header, wanted)
        if refused:
            return refused
    loads = [segment for segment in image.segments if segment.type == PT_LOAD]
    if any((segment.address - segment.offset) % _PAGE for segment in loads):
        return Rejected("ELF load command address/offset not page-aligned", fatal=True)
    if not loads:
        return Rejected("object file has no loadable segments", fatal=True)
    if image.header.kind == ET_EXEC and not program:
        return Rejected("cannot dynamically load executable", fatal=True)
    empty = any(segment.type == PT_DYNAMIC and not segment.file_size for segment in image.segments)
    if empty or not (image.dynamic or image.header.kind == ET_EXEC):
        return Rejected("object file has no dynamic section", fatal=True)
    if image.flags_1 & DF_1_PIE and not program:
        return Rejected("cannot dynamically load position-independent executable", fatal=True)
    return None


def reject_header(head: bytes, wanted: Header) -> Rejected | None:
    """Check the raw ELF header in the order of open_verify, where a foreign class comes before all other damage."""
    # sizeof (Elf64_Ehdr); every 64-bit loader reads as much.
    if len(head) < 64:
        return Rejected("file too short", fatal=True)
    if head[:4] != b"\x7fELF":
        return Rejected("invalid ELF header", fatal=True)
    if head[4] != wanted.elf_class // 32:
        bits = {1: "32 bit", 2: "64 bit"}.get(head[4], f"class {head[4]}")
        return Rejected(f"wrong ELF class: {bits}", fatal=False)
    if head[5] != (1 if wanted.little_endian else 2):
        return Rejected("other byte order", fatal=True)
    if head[6] != 1:
        return Rejected("ELF file version ident does not match current one", fatal=True)
    order = "<" if wanted.little_endian else ">"
    kind, machine, version = struct.unpack_from(order + "HHI", head, 16)
    refused = _reject_facts(
        Header(wanted.elf_class, wanted.little_endian, head[7], head[8], kind, machine), wanted
    )
    # open_verify looks at OS ABI and ABI version, then the padding, then e_version, and only then at machine and type.
    if refused and refused.reason.startswith("ELF file "):
        return refused
    if any(head[9:16]):
        return Rejected("nonzero padding in e_ident", fatal=True)
    if version != 1:
        return Rejected("ELF file version does not match current one", fatal=True)
    if refused:
        return refused
    (entry_size,) = struct.unpack_from(order + "H", head, 54 if wanted.elf_class == 64 else 42)
    if entry_size != (56 if wanted.elf_class == 64 else 32):
        return Rejected("ELF file's phentsize not the expected size", fatal=True)
    return None


def _reject_facts(header: Header, wanted: Header) -> Rejected | None:
    if header.elf_class != wanted.elf_class:
        return Rejected(f"wrong ELF class: {header.elf_class} bit", fatal=False)
    if header.little_endian != wanted.little_endian:
        return Rejected("other byte order", fatal=True)
    # VALID_ELF_OSABI (sysdeps/gnu/ldsodefs.h): System V and GNU.
    if header.osabi not in (0, 3):
        return Rejected(f"ELF file OS ABI invalid ({header.osabi})", fatal=True)
    if header.abi_version and not (header.osabi == 3 and header.abi_version < _ABI_MAX):
        return Rejected(f"ELF file ABI version invalid ({header.abi_version})", fatal=True)
    if header.machine != wanted.machine:
        return Rejected(f"wrong machine: {machine_name(header.machine)}", fatal=False)
    if header.kind not in (ET_EXEC, ET_DYN):
        return Rejected("only ET_DYN and ET_EXEC can be loaded", fatal=True)
    return None
