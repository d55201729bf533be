"""Work that needs no interpreter, begun while something else is done that does: inflating the largest file, and hashing it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from relink.elf.image import is_elf
from relink.errors import WheelError
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import Limits

__all__ = ["hashed_ahead", "open_ahead"]

_WORTH: Final = 32 << 20  # bytes
_PIECE: Final = 16 << 20
_SHARE: Final = 8  # what is read meanwhile takes at most so little of the memory that the largest takes


def open_ahead(path: Path, limits: Limits | None = None) -> WheelArchive:
    """Open a wheel and begin to read its largest ELF file, if it is large and all others are far smaller.

    :raises WheelError: it is not a wheel that can be trusted.
    """
    archive = WheelArchive(path, limits=limits)
    members = sorted(archive.members.values(), key=lambda member: member.size, reverse=True)
    others = members[1].size if len(members) > 1 else 0
    try:
        if members[0].size >= max(_WORTH, _SHARE * others) and is_elf(archive.prefix(members[0].name, 4)):
            archive.read_ahead(members[0].name)
    except WheelError:
        archive.close()
        raise
    return archive


@contextmanager
def hashed_ahead(contents: Mapping[str, tuple[str, memoryview]]) -> Iterator[Mapping[str, Future[bytes]]]:
    """Begin to hash contents, by name each with its algorithm; gives the digests to come. At the end none is waited for."""
    stop = threading.Event()

    def one(algorithm: str, view: memoryview) -> bytes:
        digest = hashlib.new(algorithm, usedforsecurity=False)
        for start in range(0, len(view), _PIECE):
            if stop.is_set():
                break
            digest.update(view[start : start + _PIECE])
        return digest.digest()

    with ThreadPoolExecutor(1, "relink-record") as pool:
        try:
            yield {name: pool.submit(one, *content) for name, content in contents.items()}
        finally:
            stop.set()
