"""What was written, read again: RECORD lists what the file gives back, not what was meant to be in it.

The CRC, which was computed of the content before it was deflated, says whether it is what was meant. Of a member that reuses
blocks of an old one (:mod:`relink.wheel.deflate.splice`) only the new blocks are inflated: the others were when the old one was
read, ends included (:mod:`relink.wheel.deflate.blocks`), and must be the same bytes as then. RECORD lists there the content that
was deflated.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Final, Self

from relink.errors import RelinkError, WheelError
from relink.wheel.deflate.bits import END
from relink.wheel.deflate.splice import Piece
from relink.wheel.deflate.stream import content
from relink.wheel.record import RecordEntry, hashed
from relink.wheel.zipformat import Member
from relink.wheel.zipwriter import Packed

__all__ = ["ReadBack"]

_LARGE: Final = 8 << 20  # bytes from which on hashing has a thread of its own
_WAITING: Final = 4  # pieces of 1 MiB that are inflated and not hashed


class ReadBack:
    """Inflates members of a ZIP file while others are still being written to it; a context manager, which leaves nothing running.

    :param fd: the file.
    :param jobs: members that are read at once.
    :param on_progress: called with how many bytes more have been read, each time; on any thread.
    """

    def __init__(self, fd: int, jobs: int, on_progress: Callable[[int], object] = lambda _: None) -> None:
        self._fd = fd
        self._on_progress = on_progress
        self._pool = ThreadPoolExecutor(jobs, "relink-readback")
        self._begun: list[Future[RecordEntry]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def begin(self, member: Member, packed: Packed) -> None:
        """Begin with a member, of which everything is in the file."""
        self._begun.append(self._pool.submit(self._checked, member, packed))

    def entries(self) -> dict[str, RecordEntry]:
        """Wait for all, and return their lines for RECORD by name.

        :raises RelinkError: a member does not have the content that it should have.
        """
        return {entry.path: entry for entry in (reading.result() for reading in self._begun)}

    def _checked(self, member: Member, packed: Packed) -> RecordEntry:
        try:
            if packed.sha256 is None:
                digest = self._digest(member)
            else:
                self._compare(member, packed.pieces)
                digest = packed.sha256
        except WheelError as error:
            raise RelinkError(
                f"{error.message}: the disk does not give back what was written to it"
            ) from error
        return hashed(member.name, digest, member.size)

    def _digest(self, member: Member) -> bytes:
        sha256 = hashlib.sha256()
        with ThreadPoolExecutor(1, "relink-hash") as pool:
            large = member.size >= _LARGE
            chunks = _hashed(
                content(self._read, member), sha256.update, pool if large else None, self._on_progress
            )
            deque(chunks, maxlen=0)
        return sha256.digest()

    def _compare(self, member: Member, pieces: Iterable[Piece]) -> None:
        """Go through a member's compressed data piece by piece."""
        at, end = member.data_offset, member.data_offset + member.compressed_size
        for piece in pieces:
            if piece.span:
                place = at
                for data in piece.span.stream():
                    if self._exactly(place, len(data)) != data:
                        raise WheelError(f"{member.name!r} has other blocks than were reused")
                    place += len(data)
                self._on_progress(piece.size)
            else:
                self._inflate(replace(member, data_offset=at), piece, last=at + piece.length == end)
            at += piece.length

    def _inflate(self, member: Member, piece: Piece, *, last: bool) -> None:
        stop = member.data_offset + piece.length
        part = replace(
            member,
            compressed_size=piece.length + (0 if last else len(END)),
            size=piece.size,
            crc=piece.crc,
        )

        def read(offset: int, length: int) -> bytes:
            return (
                END[offset - stop :][:length]
                if offset >= stop
                else self._read(offset, min(length, stop - offset))
            )

        for chunk in content(read, part):
            self._on_progress(len(chunk))

    def _exactly(self, offset: int, length: int) -> bytes:
        data = b""
        while len(data) < length:
            data += self._read(offset + len(data), length - len(data))
        return data

    def _read(self, offset: int, length: int) -> bytes:
        """Read some of the bytes, at least one."""
        data = os.pread(self._fd, length, offset)
        if not data:
            raise WheelError(f"{length} bytes at {offset} are missing")
        return data


def _hashed(
    chunks: Iterable[bytes],
    update: Callable[[bytes], object],
    pool: ThreadPoolExecutor | None,
    on_progress: Callable[[int], object],
) -> Iterator[bytes]:
    """Yield the chunks, which are hashed meanwhile."""
    waiting: deque[Future[object]] = deque()
    for chunk in chunks:
        if pool is None:
            update(chunk)
        else:
            waiting.append(pool.submit(update, chunk))
        yield chunk
        on_progress(len(chunk))
        if len(waiting) > _WAITING:
            waiting.popleft().result()
    for hashing in waiting:
        hashing.result()
