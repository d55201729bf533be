"""ZIP's records as zipfile writes them, and its times."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relink.wheel import zipformat as z
from relink.wheel.zipformat import (
    EXTRA_UNICODE_PATH,
    EXTRA_ZIP64,
    extra_fields,
    has_contradicting_zip64,
    has_second_name,
    zip64_values,
)


def field(kind: int, data: bytes) -> bytes:
    return struct.pack("<HH", kind, len(data)) + data


def quads(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def test_fields_and_padding() -> None:
    extra = field(1, b"abc") + field(0x7075, b"")
    assert extra_fields(extra) == [(1, b"abc"), (0x7075, b"")]
    assert extra_fields(b"") == []
    with pytest.raises(ValueError, match="3 bytes behind the extra fields are no field"):
        extra_fields(extra + b"\0\0\0")
    with pytest.raises(ValueError, match="extra field 0x0001 reaches past the end"):
        extra_fields(field(1, b"abc")[:-1])


def test_the_first_zip64_field_that_is_long_enough_counts() -> None:
    found = [
        (EXTRA_ZIP64, quads(1)),
        (5, quads(9, 9)),
        (EXTRA_ZIP64, quads(2, 3)),
        (EXTRA_ZIP64, quads(4, 5)),
    ]
    assert zip64_values(found, 2) == (2, 3)
    assert zip64_values(found, 1) == (1,)
    assert zip64_values(found, 3) is None
    assert zip64_values([], 0) is None


@pytest.mark.parametrize(
    ("data", "count", "contradicts"),
    [
        (quads(7, 8), 2, False),  # read as it stands
        (quads(1, 2), 0, False),  # superfluous, and true
        (quads(1, 3), 0, True),
        (quads(9), 0, True),
        (quads(1), 2, False),
        (b"", 0, False),
    ],
)
def test_a_zip64_field_that_some_readers_believe(data: bytes, count: int, contradicts: bool) -> None:
    assert has_contradicting_zip64([(EXTRA_ZIP64, data)], count, 1, 2) is contradicts


def test_a_second_name() -> None:
    def named(name: str) -> list[tuple[int, bytes]]:
        return [(EXTRA_UNICODE_PATH, b"\1" + bytes(4) + name.encode())]

    assert has_second_name(named("b.py"), "a.py")
    assert not has_second_name(named("é.py"), "é.py")
    assert not has_second_name([(0x1234, b"\1\0\0\0\0b.py")], "a.py")


def test_the_records_of_zipfile() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("é", (1996, 2, 29, 23, 59, 58)), b"x" * 100, zipfile.ZIP_DEFLATED)
    data = file.getvalue()
    signature, _, flags, method, time, date, crc, compressed, size, name, extra = z.LOCAL.unpack_from(data)
    assert (signature, method, size, name, extra) == (z.LOCAL_SIGNATURE, z.DEFLATED, 100, 2, 0)
    assert flags == z.FLAG_UTF8
    assert z.from_dos_time(date, time) == (1996, 2, 29, 23, 59, 58)
    end = z.END.unpack_from(data, len(data) - z.END.size)
    assert (end[0], end[3:5], end[7]) == (z.END_SIGNATURE, (1, 1), 0)
    central = z.CENTRAL.unpack_from(data, end[6])
    assert central[0] == z.CENTRAL_SIGNATURE
    assert central[7:10] == (crc, compressed, size)
    assert end[5] == z.CENTRAL.size + 2


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_any_stored_time_is_given_back(date: int, time: int) -> None:
    assert z.dos_time(z.from_dos_time(date, time)) == (date, time)


@pytest.mark.parametrize(
    "moment", [(1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58), (2024, 0, 0, 31, 63, 62)]
)
def test_times(moment: tuple[int, int, int, int, int, int]) -> None:
    assert z.from_dos_time(*z.dos_time(moment)) == moment


def test_odd_seconds_are_rounded_down() -> None:
    assert z.from_dos_time(*z.dos_time((2024, 1, 1, 0, 0, 59)))[5] == 58
