"""Each structural defect that a wheel can have, one test each; and what only looks like one."""

from __future__ import annotations

import io
import re
import stat
import struct
import time
import zipfile
import zlib
from pathlib import Path

import pytest

from relink.system.errors import WheelError
from relink.wheel import zipformat as z
from relink.wheel.archive import WheelArchive
from relink.wheel.directory import (
    DirectoryScan,
    EndRecord,
    find_collisions,
    name_defect,
    read_end_records,
    unreadable_error,
)
from relink.wheel.limits import WheelLimits
from tests.unit.wheel.build import DIST_INFO, Entry, RawZip, deflate, good_entries, write_raw
from tests.unit.wheel.tampered import UNICODE_PATH, Tamper, issues_of, with_archive, with_first, with_inserted


@pytest.mark.parametrize("name", ["a", "a/b.so", "a/b/", "..a", "a..", "é/ü.py", "a b", "ab:c", "~/x"])
def test_good_names(name: str) -> None:
    assert name_defect(name) is None


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("", "empty"),
        ("/", "empty"),
        ("/etc/passwd", "absolute"),
        ("../x", "leaves"),
        ("a/../../x", "leaves"),
        ("a/..", "leaves"),
        ("C:/x", "drive"),
        ("c:x", "drive"),
        ("a\\b", "backslash"),
        ("..\\x", "backslash"),
        ("a\0b", "NUL"),
        ("a\nb", "control"),
        ("a//b", "shortest"),
        ("./a", "shortest"),
        ("a/./b", "shortest"),
    ],
)
def test_bad_names(name: str, word: str) -> None:
    assert word in (name_defect(name) or "")


def test_collisions() -> None:
    assert find_collisions(["a/B.py", "a/b", "c/", "c/d", "e", "ef/g", "e.py"]) == []
    assert "only in case" in find_collisions(["a/B.py", "A/b.py"])[0]
    assert "only in case" in find_collisions(["stra\u00dfe", "STRASSE"])[0]
    assert "composition" in find_collisions(["e\u0301", "\u00e9"])[0]
    assert "final slash" in find_collisions(["a", "a/"])[0]
    assert "directory of 'A/b/c'" in find_collisions(["a", "A/b/c"])[0]
    assert "directory of 'a/b'" in find_collisions(["a", "a.b", "a-b", "a/b"])[0]


def test_deep_paths_take_no_time() -> None:
    start = time.monotonic()
    assert find_collisions(f"{number}" + "/a" * 30_000 for number in range(200)) == []
    assert time.monotonic() - start < 5


def scan() -> DirectoryScan:
    return DirectoryScan(lambda _offset, length: bytes(length), 1000)


def test_a_defect_names_the_member() -> None:
    found = scan()
    found.add("a\nb", "is damaged")
    found.add("", "the archive is damaged")
    found.add("x" * 300, "is long")
    assert found.issues == [r"'a\nb': is damaged", "the archive is damaged", f"'{'x' * 200}…': is long"]


def test_no_more_than_a_hundred() -> None:
    found = scan()
    for number in range(100_000):
        found.add(f"a{number}", "is damaged")
    assert len(found.issues) == 101
    assert found.issues[99:] == ["'a99': is damaged", "and more"]


def test_the_error() -> None:
    error = unreadable_error("it is cut")
    assert (error.message, error.issues) == ("the ZIP structure cannot be read", ("it is cut",))


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


def overlapped(raw: RawZip) -> None:
    # The second entry of the directory points at the first one's header, as in Fifield's bomb.
    raw.entries.insert(1, Entry(b"demo_pkg/b.py", b"", offset=0, local_signature=b"XXXX"))
    raw.entries[1].name = raw.entries[0].name
    raw.entries[1].data = raw.entries[0].data


def with_inner_header(raw: RawZip) -> None:
    # A whole member inside of the content of another one.
    header = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 0, zlib.crc32(b"quux"), 4, 4, 1, 0)
    inner = header + b"q" + b"quux"
    raw.entries.insert(0, Entry(b"demo_pkg/outer", inner, method=0))
    raw.entries.insert(1, Entry(b"q", b"quux", method=0, offset=30 + len(b"demo_pkg/outer")))


