"""Local headers against the central directory, and bytes that belong to no member or to two."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

import pytest

from relink.wheel.archive import WheelArchive
from tests.unit.wheel.build import Entry, RawZip, deflate, good_entries, write_raw
from tests.unit.wheel.tampered import UNICODE_PATH, Tamper, issues_of, with_archive, with_first, with_inserted


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
        with_first(local_size=0xFFFFFFFF, local_extra=struct.pack("<HHQ", 1, 8, 54)),
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
