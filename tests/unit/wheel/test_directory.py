"""Each structural defect that a wheel can have, one test each; and what only looks like one."""

from __future__ import annotations

import re
import stat
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.errors import WheelError
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import WheelLimits
from tests.unit.wheel.build import DIST_INFO, Entry, RawZip, deflate, good_entries, write_raw

Tamper = Callable[[RawZip], None]


def issues_of(tmp_path: Path, tamper: Tamper, limits: WheelLimits | None = None) -> tuple[str, ...]:
    raw = RawZip(good_entries())
    tamper(raw)
    with pytest.raises(WheelError) as caught:
        WheelArchive(write_raw(tmp_path, raw), limits=limits)
    assert caught.value.issues
    return caught.value.issues


def test_nothing_wrong(tmp_path: Path) -> None:
    with WheelArchive(write_raw(tmp_path, RawZip(good_entries()))) as archive:
        assert list(archive.members) == [entry.name.decode() for entry in good_entries()]
        assert archive.dist_info == DIST_INFO


def _first(**values: object) -> Tamper:
    def tamper(raw: RawZip) -> None:
        for field, value in values.items():
            setattr(raw.entries[0], field, value)

    return tamper


def _archive(**values: object) -> Tamper:
    def tamper(raw: RawZip) -> None:
        for field, value in values.items():
            setattr(raw, field, value)

    return tamper


def _insert(*entries: Entry) -> Tamper:
    def tamper(raw: RawZip) -> None:
        raw.entries[0:0] = entries

    return tamper


def _overlap(raw: RawZip) -> None:
    # The second entry of the directory points at the first one's header, as in Fifield's bomb.
    raw.entries.insert(1, Entry(b"demo_pkg/b.py", b"", offset=0, local_signature=b"XXXX"))
    raw.entries[1].name = raw.entries[0].name
    raw.entries[1].data = raw.entries[0].data


def _inner_header(raw: RawZip) -> None:
    # A whole member inside of the content of another one.
    header = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 0, zlib.crc32(b"quux"), 4, 4, 1, 0)
    inner = header + b"q" + b"quux"
    raw.entries.insert(0, Entry(b"demo_pkg/outer", inner, method=0))
    raw.entries.insert(1, Entry(b"q", b"quux", method=0, offset=30 + len(b"demo_pkg/outer")))


UNICODE_PATH = struct.pack("<HHBL", 0x7075, 5 + 5, 1, 0) + b"other"

