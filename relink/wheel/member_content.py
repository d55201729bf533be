"""The new content of one member, in each form that a caller may pass: its pieces and its size in bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from relink.system.errors import RelinkError
from relink.wheel.byte_types import BytesLike

__all__ = ["Content", "content_size", "pieces"]

_PIECE: Final = 1 << 20  # bytes that are read from a file at once


@runtime_checkable
class Readable(Protocol):
    """An open binary file, as far as it is needed here."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...

    def seekable(self) -> bool: ...

    def tell(self) -> int: ...

    def seek(self, offset: int, whence: int = ..., /) -> int: ...


#: What a member's new content may be: bytes, a file's path, an open file (read from where it stands), or pieces.
Content = BytesLike | Path | Readable | Iterable[BytesLike]


def pieces(content: Content) -> Iterator[BytesLike]:
    """Yield the content as it comes; each piece is valid until the one after the next is asked for."""
    if isinstance(content, (bytes, bytearray, memoryview)):
        yield content
    elif isinstance(content, Path):
        with content.open("rb", buffering=0) as file:
            yield from pieces(file)
    elif isinstance(content, Readable):
        buffer, other = memoryview(bytearray(_PIECE)), memoryview(bytearray(_PIECE))
        while length := content.readinto(buffer):
            yield buffer[:length]
            buffer, other = other, buffer
    else:
        yield from content


def content_size(content: Content, size: int | None) -> int:
    """Return how many bytes ``content`` will give; ``size`` is what its owner says.

    :raises RelinkError: it cannot be known: pieces without a size.
    """
    if size is not None:
        return size
    if isinstance(content, memoryview):
        return content.nbytes
    if isinstance(content, (bytes, bytearray)):
        return len(content)
    if isinstance(content, Path):
        return content.stat().st_size
    if isinstance(content, Readable) and content.seekable():
        position = content.tell()
        end = content.seek(0, os.SEEK_END)
        content.seek(position)
        return end - position
    raise RelinkError(
        "content given in pieces needs its size: ZIP has to know beforehand whether it is large"
    )
