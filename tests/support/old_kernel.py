"""What Linux 4.18 does with an executable, step by step as fs/binfmt_elf.c has it, on the bytes of a file instead of a process.

``load_elf_phdrs``, the loop of ``load_elf_binary`` over PT_LOAD with ``elf_map`` and ``set_brk``, and AT_PHDR as
``create_elf_tables`` sets it; then what ld.so reads there (glibc elf/rtld.c, rtld_setup_main_map). Written for tests alone: it
shares no code with the checks that it judges.
"""

from __future__ import annotations

import struct

PAGE = 4096
LIMIT = 1 << 47
PIE_BASE = 0x555555554000
MMAP_MIN = 0x10000


class KilledError(Exception):
    """The kernel gives up after the point of no return, or ld.so crashes before main."""


def run(data: bytes) -> int:
    """Map the executable; returns AT_PHDR.

    :raises KilledError: it would not reach its main function.
    """
    kind = struct.unpack_from("<H", data, 16)[0]
    e_phoff: int = struct.unpack_from("<Q", data, 32)[0]
    entry_size, count = struct.unpack_from("<HH", data, 54)
    if entry_size != 56 or not 1 <= count <= 65536 // 56 or entry_size * count > PAGE:
        raise KilledError("ENOEXEC: load_elf_phdrs")
    table = data[e_phoff : e_phoff + 56 * count]
    rows = list(struct.iter_unpack("<IIQQQQQQ", table))
    memory: dict[int, int | None] = {}  # page → file offset of its content; None where it is zeros
    bias, load_address, bss, brk = 0, 0, 0, 0
    first = True
    for p_type, flags, offset, vaddr, _, file_size, memory_size, _ in rows:
        if p_type != 1:
            continue
        replace = False
        if brk > bss:
            set_brk(memory, bss + bias, brk + bias)
            replace = True
        if first and kind == 3:
            bias = (PIE_BASE - vaddr) // PAGE * PAGE
        if vaddr % PAGE != offset % PAGE:
            raise KilledError("EINVAL: mmap")
        start = (bias + vaddr) // PAGE * PAGE
        size = up(file_size + vaddr % PAGE)
        if start < MMAP_MIN:
            raise KilledError("EPERM: mmap_min_addr")
        for page in range(start, start + size, PAGE):
            if page in memory and not replace:
                raise KilledError("EEXIST: MAP_FIXED_NOREPLACE")
            memory[page] = offset - vaddr % PAGE + page - start
        if first:
            first = False
            if flags & 2:
                raise KilledError("RHEL 8.10: the first segment is writable")
            load_address = vaddr - offset + (bias if kind == 3 else 0)
        if vaddr >= LIMIT or file_size > memory_size or memory_size > LIMIT - vaddr:
            raise KilledError("EINVAL: sizes")
        bss = max(bss, vaddr + file_size)
        brk = max(brk, vaddr + memory_size)
    at_phdr = load_address + e_phoff
    seen = bytearray()
    for address in range(at_phdr, at_phdr + len(table)):
        place = memory.get(address // PAGE * PAGE, -1)
        if place == -1:
            raise KilledError("SIGSEGV: ld.so reads AT_PHDR")
        seen.append(0 if place is None else data[place + address % PAGE])
    if bytes(seen) != table:
        raise KilledError("ld.so reads another program header table")
    for p_type, _, _, vaddr, *_ in rows:
        if p_type == 6 and at_phdr - vaddr != bias:
            raise KilledError("ld.so relocates by a wrong address")
    return at_phdr


def up(value: int) -> int:
    return -(-value // PAGE) * PAGE


def set_brk(memory: dict[int, int | None], start: int, end: int) -> None:
    for page in range(up(start), up(end), PAGE):
        memory[page] = None
