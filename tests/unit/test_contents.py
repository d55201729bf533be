"""The largest file is read while the rest is prepared: only where it pays, and nothing is left open or running."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from relink import contents as ahead
from relink.errors import WheelError
from relink.wheel.archive import WheelArchive
from tests.support.wheels import make_wheel

ELF = b"\x7fELF" + random.Random(1).randbytes(1 << 20)


@pytest.fixture(autouse=True)
def worth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_WORTH", 1 << 20)


@pytest.mark.parametrize(
    ("files", "begun"),
    [
        ({"demo/a.so": ELF, "demo/b": b"x"}, ["demo/a.so"]),
        ({"demo/a.so": ELF, "demo/b.so": ELF[: 1 << 18]}, []),
        ({"demo/a.bin": b"x" + ELF}, []),
        ({"demo/a.so": ELF[:1000]}, []),
    ],
    ids=["far larger", "others large", "not ELF", "small"],
)
def test_what_is_begun(tmp_path: Path, files: dict[str, bytes], begun: list[str]) -> None:
    with ahead.open_ahead(make_wheel(tmp_path, files)) as archive:
        assert [*archive._ahead] == begun
        for name, content in files.items():
            assert bytes(archive.read_into(name)) == content
            assert bytes(archive.read_into(name)) == content
        assert not archive._ahead
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("relink-ahead")]


def test_closing_ends_it(tmp_path: Path) -> None:
    archive = ahead.open_ahead(make_wheel(tmp_path, {"demo/a.so": ELF * 50}))
    (reading,) = archive._ahead.values()
    archive.close()
    assert reading.done()
    with pytest.raises(ValueError, match="has been closed"):
        archive.read("demo/a.so")


def test_damage_at_its_beginning_leaves_nothing_open(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"demo/a.so": ELF})
    with zipfile.ZipFile(wheel) as archive:
        place = archive.getinfo("demo/a.so").header_offset + 30 + len("demo/a.so")
    with wheel.open("r+b") as file:
        file.seek(place)
        file.write(b"\xff" * 64)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(WheelError, match=r"demo/a\.so"):
        ahead.open_ahead(wheel)
    assert os.listdir("/proc/self/fd") == before


def test_contents_are_hashed_meanwhile() -> None:
    contents = {"a": ("sha256", memoryview(ELF)), "b": ("sha512", memoryview(b"b"))}
    with ahead.hashed_ahead(contents) as hashing:
        assert hashing["b"].digest.result() == hashlib.sha512(b"b").digest()
        assert hashing["a"].digest.result() == hashlib.sha256(ELF).digest()


class Slow:
    """An algorithm that waits after each piece until it is let go on."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.going_on = threading.Semaphore(0)

    def update(self, piece: memoryview) -> None:
        assert self.going_on.acquire(timeout=10)
        self.sizes.append(len(piece))

    def digest(self) -> bytes:
        return bytes(self.sizes)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    slow = Slow()
    monkeypatch.setattr(ahead, "_PIECE", 10)
    monkeypatch.setattr("relink.contents.hashlib.new", lambda *_, **__: slow)
    return slow


@pytest.mark.parametrize(("stop", "pieces"), [(1, 1), (10, 1), (11, 2), (30, 3), (35, 4)])
def test_what_has_been_hashed_can_be_waited_for(slow: Slow, stop: int, pieces: int) -> None:
    with ahead.hashed_ahead({"a": ("sha256", memoryview(bytes(35)))}) as hashing:
        slow.going_on.release(pieces)
        hashing["a"].wait(stop)
        assert slow.sizes == [10, 10, 10, 5][:pieces]
        slow.going_on.release(4)
        assert hashing["a"].digest.result() == bytes([10, 10, 10, 5])


def test_what_nobody_waits_for_is_not_hashed_to_the_end(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow, "going_on", Mock(acquire=lambda **_: threading.Event().wait(0.01) is False))
    with ahead.hashed_ahead({"a": ("sha256", memoryview(bytes(10_000)))}) as hashing:
        hashing["a"].wait(1)
    assert hashing["a"].digest.cancelled()
    assert 0 < len(slow.sizes) < 1000


def test_what_nobody_waits_for_is_not_looked_for_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "_LARGE", 1 << 20)
    content = random.Random(1).randbytes(4 << 20)
    with WheelArchive(make_wheel(tmp_path, {"demo/a.so": content})) as archive:
        view = archive.read_into("demo/a.so")
        read, count = archive.raw_reader("demo/a.so"), 0
        finder = ahead.SpanFinder(archive)

        def waiting(offset: int, length: int) -> bytes:
            nonlocal count
            count += 1
            assert finder._left.wait(10)
            return read(offset, length)

        monkeypatch.setattr(archive, "raw_reader", lambda _: waiting)
        monkeypatch.setattr("relink.wheel.deflate.blocks._AHEAD", 1)
        with finder:
            finder.note("demo/a.so", view, [range(len(content))])
            finder.begin("demo/a.so")
            while not count:
                time.sleep(0.001)
        assert count == 1
        with pytest.raises(WheelError, match="nobody waits"):
            finder.begin("demo/a.so").result()


def test_little_is_loaded_before_the_wheel_is_opened() -> None:
    program = (
        "import sys, relink.contents\n"
        "relink.contents.open_ahead = lambda *_, **__: sys.exit(' '.join(sys.modules))\n"
        "import relink.cli; relink.cli.main(['x.whl'])\n"
    )
    told = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
        .stderr.decode()
        .split()
    )
    assert {"relink.wheel.archive", "relink.cli.relinking"} <= set(told)
    later = (
        "rich",
        "auditwheel",
        "relink.resolve",
        "relink.report",
        "relink.pipeline",
        "relink.wheel.writer",
    )
    assert [name for name in told if name.startswith(later)] == []