LOCAL: list[tuple[str, Tamper, str]] = [
    ("overlap, same header", overlapped, "overlaps"),
    ("overlap, quoted header", with_inner_header, "overlaps"),
    ("local name", with_first(local_name=b"demo_pkg/b.py"), "give different names"),
    ("local name length", with_first(local_name=b"demo_pkg/a"), "give different names"),
    ("local method", with_first(local_method=0), "disagree: method"),
    ("local method of a streamed one", with_first(flags=8, local_method=0), "disagree: method"),
    ("local flags", with_first(local_flags=0x800), "disagree: flags"),
    ("local crc", with_first(local_crc=1), "disagree: crc"),
    ("local crc of a streamed one", with_first(flags=8, local_crc=1), "disagree: crc"),
    ("local size", with_first(local_size=1), "disagree: size"),
    ("local compressed size", with_first(local_compressed_size=1), "disagree: compressed size"),
    ("local signature", with_first(local_signature=b"PK\x05\x04"), "not its local header"),
    ("local zip64 missing", with_first(local_size=0xFFFFFFFF), "ZIP64 field that is not there"),
    (
        "local zip64 too short",
        with_first(local_size=0xFFFFFFFF, local_extra=struct.pack("<HHL", 1, 4, 54)),
        "ZIP64 field that is not there",
    ),
    (
        "local zip64 lies",
        with_first(
            local_size=0xFFFFFFFF,
            local_compressed_size=0xFFFFFFFF,
            local_extra=struct.pack("<HHQQ", 1, 16, 1, 2),
        ),
        "disagree: size",
    ),
    (
        "local zip64 unasked",
        with_first(local_extra=struct.pack("<HHQQ", 1, 16, 9, 9)),
        "local header: a ZIP64 field",
    ),
    ("offset past the end", with_first(offset=1 << 31), "past the end of the file"),
    (
        "data past the end",
        with_first(compressed_size=1 << 24, local_compressed_size=1 << 24),
        "past the end of the file",
    ),
    ("local extra past its end", with_first(local_extra=b"\1\0\xff\0abc"), "local header: extra field"),
    ("local second name", with_first(local_extra=UNICODE_PATH), "another name"),
    (
        "descriptor missing",
        with_first(flags=8, local_crc=0, local_size=0, local_compressed_size=0),
        "data descriptor",
    ),
    (
        "descriptor lies",
        with_first(flags=8, local_crc=0, descriptor=struct.pack("<3L", 1, 2, 3)),
        "data descriptor",
    ),
    ("gap", with_first(padding=b"hidden"), "6 bytes after 'demo_pkg/a.py' belong to no member"),
    ("prepended", with_archive(prepended=b"#!/bin/sh\n"), "10 bytes in front of the first member"),
]


@pytest.mark.parametrize(("tamper", "message"), [row[1:] for row in LOCAL], ids=[row[0] for row in LOCAL])
def test_defect_of_a_local_header(tmp_path: Path, tamper: Tamper, message: str) -> None:
    issues = issues_of(tmp_path, tamper)
    assert any(re.search(message, issue) for issue in issues), issues
    assert len(issues) <= 5, issues


DESCRIBED = deflate(b"x")
CRC = zlib.crc32(b"x")


DESCRIPTORS: list[tuple[str, Tamper]] = [
    *(
        (
            f"descriptor of {len(descriptor)} bytes",
            with_inserted(
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


@pytest.mark.parametrize("tamper", [row[1] for row in DESCRIPTORS], ids=[row[0] for row in DESCRIPTORS])
def test_a_descriptor_in_each_form(tmp_path: Path, tamper: Tamper) -> None:
    raw = RawZip(good_entries())
    tamper(raw)
    with WheelArchive(write_raw(tmp_path, raw)) as archive:
        assert archive.read("demo_pkg/a.py") == b"a = 1\n" * 9
        if raw.entries[0].made_by == 20:
            assert archive.members["demo_pkg/a.py"].mode == 0


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
    (
        "directory with hidden content",
        with_inserted(Entry(b"d/", compressed=deflate(b"x"), attributes=stat.S_IFDIR << 16)),
        "directory with content",
    ),
    (
        "directory with a damaged block",
        with_inserted(Entry(b"d/", compressed=b"\xff\xff", attributes=stat.S_IFDIR << 16)),
        "directory with content",
    ),
    ("code page 437", with_inserted(Entry(b"\x81.txt", b"a")), "not ASCII and not flagged as UTF-8"),
    ("padding in the local extra field", with_first(local_extra=b"\0\0"), "2 bytes behind the extra fields"),
    ("padding in the extra field", with_first(extra=b"   "), "3 bytes behind the extra fields"),
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
    assert caught.value.message == f"{path.name} is truncated; get it again"
    name, version, *_ = path.name.split("-")
    assert caught.value.step == f"relink fetch {name.replace('_', '-')}=={version}"


def test_what_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(b"hello\n")
    with pytest.raises(WheelError) as caught:
        WheelArchive(path)
    assert caught.value.message == f"{path.name} is not a wheel"


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


CONTENT = b"a = 1\n" * 9
HARMLESS: list[tuple[str, Tamper]] = [
    ("comment", with_archive(comment=b"made by hand")),
    ("compression level flags", with_first(flags=2, local_flags=4)),
    (
        "one size in a local zip64 field",
        with_first(local_size=0xFFFFFFFF, local_extra=struct.pack("<HHQ", 1, 8, 54)),
    ),
    (
        "a data descriptor that the directory does not know",
        with_first(
            local_flags=8,
            local_crc=0,
            local_size=0,
            local_compressed_size=0,
            descriptor=struct.pack(
                "<4s3L", b"PK\x07\x08", zlib.crc32(CONTENT), len(deflate(CONTENT)), len(CONTENT)
            ),
        ),
    ),
    (
        "directory with an empty block",
        with_inserted(Entry(b"d/", compressed=b"\x03\0", attributes=stat.S_IFDIR << 16)),
    ),
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
    raw = RawZip([Entry("ü.py".encode(), flags=0x800), *good_entries()])
    with WheelArchive(write_raw(tmp_path, raw)) as archive:
        assert next(iter(archive.members)) == "ü.py"
