"""The content of one member: inflated in chunks, and compared with the CRC and the size in the directory (RFC 1951).

zlib-ng inflates: it is about as fast as isal, and refuses what zlib refuses, as it has zlib's own checks of a block's header
(inflate_table in inftrees.c). isal accepts sets of codes that are not complete. pip reads wheels by zlib.

Bits from the middle of a stream are copied into one of whole bytes that an inflater accepts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias, cast

import msgspec
from isal import isal_zlib
from zlib_ng import zlib_ng

from relink.system.errors import WheelError
from relink.wheel.zipformat import STORED, Member, RangeReader

Bits: TypeAlias = tuple[int, int]
"""A number whose lowest bit comes first, and how many bits there are."""

_LENGTH_ORDER: Final = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
"""The order of the lengths of the code that code lengths are written in (RFC 1951, 3.2.7)."""

LAST_BLOCK: Final[Bits] = 0b011, 10
"""An empty block of fixed codes that is the last: 1, 01, and seven zeros for its end."""

LAST_BLOCK_BYTES: Final = LAST_BLOCK[0].to_bytes(2, "little")
"""The same, for blocks that end at a byte's end."""

STORED_BLOCK: Final[Bits] = 0, 3
"""A stored block's three bits, behind which it begins at a byte."""

EMPTY_STORED: Final = b"\0\0\xff\xff"
"""What follows these in one without content: its length in bytes, and the complement of that (RFC 1951, 3.2.4)."""

# An empty block of fixed codes that is not the last: 0, 01, and seven zeros.
_EMPTY: Final[Bits] = 0b010, 10
_PIECE: Final = 1 << 19


def joined_bits(fields: Iterable[Bits]) -> Bits:
    """Return fields one behind the other."""
    number = count = 0
    for value, width in fields:
        number |= value << count
        count += width
    return number, count


