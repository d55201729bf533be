"""Wheels written anew: what changes, what stays, and what is refused."""

from __future__ import annotations

import base64
import calendar
import csv
import errno
import hashlib
import io
import json
import os
import random
import stat
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from relink.system.errors import RelinkError, UsageError, WheelError
from relink.wheel import zipformat
from relink.wheel.archive import WheelArchive
from relink.wheel.changes import Changes, NewContent, Packed, PackedAhead
from relink.wheel.deflate import splice
from relink.wheel.deflate.splice import Piece, Span, find_spans
from relink.wheel.naming import relinked_name
from relink.wheel.record import read_record
from relink.wheel.source import read_prefix
from relink.wheel.writer import (
    ReadBack,
    ZipWriter,
    largest_packed_size,
    new_member,
    output_path,
    pack,
    pack_ahead,
    write_wheel,
)
from relink.wheel.zipformat import DEFLATED, STORED, BytesLike, Member
from tests.support.amount import amount
from tests.unit.wheel.build import (
    DIST_INFO,
    FILENAME,
    METADATA,
    MOMENT,
    Entry,
    RawZip,
    dist_info_files,
    good_entries,
    make_wheel,
    write_raw,
)
from tests.unit.wheel.rewriting import NOISE, accepted, rewrite
from tests.unit.wheel.streams import KIB, deflate, made, reader

PLAIN_CONTENT = b"abc" * 100_000 + random.Random(1).randbytes(100_000)


def pieces() -> Iterator[bytes]:
    for start in range(0, len(PLAIN_CONTENT), 70_001):
        yield PLAIN_CONTENT[start : start + 70_001]


def packed_bytes(new: NewContent, level: int = 3) -> tuple[bytes, Packed]:
    written = bytearray()

    def write(data: BytesLike | Span) -> None:
        assert not isinstance(data, Span)
        written.extend(data)

    packed = pack("x", new, write, level=level)
    assert packed.compressed_size == len(written)
    return bytes(written), packed


def test_what_is_not_deflated_ahead_is_deflated_in_its_turn() -> None:
    """More new bytes than were expected beside the spans: memory has no room for them."""
    new = NewContent(PLAIN_CONTENT)
    assert pack_ahead("x", new, 3, len(PLAIN_CONTENT) - 1) is None
    written = []
    for found in (None, pack_ahead("x", new, 3, len(PLAIN_CONTENT))):
        ahead: Future[PackedAhead | None] = Future()
        ahead.set_result(found)
        file = io.BytesIO()
        header = new_member("x", DEFLATED, (1980, 1, 1, 0, 0, 0), 0)
        ZipWriter(file, 3).add(header, replace(new, ahead=ahead))
        written.append(file.getvalue())
    assert written[0] == written[1]
    assert len(written[0]) > 100_000


@pytest.mark.parametrize("level", range(1, 10))
def test_a_deflated_member(level: int) -> None:
    stream, packed = packed_bytes(NewContent(PLAIN_CONTENT), level)
    assert zlib.decompress(stream, -15) == PLAIN_CONTENT
    assert (packed.crc, packed.size) == (zlib.crc32(PLAIN_CONTENT), len(PLAIN_CONTENT))
    assert len(stream) < len(PLAIN_CONTENT)
    assert (packed.pieces, packed.sha256) == ((), None)  # nothing is reused


def test_pieces_are_the_same_as_the_whole() -> None:
    assert packed_bytes(NewContent(pieces(), len(PLAIN_CONTENT))) == packed_bytes(NewContent(PLAIN_CONTENT))


def test_a_stored_member() -> None:
    written, packed = packed_bytes(NewContent(pieces(), len(PLAIN_CONTENT), stored=True))
    assert written == PLAIN_CONTENT
    assert (packed.crc, packed.size) == (zlib.crc32(PLAIN_CONTENT), len(PLAIN_CONTENT))


@pytest.mark.parametrize("method", [STORED, DEFLATED])
@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_size_that_is_not_true(method: int, wrong: int) -> None:
    with pytest.raises(
        RelinkError, match=f"'x' was announced with {len(PLAIN_CONTENT) + wrong} bytes and has"
    ):
        packed_bytes(NewContent(pieces(), len(PLAIN_CONTENT) + wrong, stored=method == STORED))


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000])
@pytest.mark.parametrize("level", [1, 3, 9])
def test_the_upper_bound_holds_for_what_does_not_compress(size: int, level: int) -> None:
    noise = random.Random(size).randbytes(size)
    assert len(packed_bytes(NewContent(noise), level)[0]) <= largest_packed_size(DEFLATED, size)
    assert largest_packed_size(STORED, size) == size


