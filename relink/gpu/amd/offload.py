"""LLVM "offload binaries" (llvm/Object/OffloadBinary.h): device images in ``.llvm.offloading`` of object files."""

from __future__ import annotations

import struct

from relink.elf.image import HEADER_SIZE
from relink.elf.source import ByteSource
from relink.gpu.amd.bundle import Budget, BundleEntry
from relink.gpu.amd.code_object import parse_code_object
from relink.gpu.amd.target_id import parse_target_id
from relink.system.errors import UsageError

__all__ = ["OFFLOAD_MAGIC", "parse_offload_section"]

OFFLOAD_MAGIC = b"\x10\xff\x10\xad"
_KIND_HIP = 4  # OffloadKind: OpenMP 1, CUDA 2, HIP 4
_MAX_STRINGS = 64


def parse_offload_section(
    source: ByteSource, start: int, end: int, budget: Budget
) -> tuple[BundleEntry, ...]:
    """Return the HIP images of the offload binaries in [start, end); they follow one another at multiples of 8."""
    entries: list[BundleEntry] = []
    position = start
    while position + 48 <= end and budget.entries > 0:
        head = bytes(source.read_at(position, 32))
        if head[:4] != OFFLOAD_MAGIC:
            if any(head[:4]):
                budget.problem(f"offload binary expected at 0x{position:x}")
            break
        _, size, entry_at, entry_size = struct.unpack_from("<IQQQ", head, 4)
        limit = min(end, position + size)
        if entry_size < 40 or position + entry_at + 40 > limit or size < 48:
            budget.problem(f"offload binary at 0x{position:x}: its entry lies outside of it")
            break
        row = bytes(source.read_at(position + entry_at, 40))
        _, kind, _, strings_at, count, image_at, image_size = struct.unpack("<HHIQQQQ", row)
        strings = {}
        for number in range(min(count, _MAX_STRINGS)):
            pair = bytes(source.read_at(position + strings_at + 16 * number, 16))
            if len(pair) == 16 and position + strings_at + 16 * number + 16 <= limit:
                key, value = (_text(source, position + at, limit) for at in struct.unpack("<QQ", pair))
                strings[key] = value
        triple, name = strings.get("triple", ""), strings.get("arch", "")
        budget.entries -= 1
        if kind & _KIND_HIP and triple.startswith(("amdgcn", "spirv")):
            try:
                target = parse_target_id(name)
            except UsageError as error:
                budget.problem(f"offload binary at 0x{position:x}: {error}")
            else:
                inside = image_size > 0 and position + image_at + image_size <= limit
                code = parse_code_object(source.read_at(position + image_at, HEADER_SIZE)) if inside else None
                entries.append(
                    BundleEntry(f"hip-{triple}-{name}", target, image_at, image_size, inside, code)
                )
        position += (size + 7) // 8 * 8
    return tuple(entries)


def _text(source: ByteSource, offset: int, limit: int) -> str:
    raw = bytes(source.read_at(offset, max(0, min(256, limit - offset))))
    return raw.partition(b"\0")[0].decode("utf-8", "replace")