DEFECTS: list[tuple[str, Tamper, str]] = [
    ("traversal", _insert(Entry(b"../evil")), "leaves the wheel"),
    ("absolute", _insert(Entry(b"/evil")), "absolute"),
    ("drive", _insert(Entry(b"C:/evil")), "drive"),
    ("backslash", _insert(Entry(b"a\\..\\evil")), "backslash"),
    ("nul", _insert(Entry(b"a.py\0.txt")), "NUL"),
    ("not utf-8", _insert(Entry(b"\xff", flags=0x800)), "flagged as UTF-8"),
    ("symlink", _first(attributes=(stat.S_IFLNK | 0o777) << 16), "symbolic link"),
    (
        "symlink of a system that is not unix",
        _first(attributes=stat.S_IFLNK << 16, made_by=20),
        "symbolic link",
    ),
    ("fifo", _first(attributes=stat.S_IFIFO << 16), "device, socket or pipe"),
    ("device", _first(attributes=stat.S_IFBLK << 16), "device, socket or pipe"),
    ("directory mode", _first(attributes=stat.S_IFDIR << 16), "disagree on whether"),
    ("file mode on directory", _insert(Entry(b"d/", method=0)), "disagree on whether"),
    ("directory with content", _insert(Entry(b"d/", b"x", attributes=0)), "directory with content"),
    ("duplicate", _insert(Entry(b"demo_pkg/a.py", b"a")), "two members have this name"),
    ("case", _insert(Entry(b"demo_pkg/A.py", b"a")), "only in case"),
    ("file and directory", _insert(Entry(b"demo_pkg", b"a")), "is a file, and the directory"),
    ("encrypted", _first(flags=1), "encrypted"),
    ("strongly encrypted", _first(flags=0x41), "encrypted"),
    ("masked", _first(flags=0x2000), "encrypted"),
    ("patched", _first(flags=0x20), "flags that relink does not know"),
    ("method", _first(method=14), "compression method 14"),
    ("method deflate64", _first(method=9), "compression method 9"),
    ("stored sizes", _insert(Entry(b"s", b"abc", method=0, size=9)), "is stored, yet its sizes differ"),
    ("impossible ratio", _first(size=1 << 30), "more than deflate can do"),
    ("other disk", _first(disk=1), "another disk"),
    ("overlap, same header", _overlap, "overlaps"),
    ("overlap, quoted header", _inner_header, "overlaps"),
    ("local name", _first(local_name=b"demo_pkg/b.py"), "give different names"),
    ("local name length", _first(local_name=b"demo_pkg/a"), "give different names"),
    ("local method", _first(local_method=0), "disagree: method"),
    ("local method of a streamed one", _first(flags=8, local_method=0), "disagree: method"),
    ("local flags", _first(local_flags=0x800), "disagree: flags"),
    ("local crc", _first(local_crc=1), "disagree: crc"),
    ("local crc of a streamed one", _first(flags=8, local_crc=1), "disagree: crc"),
    ("local size", _first(local_size=1), "disagree: size"),
    ("local compressed size", _first(local_compressed_size=1), "disagree: compressed size"),
    ("local signature", _first(local_signature=b"PK\x05\x04"), "not its local header"),
    ("local zip64 missing", _first(local_size=0xFFFFFFFF), "ZIP64 field that is not there"),
    (
        "local zip64 too short",
        _first(local_size=0xFFFFFFFF, local_extra=struct.pack("<HHQ", 1, 8, 54)),
        "ZIP64 field that is not there",
    ),
    (
        "local zip64 lies",
        _first(
            local_size=0xFFFFFFFF,
            local_compressed_size=0xFFFFFFFF,
            local_extra=struct.pack("<HHQQ", 1, 16, 1, 2),
        ),
        "disagree: size",
    ),
    (
        "central zip64 unasked",
        _first(extra=struct.pack("<HHQQ", 1, 16, 9, 9)),
        "ZIP64 field gives it other sizes",
    ),
    (
        "central zip64 too long",
        _first(size=0xFFFFFFFF, extra=struct.pack("<HHQQ", 1, 16, 54, 9)),
        "ZIP64 field gives it other sizes",
    ),
    (
        "local zip64 unasked",
        _first(local_extra=struct.pack("<HHQQ", 1, 16, 9, 9)),
        "local header: a ZIP64 field",
    ),
    ("central zip64 missing", _first(size=0xFFFFFFFF), "ZIP64 field that is not there"),
    ("offset past the end", _first(offset=1 << 31), "past the end of the file"),
    (
        "data past the end",
        _first(compressed_size=1 << 24, local_compressed_size=1 << 24),
        "past the end of the file",
    ),
    ("extra past its end", _first(extra=b"\1\0\xff\0abc"), "extra field 0x0001 reaches past"),
    ("local extra past its end", _first(local_extra=b"\1\0\xff\0abc"), "local header: extra field"),
    ("second name", _first(extra=UNICODE_PATH), "another name"),
    ("local second name", _first(local_extra=UNICODE_PATH), "another name"),
    (
        "descriptor missing",
        _first(flags=8, local_crc=0, local_size=0, local_compressed_size=0),
        "data descriptor",
    ),
    (
        "descriptor lies",
        _first(flags=8, local_crc=0, descriptor=struct.pack("<3L", 1, 2, 3)),
        "data descriptor",
    ),
    ("gap", _first(padding=b"hidden"), "6 bytes after 'demo_pkg/a.py' belong to no member"),
    ("prepended", _archive(prepended=b"#!/bin/sh\n"), "10 bytes in front of the first member"),
    (
        "gap before the end record",
        _archive(before_end=b"hidden"),
        "6 bytes between central directory and end",
    ),
    ("trailing", _archive(trailing=b"hidden"), "trailing data"),
    (
        "end record in the comment",
        _archive(comment=b"PK\x05\x06" + bytes(18)),
        "between central directory and end",
    ),
    (
        "end record in the comment, cut",
        _archive(comment=b"PK\x05\x06" + bytes(9)),
        "holds another end record",
    ),
    ("count too low", _archive(count=1), "more than its entries"),
    ("count too high", _archive(count=9), "damaged at entry 5 of 9"),
    ("directory past the end", _archive(directory_size=1 << 20), "reaches past the end record"),
    ("several disks", _archive(disk=1), "one disk of several"),
    ("zip64 locator", _archive(zip64=True, locator_offset=1 << 40), "points outside"),
    (
        "zip64 locator elsewhere",
        _archive(zip64=True, locator_offset=0),
        "does not point at a ZIP64 end record",
    ),
    ("zip64 record's size", _archive(zip64=True, zip64_size=45), "that ends where it begins"),
    (
        "zip64 record with more in it",
        _archive(zip64=True, zip64_size=50, extensible=b"hidden"),
        "more than its fields",
    ),
    ("zip64 offset", _archive(zip64=True, directory_offset=7), "disagree: 7 and "),
    ("zip64 count", _archive(zip64=True, zip64_count=3), "disagree: 4 and 3"),
]


