"""Writing a ZIP file: members copied as they are, or deflated in one pass.

The bytes depend on the arguments alone: no extra fields but ZIP64's own, no data descriptors, no
comments. Section numbers: PKWARE APPNOTE.TXT 6.3.10.

The new content of a member, deflated or stored.

Takes the content, the compression level and the spans of the old stream that are reused. Gives :class:`Packed`. The compressed
format is RFC 1951; the sizes and the CRC are those of PKWARE APPNOTE.TXT 6.3.10, section 4.4.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from isal import isal_zlib

from relink.system.errors import RelinkError
from relink.wheel import zipformat as z
from relink.wheel.changes import NewContent, Packed, pieces
from relink.wheel.deflate.splice import Deflater, Joiner
from relink.wheel.zipformat import EXTRA_ZIP64, BytesLike, DosTime, Member

# Memory level, of isal's nine: up to 1.5 % smaller than the default at the same speed (measured: onnxruntime-rocm's ELF files).
_ISAL_MEMORY: Final = 4


def _deflater(level: int) -> Deflater:
    """Levels 1 to 3 are isal's (fast), 4 to 9 zlib's (small).

    isal's level 0 is not offered: it makes data that does not compress a quarter larger.
    """
    # -15: a raw stream (RFC 1951) with the largest window, as ZIP has it, without zlib's header.
    if 1 <= level <= 3:
        return isal_zlib.compressobj(level, isal_zlib.DEFLATED, -15, _ISAL_MEMORY)
    return zlib.compressobj(level, zlib.DEFLATED, -15)


def largest_packed_size(method: int, size: int) -> int:
    """Return an upper bound of the compressed size; measured: 0.01 % more than `size` for random data."""
    return size if method == z.STORED else size + size // 8 + 1024


def pack(name: str, new: NewContent, write: Callable[[BytesLike], object], *, level: int) -> Packed:
    """Deflate the content of a member apart from its spans, or store it.

    :param write: takes the compressed bytes.
    :raises RelinkError: the content does not have the size that was announced.
    """
    announced, method, spans = new.length, new.method, new.spans()
    crc = seen = compressed = 0

    def put(data: BytesLike) -> None:
        nonlocal compressed
        write(data)
        compressed += len(data)

    joiner = Joiner(lambda: _deflater(level), spans, put) if method == z.DEFLATED else None
    digest = hashlib.sha256()
    for data in pieces(new.content):
        view = memoryview(data).cast("B")
        if spans:
            digest.update(view)
        if joiner:
            joiner.add(view)
        else:
            crc = isal_zlib.crc32(view, crc)
            put(view)
        seen += len(view)
    made = joiner.finish() if joiner else ()
    for piece in made:
        crc = isal_zlib.crc32_combine(crc, piece.crc, piece.size)
    if seen != announced:
        raise RelinkError(f"{name!r} was announced with {announced} bytes and has {seen}")
    if compressed > largest_packed_size(method, seen):
        raise RelinkError(f"{name!r}: {seen} bytes became {compressed}; please report this")
    return Packed(crc, compressed, seen, made if spans else (), digest.digest() if spans else None)


def pack_ahead(name: str, new: NewContent, level: int) -> tuple[Packed, list[bytes]]:
    """Deflate the content of a member, and return its compressed bytes in order, too; raises as :func:`pack`."""
    parts: list[bytes] = []
    return pack(name, new, lambda data: parts.append(bytes(data)), level=level), parts


@dataclass(frozen=True, slots=True)
class MemberHeader:
    """What a member's headers say apart from its content."""

    name: str
    method: int
    date_time: DosTime
    external_attributes: int
    create_system: int


def _needs_zip64(method: int, compressed_size: int, size: int) -> bool:
    """Whether the sizes go to a ZIP64 field (4.5.3).

    A member that is still to be deflated has to be decided by what it may become; a copied one is decided by
    the same rule, so that writing a written wheel again gives the same bytes.
    """
    return max(compressed_size, largest_packed_size(method, size)) >= z.ZIP64_LIMIT


def _version(header: MemberHeader | Member, *, zip64: bool) -> int:
    """Version needed to extract (4.4.3), times ten."""
    return 45 if zip64 else 20 if header.method == z.DEFLATED or header.name.endswith("/") else 10


def _encoded(name: str) -> tuple[bytes, int]:
    """The name's bytes and flags: UTF-8, flagged (Appendix D) where that makes a difference."""
    return name.encode("utf-8"), 0 if name.isascii() else z.FLAG_UTF8


def _local(header: MemberHeader, crc: int, compressed_size: int, size: int) -> bytes:
    """The local header (4.3.7); its length depends on sizes only by :func:`_needs_zip64`."""
    name, flags = _encoded(header.name)
    date, time = z.dos_time(header.date_time)
    zip64 = _needs_zip64(header.method, compressed_size, size)
    extra = struct.pack("<2H2Q", EXTRA_ZIP64, 16, size, compressed_size) if zip64 else b""
    shown = (z.MARK32, z.MARK32) if zip64 else (compressed_size, size)
    version = _version(header, zip64=zip64)
    fixed = z.LOCAL.pack(
        z.LOCAL_SIGNATURE, version, flags, header.method, time, date, crc, *shown, len(name), len(extra)
    )
    return fixed + name + extra


