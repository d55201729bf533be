"""Bytes that can be read at an offset: a file, or a buffer in memory (an inflated member of a wheel, an mmap).

A digest of what linking depends on in one ELF file: small and fast, where a digest of the content would read all of it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from pathlib import Path
from typing import Final, Protocol, Self

from relink.elf import constants as c
from relink.elf.dynamic import Buffer, open_memory
from relink.elf.image import read_image
from relink.system.errors import raise_if_machine_fault
from relink.system.safe_open import open_regular
from relink.system.spool import fill, release_pages, take

# Bytes that hold the ELF header and the program headers of any real file.
_HEADERS: Final = 64 + 56 * 64
# Bytes of notes that are hashed at most: hostile program headers may call all of a large file notes, many times over.
_NOTES: Final = 1 << 20
_TABLES: Final = (c.DT_HASH, c.DT_GNU_HASH, c.DT_SYMTAB, c.DT_STRTAB, c.DT_VERSYM, c.DT_VERDEF, c.DT_VERNEED)


def linking_digest(buffer: Buffer) -> str:
    """Return the SHA-256 (hex) of an ELF file's headers, notes (the build-id is one), dynamic array, symbols and versions.

    Code and data are not part of it. A file of another size has another digest.

    :raises ElfError: it is not an ELF file, or its headers lie outside of it.
    """
    image = read_image(buffer, "")
    digest = hashlib.sha256(f"{image.size}\n".encode())
    with open_memory(buffer) as memory:
        view = memory.view
        digest.update(take(view, 0, _HEADERS))
        left = _NOTES
        for segment in image.segments:
            if segment.type == c.PT_NOTE:
                note = take(view, segment.offset, segment.offset + min(segment.file_size, left))
                digest.update(note)
                left -= len(note)
        digest.update(repr(memory.entries).encode())
        for tag in _TABLES:
            if address := memory.dynamic.get(tag):
                digest.update(memory.read(address, memory.available(address)))
    return digest.hexdigest()


_RELEASED: Final = 256
"""Reads after which the pages that they have touched are released. The kernel maps some more around each (64 KiB in all)."""


class ByteSource(Protocol):
    """What every reader of device code needs: a size, and bytes from an offset (fewer at the end)."""

    @property
    def size(self) -> int:
        """Number of bytes."""

    def read_at(self, offset: int, length: int) -> bytes | memoryview:
        """Return up to `length` bytes from `offset`; short or empty at the end, never an error."""


class BufferSource:
    """A buffer in memory."""

    def __init__(self, buffer: bytes | bytearray | memoryview | mmap.mmap) -> None:
        self._view = memoryview(buffer).cast("B")
        self.size = len(self._view)

    def read_at(self, offset: int, length: int) -> memoryview:
        """Return a view; nothing is copied."""
        if offset < 0 or length <= 0:
            return self._view[:0]
        fill(self._view, offset, offset + length)
        return self._view[offset : offset + length]


class NotedSource(BufferSource):
    """A buffer that remembers which of its ranges were read.

    :ivar noted: the ranges, in the order of the reads.
    """

    def __init__(self, buffer: bytes | bytearray | memoryview | mmap.mmap) -> None:
        super().__init__(buffer)
        self.noted: list[range] = []

    def read_at(self, offset: int, length: int) -> memoryview:
        """Return a view, and note it. Of a file that is mapped, what was read long ago takes no memory."""
        if not len(self.noted) % _RELEASED:
            release_pages(self._view)
        view = super().read_at(offset, length)
        self.noted.append(range(offset, offset + len(view)))
        return view


class FileSource:
    """A file, read with pread; close it or use it in a ``with``.

    :raises OSError: the file cannot be opened or is not a regular file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._fd = open_regular(self.path)
        try:
            self.size = os.fstat(self._fd).st_size
        except OSError:
            os.close(self._fd)
            raise

    def read_at(self, offset: int, length: int) -> bytes:
        """Return the bytes, as many as there are.

        :raises MachineError: the disk fails.
        """
        if offset < 0 or length <= 0 or offset >= self.size:
            return b""
        try:
            return os.pread(self._fd, min(length, self.size - offset), offset)
        except OSError as error:
            raise_if_machine_fault(error, str(self.path))
            return b""

    def close(self) -> None:
        """Close the file; reading afterwards gives nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self.size = -1, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
