"""New members of a wheel, deflated before it is their turn to be written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Self

from relink.errors import RelinkError
from relink.wheel import zipformat as z
from relink.wheel.deflate.splice import Span
from relink.wheel.record import default_jobs
from relink.wheel.zipwriter import Buffer, Content, Packed, content_size, pack, pieces

__all__ = ["Addition", "Packing", "Replacement", "method_of", "spans_of"]

_AHEAD: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class Replacement:
    """New content of a member that is in the wheel; its name, place and mode stay.

    :param size: bytes; needed where ``content`` comes in pieces, checked where it is given.
    :param spans: stretches of it that are taken over as they are deflated (:func:`relink.wheel.deflate.splice.find_spans`):
        in them, and in the :data:`~relink.wheel.deflate.inflate.WINDOW` before, it is what it was.
    """

    content: Content
    size: int | None = None
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Addition:
    """A member to add; ``stored`` for content that is compressed already. ``mode``: permission bits."""

    content: Content
    size: int | None = None
    mode: int = 0o644
    stored: bool = False


class Packing:
    """Deflates new members before it is their turn, as far as memory goes; a context manager, which leaves nothing running.

    :param level: as for :func:`write_wheel`, `jobs` and `max_memory` too.
    """

    def __init__(self, level: int = 3, jobs: int | None = None, max_memory: int | None = None) -> None:
        self._level = level
        self._free = max_memory or _AHEAD
        self._threads = jobs or default_jobs()
        self._pool = ThreadPoolExecutor(self._threads, "relink-deflate")
        self._packing: dict[str, tuple[int, Future[Packed]]] = {}
        self._left = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._pool.shutdown(cancel_futures=True)

    def begin(self, name: str, new: Replacement | Addition) -> bool:
        """Begin with a member as soon as a thread is free, if there is memory for it; whether it has been begun.

        :param name: in the output.
        """
        if name in self._packing:
            return True
        size = _packed_size(new)
        if size > self._free:
            return False
        self._free -= size
        content = self._until_left(new.content)
        packing = self._pool.submit(
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

    def _until_left(self, content: Content) -> Iterator[Buffer]:
        """Yield the content as long as somebody waits for it."""
        for piece in pieces(content):
            if self._left.is_set():
                raise RelinkError("nobody waits for this any more")
            yield piece

    def take(self, name: str) -> Packed | None:
        """Wait for a member, which is not kept; None if it was not begun."""
        size, packing = self._packing.pop(name, (0, None))
        try:
            return None if packing is None else packing.result()
        finally:
            self._free += size


def _packed_size(new: Replacement | Addition) -> int:
    """Return the bytes that a member takes deflated, which are hardly more than its own; those of its spans are known."""
    spared = sum(span.stop - span.start - (span.last - span.first) // 8 for span in spans_of(new))
    return content_size(new.content, new.size) - spared


def spans_of(new: Replacement | Addition) -> tuple[Span, ...]:
    """Return what is taken over deflated."""
    return new.spans if isinstance(new, Replacement) else ()


def method_of(new: Replacement | Addition) -> int:
    """Return ZIP's number of how it is compressed."""
    return z.STORED if isinstance(new, Addition) and new.stored else z.DEFLATED
