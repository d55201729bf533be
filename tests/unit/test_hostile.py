"""Hostile wheels, libraries and prefixes, each by its name, through the command line.

The answer is a sentence and exit code 2 (or findings and 1); nothing is written, and nothing outside of the temporary directory
is touched. What each part says of each defect is tested where the part is: ``wheel/test_directory.py``, ``elf/test_symbols.py``…
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from relink import cli
from relink.elf.image import file_offset, read_image, read_sections
from tests.fuzz.hostile import watched
from tests.support.works import OUTPUT, Works
from tests.unit.wheel.build import DIST_INFO, FILENAME, Entry, RawZip, deflate, good_entries, record_line

Run = Callable[..., "Answer"]


@dataclass(frozen=True)
class Answer:
    """What the command said, and what it left in the output directory."""

    code: int
    out: str
    err: str
    left: list[str] = field(default_factory=list)


@pytest.fixture
def run(
    works: Works, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """relink on a wheel, in this process, under the eyes of a hook that sees what is opened for writing."""
    temporary, out = tmp_path / "tmp", tmp_path / "out"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))

    def go(wheel: Path, *words: str, prefix: Path | None = None) -> Answer:
        given = wheel.read_bytes()
        arguments = [str(wheel), "--prefix", str(prefix or works.prefix), "-o", str(out), *words]
        began = time.process_time()
        with watched(tmp_path) as outside, pytest.raises(SystemExit) as end:
            cli.main(arguments)
        assert time.process_time() - began < 10
        said = capsys.readouterr()
        code = end.value.code
        assert isinstance(code, int | None)
        assert "Traceback" not in said.out + said.err
        assert "fault of relink" not in said.err
        assert outside == []
        assert os.listdir(temporary) == []
        assert wheel.read_bytes() == given
        return Answer(code or 0, said.out, said.err, os.listdir(out) if out.exists() else [])

    return go


# Wheels

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


@pytest.mark.parametrize("share", [0, 0.001, 0.3, 0.6, 0.9, 0.99])
def test_truncated(works: Works, run: Run, tmp_path: Path, share: float) -> None:
    path = works.wheel(tmp_path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    answer = run(path)
    assert (answer.code, answer.left) == (2, [])
    assert "truncated" in answer.err


# ELF files: a good library in which numbers lie

Lie = Callable[[bytes], bytes]


def words(form: str, *places: tuple[int, int]) -> Lie:
    """Write numbers at offsets."""

    def lie(data: bytes) -> bytes:
        changed = bytearray(data)
        for at, value in places:
            struct.pack_into(form, changed, at, value)
        return bytes(changed)

    return lie


def tag(number: int, value: int) -> Lie:
    """Let an entry of the dynamic section say something else."""

    def lie(data: bytes) -> bytes:
        changed = bytearray(data)
        at = _dynamic(data)
        while (found := struct.unpack_from("<q", data, at)[0]) != number:
            assert found, f"no entry {number:#x}"
            at += 16
        struct.pack_into("<Q", changed, at + 8, value)
        return bytes(changed)

    return lie


def _dynamic(data: bytes) -> int:
    return next(item.offset for item in read_image(data, "x").segments if item.type == 2)


def _address(data: bytes, number: int) -> int:
    """The file offset that an entry of the dynamic section leads to."""
    at = _dynamic(data)
    while struct.unpack_from("<q", data, at)[0] != number:
        at += 16
    place = file_offset(read_image(data, "x").segments, struct.unpack_from("<Q", data, at + 8)[0])
    assert place is not None
    return place


def gnu_chain_without_end(data: bytes) -> bytes:
    """No word of the chains of DT_GNU_HASH has the bit that ends one."""
    section = next(item for item in read_sections(data, "x") if item.name == ".gnu.hash")
    buckets, _, bloom, _ = struct.unpack_from("<4I", data, section.offset)
    start = section.offset + 16 + 8 * bloom + 4 * buckets
    chains = range(start, section.offset + section.file_size, 4)
    return words("<I", *((at, struct.unpack_from("<I", data, at)[0] & ~1) for at in chains))(data)


def sysv_chain_in_a_circle(data: bytes) -> bytes:
    """The chain of DT_HASH, which lies in place of DT_GNU_HASH, leads to itself."""
    section = next(item for item in read_sections(data, "x") if item.name == ".gnu.hash")
    at = _dynamic(data)
    while struct.unpack_from("<q", data, at)[0] != 0x6FFFFEF5:
        at += 16
    table = struct.pack("<6I", 1, 3, 1, 0, 1, 2)  # one bucket, three symbols, and what follows each of them
    assert section.size >= len(table)
    return words("<q", (at, 4))(data[: section.offset] + table + data[section.offset + len(table) :])


def full_of_sections(count: int, size: int) -> Lie:
    """As many sections as there can be, each of them the whole file."""

    def lie(data: bytes) -> bytes:
        changed = bytearray(data + bytes(size))
        (old,) = struct.unpack_from("<Q", data, 40)
        number, names = struct.unpack_from("<HH", data, 60)
        rows = data[old : old + 64 * number]
        start = len(changed) + -len(changed) % 8
        row = struct.pack("<IIQQQQIIQQ", 1, 1, 2, 0, 0, start, 0, 0, 1, 0)
        changed += bytes(start - len(changed)) + rows + row * (count - number)
        struct.pack_into("<Q", changed, 40, start)
        struct.pack_into("<HHH", changed, 58, 64, count, names)
        return bytes(changed)

    return lie


FAR = 1 << 60
ELFS: dict[str, tuple[Lie, int, str]] = {
    "cut in the ELF header": (lambda data: data[:40], 1, "RLK506"),
    "cut in the program headers": (lambda data: data[:100], 1, "RLK506"),
    "cut in the middle": (lambda data: data[: len(data) // 2], 1, "RLK506"),
    "program headers past the end": (words("<Q", (32, FAR)), 1, "RLK506"),
    "program headers of size 0": (words("<H", (54, 0)), 1, "RLK506"),
    "65,535 program headers": (words("<H", (56, 0xFFFF)), 1, "RLK506"),
    "segment past the end": (words("<Q", (64 + 32, FAR)), 1, "RLK506"),
    "segments of size 0": (
        words("<Q", *((64 + 56 * number + at, 0) for number in range(4) for at in (32, 40))),
        1,
        "RLK506",
    ),
    "section headers past the end": (words("<Q", (40, FAR)), 2, "patchelf"),
    "section headers of size 0": (words("<H", (58, 0)), 2, "patchelf"),
    "65,535 section headers that are not there": (words("<H", (60, 0xFFFF)), 2, "patchelf"),
    "65,279 sections": (full_of_sections(0xFEFF, 0), 2, "sections overlap"),
    "65,279 large sections": (full_of_sections(0xFEFF, 1 << 20), 2, "sections overlap"),
    "names of sections past the end": (words("<H", (62, 0xFEFF)), 2, "patchelf"),
    "string table past the end": (tag(5, FAR), 1, "RLK506"),
    "string table of size 0": (tag(10, 0), 1, "RLK506"),
    "string table without end": (tag(10, FAR), 1, "RLK506"),
    "NEEDED past its strings": (tag(1, FAR), 1, "RLK506"),
    "RUNPATH past its strings": (tag(29, FAR), 1, "RLK506"),
    "symbols past the end": (tag(6, FAR), 1, "RLK506"),
    "symbols of size 0": (tag(11, 0), 1, "RLK506"),
    "relocations past the end": (tag(23, FAR), 1, "RLK506"),
    "hash table past the end": (tag(0x6FFFFEF5, FAR), 1, "RLK506"),
    "hash chain without end": (gnu_chain_without_end, 1, "RLK506"),
    "hash chain in a circle": (sysv_chain_in_a_circle, 1, "RLK506"),
}


@pytest.mark.parametrize("case", ELFS)
def test_elf_files(works: Works, run: Run, tmp_path: Path, case: str) -> None:
    lie, code, said = ELFS[case]
    path = works.wheel(tmp_path, {"demo/a.so": lie(works.library.read_bytes())})
    answer = run(path)
    assert answer.code == code, answer
    assert re.search(said, answer.err if code == 2 else answer.out), answer
    assert (answer.err.startswith("relink: ")) == (code == 2), answer.err
    assert answer.left == []


@pytest.mark.parametrize("case", ELFS)
def test_elf_files_of_a_prefix(works: Works, run: Run, tmp_path: Path, case: str) -> None:
    """The same lies in what the wheel's library needs: what cannot be loaded is not found, and what can is."""
    lie, _, _ = ELFS[case]
    prefix = tmp_path / "rocm"
    (prefix / "lib").mkdir(parents=True)
    (prefix / "lib/libdeep.so.1").symlink_to(works.prefix / "lib/libdeep.so.1")
    (prefix / "lib/libhip.so.7").write_bytes(lie(works.library.read_bytes()))
    answer = run(works.small(tmp_path), prefix=prefix)
    assert answer.code in (0, 1, 2), answer
    assert answer.err == "" or answer.code == 2
    assert bool(answer.left) == (answer.code == 0)


