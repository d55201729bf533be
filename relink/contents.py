"""Work that hardly needs the interpreter, begun while something else is done that does: inflating and hashing."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from relink.elf.hollow import Cut
from relink.elf.image import is_elf
from relink.errors import WheelError
from relink.wheel.archive import WheelArchive
from relink.wheel.deflate.bits import Reader
from relink.wheel.deflate.splice import Span, find_spans
from relink.wheel.limits import Limits
from relink.wheel.zipformat import DEFLATED

__all__ = ["SHARE", "Hashing", "SpanFinder", "hashed_ahead", "open_ahead"]

_WORTH: Final = 32 << 20  # bytes
_PIECE: Final = 16 << 20
_LARGE: Final = 8 << 20  # bytes: a smaller one is deflated anew in no time
_GAP: Final = 64 << 10  # bytes between cuts that an edit seldom touches
SHARE: Final = 8
"""What is there beside the largest file takes at most so little of the memory that this takes."""


def open_ahead(path: Path, limits: Limits | None = None, *, split: bool = False) -> WheelArchive:
    """Open a wheel and begin to read its largest ELF file, if it is large and all others are far smaller.

    :param split: as for :meth:`WheelArchive.read_into`.
    :raises WheelError: it is not a wheel that can be trusted.
    """
    archive = WheelArchive(path, limits=limits)
    members = sorted(archive.members.values(), key=lambda member: member.size, reverse=True)
    others = members[1].size if len(members) > 1 else 0
    try:
        if members[0].size >= max(_WORTH, SHARE * others) and is_elf(archive.prefix(members[0].name, 4)):
            archive.read_ahead(members[0].name, split=split)
    except WheelError:
        archive.close()
        raise
    return archive


@dataclass(frozen=True, slots=True)
class Hashing:
    """A content that is being hashed, piece by piece.

    :ivar pieces: done when that much more of it has been hashed, in order.
    :ivar digest: of all of it.
    """

    pieces: Sequence[Future[None]]
    digest: Future[bytes]

    def wait(self, stop: int) -> None:
        """Wait until nothing before `stop` is needed any more."""
        self.pieces[-(-stop // _PIECE) - 1].result()


@contextmanager
def hashed_ahead(contents: Mapping[str, tuple[str, memoryview]]) -> Iterator[Mapping[str, Hashing]]:
    """Begin to hash contents, by name each with its algorithm; what has not been hashed at the end is left."""
    with ThreadPoolExecutor(1, "relink-record") as pool:

        def begun(algorithm: str, view: memoryview) -> Hashing:
            digest = hashlib.new(algorithm, usedforsecurity=False)
            starts = range(0, len(view), _PIECE)
            pieces = [pool.submit(digest.update, view[start : start + _PIECE]) for start in starts]
            return Hashing(pieces, pool.submit(digest.digest))

        try:
            yield {name: begun(*content) for name, content in contents.items()}
        finally:
            pool.shutdown(cancel_futures=True)


class SpanFinder:
    """Finds the deflated blocks of what edits will not touch; a context manager, at whose end nothing is waited for."""

    def __init__(self, archive: WheelArchive) -> None:
        self._archive = archive
        self._left = threading.Event()
        self._pool = ThreadPoolExecutor(1, "relink-blocks")
        self._noted: dict[str, tuple[memoryview, Sequence[Cut]]] = {}
        self._begun: dict[str, Future[tuple[Span, ...]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._pool.shutdown(cancel_futures=True)

    def note(self, name: str, content: memoryview, cuts: Sequence[Cut]) -> None:
        """Note a member's content, which must stay as it is until its spans have been found."""
        self._noted[name] = content, cuts

    def begin(self, name: str) -> Future[tuple[Span, ...]]:
        """Begin with a member, if that has not been done yet; nothing is found in one that was not noted.

        Reading fails with WheelError.
        """
        if name not in self._begun:
            content, cuts = self._noted.pop(name, (memoryview(b""), ()))
            member = self._archive.member(name)
            worth = member.method == DEFLATED and member.size >= _LARGE
            stretches = _stretches(cuts) if worth else []
            self._begun[name] = self._pool.submit(
                find_spans,
                self._reader(name),
                member.compressed_size,
                content,
                member.crc,
                stretches,
                self._archive.split(name),
            )
        return self._begun[name]

    def _reader(self, name: str) -> Reader:
        read = self._archive.raw_reader(name)

        def stoppable(offset: int, length: int) -> bytes:
            if self._left.is_set():
                raise WheelError(f"{name!r}: nobody waits for its blocks any more")
            return read(offset, length)

        return stoppable


def _stretches(cuts: Sequence[Cut]) -> list[range]:
    """Join cuts that lie close together: less is deflated again, where an edit does not touch what lies between."""
    found: list[range] = []
    for cut in cuts:
        if found and cut.start - found[-1].stop <= _GAP:
            found[-1] = range(found[-1].start, cut.stop)
        else:
            found.append(cut)
    return found
