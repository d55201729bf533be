"""SHA-256 of content that is still being produced, computed on a thread of its own.

hashlib releases the interpreter lock (GIL), so the caller inflates or deflates the next piece meanwhile.
"""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from relink.wheel.byte_types import BytesLike

__all__ = ["Hasher"]


class Hasher:
    """Hashes pieces in the order in which they are added; a context manager, which leaves no thread running.

    The thread is not one of the writer's pool: a task of that pool waits for it.

    :param waiting: pieces that may be added before they have been hashed. Each must stay unchanged until then.
    """

    def __init__(self, waiting: int) -> None:
        self._digest = hashlib.sha256()
        self._most = waiting
        self._pool = ThreadPoolExecutor(1, "relink-hash")  # one: the order counts
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, piece: BytesLike) -> None:
        """Hash a piece; waits until no more than `waiting` pieces are left."""
        self._waiting.append(self._pool.submit(self._digest.update, piece))
        while len(self._waiting) > self._most:
            self._waiting.popleft().result()

    def digest(self) -> bytes:
        """Wait for all pieces, and return the digest."""
        while self._waiting:
            self._waiting.popleft().result()
        return self._digest.digest()
