"""Writing the member that says how the input's bytes come out of the output; :mod:`relink.wheel.reverse_delta` has its format."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from relink.wheel.archive import WheelArchive
from relink.wheel.byte_types import RangeReader
from relink.wheel.compress import Packed
from relink.wheel.deflate.bits import whole_bytes
from relink.wheel.deflate.splice import Piece
from relink.wheel.reverse_delta import DELTA_MAGIC, DELTA_SIZES, DELTA_STEP, MOST_STEPS, digest_of
from relink.wheel.zipformat import Member
from relink.wheel.zipwriter import MemberHeader, ZipWriter

__all__ = ["Written", "write_delta"]

_PIECE: Final = 1 << 20
_LEAST: Final = 2 * DELTA_STEP.size  # bytes: to copy fewer saves nothing


@dataclass(frozen=True, slots=True)
class Written:
    """A member of the original, and what became of it in the output.

    :ivar pieces: of its new stream; None if its bytes were copied.
    """

    source: Member
    written: Member
    pieces: tuple[Piece, ...] | None


def write_delta(
    archive: WheelArchive, writer: ZipWriter, file: BinaryIO, header: MemberHeader, became: Iterable[Written]
) -> Packed:
    """Write the member that says how the input's bytes come out of the output.

    :param file: what `writer` writes.
    :param became: what is in the output, in any order.
    """

    def read(offset: int, length: int) -> bytes:
        return os.pread(file.fileno(), length, offset)

    file.flush()
    size, content = _delta(archive.size, digest_of(writer.members), became, archive.bytes_at, read)
    packed = writer.add(header, content, size)
    file.flush()
    return packed


def _copies(one: Written, original: RangeReader, output: RangeReader) -> Iterator[tuple[int, int, int]]:
    """Yield what of a member lies in the output: offset in the original, offset in the output, number of bytes."""
    source, written = one.source, one.written
    if one.pieces is None:
        size = source.data_offset - source.header_offset
        same = size == written.data_offset - written.header_offset and original(
            source.header_offset, size
        ) == output(written.header_offset, size)
        size = size if same else 0
        yield source.data_offset - size, written.data_offset - size, size + source.compressed_size
        return
    place = written.data_offset
    for piece in one.pieces:
        if piece.span:
            part, before = whole_bytes(piece.span.first, piece.span.last)
            yield source.data_offset + part.start, place + before, len(part)
        place += piece.length


def _delta(
    size: int, digest: bytes, members: Iterable[Written], original: RangeReader, output: RangeReader
) -> tuple[int, Iterator[bytes]]:
    """Return its size in bytes, and its content in pieces.

    :param size: of the original in bytes.
    :param digest: of the output's members.
    :param original: reads the original, and `output` the output as far as it is written.
    """
    steps: list[tuple[int, int, int]] = [(0, 0, 0)]
    own: list[range] = []
    done = 0
    for start, place, length in sorted(part for one in members for part in _copies(one, original, output)):
        last, copied, _ = steps[-1]
        if start == done and place == last + copied:
            steps[-1] = last, copied + length, 0
        elif (
            length >= _LEAST and start >= done and place >= last + copied and len(steps) < MOST_STEPS
        ):  # else it is one of the bytes that the member has itself
            own.append(range(done, start))
            steps[-1] = last, copied, start - done
            steps.append((place, length, 0))
        else:
            continue
        done = start + length
    own.append(range(done, size))
    steps[-1] = (*steps[-1][:2], size - done)
    head = (
        DELTA_MAGIC
        + digest
        + DELTA_SIZES.pack(size, len(steps))
        + b"".join(DELTA_STEP.pack(*step) for step in steps)
    )

    def content() -> Iterator[bytes]:
        yield head
        for part in own:
            for at in part[::_PIECE]:
                yield original(at, min(_PIECE, part.stop - at))

    return len(head) + sum(map(len, own)), content()
