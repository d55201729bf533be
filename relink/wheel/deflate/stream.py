"""The content of one member: inflated in chunks, and compared with the CRC and the size in the directory."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from gzip import BadGzipFile
from itertools import chain
from typing import BinaryIO, Final, cast

from isal import isal_zlib
from zlib_ng import zlib_ng

from relink.system.errors import WheelError
from relink.system.spool import Room
from relink.wheel.byte_types import RangeReader
from relink.wheel.deflate.inflate import InflateError, dense
from relink.wheel.zipformat import STORED, Member

#: Bytes handed out at a time, inflated. Larger ones leave the second-level cache and are slower.
CHUNK: Final = 1 << 20
COMPRESSED_CHUNK: Final = 1 << 14
# Bytes of the archive that are read at a time.
COMPRESSED_READ: Final = 1 << 20
# A header without optional fields (RFC 1952, 2.3).
_GZIP: Final = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
# Bytes; in between progress is reported, and reading ends if it raises.
PROGRESS_STEP: Final = 64 << 20


def raw_content(read: RangeReader, member: Member, chunk: int = CHUNK) -> Iterator[bytes]:
    """Yield the member's bytes as they are in the archive, compressed or not."""
    position = member.data_offset
    end = position + member.compressed_size
    while position < end:
        data = read(position, min(chunk, end - position))
        position += len(data)
        yield data


def _inflated(read: RangeReader, member: Member) -> Iterator[bytes]:
    """Inflate the member; never hands out more than one byte more than it claims.

    :raises WheelError: the deflate stream is damaged, ends early, or ends before the member does.
    """
    inflater = zlib_ng.decompressobj(-15)
    left = member.size
    source = dense(raw_content(read, member, COMPRESSED_CHUNK), lambda: member.size - left)
    pending = b""
    exhausted = False
    while not inflater.eof:
        try:
            if not pending and not exhausted:
                pending = next(source, b"")
                exhausted = not pending
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


def content(read: RangeReader, member: Member) -> Iterator[bytes]:
    """Yield the member's content in chunks of at most :data:`CHUNK` bytes; the last one only after the checks.

    :raises WheelError: size or CRC-32 differ from the directory's, or the compressed data is damaged.
    """
    chunks = raw_content(read, member) if member.method == STORED else _inflated(read, member)
    crc = 0
    size = 0
    # The last chunk is yielded only after the checks below.
    previous = b""
    for data in chunks:
        size += len(data)
        if size > member.size:
            raise WheelError(
                f"{member.name!r} is larger than the {member.size} bytes that the directory claims"
            )
        crc = isal_zlib.crc32(data, crc)
        if previous:
            yield previous
        previous = data
    if size != member.size:
        raise WheelError(f"{member.name!r} has {size} bytes, the directory claims {member.size}")
    if crc != member.crc:
        raise WheelError(
            f"{member.name!r}: the content's CRC is {crc:08x}, the directory's {member.crc:08x}; "
            "the file is damaged: get it again"
        )
    if previous:
        yield previous


def inflate_into(
    read: RangeReader,
    member: Member,
    room: Room,
    on_progress: Callable[[int], object] = lambda _: None,
) -> bool:
    """Inflate a member to its place in memory while other threads run Python.

    zlib-ng does that for gzip files alone (RFC 1952), so the stream is given to it as a gzip file. Such a file may have several
    streams, each followed by its CRC and its size modulo 4 GiB. A member that imitates several streams is refused: the last size
    has to be that of all content, so the streams before the last must be empty.

    :param room: for the member's content.
    :param on_progress: called with how many bytes more have been inflated, each time.
    :returns: whether the content is what the directory claims. Where it is not, reading the member by :func:`content` says what
        is wrong, if anything is.
    """
    size = member.size
    if member.method == STORED or not 0 < size < 1 << 32:
        return False

    def end() -> Iterator[bytes]:
        """Yield what a gzip file of what has been inflated says at its end, if the content is to be as claimed."""
        yield struct.pack("<2I", member.crc, gzip.tell())

    try:
        if not next(_inflated(read, member), b""):
            return False
        stream = raw_content(read, member, COMPRESSED_READ)
        stream = dense(stream, lambda: gzip.tell())  # noqa: PLW0108 - there is no reader yet
        with MemberStream(chain([_GZIP], stream, end()), member.name) as file:
            gzip = _gzip_reader(file)
            position = 0
            while position < size and (
                more := gzip.readinto(room(position, min(size, position + PROGRESS_STEP)))
            ):
                position += more
                on_progress(more)
            # The stream's end, and its CRC, are read with the byte behind the content, which must not be there.
            if gzip.readinto(bytearray(1)):
                return False
    # The last one is for a gzip header without end.
    except (WheelError, InflateError, EOFError, BadGzipFile, OverflowError):
        return False
    return position == size


def _gzip_reader(file: MemberStream) -> zlib_ng._GzipReader:
    """Return zlib-ng's reader of gzip files, which is what its public ``GzipNGFile`` reads with.

    It is private, and used for what no public way offers: inflating to a given place, many MiB at a time without the
    interpreter lock (GIL). ``GzipNGFile.readinto`` and ``decompressobj`` make bytes that are copied with the lock held, and
    take it for each MiB or less: a file of 513 MB takes 0.4 s instead of 0.24 s, and several times as long while another thread
    runs Python (1.8 s and more instead of 0.7 s).
    """
    return zlib_ng._GzipReader(cast("BinaryIO", file), COMPRESSED_READ)  # noqa: SLF001 - in zlib-ng's stubs


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

    def close(self) -> None:
        """Release what the content comes from: it may hold a reader of this file that the garbage collector cannot see into."""
        self._chunks = iter(())
        self._rest = memoryview(b"")
        super().close()

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
