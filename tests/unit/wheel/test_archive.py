from __future__ import annotations

import hashlib
import os
import random
import resource
import struct
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from relink.system.errors import WheelError
from relink.wheel.archive import WheelArchive
from relink.wheel.source import read_prefix
from tests.unit.wheel.build import (
    DIST_INFO,
    FILENAME,
    MOMENT,
    Entry,
    RawZip,
    deflate,
    good_entries,
    make_wheel,
    write_raw,
)

BIG = random.Random(1).randbytes(300_000) + bytes(3_000_000) + b"end"
FILES = {"demo_pkg/big.so": BIG, "demo_pkg/empty": b"", "demo_pkg/stored.bin": BIG[:200_000]}


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(
        tmp_path, FILES, stored=frozenset({"demo_pkg/stored.bin"}), modes={"demo_pkg/big.so": 0o100755}
    )


def test_members(wheel: Path) -> None:
    with WheelArchive(wheel) as archive:
        assert archive.name.filename == FILENAME
        assert archive.size == wheel.stat().st_size
        assert (archive.dist_info, archive.data_dir) == (DIST_INFO, None)
        member = archive.members["demo_pkg/big.so"]
        assert (member.size, member.mode, member.date_time, member.method) == (len(BIG), 0o100755, MOMENT, 8)
        assert archive.members["demo_pkg/stored.bin"].method == 0
        with zipfile.ZipFile(wheel) as peer:
            assert list(archive.members) == peer.namelist()
            for info in peer.infolist():
                ours = archive.members[info.filename]
                assert (ours.crc, ours.compressed_size) == (info.CRC, info.compress_size)
                assert ours.header_offset == info.header_offset


@pytest.mark.parametrize("name", list(FILES))
def test_every_way_to_read(wheel: Path, name: str) -> None:
    data = FILES[name]
    with WheelArchive(wheel) as archive:
        assert archive.read(name) == data
        assert b"".join(archive.chunks(name)) == data
        view = archive.read_into(name)
        assert view == data
        assert not view.readonly
        for length in (0, 4, 1 << 20, len(data), len(data) + 1):
            assert read_prefix(archive, name, length) == data[:length]
        raw = b"".join(archive.raw(name))
        member = archive.members[name]
        at = member.data_offset
        assert raw == wheel.read_bytes()[at : at + member.compressed_size]


def test_read_limit(wheel: Path) -> None:
    with WheelArchive(wheel) as archive:
        with pytest.raises(WheelError, match="at most 100 are expected"):
            archive.read("demo_pkg/big.so", limit=100)
        with pytest.raises(WheelError, match="no member 'nope'"):
            archive.read("nope")


def test_sha256(wheel: Path) -> None:
    with WheelArchive(wheel) as archive:
        assert archive.sha256() == hashlib.sha256(wheel.read_bytes()).hexdigest()
        assert archive.sha256() is archive.sha256()


def test_several_threads(wheel: Path) -> None:
    with WheelArchive(wheel) as archive, ThreadPoolExecutor(8) as pool:
        names = [*FILES] * 8
        assert list(pool.map(archive.read, names)) == [FILES[name] for name in names]


def test_a_prefix_does_not_inflate_the_rest(tmp_path: Path) -> None:
    entry = Entry(b"demo_pkg/z", bytes(1 << 27))
    with WheelArchive(write_raw(tmp_path, RawZip([entry, *good_entries()]))) as archive:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        for _ in range(50):
            assert read_prefix(archive, "demo_pkg/z", 4) == bytes(4)
        # 50 times 128 MiB would take seconds.
        assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < 1


def _stored_blocks(data: bytes) -> bytes:
    """Deflate without compressing: blocks of 65,531 bytes and five in front of each (RFC 1951, 3.2.4)."""
    blocks = [data[start : start + 65_531] for start in range(0, len(data), 65_531)]
    last = len(blocks) - 1
    return b"".join(
        struct.pack("<BHH", number == last, len(block), len(block) ^ 0xFFFF) + block
        for number, block in enumerate(blocks)
    )


