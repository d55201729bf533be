"""Work that hardly needs the interpreter, begun while something else is done that does: inflating and hashing."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from relink.elf.hollow import Cut
from relink.elf.image import is_elf
from relink.errors import WheelError
from relink.wheel.archive import WheelArchive
from relink.wheel.bits import Reader
from relink.wheel.limits import Limits
from relink.wheel.splice import Part, Span, find_parts, prove

__all__ = ["BlockProof", "hashed_ahead", "open_ahead"]

_WORTH: Final = 32 << 20  # bytes
_PIECE: Final = 16 << 20
_GAP: Final = 64 << 10  # bytes between cuts that an edit seldom touches
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


class BlockProof:
    """Proves the deflated blocks of what edits will not touch; a context manager, at whose end nothing is waited for.

    :param archive: where members come from that :meth:`WheelArchive.read_into` has read.
    """

    def __init__(self, archive: WheelArchive) -> None:
        self._archive = archive
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1, "relink-blocks")
        self._noted: dict[str, list[tuple[Part, ...]]] = {}
        self._begun: dict[str, Future[tuple[Span, ...]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def note(self, name: str, cuts: Sequence[Cut], content: memoryview) -> None:
        """Note the cuts of a member, of which nothing is needed later."""
        blocks = self._archive.blocks(name)
        self._noted[name] = find_parts(blocks, _stretches(cuts), content)

    def begin(self) -> None:
        """Begin with what was noted, the last first: members are read in the order of their sizes."""
        for name, found in reversed(self._noted.items()):
            self._begun[name] = self._pool.submit(prove, self._reader(name), found)

    def spans(self, name: str) -> tuple[Span, ...]:
        """Wait for the blocks of a member, which can be read until the end; nothing of one that was not noted.

        :raises WheelError: the wheel cannot be read.
        """
        return self._begun[name].result() if name in self._begun else ()

    def _reader(self, name: str) -> Reader:
        read = self._archive.raw_reader(name)

        def stoppable(offset: int, length: int) -> bytes:
            if self._stop.is_set():
                raise WheelError(f"{name!r}: nobody waits for its blocks any more")
            return read(offset, length)

        return stoppable


def _stretches(cuts: Sequence[Cut]) -> list[range]:
    """Join cuts that lie close together: one stretch of blocks is found as soon as another, and less is deflated again."""
    found: list[range] = []
    for cut in cuts:
        if found and cut.start - found[-1].stop <= _GAP:
            found[-1] = range(found[-1].start, cut.stop)
        else:
            found.append(cut)
    return found
