"""Every tool that takes wheels takes ours; and what uv, the strictest, rejects, our reader rejects too."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.errors import WheelError
from relink.pipeline import relink
from relink.wheel import (
    Replacement,
    WheelArchive,
    check_record,
    read_record,
    relinked,
    verify_members,
    write_wheel,
)
from tests.support.works import Works
from tests.unit.wheel.build import Entry, RawZip, deflate, good_entries, record_line

BIN = Path(sys.executable).parent
UV = shutil.which("uv", path=str(BIN)) or shutil.which("uv")
NAME = "demo_pkg-1.0-py3-none-any.whl"

needs_uv = pytest.mark.skipif(UV is None, reason="uv is not installed; it is in the group dev")


def tool(*command: str | Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a tool without the user's settings and without a network."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("UV_", "PIP_", "TWINE_", "PYTHON"))
    }
    environment |= {"HOME": str(home), "UV_CACHE_DIR": str(home / "uv"), "PIP_CONFIG_FILE": os.devnull}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def by_pip(wheel: Path, place: Path) -> subprocess.CompletedProcess[str]:
    options = ("--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check", "--target")
    return tool(sys.executable, "-m", "pip", "install", *options, place / "pip", wheel, home=place)


def by_uv(wheel: Path, place: Path) -> subprocess.CompletedProcess[str]:
    options = ("--offline", "--no-config", "--no-deps", "--no-index", "--python", sys.executable, "--target")
    assert UV is not None
    return tool(UV, "pip", "install", *options, place / "target", wheel, home=place)


def by_wheel(wheel: Path, place: Path) -> subprocess.CompletedProcess[str]:
    return tool(sys.executable, "-m", "wheel", "unpack", "--dest", place / "unpacked", wheel, home=place)


def by_installer(wheel: Path, place: Path) -> subprocess.CompletedProcess[str]:
    options = ("--validate-record", "all", "--no-compile-bytecode", "--destdir")
    return tool(sys.executable, "-m", "installer", *options, place / "root", wheel, home=place)


def by_twine(wheel: Path, place: Path) -> subprocess.CompletedProcess[str]:
    return tool(sys.executable, "-m", "twine", "check", wheel, home=place)


@pytest.fixture(scope="module")
def outputs(works: Works, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What relink makes of a wheel, and what the writer alone makes with large members' records everywhere."""
    directory = tmp_path_factory.mktemp("outputs")
    report = relink(works.wheel(directory), works.options(directory / "relink"))
    assert report.output is not None
    path = Path(report.output.path)
    with WheelArchive(path) as archive, pytest.MonkeyPatch.context() as patch:
        # As if every member were larger than 4 GiB, and there were more than 65,535 of them.
        patch.setattr("relink.wheel.zipformat.ZIP64_LIMIT", 0)
        patch.setattr("relink.wheel.zipformat.ZIP64_COUNT", 0)
        name = relinked(archive.name, local="large", platform=archive.name.platform)
        (directory / "zip64").mkdir()
        replacements = {"demo/plain.so": Replacement(works.plain.read_bytes() + b"\0")}
        large = write_wheel(archive, directory / "zip64", name=name, replacements=replacements).path
    return {"relink": path, "zip64": large}


