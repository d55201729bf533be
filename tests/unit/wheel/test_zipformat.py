"""ZIP's records as zipfile writes them, and its times."""

from __future__ import annotations

import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relink.wheel import zipformat as z


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
