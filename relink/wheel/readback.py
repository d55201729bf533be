"""What was written, read again: RECORD lists what the file gives back, not what was meant to be in it.

That it is what was meant the CRC tells, which was computed of the content before it was deflated.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Self, TypeAlias

from relink.errors import RelinkError, WheelError
from relink.wheel.record import RecordEntry, hashed
from relink.wheel.stream import content
from relink.wheel.zipformat import Member

__all__ = ["ReadBack", "Sink"]

Sink: TypeAlias = Callable[[Iterable[bytes]], object]
"""Takes the content of one member, in pieces."""

_LARGE: Final = 8 << 20  # bytes from which on hashing has a thread of its own
_WAITING: Final = 4  # pieces of 1 MiB that are inflated and not hashed


class ReadBack:
    """Inflates members of a ZIP file while others are still being written to it; a context manager, which leaves nothing running.

    :param fd: the file.
    :param sinks: by name, what else wants the content; called on any thread.
    :param jobs: members that are read at once.
    :param told: how many bytes more have been read, each time; on any thread.
    """

    def __init__(
        self, fd: int, sinks: Mapping[str, Sink], jobs: int, told: Callable[[int], object] = lambda _: None
    ) -> None:
        self._fd = fd
        self._sinks = sinks
        self._told = told
        self._pool = ThreadPoolExecutor(jobs, "relink-readback")
        self._begun: list[Future[RecordEntry]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def begin(self, member: Member) -> None:
        """Begin with a member, of which everything is in the file."""
        self._begun.append(self._pool.submit(self._read, member))

    def entries(self) -> dict[str, RecordEntry]:
        """Wait for all, and return their lines for RECORD by name.

        :raises RelinkError: a member does not have the content that it should have.
        """
        return {entry.path: entry for entry in (reading.result() for reading in self._begun)}

    def _read(self, member: Member) -> RecordEntry:
        sha256 = hashlib.sha256()
        chunks = content(lambda offset, length: _read(self._fd, offset, length), member)
        try:
            with ThreadPoolExecutor(1, "relink-hash") as pool:
                large = member.size >= _LARGE
                passed = _hashed(chunks, sha256.update, pool if large else None, self._told)
                if sink := self._sinks.get(member.name):
                    sink(passed)
                deque(passed, maxlen=0)
        except WheelError as error:
            raise RelinkError(
                f"{error.message}: the disk does not give back what was written to it"
            ) from error
        return hashed(member.name, sha256.digest(), member.size)


def _hashed(
    chunks: Iterable[bytes],
    update: Callable[[bytes], object],
    pool: ThreadPoolExecutor | None,
    told: Callable[[int], object],
) -> Iterator[bytes]:
    """Yield the chunks, which are hashed meanwhile."""
    waiting: deque[Future[object]] = deque()
    for chunk in chunks:
        if pool is None:
            update(chunk)
        else:
            waiting.append(pool.submit(update, chunk))
        yield chunk
        told(len(chunk))
        if len(waiting) > _WAITING:
            waiting.popleft().result()
    for hashing in waiting:
        hashing.result()


def _read(fd: int, offset: int, length: int) -> bytes:
    """Read some of the bytes, at least one."""
    data = os.pread(fd, length, offset)
    if not data:
        raise WheelError(f"{length} bytes at {offset} are missing")
    return data