# Several members


@pytest.mark.few(1, reason="the same of other values")
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


def _header(name: str, method: int) -> Member:
    return new_member(name, method, MOMENT, 0o100644 << 16)


def _stored(name: str, size: int, crc: int) -> Member:
    return Member(name, STORED, 0, crc, size, size, 0, 0, 0, MOMENT, 0o100644 << 16, 3, False)


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
        writer.copy(_stored("demo_pkg/a", 5000, zlib.crc32(bytes(5000))), [bytes(5000)])
        writer.copy(_stored("demo_pkg/b", 0, 0), ())
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
            writer.copy(_stored(name, 0, 0), ())
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
        writer.copy(_stored("demo_pkg/small", 2 << 20, crc), [_Sparse.HOLE] * 2)
        writer.copy(_stored("demo_pkg/big", size, 0), [_Sparse.HOLE] * 4097)
        _write_rest(writer)
    for mode in ("ours", "zipfile"):
        if mode == "ours":
            with WheelArchive(tmp_path / FILENAME) as archive:
                assert archive.members["demo_pkg/big"].size == size
                assert read_prefix(archive, "demo_pkg/big", 4) == bytes(4)
                assert archive.members[f"{DIST_INFO}/RECORD"].header_offset > 1 << 32
                record = archive.read(f"{DIST_INFO}/RECORD")
                assert archive.read("demo_pkg/small") == bytes(2 << 20)
        else:
            with zipfile.ZipFile(tmp_path / FILENAME) as peer:
                assert peer.getinfo("demo_pkg/big").file_size == size
                assert peer.read(f"{DIST_INFO}/RECORD") == record


