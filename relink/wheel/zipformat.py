"""The records a ZIP file is made of (PKWARE APPNOTE.TXT 6.3.10; section numbers are its), for reading and writing.

The types of bytes that the modules of this package pass to each other.

The extra fields of a ZIP header (PKWARE APPNOTE.TXT 6.3.10, section 4.5): ZIP64 sizes, and a second name.

A reader that ignores extra fields and a reader that uses them must see one member in the same way.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

EXTRA_ZIP64: Final = 0x0001  # 4.5.3
EXTRA_UNICODE_PATH: Final = 0x7075  # 4.6.9


def extra_fields(extra: bytes) -> list[tuple[int, bytes]]:
    """Split an extra field (4.5.1) into (id, data) pairs.

    :raises ValueError: a field reaches past the end, or bytes that cannot be a field stand behind the last one. Package indexes
        refuse such a file.
    """
    fields: list[tuple[int, bytes]] = []
    position = 0
    while position < len(extra):
        if position + 4 > len(extra):
            raise ValueError(f"{len(extra) - position} bytes behind the extra fields are no field")
        kind, length = struct.unpack_from("<HH", extra, position)
        position += 4
        if position + length > len(extra):
            raise ValueError(f"extra field {kind:#06x} reaches past the end")
        fields.append((kind, extra[position : position + length]))
        position += length
    return fields


def zip64_values(extra: list[tuple[int, bytes]], count: int) -> tuple[int, ...] | None:
    """Return the first ``count`` 64-bit values of the ZIP64 extra field (4.5.3), None if it has fewer.

    Of several such fields the first that is long enough counts: `wheel tags` before 0.48 left a second
    one in local headers (pypa/wheel#692), and such wheels are out there.
    """
    for kind, data in extra:
        if kind == EXTRA_ZIP64 and len(data) >= 8 * count:
            return struct.unpack_from(f"<{count}Q", data)
    return None


def has_contradicting_zip64(extra: list[tuple[int, bytes]], count: int, *facts: int) -> bool:
    """Whether a ZIP64 field that has not just the ``count`` values that are left to it says anything else than ``facts``.

    Some readers believe such a field, some do not look at it (4.5.3: fields only appear where the value is marked).
    """
    data = next((data for kind, data in extra if kind == EXTRA_ZIP64), b"")
    if len(data) == 8 * count:
        return False
    number = min(len(data) // 8, len(facts))
    return struct.unpack_from(f"<{number}Q", data) != facts[:number]


def has_second_name(extra: list[tuple[int, bytes]], name: str) -> bool:
    """Whether a Unicode path field (4.6.9) gives the member another name."""
    # 4.6.9: a version of one byte and a CRC of four stand before the name.
    return any(kind == EXTRA_UNICODE_PATH and data[5:] != name.encode() for kind, data in extra)


BytesLike: TypeAlias = bytes | bytearray | memoryview
"""Bytes of a member or of a compressed stream."""

RangeReader: TypeAlias = Callable[[int, int], bytes]
"""``read(offset, length)`` gives bytes of a file or of a stream; each user says whether fewer than ``length`` may come."""


STORED: Final = 0
DEFLATED: Final = 8

FLAG_ENCRYPTED: Final = 0x0001
# CRC and sizes follow the data (4.3.9).
FLAG_DESCRIPTOR: Final = 0x0008
FLAG_STRONG: Final = 0x0040
FLAG_UTF8: Final = 0x0800
FLAG_MASKED: Final = 0x2000
# The compressor's effort; readers do not need it.
FLAG_LEVEL: Final = 0x0006

# 4.4.3.2, times ten: pip's zipfile refuses what asks for a newer one.
NEWEST_VERSION: Final = 63

# These say that the true value is in the ZIP64 record (4.4.1.4).
MARK16: Final = 0xFFFF
MARK32: Final = 0xFFFFFFFF

# When writing, values from here on go to ZIP64 fields. Variables, so that tests can lower them.
ZIP64_LIMIT = MARK32
ZIP64_COUNT = MARK16

# 4.3.7: signature, version needed, flags, method, time, date, crc, compressed, size, name length, extra length
LOCAL: Final = struct.Struct("<4s5H3L2H")
LOCAL_SIGNATURE: Final = b"PK\x03\x04"
# 4.3.12: signature, made by, version needed, flags, method, time, date, crc, compressed, size, name length,
# extra length, comment length, disk, internal attributes, external attributes, header offset
CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
CENTRAL_SIGNATURE: Final = b"PK\x01\x02"
# 4.3.14: signature, size of the rest, made by, version needed, disk, directory's disk, entries here, entries,
# directory size, directory offset
END64: Final = struct.Struct("<4sQ2H2L4Q")
END64_SIGNATURE: Final = b"PK\x06\x06"
# 4.3.15: signature, disk of the END64 record, its offset, number of disks
END64_LOCATOR: Final = struct.Struct("<4sLQL")
END64_LOCATOR_SIGNATURE: Final = b"PK\x06\x07"
# 4.3.16: signature, disk, directory's disk, entries here, entries, directory size, directory offset, comment length
END: Final = struct.Struct("<4s4H2LH")
END_SIGNATURE: Final = b"PK\x05\x06"
DESCRIPTOR_SIGNATURE: Final = b"PK\x07\x08"

DosTime = tuple[int, int, int, int, int, int]


class Member(msgspec.Struct, frozen=True):
    """One file of a wheel, as the central directory describes it and the local header confirms.

    Sizes and offsets are bytes. ``mode`` has the permission and type bits of Unix, and is 0 if the entry was
    not made by a Unix. ``date_time`` is (year, month, day, hour, minute, second) as stored: DOS time has steps
    of two seconds and no zone, and the values are not checked: the month may be 0.
    """

    name: str
    method: int
    flags: int
    crc: int
    compressed_size: int
    size: int
    header_offset: int
    data_offset: int
    mode: int
    date_time: DosTime
    external_attributes: int
    create_system: int
    is_directory: bool


def from_dos_time(date: int, time: int) -> DosTime:
    """Unpack DOS date and time (4.4.6) without judging them: :func:`dos_time` gives the same numbers back."""
    return (
        (date >> 9) + 1980,
        (date >> 5) & 15,
        date & 31,
        time >> 11,
        (time >> 5) & 63,
        (time & 31) * 2,
    )


def dos_time(moment: DosTime) -> tuple[int, int]:
    """Pack (year 1980..2107, month, day, hour, minute, second) into DOS (date, time)."""
    year, month, day, hour, minute, second = moment
    return (year - 1980) << 9 | month << 5 | day, hour << 11 | minute << 5 | second // 2
