"""The largest member is read ahead: only where it pays, and nothing is left open or running."""

from __future__ import annotations

import gc
import os
import random
import struct
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from relink.planning import contents
from relink.planning.contents import Contents
from relink.system.errors import WheelError
from relink.system.spool import Spool
from tests.support.wheels import make_wheel

ELF = b"\x7fELF" + random.Random(1).randbytes(1 << 20)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "READ_AHEAD", 1 << 20)


def working() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("relink-contents")]


@pytest.mark.parametrize(
    ("files", "begun"),
    [
        ({"demo/a.so": ELF, "demo/b": b"x"}, True),
        ({"demo/a.so": ELF, "demo/b.so": ELF[: 1 << 18]}, False),
        ({"demo/a.bin": b"x" + ELF}, False),
        ({"demo/a.so": ELF[:1000]}, False),
    ],
    ids=["far larger", "others large", "not ELF", "small"],
)
def test_what_is_read_ahead(tmp_path: Path, files: dict[str, bytes], begun: bool) -> None:
    with Contents(make_wheel(tmp_path, files)) as opened:
        assert bool(working()) == begun
        for name, content in files.items():
            seen: list[int] = []
            assert bytes(opened.read(name, seen.append)) == content
            assert sum(seen) == len(content)
            assert bytes(opened.read(name, seen.append)) == content
    assert not working()


def test_closing_ends_it(tmp_path: Path) -> None:
    opened = Contents(make_wheel(tmp_path, {"demo/a.so": ELF * 10}))
    opened.close()
    assert not working()
    with pytest.raises(ValueError, match="has been closed"):
        opened.archive.read("demo/a.so")


def test_damage_at_its_beginning_leaves_nothing_open(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"demo/a.so": ELF})
    with zipfile.ZipFile(wheel) as archive:
        place = archive.getinfo("demo/a.so").header_offset + 30 + len("demo/a.so")
    with wheel.open("r+b") as file:
        file.seek(place)
        file.write(b"\xff" * 64)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(WheelError, match=r"demo/a\.so"):
        Contents(wheel)
    assert os.listdir("/proc/self/fd") == before
    assert not working()


def test_looking_for_spans_ends_with_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "REUSE", 1 << 20)
    monkeypatch.setattr(contents, "READ_AHEAD", 1 << 40)
    monkeypatch.setattr("relink.wheel.deflate.splice.AHEAD", 1)
    data = random.Random(1).randbytes(4 << 20)
    opened = Contents(make_wheel(tmp_path, {"demo/a.so": data}), reuse=True)
    view = opened.read("demo/a.so", lambda _: None)
    begun, closed, count = threading.Event(), threading.Event(), 0
    read = opened.archive.raw_reader("demo/a.so")

    def waiting(offset: int, length: int) -> bytes:
        nonlocal count
        count += 1
        begun.set()
        assert closed.wait(10)
        return read(offset, length)

    monkeypatch.setattr(opened.archive, "raw_reader", lambda _: waiting)
    opened.keep("demo/a.so", view, (range(len(data)),), (), whole=True)
    assert begun.wait(10)
    ending = threading.Thread(target=opened.close)
    ending.start()
    ending.join(0.2)  # it waits for the search
    closed.set()
    ending.join(10)
    assert count == 1
    with pytest.raises(WheelError, match="has been closed"):
        opened.spans("demo/a.so")


def test_what_is_too_large_is_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same content, spans and chunks as from memory."""
    monkeypatch.setattr(contents, "REUSE", 1 << 20)
    monkeypatch.setattr("relink.system.spool.MOVED_AT_ONCE", 1 << 12)
    data = ELF + bytes(1 << 20) + random.Random(2).randbytes(6 << 20).translate(b"abcdefgh" * 32)
    gaps = (range(1 << 16, 5 << 20),)
    wheel = make_wheel(tmp_path, {"demo/a.so": data})
    found = []
    for spool in (Spool(tmp_path), Spool(tmp_path, whole=1 << 20)):
        with Contents(wheel, reuse=True, spool=spool) as opened:
            view = opened.read("demo/a.so", lambda _: None)
            assert view.readonly == (spool.whole == 1 << 20)
            assert view == data
            opened.keep("demo/a.so", view, gaps, (), whole=True)
            spans = [(span.start, span.stop, span.first, span.last) for span in opened.spans("demo/a.so")]
            assert spans
            chunks = b"".join(bytes(chunk) for chunk in opened.original("demo/a.so", check=True))
            found.append((spans, chunks == data))
    assert found[0] == found[1]
    assert os.listdir(tmp_path) == [wheel.name]


def test_parts_of_many_members_are_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MOVED", 1 << 20)
    gaps = (range(1 << 16, 1 << 19),)
    files = {f"demo/{number}.so": ELF + bytes([number]) for number in range(3)}
    with Contents(make_wheel(tmp_path, files), reuse=True, spool=Spool(tmp_path, kept=1 << 20)) as opened:
        for name, data in files.items():
            view = opened.read(name, lambda _: None)
            opened.keep(name, view, gaps, [range(1 << 17, (1 << 17) + 1)])
            loaded = opened.loaded[name]
            expected = bytearray(data)
            expected[gaps[0].start : gaps[0].stop] = bytes(len(gaps[0]))
            for part in loaded.kept_ranges:
                expected[part.start : part.stop] = data[part.start : part.stop]
            assert loaded.view == expected
            assert not loaded.whole
        assert [item.view.readonly for item in opened.loaded.values()] == [False, True, True]


@pytest.mark.parametrize("claim", [-1, 1, 64 << 20])
def test_a_member_that_lies_about_its_size_leaves_nothing(tmp_path: Path, claim: int) -> None:
    wheel = make_wheel(tmp_path, {"demo/a.so": ELF * 4})
    data = bytearray(wheel.read_bytes())
    entry = data.rindex(b"demo/a.so", 0, data.rindex(b"demo-1.0.dist-info/METADATA")) - 46
    local = data.index(b"demo/a.so") - 30
    for at in (entry + 24, local + 22):
        (size,) = struct.unpack_from("<I", data, at)
        assert size == 4 * len(ELF)
        struct.pack_into("<I", data, at, size + claim)
    wheel.write_bytes(data)
    gc.collect()  # maps of other tests
    before = os.listdir("/proc/self/fd")
    with (
        pytest.raises(WheelError, match=r"demo/a\.so"),
        Contents(wheel, spool=Spool(tmp_path, whole=1 << 20)) as opened,
    ):
        opened.read("demo/a.so", lambda _: None)
    gc.collect()
    assert os.listdir("/proc/self/fd") == before
    assert os.listdir(tmp_path) == [wheel.name]


def test_little_is_loaded_before_the_wheel_is_opened() -> None:
    program = (
        "import sys, relink.planning.contents\n"
        "relink.planning.contents.Contents = lambda *_, **__: sys.exit(' '.join(sys.modules))\n"
        "import relink.cli; relink.cli.main(['x.whl'])\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    loaded = run.stderr.decode().split()
    assert {"relink.wheel.archive", "relink.cli.relinking"} <= {*loaded}
    later = ("auditwheel", "relink.planning.resolve", "relink.runs.relink_wheel", "relink.wheel.writer")
    assert [name for name in loaded if name.startswith(later)] == []
