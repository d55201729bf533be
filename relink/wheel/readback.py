"""What was written, read again: RECORD lists what the file gives back, not what was meant to be in it.

That it is what was meant the CRC tells, which was computed of the content before it was deflated.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeAlias

from relink.errors import RelinkError, WheelError
from relink.wheel.record import RecordEntry, hashed
from relink.wheel.stream import content
from relink.wheel.zipformat import Member

__all__ = ["Sink", "read_back"]

Sink: TypeAlias = Callable[[Iterable[bytes]], object]
"""Takes the content of one member, in pieces."""

_LARGE: Final = 8 << 20  # bytes from which on hashing has a thread of its own
_WAITING: Final = 4  # pieces of 1 MiB that are inflated and not hashed


def read_back(
    fd: int,
    members: Iterable[Member],
    sinks: Mapping[str, Sink],
    jobs: int,
    told: Callable[[int], object] = lambda _: None,
) -> dict[str, RecordEntry]:
    """Inflate members of a ZIP file that is being written; return their lines for RECORD, by name.

    :param fd: the file; everything of these members is in it.
    :param sinks: by name, what else wants the content; called on any thread.
    :param jobs: members that are read at once.
    :param told: how many bytes more have been read, each time; on any thread.
    :raises RelinkError: a member does not have the content that it should have.
    """

    def one(member: Member) -> RecordEntry:
        sha256 = hashlib.sha256()
        chunks = content(lambda offset, length: _read(fd, offset, length), member)
        try:
            with ThreadPoolExecutor(1, "relink-hash") as pool:
                passed = _hashed(chunks, sha256.update, pool if member.size >= _LARGE else None, told)
                if sink := sinks.get(member.name):
                    sink(passed)
                deque(passed, maxlen=0)
        except WheelError as error:
            raise RelinkError(
                f"{error.message}: the disk does not give back what was written to it"
            ) from error
        return hashed(member.name, sha256.digest(), member.size)

    largest_first = sorted(members, key=lambda member: -member.size)
    with ThreadPoolExecutor(jobs, "relink-readback") as pool:
        return {entry.path: entry for entry in pool.map(one, largest_first)}


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
