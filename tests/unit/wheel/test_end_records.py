"""Where the directory is: the end records of archives that zipfile wrote, and of those that readers disagree on."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest

from relink.system.errors import WheelError
from relink.wheel import zipformat as z
from relink.wheel.directory_scan import DirectoryScan
from relink.wheel.end_records import EndRecord, read_end_records


def archive(count: int = 2, comment: bytes = b"") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as opened:
        for number in range(count):
            opened.writestr(f"a{number}", b"x" * number)
        opened.comment = comment
    return file.getvalue()


def scanned(data: bytes) -> tuple[EndRecord, list[str]]:
    scan = DirectoryScan(lambda offset, length: data[offset : offset + length], len(data))
    return read_end_records(scan), scan.issues


def with_zip64(data: bytes, entries: int | None = None) -> bytes:
    """Put ZIP64's records before the end record, which keeps what it says."""
    at = data.rfind(z.END_SIGNATURE)
    _, _, _, _here, total, size, offset, _ = z.END.unpack_from(data, at)
    total = total if entries is None else entries
    record = z.END64.pack(z.END64_SIGNATURE, z.END64.size - 12, 45, 45, 0, 0, total, total, size, offset)
    return data[:at] + record + z.END64_LOCATOR.pack(z.END64_LOCATOR_SIGNATURE, 0, at, 1) + data[at:]


@pytest.mark.parametrize("comment", [b"", b"c", b"x" * 65535])
def test_what_zipfile_wrote(comment: bytes) -> None:
    data = archive(3, comment)
    found, issues = scanned(data)
    assert issues == []
    assert found.entries == 3
    assert data[found.offset :].startswith(z.CENTRAL_SIGNATURE)
    assert found.offset + found.size == data.rfind(z.END_SIGNATURE)


def test_zip64() -> None:
    data = archive(3)
    assert scanned(with_zip64(data)) == scanned(data)
    found, issues = scanned(with_zip64(data, entries=4))
    assert found.entries == 4
    assert issues == ["end record and ZIP64 end record disagree: 3 and 4"] * 2


def test_two_end_records() -> None:
    inner = archive(1)
    end = inner[inner.rfind(z.END_SIGNATURE) :]
    _, issues = scanned(archive(2, end + b"x"))
    assert issues == ["the archive comment holds another end record: readers differ on which is true"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no end of central directory record"),
        (archive()[:-1], "cut inside it"),
        (archive() + b"x", "trailing data"),
        (b"prepended" + archive(), "9 bytes between central directory and end record"),
        (archive()[5:], "reaches past the end record"),
        (archive()[:-18] + struct.pack("<H", 1) + archive()[-16:], "one disk of several"),
        (archive()[:-14] + struct.pack("<H", 1) + archive()[-12:], "one disk of several"),
        (
            with_zip64(archive()).replace(
                struct.pack("<L", 1) + z.END_SIGNATURE, struct.pack("<L", 2) + z.END_SIGNATURE
            ),
            "one disk",
        ),
        (with_zip64(archive()).replace(z.END64_SIGNATURE, b"PK\6\0"), "does not point at a ZIP64 end record"),
    ],
    ids=range(9),
)
def test_what_cannot_be_read(data: bytes, said: str) -> None:
    with pytest.raises(WheelError) as caught:
        scanned(data)
    assert said in caught.value.issues[0]
