"""The content of one member: inflated in chunks, and compared with the CRC and the size in the directory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from isal import isal_zlib
from zlib_ng import zlib_ng

from relink.system.errors import WheelError
from relink.wheel.byte_types import RangeReader
from relink.wheel.deflate.inflate import InflateError, dense, inflated
from relink.wheel.zipformat import STORED, Member

#: Bytes handed out at a time, inflated. Larger ones leave the second-level cache and are slower.
CHUNK: Final = 1 << 20
# Bytes that are inflated at a time: 16 MiB of content at most, since deflate makes at best a thousandth of it.
COMPRESSED_CHUNK: Final = 16 << 10
# Bytes of content that such a piece of a library usually gives.
_EXPECTED: Final = 128 << 10


def raw_content(read: RangeReader, member: Member, chunk: int = CHUNK) -> Iterator[bytes]:
    """Yield the member's bytes as they are in the archive, compressed or not."""
    position = member.data_offset
    end = position + member.compressed_size
    while position < end:
        data = read(position, min(chunk, end - position))
        position += len(data)
        yield data


def _inflate(read: RangeReader, member: Member) -> Iterator[bytes]:
    """Inflate the member in chunks of at most :data:`CHUNK` bytes; never yields more than one chunk more than it claims.

    :raises WheelError: the deflate stream is damaged, ends early, or ends before the member does.
    """
    inflater = zlib_ng.decompressobj(-15)
    left = member.size
    # Pieces of a member that compresses well are smaller, so that each gives about a chunk.
    piece_size = min(COMPRESSED_CHUNK, max(1 << 10, CHUNK * member.compressed_size // max(1, member.size)))
    source = dense(raw_content(read, member, piece_size), lambda: member.size - left)
    while not inflater.eof:
        try:
            piece = next(source, b"")
            parts = inflated(inflater, piece, _EXPECTED)
        except InflateError as error:
            raise WheelError(f"{member.name!r} cannot be inflated: {error}") from error
        for part in parts:
            for start in range(0, len(part), CHUNK):
                data = part[start : start + CHUNK]
                left -= len(data)
                yield data
                if left < 0:
                    return
        if not piece and not inflater.eof:
            raise WheelError(f"{member.name!r}: the compressed data ends early")
    if inflater.unused_data or next(source, b""):
        raise WheelError(f"{member.name!r}: there are bytes after the end of the compressed data")


def content(read: RangeReader, member: Member) -> Iterator[bytes]:
    """Yield the member's content in chunks of at most :data:`CHUNK` bytes; the last one only after the checks.

    :raises WheelError: size or CRC-32 differ from the directory's, or the compressed data is damaged.
    """
    chunks = raw_content(read, member) if member.method == STORED else _inflate(read, member)
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