@pytest.mark.parametrize(("tamper", "message"), [row[1:] for row in DEFECTS], ids=[row[0] for row in DEFECTS])
def test_defect(tmp_path: Path, tamper: Tamper, message: str) -> None:
    issues = issues_of(tmp_path, tamper)
    assert any(re.search(message, issue) for issue in issues), issues
    assert len(issues) <= 5, issues


def test_all_defects_at_once(tmp_path: Path) -> None:
    def tamper(raw: RawZip) -> None:
        raw.entries[0].flags = 1
        raw.entries[1].name = b"../METADATA"
        raw.entries[2].local_method = 0
        raw.entries.append(Entry(b"other-1.0.dist-info/RECORD"))

    text = " ".join(issues_of(tmp_path, tamper))
    for part in ("encrypted", "leaves the wheel", "disagree: method", "several .dist-info"):
        assert part in text


def test_no_more_issues_than_anybody_reads(tmp_path: Path) -> None:
    entries = [Entry(b"../%d" % number) for number in range(500)]
    assert len(issues_of(tmp_path, _insert(*entries))) < 110


@pytest.mark.parametrize("length", [0, 1, 21, 22, 60, 200])
def test_truncated(tmp_path: Path, length: int) -> None:
    path = write_raw(tmp_path, RawZip(good_entries()))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(WheelError) as caught:
        WheelArchive(path)
    assert "no end of central directory" in caught.value.issues[0]


def test_cut_at_the_front(tmp_path: Path) -> None:
    path = write_raw(tmp_path, RawZip(good_entries()))
    path.write_bytes(path.read_bytes()[10:])
    with pytest.raises(WheelError) as caught:
        WheelArchive(path)
    assert "reaches past the end record" in caught.value.issues[0]


def test_every_cut_and_every_flipped_byte_is_an_error_or_harmless(tmp_path: Path) -> None:
    path = write_raw(tmp_path, RawZip(good_entries()))
    data = path.read_bytes()
    for position in range(0, len(data), 3):
        for new in (data[:position], data[:position] + bytes([data[position] ^ 0x41]) + data[position + 1 :]):
            path.write_bytes(new)
            try:
                with WheelArchive(path) as archive:
                    for name in archive.members:
                        archive.read(name)
            except WheelError:
                pass


