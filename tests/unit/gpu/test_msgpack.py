"""MessagePack, by the examples of its specification and against damage."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from relink.gpu.msgpack import Effort, MsgpackError, unpack


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x00", 0),
        (b"\x7f", 127),
        (b"\xff", -1),
        (b"\xe0", -32),
        (b"\xc0", None),
        (b"\xc2", False),
        (b"\xc3", True),
        (b"\xcc\xff", 255),
        (b"\xcd\x01\x00", 256),
        (b"\xce\x00\x01\x00\x00", 65536),
        (b"\xcf" + b"\xff" * 8, 2**64 - 1),
        (b"\xd0\x80", -128),
        (b"\xd1\x80\x00", -32768),
        (b"\xd3\xff" + b"\xff" * 7, -1),
        (b"\xca" + struct.pack(">f", 0.5), 0.5),
        (b"\xcb" + struct.pack(">d", 0.1), 0.1),
        (b"\xa3abc", "abc"),
        (b"\xd9\x02\xc3\xa9", "é"),
        (b"\xda\x00\x01a", "a"),
        (b"\xdb\x00\x00\x00\x01a", "a"),
        (b"\xc4\x02\x00\xff", b"\x00\xff"),
        (b"\xd5\x07ab", b"ab"),
        (b"\xc7\x03\x07abc", b"abc"),
        (b"\x92\x01\x90", [1, []]),
        (b"\xdc\x00\x01\x05", [5]),
        (b"\x82\xa1a\x01\xa1b\x91\x02", {"a": 1, "b": [2]}),
        (b"\xde\x00\x01\x01\x02", {1: 2}),
    ],
)
def test_each_type(data: bytes, value: Any) -> None:
    assert unpack(data + b"behind") == (value, len(data))
    for size in range(len(data)):
        with pytest.raises(MsgpackError):
            unpack(data[:size])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xc1", "no type 0xc1"),
        (b"\xdd\xff\xff\xff\xff\x00", "array of 4294967295 in 1 bytes"),
        (b"\xdf\x00\x00\x00\x01\x00", "map of 1 in 1 bytes"),
        (b"\xc6\xff\xff\xff\xff\x00", "wants 4294967295 bytes"),
        (b"\xa1\xff", "damaged"),
        (b"\x81\x90\x00", "damaged"),
        (b"\x91" * 100 + b"\x00", "nested deeper than 32"),
    ],
)
def test_damage(data: bytes, said: str) -> None:
    with pytest.raises(MsgpackError, match=said):
        unpack(data)


@pytest.mark.slow(reason="three seconds of parsing")
def test_the_number_of_objects_is_bounded() -> None:
    def lists(count: int) -> bytes:
        return b"\xdd" + struct.pack(">I", count) + b"\x90" * count

    assert len(unpack(lists(999_999))[0]) == 999_999
    with pytest.raises(MsgpackError, match="more objects than are read"):
        unpack(lists(1_000_000))


def test_objects_of_several_tables_are_counted_together() -> None:
    effort = Effort(10)
    assert unpack(b"\x93\x01\x02\x03", effort) == ([1, 2, 3], 4)
    assert effort.left == 6
    for _ in range(2):
        with pytest.raises(MsgpackError, match="more objects than are read"):
            unpack(b"\x97" + bytes(7), effort)
        assert effort.left <= 0