@pytest.mark.parametrize("which", ["relink", "zip64"])
@pytest.mark.parametrize(
    "accept", [by_pip, pytest.param(by_uv, marks=needs_uv), by_wheel, by_installer, by_twine]
)
def test_accepted(
    outputs: dict[str, Path],
    tmp_path: Path,
    which: str,
    accept: Callable[[Path, Path], subprocess.CompletedProcess[str]],
) -> None:
    ended = accept(outputs[which], tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    if accept is not by_twine:
        (installed,) = [
            path for path in tmp_path.rglob("a.so") if "uv" not in path.relative_to(tmp_path).parts
        ]
        with zipfile.ZipFile(outputs[which]) as archive:
            assert installed.read_bytes() == archive.read("demo/a.so")


def test_the_second_output_does_use_zip64(outputs: dict[str, Path]) -> None:
    """Else the tests of it show nothing."""
    assert b"PK\x06\x06" in outputs["zip64"].read_bytes()
    assert b"PK\x06\x06" not in outputs["relink"].read_bytes()


# Defects, after the list of those that uv looks for (astral-sh/uv#15136)

Edit = Callable[[list[Entry], RawZip], None]


def _entry(entries: list[Entry], **facts: object) -> None:
    for name, value in facts.items():
        setattr(entries[0], name, value)


def _twice(entries: list[Entry], _: RawZip) -> None:
    entries.insert(1, Entry(entries[0].name, b"b = 2\n"))


def _streamed_wrongly(entries: list[Entry], _: RawZip) -> None:
    first = entries[0]
    first.flags, first.local_crc, first.local_size, first.local_compressed_size = 8, 0, 0, 0
    first.descriptor = b"PK\x07\x08" + struct.pack("<3L", 1, 2, 3)


def _unlisted(entries: list[Entry], _: RawZip) -> None:
    entries.insert(0, Entry(b"demo_pkg/unlisted.py", b"x"))


def _absent(entries: list[Entry], _: RawZip) -> None:
    entries.pop(0)


def _wrong_hash(entries: list[Entry], _: RawZip) -> None:
    record = entries[-1]
    assert record.name.endswith(b"RECORD")
    honest, lie = (record_line("demo_pkg/a.py", data) for data in (entries[0].data, b"b = 1\n" * 9))
    assert honest.encode() in record.data
    record.data = record.data.replace(honest.encode(), lie.encode())


def _extra(kind: int, data: bytes) -> bytes:
    return struct.pack("<2H", kind, len(data)) + data


DEFECTS: dict[str, Edit] = {
    "duplicate entry": _twice,
    "trailing bytes": lambda _, archive: setattr(archive, "trailing", b"x"),
    "trailing zeros": lambda _, archive: setattr(archive, "trailing", bytes(9)),
    "another archive behind": lambda _, archive: setattr(archive, "trailing", RawZip(good_entries()).build()),
    "bytes in front": lambda _, archive: setattr(archive, "prepended", b"#!/bin/sh\n"),
    "bytes before the end record": lambda _, archive: setattr(archive, "before_end", b"x" * 9),
    "an end record in the comment": lambda _, archive: setattr(
        archive, "comment", struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, 0, 0, 0)
    ),
    "wrong CRC": lambda entries, _: _entry(entries, crc=1),
    "wrong local CRC": lambda entries, _: _entry(entries, local_crc=1),
    "wrong size": lambda entries, _: _entry(entries, size=7),
    "wrong local size": lambda entries, _: _entry(entries, local_size=7),
    "wrong compressed size": lambda entries, _: _entry(entries, compressed_size=7),
    "wrong local compressed size": lambda entries, _: _entry(entries, local_compressed_size=7),
    "wrong offset": lambda entries, _: _entry(entries, offset=3),
    "offset of another member": lambda entries, _: _entry(entries, offset=100),
    "wrong directory offset": lambda _, archive: setattr(archive, "directory_offset", 3),
    "wrong directory size": lambda _, archive: setattr(archive, "directory_size", 3),
    "too many entries": lambda _, archive: setattr(archive, "count", 9),
    "too few entries": lambda _, archive: setattr(archive, "count", 3),
    "another name in the local header": lambda entries, _: _entry(entries, local_name=b"demo_pkg/b.py"),
    "another method in the local header": lambda entries, _: _entry(entries, local_method=0),
    "bytes between members": lambda entries, _: _entry(entries, padding=b"x" * 30),
    "bytes after the compressed data": lambda entries, _: _entry(
        entries, compressed=deflate(entries[0].data) + b"xyz"
    ),
    "compressed data cut": lambda entries, _: _entry(entries, compressed=deflate(entries[0].data)[:-2]),
    "descriptor that lies": _streamed_wrongly,
    "absolute path": lambda entries, _: _entry(entries, name=b"/tmp/x"),
    "path that leaves": lambda entries, _: _entry(entries, name=b"../x"),
    "NUL in the name": lambda entries, _: _entry(entries, name=b"demo_pkg/a.py\0.txt"),
    "control character in the name": lambda entries, _: _entry(entries, name=b"demo_pkg/a\n.py"),
    "name that is not UTF-8": lambda entries, _: _entry(entries, name=b"demo_pkg/\xff.py", flags=0x800),
    "Unicode path field": lambda entries, _: _entry(
        entries, extra=_extra(0x7075, b"\1" + bytes(4) + b"demo_pkg/b.py")
    ),
    "extra field past the end": lambda entries, _: _entry(entries, extra=struct.pack("<2H", 9, 99)),
    "ZIP64 sizes that are not there": lambda entries, _: _entry(entries, size=0xFFFFFFFF),
    "ZIP64 count that lies": lambda _, archive: archive.__dict__.update(zip64=True, zip64_count=3),
    "ZIP64 offset that lies": lambda _, archive: archive.__dict__.update(zip64=True, zip64_offset=3),
    "ZIP64 locator that lies": lambda _, archive: archive.__dict__.update(zip64=True, locator_offset=3),
    "encrypted": lambda entries, _: _entry(entries, flags=1),
    "unknown method": lambda entries, _: _entry(entries, method=99, compressed=b"x"),
    "symbolic link": lambda entries, _: _entry(entries, attributes=0o120777 << 16),
    "not listed in RECORD": _unlisted,
    "listed and not there": _absent,
    "hash that is wrong": _wrong_hash,
}


def wheel_with(directory: Path, edit: Edit = lambda *_: None) -> Path:
    entries = good_entries()
    archive = RawZip(entries)
    edit(entries, archive)
    path = directory / NAME
    path.write_bytes(archive.build())
    return path


def our_reader(path: Path) -> list[str]:
    """Everything that our reader has against a wheel."""
    try:
        with WheelArchive(path) as archive:
            entries, malformed = read_record(archive)
            issues = [*malformed, *check_record(entries, archive.members, archive.dist_info)]
            known = [entry for entry in entries if entry.path in archive.members]
            verify_members(archive, known)
    except WheelError as error:
        return [error.message, *error.issues]
    return [issue.message for issue in issues if issue.level == "error"]


@needs_uv
def test_a_wheel_without_defects(tmp_path: Path) -> None:
    path = wheel_with(tmp_path)
    assert our_reader(path) == []
    ended = by_uv(path, tmp_path)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("defect", DEFECTS)
def test_our_reader_rejects(tmp_path: Path, defect: str) -> None:
    assert our_reader(wheel_with(tmp_path, DEFECTS[defect]))


@needs_uv
def test_uv_rejects_most_of_them(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """That the list is one of real defects, not one of our own inventions. Which ones uv rejects depends on its version."""
    rejected = []
    for number, (defect, edit) in enumerate(DEFECTS.items()):
        place = tmp_path / str(number)
        place.mkdir()
        if by_uv(wheel_with(place, edit), place).returncode != 0:
            rejected.append(defect)
    record_property("rejected by uv", len(rejected))
    assert {"wrong CRC", "trailing bytes", "wrong offset", "bytes before the end record"} <= {*rejected}
    assert len(rejected) > len(DEFECTS) / 2, rejected
