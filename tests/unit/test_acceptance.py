"""Every tool that takes wheels takes ours; and what uv, the strictest, rejects, our reader rejects too."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import struct
import subprocess
import sys
import threading
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from relink.library import relink
from relink.system.errors import WheelError
from relink.wheel.archive import WheelArchive
from relink.wheel.changes import Changes, NewContent
from relink.wheel.naming import relinked_name
from relink.wheel.record import check_record, read_record, verify_members
from relink.wheel.writer import write_wheel
from tests.support.works import Works
from tests.unit.wheel.build import Entry, RawZip, deflate, good_entries, record_line

BIN = Path(sys.executable).parent
UV = shutil.which("uv", path=str(BIN)) or shutil.which("uv")
NAME = "demo_pkg-1.0-py3-none-any.whl"

SERVED = pytest.mark.slow(
    reason="uv downloads from a web server on the loopback interface; our own reader tries the same"
)
needs_uv = pytest.mark.skipif(UV is None, reason="uv is not installed; it is in the group dev")


def tool(*command: str | Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a tool without the user's settings and without a network."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("UV_", "PIP_", "TWINE_", "PYTHON"))
    }
    environment |= {"HOME": str(home), "UV_CACHE_DIR": str(home / "uv"), "PIP_CONFIG_FILE": os.devnull}
    environment |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def by_pip(wheel: Path, place: Path) -> subprocess.CompletedProcess[str]:
    options = ("--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check", "--target")
    return tool(sys.executable, "-m", "pip", "install", *options, place / "pip", wheel, home=place)


def by_uv(wheel: Path, place: Path) -> subprocess.CompletedProcess[str]:
    options = ("--offline", "--no-config", "--no-deps", "--no-index", "--python", sys.executable, "--target")
    assert UV is not None
    return tool(UV, "pip", "install", *options, place / "target", wheel, home=place)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


def by_uv_from_an_index(wheel: Path, place: Path) -> subprocess.CompletedProcess[str]:
    """As from an index: uv unpacks what it downloads as it comes, and looks at it more closely than at a file."""
    options = ("--no-config", "--no-deps", "--no-index", "--python", sys.executable, "--target")
    assert UV is not None
    handler = functools.partial(_Quiet, directory=str(wheel.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/{quote(wheel.name)}"
            what = f"{wheel.name.partition('-')[0]} @ {url}"
            return tool(UV, "pip", "install", *options, place / "target", what, home=place)
        finally:
            server.shutdown()
            thread.join()


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
        name = relinked_name(archive.name, local="large", platform=archive.name.platform)
        (directory / "zip64").mkdir()
        replacements = {"demo/plain.so": NewContent(works.plain.read_bytes() + b"\0")}
        large = write_wheel(archive, directory / "zip64", Changes(name, replacements)).path
    return {"relink": path, "zip64": large}


@pytest.mark.slow(reason="an installation")
@pytest.mark.parametrize("which", ["relink", "zip64"])
@pytest.mark.parametrize(
    "accept",
    [
        by_pip,
        pytest.param(by_uv, marks=needs_uv),
        pytest.param(by_uv_from_an_index, marks=[needs_uv, SERVED]),
        by_wheel,
        by_installer,
        by_twine,
    ],
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


# Defects: those that uv looks for (astral-sh/uv#15136; each error of crates/uv-extract/src/error.rs) and their kin

Edit = Callable[[list[Entry], RawZip], None]


def _entry(entries: list[Entry], **facts: object) -> None:
    for name, value in facts.items():
        setattr(entries[0], name, value)


def duplicate_libraries(entries: list[Entry], _: RawZip) -> None:
    entries.insert(1, Entry(entries[0].name, b"b = 2\n"))


def _streamed(form: str, crc: int = 0, compressed: int = 0, size: int = 0) -> Edit:
    """A member whose CRC and sizes follow it, each off by so much."""

    def edit(entries: list[Entry], _: RawZip) -> None:
        first = entries[0]
        first.flags, first.local_crc, first.local_size, first.local_compressed_size = 8, 0, 0, 0
        values = (
            zlib.crc32(first.data) ^ crc,
            len(deflate(first.data)) + compressed,
            len(first.data) + size,
        )
        first.descriptor = (b"PK\x07\x08" if form.startswith("s") else b"") + struct.pack(
            form.lstrip("s"), *values
        )

    return edit


def _described_by_zero(entries: list[Entry], _: RawZip) -> None:
    _streamed("s<3L", crc=zlib.crc32(entries[0].data))(entries, _)


def _not_described(entries: list[Entry], _: RawZip) -> None:
    first = entries[0]
    first.flags, first.local_crc, first.local_size, first.local_compressed_size = 8, 0, 0, 0


def _in_no_directory(entries: list[Entry], _: RawZip) -> None:
    """A member with a header of its own that the directory does not list."""
    entries[0].padding = RawZip([Entry(b"demo_pkg/hidden.py", b"x")]).build().partition(b"PK\x01\x02")[0]


def _without_header(entries: list[Entry], _: RawZip) -> None:
    entries[0].local_signature = b"XXXX"


def _second_end(_: list[Entry], archive: RawZip) -> None:
    archive.trailing = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, 0, 0, 0)


def _second_of_all(_: list[Entry], archive: RawZip) -> None:
    """Two archives, one behind the other, each whole."""
    archive.prepended = RawZip(good_entries({"demo_pkg/a.py": b"evil\n"})).build()


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
    "duplicate entry": duplicate_libraries,
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
    "descriptor: wrong CRC": _streamed("s<3L", crc=1),
    "descriptor: CRC of zero": _described_by_zero,
    "descriptor: wrong compressed size": _streamed("s<3L", compressed=1),
    "descriptor: wrong size": _streamed("s<3L", size=1),
    "descriptor: wrong size, no signature": _streamed("<3L", size=1),
    "descriptor: wrong compressed size, ZIP64": _streamed("s<LQQ", compressed=1),
    "descriptor: wrong size, ZIP64": _streamed("s<LQQ", size=1),
    "descriptor missing": _not_described,
    "descriptor unasked": lambda entries, _: _entry(
        entries,
        descriptor=b"PK\x07\x08"
        + struct.pack("<3L", zlib.crc32(entries[0].data), len(deflate(entries[0].data)), 54),
    ),
    "in no directory": _in_no_directory,
    "no local header": _without_header,
    "a second end record": _second_end,
    "another archive in front": _second_of_all,
    "empty name": lambda entries, _: _entry(entries, name=b""),
    "ZIP64 end record with more in it": lambda _, archive: archive.__dict__.update(
        zip64=True, zip64_size=50, extensible=b"hidden"
    ),
    "ZIP64 sizes without a mark": lambda entries, _: _entry(
        entries, extra=_extra(1, struct.pack("<2Q", 9, 9)), local_extra=_extra(1, struct.pack("<2Q", 9, 9))
    ),
    "ZIP64 field too long": lambda entries, _: _entry(
        entries, size=0xFFFFFFFF, extra=_extra(1, struct.pack("<2Q", 54, 9))
    ),
    "two Unicode path fields": lambda entries, _: _entry(
        entries,
        extra=_extra(0x7075, b"\1" + bytes(4) + b"demo_pkg/a.py")
        + _extra(0x7075, b"\1" + bytes(4) + b"demo_pkg/b.py"),
    ),
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


SOUND: dict[str, Edit] = {
    "nothing": lambda *_: None,
    "comment": lambda _, archive: setattr(archive, "comment", b"made by hand"),
    "descriptor": _streamed("s<3L"),
    "descriptor without signature": _streamed("<3L"),
    "descriptor, ZIP64": _streamed("s<LQQ"),
    "ZIP64 end record": lambda _, archive: setattr(archive, "zip64", True),
    "ZIP64 sizes": lambda entries, _: _entry(
        entries,
        size=0xFFFFFFFF,
        extra=_extra(1, struct.pack("<Q", 54)),
        local_size=0xFFFFFFFF,
        local_compressed_size=0xFFFFFFFF,
        local_extra=_extra(1, struct.pack("<2Q", 54, len(deflate(entries[0].data)))),
    ),
}


@SERVED
@pytest.mark.parametrize("case", SOUND)
def test_what_is_written_of_sound_wheels_is_accepted(tmp_path: Path, case: str) -> None:
    """Whatever of these the input has: the output has no more than uv takes."""
    path = wheel_with(tmp_path, SOUND[case])
    assert our_reader(path) == []
    with WheelArchive(path) as archive:
        (tmp_path / "out").mkdir()
        name = relinked_name(archive.name, local="x", platform="any")
        written = write_wheel(archive, tmp_path / "out", Changes(name)).path
    assert our_reader(written) == []
    for accept in (by_pip, by_installer, *([by_uv, by_uv_from_an_index] if UV else [])):
        (tmp_path / accept.__name__).mkdir()
        ended = accept(written, tmp_path / accept.__name__)
        assert ended.returncode == 0, ended.stdout + ended.stderr


@needs_uv
def test_a_wheel_without_defects(tmp_path: Path) -> None:
    path = wheel_with(tmp_path)
    assert our_reader(path) == []
    ended = by_uv(path, tmp_path)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("defect", DEFECTS)
def test_our_reader_rejects(tmp_path: Path, defect: str) -> None:
    assert our_reader(wheel_with(tmp_path, DEFECTS[defect]))


# What no reader of ZIP files but ours looks at: the names' sense, RECORD, and zeros at the end.
OURS_ALONE = {
    "trailing zeros",
    "absolute path",
    "path that leaves",
    "Unicode path field",
    "symbolic link",
    "not listed in RECORD",
    "listed and not there",
    "hash that is wrong",
}


@needs_uv
@SERVED
@pytest.mark.parametrize("defect", sorted({*DEFECTS} - OURS_ALONE))
def test_uv_rejects(tmp_path: Path, defect: str) -> None:
    """That the list is one of real defects, not one of our own inventions."""
    ended = by_uv_from_an_index(wheel_with(tmp_path, DEFECTS[defect]), tmp_path)
    assert ended.returncode != 0
    assert "error sending request" not in ended.stderr, ended.stderr