LIMITS: list[tuple[WheelLimits, str]] = [
    (WheelLimits(members=3), "4 members; the limit is 3"),
    (WheelLimits(directory_size=100), "central directory of"),
    (WheelLimits(member_size=50), "'demo_pkg/a.py': 54 bytes; the limit for a member is 50"),
    (WheelLimits(total_size=100), "the limit is 100"),
    (WheelLimits(ratio=0.1, ratio_from=10), "times its size"),
]


@pytest.mark.parametrize(("limits", "message"), LIMITS)
def test_limits(tmp_path: Path, limits: WheelLimits, message: str) -> None:
    assert any(message in issue for issue in issues_of(tmp_path, lambda _: None, limits))


def test_a_large_wheel_is_within_the_limits() -> None:
    limits = WheelLimits()
    assert limits.total_size > 60 << 30
    assert limits.member_size > 8 << 30


DESCRIBED = deflate(b"x")
CRC = zlib.crc32(b"x")
HARMLESS: list[tuple[str, Tamper]] = [
    ("comment", _archive(comment=b"made by hand")),
    ("compression level flags", _first(flags=2, local_flags=4)),
    ("padding in the extra field", _first(local_extra=b"\0\0")),
    ("same name again", _first(extra=struct.pack("<HHBL", 0x7075, 18, 1, 0) + b"demo_pkg/a.py")),
    (
        "extra field",
        _first(extra=struct.pack("<HHL", 0x5455, 4, 0), local_extra=struct.pack("<HHL", 0x5455, 4, 0)),
    ),
    ("zip64 records without need", _archive(zip64=True)),
    ("not made by unix", _first(made_by=20)),
    ("directory", _insert(Entry(b"d/", method=0, attributes=stat.S_IFDIR << 16))),
    (
        "zip64 field without need",
        _first(
            extra=struct.pack("<HHQQ", 1, 16, 54, len(deflate(b"a = 1\n" * 9))),
            local_extra=struct.pack("<HHQQ", 1, 16, 54, len(deflate(b"a = 1\n" * 9))),
        ),
    ),
    (
        # What `wheel tags` before 0.48 left: the directory's own ZIP64 field in front of the right one.
        "superfluous zip64 field",
        _first(
            local_size=0xFFFFFFFF,
            local_compressed_size=0xFFFFFFFF,
            local_extra=struct.pack("<HHQ", 1, 8, 0)
            + struct.pack("<HHQQ", 1, 16, 54, len(deflate(b"a = 1\n" * 9))),
        ),
    ),
    *(
        (
            f"descriptor of {len(descriptor)} bytes",
            _insert(
                Entry(
                    b"x",
                    b"x",
                    flags=8,
                    local_crc=0,
                    local_size=0,
                    local_compressed_size=0,
                    descriptor=descriptor,
                )
            ),
        )
        for descriptor in (
            struct.pack("<3L", CRC, len(DESCRIBED), 1),
            b"PK\x07\x08" + struct.pack("<3L", CRC, len(DESCRIBED), 1),
            struct.pack("<LQQ", CRC, len(DESCRIBED), 1),
            b"PK\x07\x08" + struct.pack("<LQQ", CRC, len(DESCRIBED), 1),
        )
    ),
]


@pytest.mark.parametrize("tamper", [row[1] for row in HARMLESS], ids=[row[0] for row in HARMLESS])
def test_harmless(tmp_path: Path, tamper: Tamper) -> None:
    raw = RawZip(good_entries())
    tamper(raw)
    with WheelArchive(write_raw(tmp_path, raw)) as archive:
        assert archive.read("demo_pkg/a.py") == b"a = 1\n" * 9
        if raw.entries[0].made_by == 20:
            assert archive.members["demo_pkg/a.py"].mode == 0


def test_names_are_read_as_zipfile_reads_them(tmp_path: Path) -> None:
    raw = RawZip([Entry("ü.py".encode(), flags=0x800), Entry(b"\x81.txt"), *good_entries()])
    with WheelArchive(write_raw(tmp_path, raw)) as archive:
        assert list(archive.members)[:2] == ["ü.py", "ü.txt"]
