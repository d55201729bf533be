"""Library names in a file's read-only data: what it may dlopen. No proof that it does, so callers say how they know."""

from __future__ import annotations

import mmap
import re

from relink.elf.image import Buffer, Image, read_sections
from relink.errors import ElfError

__all__ = ["library_names"]

_LIMIT = 64 << 20  # bytes looked at in one section: libLLVM has the largest .rodata seen, 24 MB
_CHUNK = 1 << 20
_LONGEST = 128
_NAME = re.compile(rb"lib[\w+.-]{1,100}?\.so(?:\.[0-9]+)*")


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
    found: dict[str, None] = {}
    for section in sections:
        end = section.offset + min(section.file_size, _LIMIT)
        for start in range(section.offset, end, _CHUNK):
            # An overlap on both sides, so that a string across the border of two pieces is seen whole once.
            low = max(section.offset, start - _LONGEST)
            piece = bytes(buffer[low : min(end, start + _CHUNK + _LONGEST)])
            if isinstance(buffer, mmap.mmap):  # what has been looked at need not stay in memory
                page = low // mmap.PAGESIZE * mmap.PAGESIZE
                buffer.madvise(mmap.MADV_DONTNEED, page, min(end, start + _CHUNK) - page)
            if low == section.offset:
                piece = b"\0" + piece  # a string may stand right at the start
            found |= dict.fromkeys(_names(piece))
    own = {image.soname, *image.needed}
    return tuple(name for name in found if name not in own)


def _names(piece: bytes) -> list[str]:
    names = []
    at = piece.find(b"\0lib")
    while at >= 0:
        end = piece.find(b"\0", at + 1, at + _LONGEST)
        if end >= 0 and _NAME.fullmatch(piece, at + 1, end):
            names.append(piece[at + 1 : end].decode("ascii", "replace"))
        at = piece.find(b"\0lib", at + 1)
    return names
