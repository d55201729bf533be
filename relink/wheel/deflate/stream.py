"""The content of one member: inflated in chunks, and held to the CRC and the size that the directory claims."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from gzip import BadGzipFile
from itertools import chain
from typing import BinaryIO, Final, cast

from isal import isal_zlib

from relink.errors import WheelError
from relink.wheel.deflate.bits import LAST, Reader, taken
from relink.wheel.deflate.inflate import WINDOW, InflateError, crc_before, inflate_rest
from relink.wheel.zipformat import STORED, Member

__all__ = ["CHUNK", "MemberStream", "content", "inflate_into", "raw_content"]

#: Bytes handed out at a time, inflated. Larger ones leave the second-level cache and are slower.
CHUNK: Final = 1 << 20
_COMPRESSED_CHUNK: Final = 1 << 14
_FEED: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # a header with nothing but the necessary (RFC 1952, 2.3)
_AT_ONCE: Final = 64 << 20


def raw_content(read: Reader, member: Member, chunk: int = CHUNK) -> Iterator[bytes]:
    """Yield the member's bytes as they are in the archive, compressed or not."""
    position = member.data_offset
    end = position + member.compressed_size
    while position < end:
        data = read(position, min(chunk, end - position))
        position += len(data)
        yield data


def _inflated(read: Reader, member: Member) -> Iterator[bytes]:
    """Inflate the member; never hands out more than one byte more than it claims.

    :raises WheelError: the deflate stream is damaged, ends early, or ends before the member does.
    """
    inflater = isal_zlib.decompressobj(-15)
    source = raw_content(read, member, _COMPRESSED_CHUNK)
    left = member.size
    pending = b""
    exhausted = False
    while not inflater.eof:
        if not pending and not exhausted:
            pending = next(source, b"")
            exhausted = not pending
        try:
            # One byte more than is left: too long a stream shows, and the end of a right one is reached.
            data = inflater.decompress(pending, min(CHUNK, left + 1))
        except InflateError as error:
            raise WheelError(f"{member.name!r} cannot be inflated: {error}") from error
        pending = inflater.unconsumed_tail
        if data:
            left -= len(data)
            yield data
            if left < 0:
                return
        elif exhausted and not inflater.eof:
            raise WheelError(f"{member.name!r}: the compressed data ends early")
    if inflater.unused_data or pending or next(source, b""):
        raise WheelError(f"{member.name!r}: there are bytes after the end of the compressed data")


def content(read: Reader, member: Member) -> Iterator[bytes]:
    """Yield the member's content in chunks of at most :data:`CHUNK` bytes; the last one only after the checks.

    :raises WheelError: size or CRC-32 differ from the directory's, or the compressed data is damaged.
    """
    chunks = raw_content(read, member) if member.method == STORED else _inflated(read, member)
    crc = 0
    size = 0
    held = b""
    for data in chunks:
        size += len(data)
        if size > member.size:
            raise WheelError(
                f"{member.name!r} is larger than the {member.size} bytes that the directory claims"
            )
        crc = isal_zlib.crc32(data, crc)
        if held:
            yield held
        held = data
    if size != member.size:
        raise WheelError(f"{member.name!r} has {size} bytes, the directory claims {member.size}")
    if crc != member.crc:
        raise WheelError(
            f"{member.name!r}: the content's CRC is {crc:08x}, the directory's {member.crc:08x}; "
            "the file is damaged: get it again"
        )
    if held:
        yield held


def inflate_into(
    read: Reader,
    member: Member,
    into: memoryview,
    told: Callable[[int], object] = lambda _: None,
    split: int | None = None,
) -> int | None:
    """Inflate a member to its place, which hardly needs the interpreter.

    isal does that for gzip files alone (RFC 1952), so it is given one. These are rows of streams, each with its CRC and its size
    modulo 4 GiB behind it. A member made to be taken for such a row gives itself away: the last size has to be that of all, so
    what comes before must be empty.

    :param into: as long as the member's content.
    :param told: how many bytes more have been inflated, each time.
    :param split: a bit of the stream at which a block may begin: it is inflated up to there, and from there on.
    :returns: the bytes of content before the split, or all; None if there is no block, or the directory claims other content.
    """
    size = member.size
    if member.method == STORED or not 0 < size < 1 << 32:
        return None

    def raw(offset: int, length: int) -> bytes:
        return read(member.data_offset + offset, length)

    def end() -> Iterator[bytes]:
        """Yield what a gzip file of what has been inflated says at its end, if all of the content is to be as claimed."""
        start, crc = gzip.tell(), member.crc
        if split is not None:
            position = start
            for data in inflate_rest(raw, split, member.compressed_size, bytes(into[:start][-WINDOW:])):
                if len(data) > size - position:
                    raise InflateError("too much content")
                into[position : position + len(data)] = data
                position += len(data)
            if position < size:
                raise InflateError("too little content")
            crc = crc_before(crc, isal_zlib.crc32(into[start:]), size - start)
        yield struct.pack("<2I", crc, start)

    try:
        if not next(_inflated(read, member), b""):
            return None
        whole = split is None
        stream = raw_content(read, member, _FEED) if whole else filter(None, taken(raw, 0, split or 0, LAST))
        file = MemberStream(chain([_GZIP], stream, end()), member.name)
        gzip = isal_zlib._GzipReader(cast("BinaryIO", file), _FEED)  # noqa: SLF001 - in isal's stubs
        position = 0
        while more := gzip.readinto(
            into[position : position + _AT_ONCE] if position < size else bytearray(1)
        ):
            position += more
            told(more)
    # The last one is for a gzip header without end.
    except (WheelError, InflateError, EOFError, BadGzipFile, OverflowError):
        return None
    told(size - position)
    return position if position == size or not whole else None


class MemberStream(io.RawIOBase):
    """A member's content as a file that can be read once, front to back.

    Reading raises :class:`WheelError` where the content turns out not to be what the directory claims; what has
    been read before that is unproved, except that the last chunk is never handed out unless all is right.
    """

    def __init__(self, chunks: Iterator[bytes], name: str) -> None:
        super().__init__()
        self.name = name
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Yes."""
        return True

    def _fill(self) -> bool:
        """Have something in ``_rest``, unless the content is at its end."""
        if not self._rest:
            self._rest = memoryview(next(self._chunks, b""))
        return bool(self._rest)

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill ``buffer`` as far as the chunk at hand goes; 0 at the end."""
        if not len(buffer) or not self._fill():
            return 0
        view = memoryview(buffer).cast("B")
        part = self._rest[: len(view)]
        view[: len(part)] = part
        self._rest = self._rest[len(part) :]
        return len(part)
