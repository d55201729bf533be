"""A digest of what linking depends on in one ELF file: small and fast, where a digest of the content would read all of it."""

from __future__ import annotations

import hashlib
from typing import Final

from relink.elf.constants import (
    DT_GNU_HASH,
    DT_HASH,
    DT_STRTAB,
    DT_SYMTAB,
    DT_VERDEF,
    DT_VERNEED,
    DT_VERSYM,
    PT_NOTE,
)
from relink.elf.dynamic import Buffer, loaded
from relink.elf.image import read_image

# Bytes that hold the ELF header and the program headers of any real file.
_HEADERS: Final = 64 + 56 * 64
# Bytes of notes that are hashed at most: hostile program headers may call all of a large file notes, many times over.
_NOTES: Final = 1 << 20
_TABLES: Final = (DT_HASH, DT_GNU_HASH, DT_SYMTAB, DT_STRTAB, DT_VERSYM, DT_VERDEF, DT_VERNEED)


def linking_digest(buffer: Buffer) -> str:
    """Return the SHA-256 (hex) of an ELF file's headers, notes (the build-id is one), dynamic array, symbols and versions.

    Code and data are not part of it. A file of another size has another digest.

    :raises ElfError: it is not an ELF file, or its headers lie outside of it.
    """
    image = read_image(buffer, "")
    digest = hashlib.sha256(f"{image.size}\n".encode())
    with loaded(buffer) as memory:
        view = memory.view
        digest.update(view[:_HEADERS])
        left = _NOTES
        for segment in image.segments:
            if segment.type == PT_NOTE:
                note = view[segment.offset : segment.offset + min(segment.file_size, left)]
                digest.update(note)
                left -= len(note)
        digest.update(repr(memory.entries).encode())
        for tag in _TABLES:
            if address := memory.dynamic.get(tag):
                digest.update(memory.read(address, memory.available(address)))
    return digest.hexdigest()