def copy_bits(read: RangeReader, first: int, last: int, end: Bits) -> Iterator[bytes]:
    """Yield the bits of a stream from `first` to `last`, then those of `end`, then zeros up to a byte's end.

    Every bit keeps its place in a byte, since a stored block's content begins at a byte's beginning. So :data:`PADDING` comes
    before the first one, which has no content.
    """
    number, count = PADDING[first % 8]
    at, stop, left = first // 8, last // 8, last % 8
    if at < stop:
        if count % 8:
            number |= read(at, 1)[0] >> count % 8 << count
            at, count = at + 1, count + 8 - count % 8
        yield number.to_bytes(count // 8, "little")
        number = count = 0
    while at < stop:
        piece = read(at, min(_PIECE, stop - at))
        at += len(piece)
        yield piece
    # Else there is nothing between first and last.
    if left > count % 8:
        number |= (read(stop, 1)[0] & (1 << left) - 1) >> count % 8 << count
        count += left - count % 8
    number, count = number | end[0] << count, count + end[1]
    yield number.to_bytes(-(-count // 8), "little")


def _padding(position: int) -> Bits:
    """Return empty blocks whose bits end at a place in a byte.

    Blocks of ten bits reach the even places only, so an odd place needs a block with an odd number of bits before them.
    """
    number, count = _odd_block() if position % 2 else (0, 0)
    while count % 8 != position:
        number, count = number | _EMPTY[0] << count, count + _EMPTY[1]
    return number, count


def _odd_block() -> Bits:
    """Return an empty dynamic block (RFC 1951, 3.2.7) of 95 bits.

    Its codes have two symbols of one bit each: byte 0 and the block's end, and two distances that nothing uses.
    """
    fields = [(0b100, 3), (0, 5), (1, 5), (15, 4)]
    fields += [(1 if symbol in (1, 18) else 0, 3) for symbol in _LENGTH_ORDER]
    # The codes of length 1, and of a run of zeros.
    unit, zeros = (0, 1), (1, 1)
    fields += [
        unit,
        zeros,
        (138 - 11, 7),
        zeros,
        (117 - 11, 7),
        unit,
        unit,
        unit,
        (1, 1),
    ]
    return joined_bits(fields)


PADDING: Final = tuple(_padding(place) for place in range(8))
"""Empty blocks that end at each place in a byte."""


Block: TypeAlias = tuple[int, int]
"""(bit, content): where a block begins in the stream, and how many bytes of content come before it."""

WINDOW: Final = 32 << 10
"""Bytes of content that a block may refer back to (RFC 1951, 2)."""

# Bytes of content that are expected at a time.
_OUTPUT: Final = 1 << 20
# Compressed bytes without content in a row.
_MOST_EMPTY: Final = 1 << 20

# The stub of zlib-ng calls it an instance.
InflateError = cast("type[Exception]", zlib_ng.error)

# Checkpoints of one stream; each has a window and tables, 80 KiB in all.
_MOST_CHECKPOINTS: Final = 128


class Checkpoint(msgspec.Struct, frozen=True):
    """A copy of an inflater in the middle of a stream.

    :ivar byte: of the stream, which comes next; `start`: the place in the content that has been reached.
    """

    inflater: zlib_ng._Decompress
    byte: int
    start: int


OnCheckpoint: TypeAlias = Callable[[Checkpoint], object]


def copy_inflater(inflater: zlib_ng._Decompress) -> zlib_ng._Decompress:
    """Return an inflater in the same state. zlib-ng's stubs lack the method, which zlib's have."""
    copy: zlib_ng._Decompress = cast("Any", inflater).copy()
    return copy


def inflate_piece(inflater: zlib_ng._Decompress, feed: bytes, size: int) -> tuple[bytes, bytes]:
    """Return the content of more data, about `size` bytes, in two parts.

    ``decompress`` starts with a buffer of 16 KiB and takes the interpreter lock (GIL) each time that it enlarges it;
    ``flush`` starts with one of `size` bytes.

    :raises zlib_ng.zlib_ng.error: the data is damaged.
    """
    return inflater.decompress(feed, 1), b"" if inflater.eof else inflater.flush(max(1, size))


def refuse_empty_blocks(pieces: Iterator[bytes], produced: Callable[[], int]) -> Iterator[bytes]:
    """Yield the pieces of a stream as long as they give content.

    A block without content takes 10 bits and up to a microsecond, so a stream of these would keep a reader busy for a minute
    for each 100 MB. What compressors write for content that does not compress is larger than this by a thousandth.

    :param produced: returns how many bytes the pieces so far have been inflated to.
    :raises zlib_ng.zlib_ng.error: they have given less than half as many bytes for too long.
    """
    missing = before = 0
    for piece in pieces:
        yield piece
        now = produced()
        missing = max(0, missing + len(piece) - 2 * (now - before))
        before = now
        if missing > _MOST_EMPTY:
            raise InflateError(f"{_MOST_EMPTY >> 20} MiB of compressed data and more have next to no content")


def read_up_to(inflater: zlib_ng._Decompress, read: RangeReader, byte: int, bit: int) -> bytes | None:
    """Return the content that an inflater reads next, up to a bit of the stream; None if no block begins there.

    :param inflater: has read what comes before a byte; it is of no use afterwards.
    :param read: reads the stream; `byte`: the next one.
    """
    block, random_bytes = _random_block()
    feed = b"".join(copy_bits(read, 8 * byte, bit, joined_bits([block, LAST_BLOCK])))
    try:
        data = b"".join(inflate_piece(inflater, feed, _OUTPUT))
    except InflateError:
        return None
    if inflater.eof and not inflater.unused_data and data.endswith(random_bytes):
        return data[: -len(random_bytes)]
    return None


def _random_block() -> tuple[Bits, bytes]:
    """Return a dynamic block that is not the last (RFC 1951, 3.2.7), and its content: 15 different bytes.

    It shows that a block begins at a bit of a stream, if the stream is inflated up to there and goes on with this: only an
    inflater that reads its header as one can give its content. It shows, too, that no block before was the last. A block that
    can be foreseen shows less: a stream can be made so that the bits of it, inside of another block, are read as content and
    that block's end.

    The bytes and the block's end have codes of four bits. Of the code lengths, 0 and 4 have codes of one bit, so that the row of
    code lengths says by one bit for each of 257 symbols whether it is used; the zero behind it says that no distance is.
    """
    values = random.SystemRandom().sample(range(256), 15)
    codes = {value: code for code, value in enumerate(sorted(values))}
    fields = [(0b100, 3), (0, 5), (0, 5), (12 - 4, 4)]
    fields += [(1 if symbol in (0, 4) else 0, 3) for symbol in (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4)]
    fields += [(int(symbol in codes or symbol == 256), 1) for symbol in range(257)] + [(0, 1)]
    # A code's highest bit comes first (3.1.1).
    for code in (*(codes[value] for value in values), 15):
        fields += [(code >> shift & 1, 1) for shift in (3, 2, 1, 0)]
    return joined_bits(fields), bytes(values)


#: Bytes handed out at a time, inflated. Larger ones leave the second-level cache and are slower.
CHUNK: Final = 1 << 20
# Bytes that are inflated at a time: 64 MiB of content at most, since deflate makes at best a thousandth of it. Each piece takes
# the interpreter lock (GIL) a few times, and another thread may hold the lock for 5 ms.
COMPRESSED_CHUNK: Final = 64 << 10
# Bytes of the first piece: often only the first few bytes of a member are looked at.
_FIRST: Final = 16 << 10
# Bytes of content that such a piece of a library usually gives.
_EXPECTED: Final = 1 << 20


def raw_content(read: RangeReader, member: Member, chunk: int = CHUNK, first: int = CHUNK) -> Iterator[bytes]:
    """Yield the member's bytes as they are in the archive, compressed or not; `first` bounds the first piece."""
    position = member.data_offset
    end = position + member.compressed_size
    while position < end:
        data = read(position, min(chunk, first, end - position))
        position, first = position + len(data), chunk
        yield data


def _inflate(read: RangeReader, member: Member, on_checkpoint: OnCheckpoint | None = None) -> Iterator[bytes]:
    """Inflate the member in chunks of at most :data:`CHUNK` bytes; never yields more than one chunk more than it claims.

    :param on_checkpoint: takes copies of the inflater, at places that are evenly spaced in the compressed bytes.
    :raises WheelError: the deflate stream is damaged, ends early, or ends before the member does.
    """
    inflater = zlib_ng.decompressobj(-15)
    left = member.size
    byte = next_checkpoint = 0
    # Pieces of a member that compresses well are smaller, so that each gives about a chunk.
    piece_size = min(COMPRESSED_CHUNK, max(1 << 10, CHUNK * member.compressed_size // max(1, member.size)))
    source = refuse_empty_blocks(raw_content(read, member, piece_size, _FIRST), lambda: member.size - left)
    while not inflater.eof:
        try:
            piece = next(source, b"")
            parts = inflate_piece(inflater, piece, _EXPECTED)
        except InflateError as error:
            raise WheelError(f"{member.name!r} cannot be inflated: {error}") from error
        for part in parts:
            for start in range(0, len(part), CHUNK):
                data = part[start : start + CHUNK]
                left -= len(data)
                yield data
                if left < 0:
                    return
        byte += len(piece)
        if on_checkpoint and byte >= next_checkpoint and not inflater.eof:
            on_checkpoint(Checkpoint(copy_inflater(inflater), byte, member.size - left))
            next_checkpoint = byte + max(COMPRESSED_CHUNK, member.compressed_size // _MOST_CHECKPOINTS)
        if not piece and not inflater.eof:
            raise WheelError(f"{member.name!r}: the compressed data ends early")
    if inflater.unused_data or next(source, b""):
        raise WheelError(f"{member.name!r}: there are bytes after the end of the compressed data")


def content(read: RangeReader, member: Member, on_checkpoint: OnCheckpoint | None = None) -> Iterator[bytes]:
    """Yield the member's content in chunks of at most :data:`CHUNK` bytes; the last one only after the checks.

    :param on_checkpoint: takes the checkpoints of a deflated member.
    :raises WheelError: size or CRC-32 differ from the directory's, or the compressed data is damaged.
    """
    chunks = raw_content(read, member) if member.method == STORED else _inflate(read, member, on_checkpoint)
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
