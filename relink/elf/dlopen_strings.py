"""Library names in a file's read-only data: what it may dlopen. No proof that it does, so callers say how they know."""

from __future__ import annotations

import mmap
import re

from relink.elf.dynamic import Buffer
from relink.elf.image import Image
from relink.elf.sections import read_sections
from relink.system.errors import ElfError

DLOPEN = frozenset({"dlopen", "dlmopen"})
"""The functions that a library is opened with; what imports none of them opens nothing."""

# Bytes looked at in one section: libLLVM has the largest .rodata seen, 63 MB.
_MAX_SEARCHED = 64 << 20
# Bytes of a mapped file that are in memory at one time.
SEARCHED_AT_ONCE = 1 << 20
# Bytes of the longest name that is looked for, its NUL included.
_LONGEST = 127
# The NUL before a name is not part of the pattern: the search is fast only where its first byte is rare.
_LIB = re.compile(rb"lib")
_NAME = re.compile(rb"(lib[\w+.-]{1,100}?\.so(?:\.[0-9]+)*)\0")


def library_names(buffer: Buffer, image: Image) -> tuple[str, ...]:
    """Return the sonames that stand as whole strings in ``.rodata``, in the order of the file, the file's own left out.

    Names that are put together at run time are not found; a file without section headers gives none.
    """
    try:
        sections = [
            section for section in read_sections(buffer, image.path) if section.name.startswith(".rodata")
        ]
    except ElfError:
        return ()
    names: dict[str, None] = {}
    for section in sections:
        low, end = section.offset, min(section.offset + min(section.file_size, _MAX_SEARCHED), len(buffer))
        for start in range(low, end, SEARCHED_AT_ONCE):
            stop = min(start + SEARCHED_AT_ONCE, end)
            # Two bytes more, for a name whose first three letters lie across the end of this part.
            for hit in _LIB.finditer(buffer, start, min(stop + 2, end)):
                at = hit.start()
                if at == low or not buffer[at - 1]:
                    name = _NAME.match(buffer, at, min(at + _LONGEST, end))
                    if name:
                        names[name[1].decode("ascii")] = None
            # The pages that were searched need not stay in memory.
            if isinstance(buffer, mmap.mmap):
                page = start // mmap.PAGESIZE * mmap.PAGESIZE
                buffer.madvise(mmap.MADV_DONTNEED, page, stop - page)
    own = {image.soname, *image.needed}
    return tuple(name for name in names if name not in own)
