"""ZIP64, mostly by lowered limits, and twice for real."""

from __future__ import annotations

import io
import os
import random
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relink.system.errors import RelinkError
from relink.wheel import zipformat
from relink.wheel.archive import WheelArchive
from relink.wheel.changes import NewContent, Packed
from relink.wheel.zipformat import DEFLATED, STORED, Member
from relink.wheel.zipwriter import MemberHeader, ZipWriter, largest_packed_size, pack
from tests.unit.wheel.build import (
    DIST_INFO,
    FILENAME,
    MOMENT,
    dist_info_files,
    make_wheel,
)
from tests.unit.wheel.rewriting import NOISE, accepted, rewrite

CONTENT = b"abc" * 100_000 + random.Random(1).randbytes(100_000)


def pieces() -> Iterator[bytes]:
    for start in range(0, len(CONTENT), 70_001):
        yield CONTENT[start : start + 70_001]


def packed_bytes(new: NewContent, level: int = 3) -> tuple[bytes, Packed]:
    written = bytearray()
    packed = pack("x", new, written.extend, level=level)
    assert packed.compressed_size == len(written)
    return bytes(written), packed


@pytest.mark.parametrize("level", range(1, 10))
def test_a_deflated_member(level: int) -> None:
    stream, packed = packed_bytes(NewContent(CONTENT), level)
    assert zlib.decompress(stream, -15) == CONTENT
    assert (packed.crc, packed.size) == (zlib.crc32(CONTENT), len(CONTENT))
    assert len(stream) < len(CONTENT)
    assert (packed.pieces, packed.sha256) == ((), None)  # nothing is reused


def test_pieces_are_the_same_as_the_whole() -> None:
    assert packed_bytes(NewContent(pieces(), len(CONTENT))) == packed_bytes(NewContent(CONTENT))


def test_a_stored_member() -> None:
    written, packed = packed_bytes(NewContent(pieces(), len(CONTENT), stored=True))
    assert written == CONTENT
    assert (packed.crc, packed.size) == (zlib.crc32(CONTENT), len(CONTENT))


@pytest.mark.parametrize("method", [STORED, DEFLATED])
@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_size_that_is_not_true(method: int, wrong: int) -> None:
    with pytest.raises(RelinkError, match=f"'x' was announced with {len(CONTENT) + wrong} bytes and has"):
        packed_bytes(NewContent(pieces(), len(CONTENT) + wrong, stored=method == STORED))


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000])
@pytest.mark.parametrize("level", [1, 3, 9])
def test_the_upper_bound_holds_for_what_does_not_compress(size: int, level: int) -> None:
    noise = random.Random(size).randbytes(size)
    assert len(packed_bytes(NewContent(noise), level)[0]) <= largest_packed_size(DEFLATED, size)
    assert largest_packed_size(STORED, size) == size


# Several members


@pytest.mark.parametrize("jobs", [1, 4])
def test_jobs_change_nothing(tmp_path: Path, jobs: int) -> None:
    wheel = make_wheel(tmp_path, {f"demo_pkg/{number}.bin": bytes(10) for number in range(6)})
    changes = {f"demo_pkg/{number}.bin": NewContent(NOISE[number:]) for number in range(6)}
    expected = rewrite(wheel, tmp_path / "expected", replacements=changes, jobs=2)
    result = rewrite(wheel, tmp_path / "out", replacements=changes, jobs=jobs)
    assert result.path.read_bytes() == expected.path.read_bytes()
    accepted(result.path)


