"""What dlopen refuses and no dry run of the loader shows: there all is mapped at the start, and the processor is not asked.

Static TLS: at the start of a program all objects get their place in the static TLS block; what is opened later has to do with
the surplus of that. Sources: glibc elf/dl-tls.c (_dl_tls_static_surplus_init and LEGACY_TLS: 1,664 bytes by default, as
TLS_STATIC_SURPLUS before 2.32; _dl_determine_tlsoffset), elf/dl-reloc.c (_dl_try_allocate_static_tls). Blocks that TLS
descriptors take where there is room (rtld.optional_static_tls) are left out: dlopen goes on where there is none.

ISA level: sysdeps/x86/dl-prop.h (dl_isa_level_check, since 2.33); the levels are those of glibc-hwcaps (sysdeps/x86/isa-level.h).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from relink.elf.constants import PT_TLS
from relink.elf.image import Segment
from relink.loader.closure import Closure, LoadedObject
from relink.loader.tables import Tables
from relink.loader.target import GLIBC_SONAMES, Target

_SURPLUS = 1664
# By e_machine: TCB_ALIGNMENT, the alignment of the static TLS block where nothing asks for more (sysdeps/*/tls.h).
_ALIGNED = {62: 64, 183: 16}
_CHECKS_LEVEL = (2, 33)
# By the name in glibc-hwcaps the bits of GNU_PROPERTY_X86_ISA_1_NEEDED up to that level.
_LEVELS = {"x86-64-v2": 0b11, "x86-64-v3": 0b111, "x86-64-v4": 0b1111}


def find_refused(closure: Closure, tables: Tables, target: Target) -> Iterator[tuple[LoadedObject, str]]:
    """Yield the objects for which the last dlopen of a closure is refused, each with ld.so's reason.

    Its first opening is the start of the program. A library that is the program itself stands for any program that opens it.
    """
    objects, openings = closure.objects, closure.openings
    levels = max((_LEVELS.get(name, 1) for name in target.hwcaps), default=1)
    for loaded in (objects[index] for index in openings[-1].mapped):
        if target.version >= _CHECKS_LEVEL and loaded.image.isa_needed & ~levels:
            yield loaded, "CPU ISA level is lower than required"
    started, opened = {*openings[0].mapped}, [opening.mapped for opening in openings[1:]]
    if not opened and not objects[0].image.is_executable:
        opened = [tuple(index for index in started if objects[index].image.soname not in GLIBC_SONAMES)]
        started.difference_update(*opened)
    yield from _find_unaligned(objects, tables, started, opened[-1] if opened else ())
    if opened and any(_tls_block(objects[index]) for index in opened[-1]):
        yield from _find_without_room(objects, tables, started, opened)


def _find_unaligned(
    objects: Sequence[LoadedObject], tables: Tables, started: Iterable[int], opened: Sequence[int]
) -> Iterator[tuple[LoadedObject, str]]:
    """Yield the objects by whose TLS alignment of 0 the loader divides: at the start of a program, and for static TLS."""
    zero = [
        index for index, loaded in enumerate(objects) if (block := _tls_block(loaded)) and not block.align
    ]
    divided = {*zero} & {*started}
    for index in opened if zero else ():
        table = tables.of(objects[index])
        divided.update(_definers(objects, tables, index, table.static_tls | table.described_tls, zero))
    for index in sorted(divided):
        yield objects[index], "the loader divides by its TLS alignment, which is 0"


def _find_without_room(
    objects: Sequence[LoadedObject], tables: Tables, started: Iterable[int], opened: Sequence[Sequence[int]]
) -> Iterator[tuple[LoadedObject, str]]:
    """Yield the first object that the static TLS block has no room for in the last one of the dlopens."""
    blocks = {index: block for index, loaded in enumerate(objects) if (block := _tls_block(loaded))}
    used, aligned = 0, _ALIGNED.get(objects[0].image.header.machine, 64)
    placed = {*started}
    for block in (block for index, block in blocks.items() if index in placed):
        used = _round_up(used + block.memory_size, block.align)
        aligned = max(aligned, block.align)
    free = _round_up(used + _SURPLUS, aligned) - used
    # Relocations are done from the last object that is mapped to the first.
    for index in (index for mapped in opened for index in reversed(mapped)):
        wanted = tables.of(objects[index]).static_tls
        for other in _definers(objects, tables, index, wanted, blocks) if wanted else ():
            block = blocks[other]
            if other in placed:
                continue
            if block.memory_size <= free and block.align <= aligned:
                free = (free - block.memory_size) // max(block.align, 1) * max(block.align, 1)
                placed.add(other)
            elif index in opened[-1]:
                yield objects[other], "cannot allocate memory in static TLS block"
                return


def _definers(
    objects: Sequence[LoadedObject], tables: Tables, index: int, wanted: Iterable[str], having: Iterable[int]
) -> Iterator[int]:
    """Yield the objects with TLS whose variables the relocations of one object name."""
    for name in wanted:
        own = not name or name in tables.of(objects[index]).exports
        for other in having:
            if other == index if own else name in tables.of(objects[other]).exports:
                yield other
                break


def _tls_block(loaded: LoadedObject) -> Segment | None:
    # The last one counts (elf/dl-load.c, in all releases).
    blocks = (part for part in reversed(loaded.image.segments) if part.type == PT_TLS and part.memory_size)
    return next(blocks, None)


def _round_up(size: int, align: int) -> int:
    return -(-size // max(align, 1)) * max(align, 1)