def _central(entry: Member) -> bytes:
    """The central directory's entry (4.3.12)."""
    name, flags = _encoded(entry.name)
    date, time = z.dos_time(entry.date_time)
    big_size = _needs_zip64(entry.method, entry.compressed_size, entry.size)
    big_offset = entry.header_offset >= z.ZIP64_LIMIT
    values = [entry.size, entry.compressed_size] if big_size else []
    values += [entry.header_offset] if big_offset else []
    extra = struct.pack(f"<2H{len(values)}Q", EXTRA_ZIP64, 8 * len(values), *values) if values else b""
    version = _version(entry, zip64=bool(values))
    return (
        z.CENTRAL.pack(
            z.CENTRAL_SIGNATURE,
            entry.create_system << 8 | max(version, 20),
            version,
            flags,
            entry.method,
            time,
            date,
            entry.crc,
            z.MARK32 if big_size else entry.compressed_size,
            z.MARK32 if big_size else entry.size,
            len(name),
            len(extra),
            0,  # comment
            0,  # disk
            0,  # internal attributes
            entry.external_attributes,
            z.MARK32 if big_offset else entry.header_offset,
        )
        + name
        + extra
    )


class ZipWriter:
    """Writes members to ``file``, from position 0; :meth:`finish` writes the directory.

    :param level: of deflate: 1..3 isal's, 4..9 zlib's. isal's output may differ between kinds of processor.
    """

    def __init__(self, file: BinaryIO, level: int) -> None:
        if not 1 <= level <= 9:
            raise ValueError(f"deflate level {level} is not in 1..9")
        self._file = file
        self._level = level
        self._offset = 0
        self._members: list[Member] = []

    @property
    def members(self) -> Sequence[Member]:
        """What has been written, in order."""
        return self._members

    @property
    def size(self) -> int:
        """Bytes that have been written."""
        return self._offset

    def copy(self, header: MemberHeader, member: Member, raw: Iterable[bytes]) -> None:
        """Add a member whose (compressed) bytes are ``raw``; crc and sizes are those of ``member``."""
        packed = Packed(member.crc, member.compressed_size, member.size)
        offset = self._offset
        self._write(_local(header, packed.crc, packed.compressed_size, packed.size))
        start = self._offset
        for data in raw:
            self._write(data)
        self._note(header, packed, offset, start)

    def add(self, header: MemberHeader, new: NewContent) -> Packed:
        """Add a member with new content, of the method that `header` has.

        Memory does not depend on the content's size, unless it was deflated ahead.

        :raises RelinkError: the content does not have the size that was announced.
        """
        offset = self._offset
        # A first header with what is known: it is as long as the right one, which replaces it.
        self._write(_local(header, 0, 0, new.length))
        start = self._offset
        if new.ahead is None:
            packed = pack(header.name, new, self._write, level=self._level)
        else:
            packed, parts = new.ahead.result()
            for part in parts:
                self._write(part)
            parts.clear()
        self._file.seek(offset)
        self._file.write(_local(header, packed.crc, packed.compressed_size, packed.size))
        self._file.seek(self._offset)
        self._note(header, packed, offset, start)
        return packed

    def _note(self, header: MemberHeader, packed: Packed, offset: int, start: int) -> None:
        self._members.append(
            Member(
                name=header.name,
                method=header.method,
                flags=_encoded(header.name)[1],
                crc=packed.crc,
                compressed_size=packed.compressed_size,
                size=packed.size,
                header_offset=offset,
                data_offset=start,
                mode=header.external_attributes >> 16,
                date_time=header.date_time,
                external_attributes=header.external_attributes,
                create_system=header.create_system,
                is_directory=header.name.endswith("/"),
            )
        )

    def finish(self) -> int:
        """Write the central directory and the end records; return the file's size in bytes."""
        start = self._offset
        for member in self._members:
            self._write(_central(member))
        size = self._offset - start
        count = len(self._members)
        if count >= z.ZIP64_COUNT or size >= z.ZIP64_LIMIT or start >= z.ZIP64_LIMIT:
            at = self._offset
            rest = z.END64.size - 12
            self._write(z.END64.pack(z.END64_SIGNATURE, rest, 45, 45, 0, 0, count, count, size, start))
            self._write(z.END64_LOCATOR.pack(z.END64_LOCATOR_SIGNATURE, 0, at, 1))
        short_count = z.MARK16 if count >= z.ZIP64_COUNT else count
        short_size = z.MARK32 if size >= z.ZIP64_LIMIT else size
        short_start = z.MARK32 if start >= z.ZIP64_LIMIT else start
        self._write(z.END.pack(z.END_SIGNATURE, 0, 0, short_count, short_count, short_size, short_start, 0))
        return self._offset

    def _write(self, data: BytesLike) -> None:
        self._file.write(data)
        self._offset += len(data)