X = deflate(b"content")
BROKEN: list[tuple[str, Entry, str]] = [
    ("crc", Entry(b"demo_pkg/x", b"content", crc=1), "CRC is"),
    ("crc stored", Entry(b"demo_pkg/x", b"content", method=0, crc=1), "CRC is"),
    ("crc empty", Entry(b"demo_pkg/x", b"", crc=1), "CRC is"),
    ("longer", Entry(b"demo_pkg/x", b"content", size=6), "larger than the 6 bytes"),
    ("longer than nothing", Entry(b"demo_pkg/x", b"content", size=0), "larger than the 0 bytes"),
    ("shorter", Entry(b"demo_pkg/x", b"content", size=8), "has 7 bytes, the directory claims 8"),
    ("not deflate", Entry(b"demo_pkg/x", b"content", compressed=b"\xff" * 20), "cannot be inflated"),
    ("cut", Entry(b"demo_pkg/x", b"content", compressed=X[:-1]), "ends early"),
    ("no stream at all", Entry(b"demo_pkg/x", b"", compressed=b""), "ends early"),
    ("trailing", Entry(b"demo_pkg/x", b"content", compressed=X + b"!"), "after the end of the compressed"),
    (
        "much trailing",
        Entry(b"demo_pkg/x", b"content", compressed=X + bytes(1 << 20)),
        "after the end of the compressed",
    ),
    (
        # The stream ends where a buffer of the reader's does (16 KiB).
        "trailing behind a full buffer",
        Entry(b"demo_pkg/x", BIG[:131_062], compressed=_stored_blocks(BIG[:131_062]) + b"!"),
        "after the end of the compressed",
    ),
    (
        "bomb behind a small size",
        Entry(b"demo_pkg/x", b"content", compressed=deflate(bytes(1 << 26)), size=7),
        "larger than the 7 bytes",
    ),
]


@pytest.mark.parametrize(("entry", "message"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_broken_content(tmp_path: Path, entry: Entry, message: str) -> None:
    with WheelArchive(write_raw(tmp_path, RawZip([entry, *good_entries()]))) as archive:
        for read in (archive.read, archive.read_into):
            with pytest.raises(WheelError, match=message) as caught:
                read("demo_pkg/x")
            assert FILENAME in caught.value.message
        # The last piece is not handed out before all is proved.
        given = 0
        with suppress(WheelError):
            for chunk in archive.chunks("demo_pkg/x"):
                given += len(chunk)
        assert not given or given < len(entry.data)


def test_another_name(tmp_path: Path, wheel: Path) -> None:
    moved = wheel.rename(tmp_path / "0c1a-download")
    with pytest.raises(WheelError) as caught:
        WheelArchive(moved)
    assert "not the name of a wheel" in caught.value.issues[0]


def test_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="No such file"):
        WheelArchive(tmp_path / FILENAME)
    with pytest.raises(WheelError, match="is a directory"):
        WheelArchive(tmp_path)
    os.mkfifo(tmp_path / FILENAME)
    with pytest.raises(WheelError, match="not a regular file"):
        WheelArchive(tmp_path / FILENAME)
    with pytest.raises(WheelError, match="null"):
        WheelArchive("a\0b")


def test_a_file_that_shrinks(wheel: Path) -> None:
    with WheelArchive(wheel) as archive:
        os.truncate(wheel, 1000)
        with pytest.raises(WheelError, match="has it been changed"):
            archive.read("demo_pkg/big.so")


def test_closed(wheel: Path) -> None:
    archive = WheelArchive(wheel)
    archive.close()
    archive.close()
    with pytest.raises(ValueError, match="closed"):
        archive.read("demo_pkg/big.so")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["demo_pkg/a.py"], "no .dist-info directory"),
        (["x/demo_pkg-1.0.dist-info/RECORD"], "no .dist-info directory"),
        ([f"{DIST_INFO}/WHEEL", f"{DIST_INFO}/METADATA"], "has no RECORD"),
        ([f"{DIST_INFO}/RECORD", f"{DIST_INFO}/METADATA"], "has no WHEEL"),
        ([f"{DIST_INFO}/RECORD", f"{DIST_INFO}/WHEEL"], "has no METADATA"),
        ([f"{DIST_INFO}/RECORD", "b-1.0.dist-info/RECORD"], "several .dist-info directories"),
        (["other-1.0.dist-info/RECORD"], "does not match the filename"),
        (["demo_pkg-1.1.dist-info/RECORD"], "does not match the filename"),
        (["demo_pkg-one.dist-info/RECORD"], "does not match the filename"),
        (["demo_pkg.dist-info/RECORD"], "does not match the filename"),
        (["demo_pkg-1.1.data/scripts/x"], "does not match the filename"),
        (["demo_pkg-1.0.data/scripts/x", "Demo.Pkg-1.0.data/lib/x"], "several .data directories"),
    ],
)
def test_special_directories(tmp_path: Path, names: list[str], message: str) -> None:
    raw = RawZip([Entry(name.encode()) for name in names])
    with pytest.raises(WheelError) as caught:
        WheelArchive(write_raw(tmp_path, raw))
    assert any(message in issue for issue in caught.value.issues), caught.value.issues


def test_other_spellings_of_the_special_directories(tmp_path: Path) -> None:
    names = [f"Demo.Pkg-1.0.0.dist-info/{file}" for file in ("METADATA", "WHEEL", "RECORD")]
    raw = RawZip([Entry(name.encode()) for name in [*names, "Demo.Pkg-1.0.0.data/scripts/x"]])
    with WheelArchive(write_raw(tmp_path, raw)) as archive:
        assert (archive.dist_info, archive.data_dir) == ("Demo.Pkg-1.0.0.dist-info", "Demo.Pkg-1.0.0.data")