OLD = made(3, 900 * KIB)
NEW = bytes(1000) + OLD[1000:]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is worth it for real would make slow tests."""
    monkeypatch.setattr(splice, "LEAST", 64 * KIB)


@dataclass
class Written:
    """A file with one member."""

    path: Path
    member: Member
    packed: Packed

    def read_back(self, on_progress: Callable[[int], object] = lambda _: None) -> bytes | None:
        with self.path.open("rb") as file, ThreadPoolExecutor(1) as pool:
            readback = ReadBack(file.fileno(), pool, on_progress)
            readback.begin(self.member, self.packed)
            return readback.entries()[self.member.name].digest

    def damage(self, offset: int) -> None:
        data = bytearray(self.path.read_bytes())
        data[self.member.data_offset + offset] ^= 0x10
        self.path.write_bytes(data)

    def first(self, *, reused: bool) -> tuple[int, Piece]:
        """Where the first piece begins that is reused, or new, and that piece."""
        at = 0
        for piece in self.packed.pieces:
            if bool(piece.span) is reused:
                return at, piece
            at += piece.length
        raise AssertionError("no such piece")


def write(path: Path, content: bytes, *, spliced: bool = False) -> Written:
    stream = deflate(OLD, 6)
    spans = find_spans(reader(stream), len(stream), memoryview(OLD), [range(1000, len(OLD))])
    with path.open("w+b") as file:
        writer = ZipWriter(file, 3)
        header = new_member("demo/a.so", DEFLATED, (2024, 1, 1, 0, 0, 0), 0)
        packed = writer.add(header, NewContent(content, spans=lambda: spans if spliced else ()))
        member = writer.members[-1]
        writer.finish()
    return Written(path, member, packed)


@pytest.mark.parametrize("spliced", [True, False])
def test_what_was_written_is_what_is_there(tmp_path: Path, spliced: bool) -> None:
    written = write(tmp_path / "x", NEW, spliced=spliced)
    told: list[int] = []
    assert written.read_back(told.append) == hashlib.sha256(NEW).digest()
    assert sum(told) == len(NEW)
    assert bool(written.packed.pieces) is spliced


def test_a_large_member_is_hashed_on_a_thread_of_its_own(tmp_path: Path) -> None:
    content = NEW * 10
    assert write(tmp_path / "x", content).read_back() == hashlib.sha256(content).digest()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_changed_byte_of_a_new_member(tmp_path: Path, share: float) -> None:
    written = write(tmp_path / "x", NEW)
    written.damage(int(share * (written.member.compressed_size - 1)))
    with pytest.raises(RelinkError, match="the disk does not give back what was written to it"):
        written.read_back()


@pytest.mark.parametrize("reused", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_changed_byte_of_a_spliced_member(tmp_path: Path, reused: bool, share: float) -> None:
    written = write(tmp_path / "x", NEW, spliced=True)
    at, piece = written.first(reused=reused)
    written.damage(at + int(share * (piece.length - 1)))
    said = (
        "'demo/a.so' has other blocks than were reused: the disk" if reused else "the disk does not give back"
    )
    with pytest.raises(RelinkError, match=said):
        written.read_back()


@pytest.mark.parametrize("spliced", [True, False])
def test_a_file_that_became_shorter(tmp_path: Path, spliced: bool) -> None:
    written = write(tmp_path / "x", NEW, spliced=spliced)
    with written.path.open("r+b") as file:
        file.truncate(written.member.data_offset + written.member.compressed_size // 2)
    with pytest.raises(RelinkError, match="are missing: the disk"):
        written.read_back()


NEW_DIST_INFO = "demo_pkg-1.0+rocm7.2.4.dist-info"
NEW_FILENAME = "demo_pkg-1.0+rocm7.2.4-cp312-cp312-linux_x86_64.whl"


def test_the_whole(tmp_path: Path) -> None:
    files = {
        "demo_pkg/__init__.py": b"x = 1\n",
        "demo_pkg/lib.so": b"old" * 1000,
        "demo_pkg-1.0.data/scripts/run": b"#!python\n",
        "z,odd \u00fc.txt": b"odd",
    }
    wheel = make_wheel(
        tmp_path, files, modes={"demo_pkg/lib.so": 0o100755, f"{DIST_INFO}/RECORD": 0o100664, "z": 0}
    )
    result = rewrite(
        wheel,
        tmp_path / "out",
        replacements={"demo_pkg/lib.so": NewContent(b"new" * 999)},
        additions={
            f"{NEW_DIST_INFO}/relink.json": NewContent(b"{}", mode=0o600),
            "demo_pkg/x.gz": NewContent(b"z", stored=True),
        },
    )
    assert result.path == tmp_path / "out" / NEW_FILENAME
    accepted(result.path)
    data = result.path.read_bytes()
    assert result.sha256 == hashlib.sha256(data).hexdigest()
    with zipfile.ZipFile(result.path) as archive:
        assert archive.namelist() == [
            "demo_pkg/__init__.py",
            "demo_pkg/lib.so",
            "demo_pkg-1.0+rocm7.2.4.data/scripts/run",
            "z,odd \u00fc.txt",
            f"{NEW_DIST_INFO}/METADATA",
            f"{NEW_DIST_INFO}/WHEEL",
            f"{NEW_DIST_INFO}/relink.json",
            "demo_pkg/x.gz",
            f"{NEW_DIST_INFO}/RECORD",
        ]
        modes = {info.filename.rpartition("/")[2]: info.external_attr >> 16 for info in archive.infolist()}
        assert modes["lib.so"] == 0o100755
        assert modes["RECORD"] == 0o100664
        assert modes["relink.json"] == 0o100600
        assert modes["x.gz"] == 0o100644
        assert archive.read("demo_pkg/lib.so") == b"new" * 999
        assert archive.getinfo("demo_pkg/x.gz").compress_type == zipfile.ZIP_STORED
        assert archive.read(f"{NEW_DIST_INFO}/METADATA") == METADATA.replace(b": 1.0\n", b": 1.0+rocm7.2.4\n")
        assert b"Tag: cp312-cp312-linux_x86_64\n" in archive.read(f"{NEW_DIST_INFO}/WHEEL")
        rows = archive.read(f"{NEW_DIST_INFO}/RECORD").decode().splitlines()
    names = [name for name in zipfile.ZipFile(result.path).namelist() if not name.endswith("/RECORD")]
    assert [row[0] for row in csv.reader(rows[:-1])] == names
    assert rows[-1] == f"{NEW_DIST_INFO}/RECORD,,"


def test_untouched_members_are_copied_as_they_are(tmp_path: Path) -> None:
    files = {"demo_pkg/a.bin": NOISE[:5000] * 3, "demo_pkg/s": NOISE[:100], "d/": b""}
    wheel = make_wheel(tmp_path, files, stored=frozenset({"demo_pkg/s", "d/"}))
    result = rewrite(wheel, tmp_path / "out", epoch=0)
    with WheelArchive(wheel) as before, WheelArchive(result.path) as after:
        for name in files:
            assert b"".join(after.raw(name)) == b"".join(before.raw(name))
            old, new = before.members[name], after.members[name]
            assert (old.method, old.crc, old.date_time) == (new.method, new.crc, new.date_time)
            assert (old.external_attributes, old.create_system) == (
                new.external_attributes,
                new.create_system,
            )
    accepted(result.path)


@pytest.mark.parametrize(
    "raw", [RawZip(good_entries(), comment=b"hello"), RawZip(good_entries(), zip64=True)]
)
def test_what_only_burdens_is_left_behind(tmp_path: Path, raw: RawZip) -> None:
    raw.entries[0].extra = raw.entries[0].local_extra = b"\x55\x54\4\0abcd"
    raw.entries[0].flags = 2
    data = write_raw(tmp_path, raw)
    result = rewrite(data, tmp_path / "out")
    with zipfile.ZipFile(result.path) as archive:
        assert archive.comment == b""
        assert {info.extra for info in archive.infolist()} == {b""}
        assert {info.flag_bits for info in archive.infolist()} == {0}
        assert {info.create_version for info in archive.infolist()} == {20}
    assert b"abcd" not in result.path.read_bytes()


def test_fixed_point(tmp_path: Path) -> None:
    files = {"demo_pkg/\u00e9.so": NOISE, "d/": b"", "demo_pkg/n": b""}
    wheel = make_wheel(tmp_path, files, stored=frozenset({"demo_pkg/n"}))
    changes = {"demo_pkg/\u00e9.so": NewContent(NOISE[::-1])}
    first = rewrite(
        wheel, tmp_path / "1", replacements=changes, additions={f"{NEW_DIST_INFO}/p": NewContent(b"p")}
    )
    second = rewrite(first.path, tmp_path / "2")
    third = rewrite(first.path, tmp_path / "3", epoch=99, level=9, jobs=1, verify=False)
    assert first.path.read_bytes() == second.path.read_bytes() == third.path.read_bytes()
    assert second.sha256 == first.sha256


def test_the_name_as_it_was(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    with WheelArchive(wheel) as archive:
        (tmp_path / "out").mkdir()
        result = write_wheel(archive, tmp_path / "out", Changes(archive.name))
    assert result.path.name == FILENAME
    with WheelArchive(wheel) as before, WheelArchive(result.path) as after:
        assert [(m.name, m.crc, m.date_time) for m in before.members.values()] == [
            (m.name, m.crc, m.date_time) for m in after.members.values()
        ]
    accepted(result.path)


def test_short_reads_are_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system may give less than it was asked for; the digest is that of the whole output all the same."""
    wheel, read = make_wheel(tmp_path), os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, offset: read(file, (size + 1) // 2, offset))
    result = rewrite(wheel, tmp_path / "out")
    assert result.sha256 == hashlib.sha256(result.path.read_bytes()).hexdigest()


def test_tags_that_lied_are_put_right(tmp_path: Path) -> None:
    files = {f"{DIST_INFO}/WHEEL": b"Wheel-Version: 1.0\nTag: cp312-cp312-linux_x86_64\n\n"}
    result = rewrite(make_wheel(tmp_path, files), tmp_path / "out", local=None)
    with WheelArchive(result.path) as archive:
        assert archive.read(f"{DIST_INFO}/WHEEL") == files[f"{DIST_INFO}/WHEEL"]
    with WheelArchive(make_wheel(tmp_path, files)) as archive:
        result = write_wheel(archive, tmp_path / "out", Changes(archive.name))
    with WheelArchive(result.path) as archive:
        assert b"manylinux_2_34" in archive.read(f"{DIST_INFO}/WHEEL")


def test_same_bytes_whatever_the_source_and_the_threads(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"demo_pkg/a": b"1", "demo_pkg/b": NOISE})

    def pieces() -> Iterator[bytes]:
        start = 0
        for length in (1, 70_000, 0, 1 << 20, 3, 1 << 20, 1 << 22):
            yield NOISE[start : start + length]
            start += length

    with WheelArchive(wheel) as archive:
        sources = [
            NewContent(NOISE),
            NewContent(memoryview(NOISE)),
            NewContent(memoryview(bytearray(NOISE)).cast("H")),
            NewContent(pieces(), len(NOISE)),
            NewContent(archive.chunks("demo_pkg/b"), len(NOISE)),
        ]
        digests = set()
        for number, source in enumerate(sources):
            out = tmp_path / str(number)
            result = rewrite(
                wheel, out, replacements={"demo_pkg/a": source}, epoch=1_700_000_000, jobs=number % 3 + 1
            )
            digests.add(result.sha256)
    assert len(digests) == 1
    accepted(result.path)