def test_what_goes_wrong_is_told(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {f"demo_pkg/{number}.bin": bytes(10) for number in range(3)})
    changes = {f"demo_pkg/{number}.bin": NewContent(iter([b"x"]), 1 + number // 2) for number in range(3)}
    with pytest.raises(RelinkError, match=r"2\.bin' was announced with 2 bytes and has 1"):
        rewrite(wheel, tmp_path / "out", replacements=changes, jobs=4)
    assert os.listdir(tmp_path / "out") == []


SMALL_NOISE = random.Random(3).randbytes(10_000)


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipformat, "ZIP64_LIMIT", 3000)
    monkeypatch.setattr(zipformat, "ZIP64_COUNT", 5)


@pytest.mark.usefixtures("small_limits")
def test_zip64(tmp_path: Path) -> None:
    files = {
        "demo_pkg/a": SMALL_NOISE[:9000],
        "demo_pkg/zeros": bytes(5000),
        "demo_pkg/s": b"s",
        "demo_pkg/t": b"t",
    }
    changes = {"demo_pkg/s": NewContent(SMALL_NOISE[:7000])}
    wheel = make_wheel(tmp_path, files)
    first = rewrite(
        wheel,
        tmp_path / "1",
        replacements=changes,
        additions={"demo_pkg/st": NewContent(SMALL_NOISE[:4000], stored=True)},
    )
    accepted(first.path)
    data = first.path.read_bytes()
    assert b"PK\x06\x06" in data
    assert b"PK\x06\x07" in data
    with WheelArchive(first.path) as archive:
        big = {"demo_pkg/a", "demo_pkg/zeros", "demo_pkg/s", "demo_pkg/st"}
        for name, member in archive.members.items():
            extra = data[member.header_offset + 30 + len(name.encode()) : member.data_offset]
            # A local header's field has both sizes, and nothing of the directory's (pypa/wheel#692).
            assert len(extra) == (20 if name in big else 0), name
            sizes = data[member.header_offset + 18 : member.header_offset + 26]
            assert (sizes == b"\xff" * 8) == (name in big)
            assert data[member.header_offset + 4] == (45 if name in big else 20)
    assert rewrite(first.path, tmp_path / "2").sha256 == first.sha256


@pytest.mark.usefixtures("small_limits")
def test_zip64_where_only_what_it_may_become_is_large(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    for size in (1600, 1800, 2600, 2700, 2999, 3000, 3001):
        for content in (bytes(size), SMALL_NOISE[:size]):
            changes = {"demo_pkg/a.py": NewContent(content)}
            first = rewrite(wheel, tmp_path / "1", replacements=changes)
            accepted(first.path)
            assert rewrite(first.path, tmp_path / "2").sha256 == first.sha256


def test_limits_are_the_format_s() -> None:
    assert (zipformat.ZIP64_LIMIT, zipformat.ZIP64_COUNT) == (0xFFFFFFFF, 0xFFFF)


def _header(name: str, method: int) -> MemberHeader:
    return MemberHeader(name, method, MOMENT, 0o100644 << 16, 3)


def _stored(name: str, size: int, crc: int) -> Member:
    return Member(name, STORED, 0, crc, size, size, 0, 0, 0, MOMENT, 0, 3, False)


def _write_rest(writer: ZipWriter) -> None:
    for name, data in dist_info_files({}).items():
        writer.add(_header(name, DEFLATED), NewContent(data))
    writer.finish()


@pytest.mark.parametrize("less", [0, 1])
def test_a_directory_that_begins_at_the_limit(monkeypatch: pytest.MonkeyPatch, less: int) -> None:
    """0xffffffff is no offset but the mark of one that is in the ZIP64 record (4.4.1.4), so the limit itself goes there, too."""

    def written() -> tuple[bytes, int, int]:
        buffer = io.BytesIO()
        writer = ZipWriter(buffer, 1)
        writer.copy(
            _header("demo_pkg/a", STORED), _stored("demo_pkg/a", 5000, zlib.crc32(bytes(5000))), [bytes(5000)]
        )
        writer.copy(_header("demo_pkg/b", STORED), _stored("demo_pkg/b", 0, 0), ())
        last = writer.size
        writer.finish()
        return buffer.getvalue(), writer.members[-1].header_offset, last

    plain, offset, start = written()
    monkeypatch.setattr(zipformat, "ZIP64_LIMIT", start + less)
    data, _, same = written()
    assert same == start
    assert (zipformat.END64_SIGNATURE in data) == (not less)
    at = data.rindex(zipformat.END_SIGNATURE)
    shown = zipformat.END.unpack_from(data, at)[-2]
    assert shown == (start if less else zipformat.MARK32)
    # The same for the offset of a local header.
    monkeypatch.setattr(zipformat, "ZIP64_LIMIT", offset + less)
    data, _, start = written()
    entry = data.rindex(zipformat.CENTRAL_SIGNATURE)
    assert zipformat.CENTRAL.unpack_from(data, entry)[-1] == (offset if less else zipformat.MARK32)
    assert zipformat.END64_SIGNATURE not in plain
    assert start > offset


@pytest.mark.slow(reason="65,600 members; test_acceptance lowers the limit instead")
def test_more_members_than_16_bits_count(tmp_path: Path) -> None:
    with (tmp_path / FILENAME).open("wb") as file:
        writer = ZipWriter(file, 1)
        for number in range(65_600):
            name = f"demo_pkg/{number}"
            writer.copy(_header(name, STORED), _stored(name, 0, 0), ())
        _write_rest(writer)
    with zipfile.ZipFile(tmp_path / FILENAME) as peer:
        assert len(peer.infolist()) == 65_603
    with WheelArchive(tmp_path / FILENAME) as archive:
        assert len(archive.members) == 65_603


class _Sparse(io.FileIO):
    """Leaves a hole where it is given the hole."""

    HOLE = bytes(1 << 20)

    def write(self, data: Any, /) -> int:
        if data is self.HOLE:
            self.seek(len(self.HOLE), io.SEEK_CUR)
            return len(self.HOLE)
        return super().write(data)


def test_a_member_and_an_offset_of_more_than_4_gib(tmp_path: Path) -> None:
    size = 4097 << 20
    crc = 0
    for _ in range(2):
        crc = zlib.crc32(_Sparse.HOLE, crc)
    with _Sparse(tmp_path / FILENAME, "w+") as file:
        writer = ZipWriter(file, 1)
        writer.copy(
            _header("demo_pkg/small", STORED), _stored("demo_pkg/small", 2 << 20, crc), [_Sparse.HOLE] * 2
        )
        writer.copy(_header("demo_pkg/big", STORED), _stored("demo_pkg/big", size, 0), [_Sparse.HOLE] * 4097)
        _write_rest(writer)
    for mode in ("ours", "zipfile"):
        if mode == "ours":
            with WheelArchive(tmp_path / FILENAME) as archive:
                assert archive.members["demo_pkg/big"].size == size
                assert archive.prefix("demo_pkg/big", 4) == bytes(4)
                assert archive.members[f"{DIST_INFO}/RECORD"].header_offset > 1 << 32
                record = archive.read(f"{DIST_INFO}/RECORD")
                assert archive.read("demo_pkg/small") == bytes(2 << 20)
        else:
            with zipfile.ZipFile(tmp_path / FILENAME) as peer:
                assert peer.getinfo("demo_pkg/big").file_size == size
                assert peer.read(f"{DIST_INFO}/RECORD") == record
