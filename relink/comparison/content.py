"""Where two contents differ: as streams that are never whole in memory, or as two buffers that share what is the same."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from relink.errors import RelinkError
from relink.wheel.archive import WheelArchive
from relink.wheel.zipformat import Member

__all__ = [
    "BLOCK",
    "Ranges",
    "differing_blocks",
    "open_both",
    "paired_chunks",
    "same_compressed",
    "same_content",
    "streams",
]

BLOCK: Final = 4096
"""Bytes; every block begins at a multiple, or where a chunk of the streams does."""
_PIECE_SIZE: Final = 1 << 20  # bytes
_NEAR: Final = 16
# Differing bytes with fewer equal ones between them count as one range.
_DIFFERING: Final = re.compile(rb"[^\0]+(?:\0{1,15}[^\0]+)*", re.DOTALL)


@dataclass(slots=True)
class Ranges:
    """The places at which two contents differ, in order, and how many bytes they have.

    :ivar most: how many ranges are kept apart; beyond that the last one reaches to the last difference.
    :ivar blocks: offsets of the blocks that differ, all of them.
    """

    most: int = 10_000
    found: list[tuple[int, int]] = field(default_factory=list)
    differing: int = 0
    blocks: list[int] = field(default_factory=list)

    def add(self, start: int, stop: int) -> None:
        """Add a range that begins behind all others."""
        self.differing += stop - start
        if self.found and (start - self.found[-1][1] < _NEAR or len(self.found) >= self.most):
            self.found[-1] = (self.found[-1][0], stop)
        else:
            self.found.append((start, stop))


def differing_blocks(
    pairs: Iterable[tuple[int, bytes, bytes]], ranges: Ranges
) -> Iterator[tuple[int, bytes]]:
    """Yield offset and new bytes of each block that differs; `ranges` has the differences up to there."""
    for at, old, new in pairs:
        if old == new:
            continue
        for start in range(0, max(len(old), len(new)), BLOCK):
            a, b = old[start : start + BLOCK], new[start : start + BLOCK]
            if a == b:
                continue
            ranges.blocks.append(at + start)
            common = min(len(a), len(b))
            mask = int.from_bytes(a[:common], "little") ^ int.from_bytes(b[:common], "little")
            for match in _DIFFERING.finditer(mask.to_bytes(common, "little")):
                ranges.add(at + start + match.start(), at + start + match.end())
            if len(a) != len(b):
                ranges.add(at + start + common, at + start + max(len(a), len(b)))
            yield at + start, b


def aligned(old: Iterator[bytes], new: Iterator[bytes]) -> Iterator[tuple[int, bytes, bytes]]:
    """Cut two streams at the same offsets; what only one of them has is paired with ``b""``."""
    at = 0
    a = b = b""
    while True:
        a, b = a or next(old, b""), b or next(new, b"")
        if not a and not b:
            return
        size = min(len(a), len(b)) or max(len(a), len(b))
        yield at, a[:size], b[:size]
        at += size
        a, b = a[size:], b[size:]


def paired_chunks(old: memoryview, new: memoryview, part: range) -> Iterator[tuple[int, bytes, bytes]]:
    """Cut two buffers into pairs of chunks, inside of one range of offsets."""
    for at in range(part.start, part.stop, _PIECE_SIZE):
        stop = min(at + _PIECE_SIZE, part.stop)
        yield at, bytes(old[at:stop]), bytes(new[at:stop])


def same_compressed(before: WheelArchive, after: WheelArchive, a: Member, b: Member) -> bool:
    """Whether the compressed bytes are the same; then so is the content."""
    if (a.method, a.compressed_size) != (b.method, b.compressed_size):
        return False
    pairs = zip(before.raw(a.name), after.raw(b.name), strict=True)
    return all(left == right for left, right in pairs)


def streams(
    before: WheelArchive, after: WheelArchive, old: str, new: str
) -> Iterator[tuple[int, bytes, bytes]]:
    """Both contents of a member, aligned."""
    return aligned(before.chunks(old), after.chunks(new))


def same_content(before: WheelArchive, after: WheelArchive, old: str, new: str) -> bool:
    """Whether a member inflates to the same."""
    return next(differing_blocks(streams(before, after, old, new), Ranges()), None) is None


def _rechunked(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Cut a stream into chunks of whole pages.

    The private map copies a page when it is first written to (mmap(2), MAP_PRIVATE). The old content of
    that page must be complete by then, so a page never spans two chunks.
    """
    pending = bytearray()
    for data in chunks:
        pending += data
        while len(pending) >= _PIECE_SIZE:
            yield bytes(pending[:_PIECE_SIZE])
            del pending[:_PIECE_SIZE]
    if pending:
        yield bytes(pending)


@contextlib.contextmanager
def open_both(
    before: WheelArchive, after: WheelArchive, names: tuple[str, str], ranges: Ranges
) -> Iterator[tuple[memoryview, memoryview]]:
    """Give both contents of a member as buffers, which share the memory of all blocks that are the same; fills `ranges`.

    :raises RelinkError: there is not that much memory.
    """
    sizes = before.member(names[0]).size, after.member(names[1]).size
    whole = max(*sizes, 1)
    fd = os.memfd_create("relink-diff")
    try:
        os.ftruncate(fd, whole)
        first = mmap.mmap(fd, whole)
        second = mmap.mmap(fd, whole, flags=mmap.MAP_PRIVATE)
    except (OSError, OverflowError) as error:
        raise RelinkError(f"{names[1]}: {whole} bytes do not fit into memory ({error})") from error
    finally:
        os.close(fd)

    def copied() -> Iterator[bytes]:
        at = 0
        for data in _rechunked(before.chunks(names[0])):
            first[at : at + len(data)] = data
            at += len(data)
            yield data

    with first, second:
        for at, data in differing_blocks(aligned(copied(), _rechunked(after.chunks(names[1]))), ranges):
            second[at : at + len(data)] = data
        with memoryview(first) as a, memoryview(second) as b, a[: sizes[0]] as old, b[: sizes[1]] as new:
            yield old, new