@pytest.mark.few(2, reason="the same of other values")
@pytest.mark.parametrize("level", [1, 2, 3, 6, 9])
def test_levels(tmp_path: Path, level: int) -> None:
    wheel = make_wheel(tmp_path)
    result = rewrite(
        wheel, tmp_path / "out", level=level, replacements={"demo_pkg/a.py": NewContent(NOISE + bytes(9999))}
    )
    accepted(result.path)


def test_level_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="level 0"):
        rewrite(make_wheel(tmp_path), tmp_path / "out", level=0)
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("epoch", "moment"),
    [
        (None, MOMENT),
        (calendar.timegm((2020, 2, 29, 23, 59, 59)), (2020, 2, 29, 23, 59, 58)),
        (0, (1980, 1, 1, 0, 0, 0)),
        (-(10**30), (1980, 1, 1, 0, 0, 0)),
        (10**30, (2107, 12, 31, 23, 59, 58)),
    ],
)
def test_times(tmp_path: Path, epoch: int | None, moment: tuple[int, ...]) -> None:
    files = {"demo_pkg/a.py": b"1", "demo_pkg/b.py": b"2"}
    result = rewrite(
        make_wheel(tmp_path, files),
        tmp_path / "out",
        replacements={"demo_pkg/a.py": NewContent(b"3")},
        additions={"demo_pkg/c.py": NewContent(b"4")},
        epoch=epoch,
    )
    with zipfile.ZipFile(result.path) as archive:
        times = {info.filename.rpartition("/")[2]: info.date_time for info in archive.infolist()}
    assert times.pop("b.py") == MOMENT
    assert set(times.values()) == {moment}


