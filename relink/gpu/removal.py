"""Code for other GPUs that is taken out of a file in its place: named ranges get other bytes, and nothing moves."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from relink.elf.source import ByteSource
from relink.gpu.coverage import FileCode
from relink.system.errors import RelinkError
from relink.system.safe_open import hash_pieces

_ZEROS: Final = memoryview(bytes(1 << 20))
# Bytes that are hashed at a time.
_STEP: Final = 8 << 20


class Replacement(msgspec.Struct, frozen=True):
    """A range of a file that gets other bytes.

    :ivar entry: what is taken out, as the bundle calls it; empty for a table that names it.
    :ivar sha256: of the bytes before, hex.
    :ivar content: the first new bytes; zeros follow, up to `size`.
    :ivar kept: the SHA-256 of the entries that stay, where the range has the table that names them; else empty.
    """

    offset: int
    size: int
    entry: str
    sha256: str
    content: bytes = b""
    kept: str = ""

    @property
    def stop(self) -> int:
        """The offset behind it."""
        return self.offset + self.size

    def read(self, start: int, stop: int) -> Iterator[memoryview]:
        """Yield the new bytes from one offset of the file to another, both in the range."""
        start, stop = start - self.offset, stop - self.offset
        if start < len(self.content):
            yield memoryview(self.content)[start:stop]
            start = len(self.content)
        while start < stop:
            piece = _ZEROS[: stop - start]
            yield piece
            start += len(piece)


class CodeRemoval(msgspec.Struct, frozen=True):
    """What takes the code for other GPUs out of a file.

    :ivar ranges: in order, disjoint; none where nothing is taken out.
    :ivar code: the code that the file has then.
    """

    ranges: tuple[Replacement, ...]
    code: FileCode


def hash_range(source: ByteSource, offset: int, size: int) -> str:
    """Return the SHA-256 (hex) of a range."""
    starts = range(offset, offset + size, _STEP)
    return hash_pieces(source.read_at(start, min(_STEP, offset + size - start)) for start in starts).hex()


class ReplacedSource:
    """A source of bytes with replacements, which are sorted and disjoint."""

    def __init__(self, source: ByteSource, replacements: Sequence[Replacement]) -> None:
        self._source, self._replacements = source, replacements
        self._starts = [one.offset for one in replacements]
        self.size = source.size

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`."""
        data = bytearray(self._source.read_at(offset, length))
        stop = offset + len(data)
        for one in self._replacements[max(bisect_right(self._starts, offset) - 1, 0) :]:
            if one.offset >= stop:
                break
            low, high = max(offset, one.offset), min(stop, one.stop)
            if low < high:
                data[low - offset : high - offset] = b"".join(one.read(low, high))
        return bytes(data)


def replace_ranges(
    pieces: Iterable[memoryview], replacements: Sequence[Replacement], name: str
) -> Iterator[memoryview]:
    """Yield a file with its replacements, which are sorted and disjoint.

    :param name: of the file, for messages.
    :raises RelinkError: the bytes at a place are not those that the replacement was made for.
    """
    waiting = list(reversed(replacements))
    digest = hashlib.sha256()
    position = 0
    for whole in pieces:
        piece = whole
        while len(piece):
            one = waiting[-1] if waiting else None
            if one is None or position < one.offset:
                length = len(piece) if one is None else min(len(piece), one.offset - position)
                yield piece[:length]
            else:
                length = min(len(piece), one.stop - position)
                digest.update(piece[:length])
                yield from one.read(position, position + length)
            position, piece = position + length, piece[length:]
            if one is not None and position == one.stop:
                if digest.hexdigest() != one.sha256:
                    raise RelinkError(
                        f"{name}: the bytes at 0x{one.offset:x} are not the code that was to be taken out"
                    )
                digest = hashlib.sha256()
                waiting.pop()
    if waiting:
        raise RelinkError(
            f"{name}: ends before the code at 0x{waiting[-1].offset:x} that was to be taken out"
        )


def cut_ranges(ranges: Iterable[range], replacements: Sequence[Replacement]) -> list[range]:
    """Return the parts of sorted ranges that no replacement touches."""
    parts: list[range] = []
    for whole in ranges:
        start = whole.start
        for one in replacements:
            if one.stop <= start or one.offset >= whole.stop:
                continue
            if one.offset > start:
                parts.append(range(start, one.offset))
            start = max(start, one.stop)
        if start < whole.stop:
            parts.append(range(start, whole.stop))
    return parts
