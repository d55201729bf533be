"""Hostile wheels, each by its name, through the command line.

The answer is a sentence and exit code 2 (or findings and 1); nothing is written, and nothing outside of the temporary directory
is touched. What the reader says of each defect is tested in ``wheel/test_directory.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.works import Works
from tests.unit.hostile.conftest import Run
from tests.unit.wheel.build import DIST_INFO, FILENAME, Entry, RawZip, deflate, good_entries, record_line

Tamper = Callable[[list[Entry], RawZip], None]


def first(**facts: object) -> Tamper:
    """Let fields of the first member lie."""

    def tamper(entries: list[Entry], _: RawZip) -> None:
        for name, value in facts.items():
            setattr(entries[0], name, value)

    return tamper


def whole(**facts: object) -> Tamper:
    return lambda _, archive: archive.__dict__.update(facts)


def with_member(name: bytes, data: bytes = b"x", **facts: object) -> Tamper:
    """Add a member that RECORD lists."""
    text = name.decode("utf-8" if facts.get("flags") else "cp437")

    def tamper(entries: list[Entry], _: RawZip) -> None:
        entries.insert(0, Entry(name, data, **facts))  # type: ignore[arg-type]
        entries[-1].data += record_line(text, data).encode()

    return tamper


def member_says(name: str, edit: Callable[[bytes], bytes]) -> Tamper:
    """Edit a file of the dist-info; RECORD follows, but for itself."""

    def tamper(entries: list[Entry], _: RawZip) -> None:
        path = f"{DIST_INFO}/{name}"
        entry = next(item for item in entries if item.name == path.encode())
        old, entry.data = entry.data, edit(entry.data)
        entries[-1].data = entries[-1].data.replace(
            record_line(path, old).encode(), record_line(path, entry.data).encode()
        )

    return tamper


def composed(entries: list[Entry], archive: RawZip) -> None:
    """An e with an accent, as one character and as two."""
    for name in ("demo_pkg/\u00e9.py", "demo_pkg/e\u0301.py"):
        with_member(name.encode(), flags=0x800)(entries, archive)


def overlapping(entries: list[Entry], _: RawZip) -> None:
    """The second entry is the first one's bytes again, as in Fifield's bomb."""
    entries.insert(1, Entry(b"demo_pkg/b.py", entries[0].data, offset=0, local_signature=b"XXXX"))


def unlisted(entries: list[Entry], _: RawZip) -> None:
    entries.insert(0, Entry(b"demo_pkg/unlisted.py", b"x"))


def absent(entries: list[Entry], _: RawZip) -> None:
    entries.pop(0)


def wrong_line(old: bytes, new: bytes) -> Tamper:
    def tamper(entries: list[Entry], _: RawZip) -> None:
        assert old in entries[-1].data
        entries[-1].data = entries[-1].data.replace(old, new, 1)

    return tamper


def many(entries: list[Entry], _: RawZip) -> None:
    entries.extend(Entry(b"demo_pkg/%d" % number) for number in range(300))


WHEELS: dict[str, tuple[Tamper, list[str], int, str]] = {
    # what it is: how it is made, more words on the command line, exit code, what is said
    "path traversal": (with_member(b"../evil.py"), [], 2, "leaves the wheel"),
    "path traversal inside": (with_member(b"demo_pkg/../../evil.py"), [], 2, "leaves the wheel"),
    "absolute path": (with_member(b"/evil.py"), [], 2, "absolute"),
    "drive path": (with_member(b"C:/evil.py"), [], 2, "drive"),
    "backslashes": (with_member(b"..\\..\\evil.py"), [], 2, "backslash"),
    "NUL in a name": (with_member(b"demo_pkg/a.py\0.txt"), [], 2, "NUL"),
    "escape codes in a name": (with_member(b"demo_pkg/\x1b[2J.py"), [], 2, "control characters"),
    "symlink member": (first(attributes=0o120777 << 16), [], 2, "symbolic link"),
    "device member": (first(attributes=0o060644 << 16), [], 2, "device, socket or pipe"),
    "duplicate names": (with_member(b"demo_pkg/a.py"), [], 2, "two members have this name"),
    "case-colliding names": (with_member(b"demo_pkg/A.py"), [], 2, "only in case"),
    "names that collide by composition": (composed, [], 2, "only in case, composition"),
    "file and directory": (with_member(b"demo_pkg"), [], 2, "is a file, and the directory"),
    "encrypted": (first(flags=1), [], 2, "is encrypted"),
    "unknown method": (first(method=99), [], 2, "compression method 99"),
    "overlapping members": (overlapping, [], 2, "different names|overlaps"),
    "local name": (first(local_name=b"demo_pkg/b.py"), [], 2, "give different names"),
    "local size": (first(local_size=7), [], 2, "disagree: size"),
    "local CRC": (first(local_crc=7), [], 2, "disagree: crc"),
    "local method": (first(local_method=0), [], 2, "disagree: method"),
    "trailing data": (whole(trailing=b"x"), [], 2, "trailing data"),
    "leading data": (whole(prepended=b"#!/bin/sh\n"), [], 2, "in front of the first member|prepended"),
    "data between members": (first(padding=b"PK"), [], 2, "belong to no member"),
    "CRC mismatch": (first(crc=7), [], 2, "CRC is"),
    "size mismatch": (first(size=53), [], 2, "larger than the 53 bytes"),
    "size mismatch, stored": (
        with_member(b"demo_pkg/s", b"abc", method=0, size=9),
        [],
        2,
        "its sizes differ",
    ),
    "listed and absent": (absent, [], 1, "RLK502"),
    "present and unlisted": (unlisted, [], 1, "RLK502"),
    "RECORD: wrong hash": (wrong_line(b"a.py,sha256=", b"a.py,sha256=AAAA"), [], 1, "RLK502"),
    "RECORD: other hash": (
        wrong_line(
            record_line("demo_pkg/a.py", b"a = 1\n" * 9).encode(),
            record_line("demo_pkg/a.py", b"b = 2\n" * 9).encode(),
        ),
        [],
        2,
        "is not what RECORD lists|sha256",
    ),
    "RECORD: wrong size": (wrong_line(b",54\n", b",55\n"), [], 1, "RLK502"),
    "RECORD: a line twice": (
        wrong_line(b"demo_pkg/a.py", record_line("demo_pkg/a.py", b"other").encode() + b"demo_pkg/a.py"),
        [],
        1,
        "RLK502",
    ),
    "RECORD: path that leaves": (wrong_line(b"demo_pkg/a.py,", b"../../a.py,"), [], 1, "RLK502"),
    "RECORD: weak hash": (wrong_line(b"a.py,sha256=", b"a.py,md5="), [], 1, "RLK502"),
    "RECORD: not UTF-8": (wrong_line(b"demo_pkg/a.py,", b"demo_pkg/\xff.py,"), [], 2, "UTF-8"),
    "bomb: a member's ratio": (first(size=1 << 30, local_size=1 << 30), [], 2, "more than deflate can do"),
    "bomb: ratio of all": (
        with_member(b"demo_pkg/z", bytes(300 << 20)),
        [],
        2,
        "times its size; the limit is 250",
    ),
    "no bomb by --limit": (with_member(b"demo_pkg/z", bytes(300 << 20)), ["--limit", "ratio=2000"], 0, ""),
    "bomb: total": (lambda *_: None, ["--limit", "total-size=10K"], 2, "the limit is 10240"),
    "bomb: a member": (lambda *_: None, ["--limit", "member-size=10K"], 2, "the limit for a member is 10240"),
    "bomb: count": (many, ["--limit", "members=200"], 2, "the limit is 200"),
    "no more than is allowed": (lambda *_: None, ["--limit", "members=5"], 0, ""),
    "bomb: directory": (many, ["--limit", "directory-size=4K"], 2, "the limit is 4096"),
    "bomb behind a small size": (
        with_member(b"demo_pkg/z", b"content", compressed=deflate(bytes(1 << 26)), size=7),
        [],
        2,
        "larger than the 7 bytes",
    ),
    "dist-info of another name": (with_member(b"x", b"x"), ["RENAME"], 2, "does not match the filename"),
    "several dist-infos": (with_member(b"other-1.0.dist-info/METADATA"), [], 2, "several .dist-info"),
    "no METADATA": (lambda entries, _: entries.remove(entries[-3]), [], 2, "has no METADATA"),
    "METADATA: not UTF-8": (
        member_says("METADATA", lambda data: data + b"\xff\xfe"),
        [],
        2,
        "METADATA.*UTF-8",
    ),
    "METADATA: another version": (
        member_says("METADATA", lambda data: data.replace(b"Version: 1.0", b"Version: 2.0")),
        [],
        1,
        "RLK509",
    ),
    "WHEEL: not UTF-8": (member_says("WHEEL", lambda data: data + b"X: \xff\n"), [], 2, "WHEEL.*UTF-8"),
}


@pytest.mark.few(5, reason="other damage of the same kinds")
@pytest.mark.parametrize("case", WHEELS)
def test_wheels(works: Works, run: Run, tmp_path: Path, case: str) -> None:
    tamper, words, code, said = WHEELS[case]
    entries = good_entries({"demo_pkg/a.py": b"a = 1\n" * 9, "demo_pkg/a.so": works.library.read_bytes()})
    archive = RawZip(entries)
    tamper(entries, archive)
    rename = "RENAME" in words
    path = tmp_path / (FILENAME.replace("demo_pkg", "other") if rename else FILENAME)
    path.write_bytes(archive.build())
    answer = run(path, *([] if rename else words))
    told = answer.err if code == 2 else answer.out
    assert answer.code == code, answer
    assert re.search(said, told), told
    assert (answer.err.startswith("relink: ")) == (code == 2), answer.err
    assert bool(answer.left) == (code == 0), answer.left


@pytest.mark.few(2, reason="the same of other values")
@pytest.mark.parametrize("share", [0, 0.001, 0.3, 0.6, 0.9, 0.99])
def test_truncated(works: Works, run: Run, tmp_path: Path, share: float) -> None:
    path = works.wheel(tmp_path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    answer = run(path)
    assert (answer.code, answer.left) == (2, [])
    assert "truncated" in answer.err
