"""Each structural defect that a wheel can have, one test each; and what only looks like one."""

from __future__ import annotations

import re
import stat
import struct
from pathlib import Path

import pytest

from relink.system.errors import WheelError
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import WheelLimits
from tests.unit.wheel.build import DIST_INFO, Entry, RawZip, deflate, good_entries, write_raw
from tests.unit.wheel.tampered import UNICODE_PATH, Tamper, issues_of, with_archive, with_first, with_inserted


def test_nothing_wrong(tmp_path: Path) -> None:
    with WheelArchive(write_raw(tmp_path, RawZip(good_entries()))) as archive:
        assert list(archive.members) == [entry.name.decode() for entry in good_entries()]
        assert archive.dist_info == DIST_INFO


DEFECTS: list[tuple[str, Tamper, str]] = [
    ("traversal", with_inserted(Entry(b"../evil")), "leaves the wheel"),
    ("absolute", with_inserted(Entry(b"/evil")), "absolute"),
    ("drive", with_inserted(Entry(b"C:/evil")), "drive"),
    ("backslash", with_inserted(Entry(b"a\\..\\evil")), "backslash"),
    ("nul", with_inserted(Entry(b"a.py\0.txt")), "NUL"),
    ("not utf-8", with_inserted(Entry(b"\xff", flags=0x800)), "flagged as UTF-8"),
    ("symlink", with_first(attributes=(stat.S_IFLNK | 0o777) << 16), "symbolic link"),
    (
        "symlink of a system that is not unix",
        with_first(attributes=stat.S_IFLNK << 16, made_by=20),
        "symbolic link",
    ),
    ("fifo", with_first(attributes=stat.S_IFIFO << 16), "device, socket or pipe"),
    ("device", with_first(attributes=stat.S_IFBLK << 16), "device, socket or pipe"),
    ("directory mode", with_first(attributes=stat.S_IFDIR << 16), "disagree on whether"),
    ("file mode on directory", with_inserted(Entry(b"d/", method=0)), "disagree on whether"),
    ("directory with content", with_inserted(Entry(b"d/", b"x", attributes=0)), "directory with content"),
    ("duplicate", with_inserted(Entry(b"demo_pkg/a.py", b"a")), "two members have this name"),
    ("case", with_inserted(Entry(b"demo_pkg/A.py", b"a")), "only in case"),
    ("file and directory", with_inserted(Entry(b"demo_pkg", b"a")), "is a file, and the directory"),
    ("encrypted", with_first(flags=1), "encrypted"),
    ("strongly encrypted", with_first(flags=0x41), "encrypted"),
    ("masked", with_first(flags=0x2000), "encrypted"),
    ("patched", with_first(flags=0x20), "flags that relink does not know"),
    ("method", with_first(method=14), "compression method 14"),
    ("method deflate64", with_first(method=9), "compression method 9"),
    ("stored sizes", with_inserted(Entry(b"s", b"abc", method=0, size=9)), "is stored, yet its sizes differ"),
    ("impossible ratio", with_first(size=1 << 30), "more than deflate can do"),
    ("other disk", with_first(disk=1), "another disk"),
    (
        "central zip64 unasked",
        with_first(extra=struct.pack("<HHQQ", 1, 16, 9, 9)),
        "ZIP64 field gives it other sizes",
    ),
    (
        "central zip64 too long",
        with_first(size=0xFFFFFFFF, extra=struct.pack("<HHQQ", 1, 16, 54, 9)),
        "ZIP64 field gives it other sizes",
    ),
    ("central zip64 missing", with_first(size=0xFFFFFFFF), "ZIP64 field that is not there"),
    ("extra past its end", with_first(extra=b"\1\0\xff\0abc"), "extra field 0x0001 reaches past"),
    ("second name", with_first(extra=UNICODE_PATH), "another name"),
    (
        "gap before the end record",
        with_archive(before_end=b"hidden"),
        "6 bytes between central directory and end",
    ),
    ("trailing", with_archive(trailing=b"hidden"), "trailing data"),
    (
        "end record in the comment",
        with_archive(comment=b"PK\x05\x06" + bytes(18)),
        "between central directory and end",
    ),
    (
        "end record in the comment, cut",
        with_archive(comment=b"PK\x05\x06" + bytes(9)),
        "holds another end record",
    ),
    ("count too low", with_archive(count=1), "more than its entries"),
    ("count too high", with_archive(count=9), "damaged at entry 5 of 9"),
    ("directory past the end", with_archive(directory_size=1 << 20), "reaches past the end record"),
    ("several disks", with_archive(disk=1), "one disk of several"),
    ("zip64 locator", with_archive(zip64=True, locator_offset=1 << 40), "points outside"),
    (
        "zip64 locator elsewhere",
        with_archive(zip64=True, locator_offset=0),
        "does not point at a ZIP64 end record",
    ),
    ("zip64 record's size", with_archive(zip64=True, zip64_size=45), "that ends where it begins"),
    (
        "zip64 record with more in it",
        with_archive(zip64=True, zip64_size=50, extensible=b"hidden"),
        "more than its fields",
    ),
    ("zip64 offset", with_archive(zip64=True, directory_offset=7), "disagree: 7 and "),
    ("zip64 count", with_archive(zip64=True, zip64_count=3), "disagree: 4 and 3"),
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
    assert len(issues_of(tmp_path, with_inserted(*entries))) < 110


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


HARMLESS: list[tuple[str, Tamper]] = [
    ("comment", with_archive(comment=b"made by hand")),
    ("compression level flags", with_first(flags=2, local_flags=4)),
    ("padding in the extra field", with_first(local_extra=b"\0\0")),
    ("same name again", with_first(extra=struct.pack("<HHBL", 0x7075, 18, 1, 0) + b"demo_pkg/a.py")),
    (
        "extra field",
        with_first(extra=struct.pack("<HHL", 0x5455, 4, 0), local_extra=struct.pack("<HHL", 0x5455, 4, 0)),
    ),
    ("zip64 records without need", with_archive(zip64=True)),
    ("not made by unix", with_first(made_by=20)),
    ("directory", with_inserted(Entry(b"d/", method=0, attributes=stat.S_IFDIR << 16))),
    (
        "zip64 field without need",
        with_first(
            extra=struct.pack("<HHQQ", 1, 16, 54, len(deflate(b"a = 1\n" * 9))),
            local_extra=struct.pack("<HHQQ", 1, 16, 54, len(deflate(b"a = 1\n" * 9))),
        ),
    ),
    (
        # What `wheel tags` before 0.48 left: the directory's own ZIP64 field in front of the right one.
        "superfluous zip64 field",
        with_first(
            local_size=0xFFFFFFFF,
            local_compressed_size=0xFFFFFFFF,
            local_extra=struct.pack("<HHQ", 1, 8, 0)
            + struct.pack("<HHQQ", 1, 16, 54, len(deflate(b"a = 1\n" * 9))),
        ),
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