def test_signatures_are_dropped(tmp_path: Path) -> None:
    signatures = (f"{DIST_INFO}/RECORD.jws", f"{DIST_INFO}/RECORD.p7s")
    entries = good_entries() + [Entry(name.encode(), b"signed") for name in signatures]
    result = rewrite(write_raw(tmp_path, RawZip(entries)), tmp_path / "out")
    assert not {*signatures} & {*zipfile.ZipFile(result.path).namelist()}
    accepted(result.path)


def test_an_incomplete_record_is_completed(tmp_path: Path) -> None:
    record = f"demo_pkg/a.py,,6\n{DIST_INFO}/RECORD,,\n".encode()
    wheel = make_wheel(tmp_path, {"demo_pkg/a.py": b"a = 1\n", f"{DIST_INFO}/RECORD": record})
    accepted(rewrite(wheel, tmp_path / "out").path)
    accepted(rewrite(wheel, tmp_path / "out", verify=False).path)


def _with_wrong_hashes(tmp_path: Path) -> tuple[Path, bytes]:
    files = dist_info_files({"demo_pkg/a.py": b"a", "demo_pkg/b.py": b"b", "demo_pkg/c.py": b"c"})
    right = files[f"{DIST_INFO}/RECORD"].decode()
    wrong = right
    for name in ("a", "c"):
        digest = base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest()).rstrip(b"=").decode()
        wrong = wrong.replace(digest, "A" * 43)
    files[f"{DIST_INFO}/RECORD"] = wrong.encode()
    return make_wheel(tmp_path, files), wrong.encode()


def test_wrong_hashes(tmp_path: Path) -> None:
    wheel, wrong = _with_wrong_hashes(tmp_path)
    with pytest.raises(WheelError) as caught:
        rewrite(wheel, tmp_path / "out")
    assert len(caught.value.issues) == 2
    assert os.listdir(tmp_path / "out") == []
    # Nobody looked, so the vendor is believed.
    unverified = rewrite(wheel, tmp_path / "out", verify=False)
    with WheelArchive(unverified.path) as archive:
        rows = {row.path: row.digest for row in read_record(archive)[0]}
    assert rows["demo_pkg/a.py"] == rows["demo_pkg/c.py"] == bytes(32)
    assert wrong != b""