# Prefixes


def loops(prefix: Path) -> None:
    (prefix / "lib/again").symlink_to("..")
    (prefix / "lib/self").symlink_to("self")
    (prefix / "lib/a").symlink_to("b")
    (prefix / "lib/b").symlink_to("a")
    (prefix / "lib64").symlink_to("lib/again/lib/again/lib")
    (prefix / "lib/libloop.so.1").symlink_to("libloop.so.1")


def pipes(prefix: Path) -> None:
    for name in ("lib/libpipe.so.1", "lib/libnowhere.so.1", ".info/pipe", "lib/a.hsaco", "bin"):
        os.mkfifo(prefix / name)


def devices(prefix: Path) -> None:
    for name in ("zero", "full", "tty", "random"):
        (prefix / f"lib/lib{name}.so.1").symlink_to(f"/dev/{name}")
    (prefix / "lib/libdir.so.1").mkdir()
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):  # a container may forbid it
            os.mknod(prefix / "lib/libdevice.so.1", 0o020666, os.makedev(1, 5))


def sockets(prefix: Path) -> None:
    here = os.getcwd()
    os.chdir(prefix / "lib")  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("libsocket.so.1")
    finally:
        os.chdir(here)


def vast(prefix: Path) -> None:
    """A terabyte that is not there behind a header that is; and one of nothing but zeros."""
    for name in ("libvast.so.1", "libzeros.so.1"):
        path = prefix / "lib" / name
        if name == "libvast.so.1":
            path.write_bytes((prefix / "lib/libhip.so.7").read_bytes())
        path.touch()
        os.truncate(path, 1 << 40)


