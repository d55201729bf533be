"""The extra fields of a ZIP header (PKWARE APPNOTE.TXT 6.3.10, section 4.5): ZIP64 sizes, and a second name.

A reader that ignores extra fields and a reader that uses them must see one member in the same way.
"""

from __future__ import annotations

import struct
from typing import Final

EXTRA_ZIP64: Final = 0x0001  # 4.5.3
EXTRA_UNICODE_PATH: Final = 0x7075  # 4.6.9


def extra_fields(extra: bytes) -> list[tuple[int, bytes]]:
    """Split an extra field (4.5.1) into (id, data) pairs.

    :raises ValueError: a field reaches past the end.
    """
    fields: list[tuple[int, bytes]] = []
    position = 0
    # Up to three bytes of padding at the end are left by some aligners; they cannot hold a field.
    while position + 4 <= len(extra):
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