def test_damage_in_a_copied_member(tmp_path: Path) -> None:
    raw = RawZip([Entry(b"demo_pkg/x", b"abc", crc=7), *good_entries()])
    with pytest.raises(WheelError) as caught:
        rewrite(write_raw(tmp_path, raw), tmp_path / "out")
    assert "CRC" in caught.value.issues[0]
    assert os.listdir(tmp_path / "out") == []


def test_an_addition_takes_the_place_of_what_is_there(tmp_path: Path) -> None:
    added = {f"{NEW_DIST_INFO}/relink.json": NewContent(b"1")}
    first = rewrite(make_wheel(tmp_path), tmp_path / "1", additions=added)
    again = rewrite(first.path, tmp_path / "2", additions={f"{NEW_DIST_INFO}/relink.json": NewContent(b"2")})
    with WheelArchive(first.path) as old, WheelArchive(again.path) as new:
        assert list(old.members) == list(new.members)
        assert new.read(f"{NEW_DIST_INFO}/relink.json") == b"2"
    accepted(again.path)


def test_output_path(tmp_path: Path) -> None:
    with WheelArchive(
        make_wheel(tmp_path, {"demo_pkg-1.0.data/data/x": b"", "demo_pkg-1.0.data2": b""})
    ) as archive:
        name = relinked_name(archive.name, local="rocm7.2.4", platform="linux_x86_64")
        assert output_path(archive, name, f"{DIST_INFO}/RECORD") == f"{NEW_DIST_INFO}/RECORD"
        assert output_path(archive, name, "demo_pkg-1.0.data/data/x") == "demo_pkg-1.0+rocm7.2.4.data/data/x"
        assert output_path(archive, name, "demo_pkg-1.0.data2") == "demo_pkg-1.0.data2"
        assert output_path(archive, archive.name, f"{DIST_INFO}/RECORD") == f"{DIST_INFO}/RECORD"


BAD_CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"replacements": {"nope": NewContent(b"")}}, "not in the wheel"),
    ({"replacements": {"d/": NewContent(b"")}}, "is a directory"),
    ({"replacements": {f"{DIST_INFO}/RECORD": NewContent(b"")}}, "written by relink itself"),
    ({"replacements": {f"{DIST_INFO}/WHEEL": NewContent(b"")}}, "written by relink itself"),
    ({"additions": {f"{NEW_DIST_INFO}/METADATA": NewContent(b"")}}, "written by relink itself"),
    ({"additions": {"../x": NewContent(b"")}}, "leaves the wheel"),
    ({"additions": {"x/": NewContent(b"")}}, "is a directory"),
    ({"additions": {"demo_pkg/A.py": NewContent(b"")}}, "only in case"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_CHANGES)
