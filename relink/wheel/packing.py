"""New members of a wheel, deflated before it is their turn to be written; and the pool of threads for all of the writer's work.

No task of the pool waits for another one of it, so tasks cannot block each other however few threads there are. The writer
itself waits for tasks, so it must not be one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Self

from relink.system.errors import RelinkError
from relink.wheel.byte_types import BytesLike
from relink.wheel.changes import Addition, Replacement, WriteOptions, method_of, spans_of
from relink.wheel.compress import Packed, pack
from relink.wheel.member_content import Content, content_size, pieces
from relink.wheel.record import default_jobs

__all__ = ["Packing"]

_MEMORY: Final = 256 << 20  # bytes, if the options do not limit it


class Packing:
    """Deflates new members ahead of their turn, within a limit of memory; a context manager, which leaves nothing running.

    :param options: `level`, `jobs` and `max_memory` are used.
    :ivar pool: its threads.
    """

    pool: ThreadPoolExecutor

    def __init__(self, options: WriteOptions) -> None:
        self._level = options.level
        self._free = options.max_memory or _MEMORY
        self.pool = ThreadPoolExecutor(options.jobs or default_jobs(), "relink-members")
        self._packing: dict[str, tuple[int, Future[Packed]]] = {}
        self._exited = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exited.set()
        self.pool.shutdown(cancel_futures=True)

    def begin(self, name: str, new: Replacement | Addition) -> bool:
        """Begin with a member as soon as a thread is free, if there is memory for it; return whether it has been begun.

        :param name: in the output.
        """
        if name in self._packing:
            return True
        size = _packed_size(new)
        if size > self._free:
            return False
        self._free -= size
        content = self._until_exit(new.content)
        packing = self.pool.submit(
            pack,
            name,
            content,
            content_size(new.content, new.size),
            spans_of(new),
            level=self._level,
            method=method_of(new),
        )
        self._packing[name] = size, packing
        return True

    def _until_exit(self, content: Content) -> Iterator[BytesLike]:
        """Yield the content, and fail once the context manager has been left: a thread cannot be cancelled otherwise."""
        for piece in pieces(content):
            if self._exited.is_set():
                raise RelinkError("writing has been given up")
            yield piece

    def take(self, name: str) -> Packed | None:
        """Wait for a member and return it, once; None if it was not begun."""
        size, packing = self._packing.pop(name, (0, None))
        try:
            return None if packing is None else packing.result()
        finally:
            self._free += size


def _packed_size(new: Replacement | Addition) -> int:
    """Return about how many bytes a member takes deflated: at most its own size, and in its spans exactly what they have."""
    saved = sum(span.stop - span.start - (span.last - span.first) // 8 for span in spans_of(new))
    return content_size(new.content, new.size) - saved
