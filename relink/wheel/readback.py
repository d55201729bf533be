"""The new members of the output, read again: RECORD lists what the file gives back, not what was meant to be in it.

The CRC, which was computed of the content before it was deflated, says whether it is what was meant. Of a member that reuses
blocks of an old one (:mod:`relink.wheel.deflate.splice`) only the new blocks are inflated: the others were when the old one was
read, ends included (:mod:`relink.wheel.deflate.blocks`), and must be the same bytes as then. RECORD lists there the content that
was deflated.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from relink.system.errors import RelinkError, WheelError
from relink.wheel.deflate.bits import LAST_BLOCK_BYTES
from relink.wheel.deflate.splice import Piece
from relink.wheel.deflate.stream import content
from relink.wheel.packing import Packed
from relink.wheel.record import RecordEntry, hashed
from relink.wheel.zipformat import Member


class ReadBack:
    """Inflates members of a ZIP file while others are still being written to it.

    :param fd: the file; it must stay open until all members have been read or `pool` is shut down.
    :param pool: reads the members; nothing that it runs may wait for :meth:`entries`.
    :param on_progress: called with how many bytes more have been read, each time; on any thread.
    """

    def __init__(
        self, fd: int, pool: ThreadPoolExecutor, on_progress: Callable[[int], object] = lambda _: None
    ) -> None:
        self._fd = fd
        self._on_progress = on_progress
        self._pool = pool
        self._begun: list[Future[RecordEntry]] = []

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
        for chunk in content(self._read, member):
            sha256.update(chunk)
            self._on_progress(len(chunk))
        return sha256.digest()

    def _compare(self, member: Member, pieces: Iterable[Piece]) -> None:
        """Go through a member's compressed data piece by piece."""
        at, end = member.data_offset, member.data_offset + member.compressed_size
        for piece in pieces:
            if piece.span:
                block_at = at
                for data in piece.span.stream():
                    if self._exactly(block_at, len(data)) != data:
                        raise WheelError(f"{member.name!r} has other blocks than were reused")
                    block_at += len(data)
                self._on_progress(piece.size)
            else:
                self._inflate(replace(member, data_offset=at), piece, last=at + piece.length == end)
            at += piece.length

    def _inflate(self, member: Member, piece: Piece, *, last: bool) -> None:
        stop = member.data_offset + piece.length
        # A stream must end with a last block: behind a piece from the middle an empty one is read.
        part = replace(
            member,
            compressed_size=piece.length + (0 if last else len(LAST_BLOCK_BYTES)),
            size=piece.size,
            crc=piece.crc,
        )

        def read(offset: int, length: int) -> bytes:
            return (
                LAST_BLOCK_BYTES[offset - stop :][:length]
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
        """Read at most `length` bytes, at least one."""
        data = os.pread(self._fd, length, offset)
        if not data:
            raise WheelError(f"{length} bytes at {offset} are missing")
        return data