def test_changes_that_make_no_wheel(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    wheel = make_wheel(tmp_path, {"demo_pkg/a.py": b"a", "d/": b""})
    with pytest.raises(UsageError) as caught:
        rewrite(wheel, tmp_path / "out", **changes)
    assert message in caught.value.issues[0]
    assert os.listdir(tmp_path / "out") == []


def test_sizes_that_are_not_true(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    for content, size, message in (
        (b"abc", 4, "announced with 4 bytes and has 3"),
        (iter([b"abc"]), 2, "announced with 2 bytes and has 3"),
        (iter([b"abc"]), None, "needs its size"),
    ):
        with pytest.raises(RelinkError, match=message):
            rewrite(wheel, tmp_path / "out", replacements={"demo_pkg/a.py": NewContent(content, size)})
        assert os.listdir(tmp_path / "out") == []


def test_a_source_that_fails(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)

    def pieces() -> Iterator[bytes]:
        yield b"abc"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rewrite(wheel, tmp_path / "out", replacements={"demo_pkg/a.py": NewContent(pieces(), 9)})
    assert os.listdir(tmp_path / "out") == []


def test_no_such_directory(tmp_path: Path) -> None:
    with WheelArchive(make_wheel(tmp_path)) as archive, pytest.raises(RelinkError, match="cannot be written"):
        write_wheel(archive, tmp_path / "nowhere", Changes(archive.name))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file size limit's signal to be ignored")
def test_disk_full(tmp_path: Path) -> None:
    script = """
import resource, signal, sys
from pathlib import Path
from relink.system.errors import RelinkError
from relink.wheel.archive import WheelArchive
from relink.wheel.changes import Changes
from relink.wheel.writer import write_wheel
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
with WheelArchive(sys.argv[1]) as archive:
    try:
        write_wheel(archive, Path(sys.argv[2]), Changes(archive.name))
    except RelinkError as error:
        print(error)
"""
    wheel = make_wheel(tmp_path, {"demo_pkg/a": NOISE})
    (tmp_path / "out").mkdir()
    run = subprocess.run(
        [sys.executable, "-c", script, str(wheel), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "cannot be written: File too large" in run.stdout
    assert os.listdir(tmp_path / "out") == []


def test_no_space_is_told_by_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    staging = tmp_path / "dist/.relink-1-2.dir"
    staging.mkdir(parents=True)
    with WheelArchive(make_wheel(tmp_path)) as archive:
        monkeypatch.setattr(os, "fdatasync", full)
        with pytest.raises(
            RelinkError, match=r"dist: No space left on device for demo.* name another by --o"
        ):
            write_wheel(archive, staging, Changes(archive.name))


def test_the_input_may_be_the_output(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"demo_pkg/a.py": NOISE})
    with WheelArchive(wheel) as archive:
        changes = {"demo_pkg/a.py": NewContent(archive.chunks("demo_pkg/a.py"), len(NOISE))}
        assert write_wheel(archive, tmp_path, Changes(archive.name, changes)).path == wheel
    accepted(wheel)


@pytest.mark.slow(reason="a process of its own")
def test_memory_does_not_grow_with_the_content(tmp_path: Path) -> None:
    # In a process of its own: the peak of this one says nothing.
    script = """
import json, sys
from pathlib import Path
from relink.wheel.archive import WheelArchive
from relink.wheel.changes import Changes, NewContent, Packed
from relink.wheel.writer import write_wheel
from tests.support.memory import peak
with WheelArchive(sys.argv[1]) as archive:
    before = peak()
    block = bytes(range(256)) * 4096
    write_wheel(archive, Path(sys.argv[2]),
                Changes(archive.name, {"demo_pkg/a": NewContent((block for _ in range(80)), 80 << 20)}))
print(json.dumps((peak() - before) >> 20))
"""
    wheel = make_wheel(tmp_path, {"demo_pkg/a": b"1", "demo_pkg/b": bytes(64 << 20)})
    (tmp_path / "out").mkdir()
    run = subprocess.run(
        [sys.executable, "-c", script, str(wheel), str(tmp_path / "out")],
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert json.loads(run.stdout) < 40


# --- anything


NAMES = st.from_regex(r"\A[a-z\u00e0-\u00ef,. ]{1,6}(/[a-z0-9_]{1,4}){0,3}\Z").filter(
    lambda name: not {"", ".", ".."} & {*name.split("/")} and ".d" not in name and name != "demo_pkg"
)
CONTENT = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda byte, count: byte * count, st.binary(min_size=1, max_size=9), st.integers(0, 30_000)),
    st.integers(0, 2_000_000).map(lambda start: NOISE[start : start + 70_000]),
)
FILES = st.dictionaries(NAMES, st.tuples(CONTENT, st.booleans()), max_size=8).filter(
    lambda files: not any(f"{name}/" == other[: len(name) + 1] for name in files for other in files)
)


@settings(
    max_examples=amount(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(files=FILES, data=st.data())
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, tuple[bytes, bool]], data: st.DataObject
) -> None:
    tmp_path = tmp_path_factory.mktemp("round")
    contents = {name: content for name, (content, _) in files.items()}
    wheel = make_wheel(
        tmp_path,
        contents or None,
        stored=frozenset(name for name, (_, is_stored) in files.items() if is_stored),
        modes={name: stat.S_IFREG | 0o755 for name in contents if len(name) % 2},
    )
    names = st.sampled_from(sorted(contents)) if contents else st.nothing()
    changed = data.draw(st.dictionaries(names, CONTENT)) if contents else {}
    result = rewrite(
        wheel,
        tmp_path / "out",
        replacements={name: NewContent(content) for name, content in changed.items()},
        level=data.draw(st.integers(1, 9)),
    )
    accepted(result.path)
    expected = contents | changed
    with zipfile.ZipFile(result.path) as archive:
        found = {name: archive.read(name) for name in archive.namelist() if name in contents}
        for info in archive.infolist():
            if info.filename in contents:
                assert info.external_attr >> 16 == (0o100755 if len(info.filename) % 2 else 0o100644)
    assert found == expected
    assert list(found) == list(expected)
    assert rewrite(result.path, tmp_path / "again").sha256 == result.sha256
