"""A bounded reader of MessagePack, as far as kpack archives and Tensile indexes use it (msgpack spec.md).

An object may be one byte, so their number is bounded, as is how deep they nest.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

# Levels of nesting: the reader is recursive.
_DEPTH = 32
# Objects of one table; a table of contents has some for each kernel.
_OBJECTS = 1_000_000
_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_LENGTHS = {0: ">B", 1: ">H", 2: ">I"}


class MsgpackError(ValueError):
    """The bytes are no MessagePack, are cut off, or nest too deep. Internal to the package: becomes a problem."""


class Effort(msgspec.Struct):
    """What may be spent on all tables of one wheel together.

    :ivar left: steps of less than a microsecond: objects read here, and what is done with them elsewhere.
    """

    left: int

    def take(self, steps: int) -> bool:
        """Spend steps; False where there are not that many."""
        self.left -= steps
        return self.left >= 0


def unpack(data: bytes, effort: Effort | None = None) -> tuple[Any, int]:
    """Read one object from the start of `data`; return it and how many bytes it took.

    Extension types become their raw bytes.

    :param effort: gives a step for each object that is inside; a table has a million at most.
    :raises MsgpackError: see the class.
    """
    most = min(_OBJECTS, max(effort.left, 0)) if effort else _OBJECTS
    own = Effort(most)
    try:
        return _value(data, 0, 0, own)
    # TypeError: a list or a map that is the key of a map.
    except (struct.error, IndexError, UnicodeDecodeError, TypeError) as error:
        raise MsgpackError(f"damaged MessagePack: {error}") from error
    finally:
        if effort:
            effort.take(most - own.left)


def _value(data: bytes, at: int, depth: int, left: Effort) -> tuple[Any, int]:
    if not left.take(1):
        raise MsgpackError("more objects than are read")
    if depth > _DEPTH:
        raise MsgpackError(f"MessagePack nested deeper than {_DEPTH}")
    tag = data[at]
    at += 1
    if tag < 0x80 or tag >= 0xE0:
        return (tag if tag < 0x80 else tag - 256), at
    if tag < 0x90:
        return _map(data, at, tag & 15, depth, left)
    if tag < 0xA0:
        return _array(data, at, tag & 15, depth, left)
    if tag < 0xC0:
        return _text(data, at, tag & 31)
    if tag in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[tag], at
    if tag in _NUMBERS:
        form = _NUMBERS[tag]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    # fixext: a byte for the type, then 1, 2, 4, 8 or 16 bytes.
    if 0xD4 <= tag <= 0xD8:
        return _raw(data, at + 1, 1 << (tag - 0xD4))
    if 0xD9 <= tag <= 0xDB:
        return _text(data, *_length(data, at, tag - 0xD9))
    if 0xC4 <= tag <= 0xC6:
        return _raw(data, *_length(data, at, tag - 0xC4))
    if 0xC7 <= tag <= 0xC9:
        at, count = _length(data, at, tag - 0xC7)
        return _raw(data, at + 1, count)
    if tag in (0xDC, 0xDD):
        return _array(data, *_length(data, at, tag - 0xDB), depth, left)
    if tag in (0xDE, 0xDF):
        return _map(data, *_length(data, at, tag - 0xDD), depth, left)
    raise MsgpackError(f"MessagePack has no type 0x{tag:02x}")


def _length(data: bytes, at: int, width: int) -> tuple[int, int]:
    form = _LENGTHS[width]
    return at + struct.calcsize(form), struct.unpack_from(form, data, at)[0]


def _raw(data: bytes, at: int, count: int) -> tuple[bytes, int]:
    if at + count > len(data):
        raise MsgpackError(f"MessagePack wants {count} bytes at {at}, only {len(data) - at} are left")
    return data[at : at + count], at + count


def _text(data: bytes, at: int, count: int) -> tuple[str, int]:
    raw, at = _raw(data, at, count)
    return raw.decode("utf-8"), at


def _array(data: bytes, at: int, count: int, depth: int, left: Effort) -> tuple[list[Any], int]:
    if count > len(data) - at:
        raise MsgpackError(f"MessagePack array of {count} in {len(data) - at} bytes")
    items = []
    for _ in range(count):
        item, at = _value(data, at, depth + 1, left)
        items.append(item)
    return items, at


def _map(data: bytes, at: int, count: int, depth: int, left: Effort) -> tuple[dict[Any, Any], int]:
    if 2 * count > len(data) - at:
        raise MsgpackError(f"MessagePack map of {count} in {len(data) - at} bytes")
    items = {}
    for _ in range(count):
        key, at = _value(data, at, depth + 1, left)
        items[key], at = _value(data, at, depth + 1, left)
    return items, at
