"""A content that is inflated where it is asked for: the same bytes as of the whole, however it is read."""

from __future__ import annotations

import mmap
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relink.system.errors import RelinkError, WheelError
from relink.system.spool import LazyMemory, Spool, fill, is_spooled, release_pages
from relink.wheel.archive import WheelArchive
from relink.wheel.deflate import ranges, stream

PAGE = mmap.PAGESIZE
SIZE = 3 << 20


def content_of(seed: int, size: int = SIZE) -> bytes:
    """Runs that compress well beside noise: the pieces are of all sizes."""
    rng = random.Random(seed)
    parts = [
        rng.randbytes(rng.randrange(1, 50_000))
        if rng.random() < 0.5
        else bytes([rng.randrange(256)]) * rng.randrange(1, 200_000)
        for _ in range(200)
    ]
    return b"".join(parts)[:size].ljust(size, b"x")


def made(directory: Path, content: bytes, method: int = zipfile.ZIP_DEFLATED) -> Path:
    path = directory / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("demo/a.so", content)
        archive.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        archive.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("demo-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is kept at the ends, and pieces and the way between checkpoints are short."""
    monkeypatch.setattr(ranges, "ENDS", PAGE)
    for module in (ranges, stream):
        monkeypatch.setattr(module, "CHUNK", 20_000)
        monkeypatch.setattr(module, "COMPRESSED_CHUNK", 5_000)


@pytest.mark.few(3, reason="the same of other values")
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("seed", range(4))
def test_any_range_is_that_of_the_content(tmp_path: Path, method: int, seed: int) -> None:
    rng = random.Random(seed)
    content = content_of(seed, SIZE - rng.randrange(3 * PAGE))
    with WheelArchive(made(tmp_path, content, method)) as archive:
        seen: list[int] = []
        view, checkpoints = archive.read_lazily("demo/a.so", seen.append)
        assert sum(seen) == len(view) == len(content)
        assert bool(checkpoints) == (method == zipfile.ZIP_DEFLATED)
        # The ends are there; the middle is not.
        assert view[:PAGE] == content[:PAGE]
        assert view[-1000:] == content[-1000:]
        assert not any(view[SIZE // 2 : SIZE // 2 + 10 * PAGE])
        for _ in range(300):
            start = rng.randrange(len(content))
            stop = start + rng.choice([1, 100, PAGE, 300_000])
            fill(view, start, stop)
            assert view[start:stop] == content[start:stop]


def test_reading_forward_inflates_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = content_of(7)
    with WheelArchive(made(tmp_path, content)) as archive:
        view, _ = archive.read_lazily("demo/a.so", lambda _: None)
        inflated, real = 0, stream.inflate_piece

        def counted(*of: Any) -> tuple[bytes, bytes]:
            nonlocal inflated
            parts = real(*of)
            inflated += sum(map(len, parts))
            return parts

        monkeypatch.setattr(ranges, "inflate_piece", counted)
        for start in range(0, SIZE, 9 * PAGE):
            fill(view, start, start + 10)
        assert inflated <= SIZE
        # What is there is not inflated again.
        before = inflated
        fill(view, 0, 10)
        assert inflated == before
        # From a checkpoint, not from the beginning.
        fill(view, SIZE - 3 * PAGE, SIZE - 2 * PAGE)
        assert inflated - before < SIZE // 4


def test_who_reads_here_and_there_gets_all_of_it(tmp_path: Path) -> None:
    content = content_of(8)
    with WheelArchive(made(tmp_path, content)) as archive:
        view, _ = archive.read_lazily("demo/a.so", lambda _: None)
        rng = random.Random(8)
        number = 0
        while view != content:
            at = rng.randrange(SIZE)
            fill(view, at, at + 1)
            number += 1
        # Of 768 pages most are missing when it happens.
        assert 10 < number < 700


def test_pages_that_begin_with_a_signature_are_there(tmp_path: Path) -> None:
    content = bytearray(content_of(9))
    places = [*range(20 * PAGE, SIZE - 20 * PAGE, 7 * PAGE)]
    for place in places:
        content[place : place + 4] = b"CODE"
    content[5 * PAGE + 1 : 5 * PAGE + 5] = b"CODE"
    with WheelArchive(made(tmp_path, bytes(content))) as archive:
        view, _ = archive.read_lazily("demo/a.so", lambda _: None, frozenset({b"CODE"}))
        there = [place for place in places if view[place : place + PAGE] == content[place : place + PAGE]]
        # One whose first bytes are of two pieces may be missing.
        assert len(there) > 0.95 * len(places)
        assert not any(view[5 * PAGE : 6 * PAGE])
        fill(view, 0, SIZE)
        assert view == content


def test_a_wheel_that_changes_meanwhile_is_told(tmp_path: Path) -> None:
    wheel = made(tmp_path, content_of(10))
    with WheelArchive(wheel) as archive:
        view, _ = archive.read_lazily("demo/a.so", lambda _: None)
        start = archive.members["demo/a.so"].data_offset
        with wheel.open("r+b") as file:
            file.seek(start)
            file.write(b"\xff" * archive.members["demo/a.so"].compressed_size)
        with pytest.raises(WheelError, match=r"demo/a\.so.*has changed since it was read"):
            fill(view, 0, SIZE)


@pytest.mark.parametrize("damage", ["content", "end"])
def test_damage_is_told_at_once(tmp_path: Path, damage: str) -> None:
    wheel = made(tmp_path, content_of(11))
    with WheelArchive(wheel) as archive:
        member = archive.members["demo/a.so"]
    with wheel.open("r+b") as file:
        file.seek(
            member.data_offset
            + (member.compressed_size // 2 if damage == "content" else member.compressed_size - 40)
        )
        file.write(b"\xff" * 30)
    with WheelArchive(wheel) as archive, pytest.raises(WheelError, match=r"^demo-1\.0-.*demo/a\.so"):
        archive.read_lazily("demo/a.so", lambda _: None)


def test_what_is_too_large_for_memory_is_in_a_file(tmp_path: Path) -> None:
    content = content_of(12)
    with WheelArchive(made(tmp_path, content)) as archive:
        view, _ = archive.read_lazily("demo/a.so", lambda _: None, spool=Spool(tmp_path, whole=1 << 20))
        assert is_spooled(view)
        fill(view, 0, SIZE)
        release_pages(view)
        assert view == content


def test_more_than_there_is_room_for_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> LazyMemory:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(ranges, "LazyMemory", refuse)
    with (
        WheelArchive(made(tmp_path, content_of(12))) as archive,
        pytest.raises(RelinkError, match="more than there is room for"),
    ):
        archive.read_lazily("demo/a.so", lambda _: None)


def test_what_is_not_fetched_any_more_is_zeros() -> None:
    def fetch(part: range) -> Iterator[tuple[int, bytes]]:
        yield part.start, b"x" * len(part)

    memory = LazyMemory(4 * PAGE, fetch)
    view = memoryview(memory)
    fill(view, PAGE, PAGE + 1)
    memory.stop_fetching()
    fill(view, 0, 4 * PAGE)
    assert view == bytes(PAGE) + b"x" * PAGE + bytes(2 * PAGE)