def deep(prefix: Path) -> None:
    path = prefix / "lib"
    for _ in range(400):
        path /= "d"
        path.mkdir()
    (path / "libend.so.1").symlink_to(prefix / "lib/libhip.so.7")


def unreadable(prefix: Path) -> None:
    for name in ("lib/libsecret.so.1", ".info/version-dev"):
        (prefix / name).write_bytes(b"")
        (prefix / name).chmod(0)
    (prefix / "lib/closed").mkdir(0)


@pytest.mark.parametrize("make", [loops, pipes, devices, sockets, vast, deep, unreadable])
def test_prefixes(works: Works, run: Run, tmp_path: Path, make: Callable[[Path], None]) -> None:
    """What is no library is passed over; nothing is waited for, and nothing read without end."""
    prefix = tmp_path / "rocm"
    shutil.copytree(works.prefix, prefix, symlinks=True)
    make(prefix)
    answer = run(works.small(tmp_path), prefix=prefix)
    assert (answer.code, answer.left) == (0, [OUTPUT]), answer
    if make is unreadable:
        (prefix / "lib/closed").chmod(0o755)


@pytest.mark.parametrize("make", [loops, pipes, devices, sockets, deep])
@pytest.mark.parametrize("command", ["isa", "doctor --prefix"])
def test_commands_on_prefixes(
    works: Works, tmp_path: Path, make: Callable[[Path], None], command: str
) -> None:
    prefix = tmp_path / "rocm"
    shutil.copytree(works.prefix, prefix, symlinks=True)
    make(prefix)
    ended = subprocess.run(
        [sys.executable, "-m", "relink", *command.split(), str(prefix)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert ended.returncode in (0, 1)
    assert "Traceback" not in ended.stderr
