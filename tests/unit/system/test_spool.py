"""Contents in files without a name: the same bytes, nothing to be seen, and no memory for what nobody reads."""

from __future__ import annotations

import errno
import mmap
import os
import random
import stat
from pathlib import Path

import pytest

from relink.system import spool as spooling
from relink.system.errors import MachineError, RelinkError
from relink.system.spool import Filling, Spool, make_anonymous_memory, release_pages, write_into

DATA = random.Random(5).randbytes(1 << 20)
PAGE = mmap.PAGESIZE


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooling, "MOVED_AT_ONCE", 16 * PAGE)


def filled(place: Path) -> memoryview:
    with Filling(Spool(place), len(DATA)) as filling:
        for at in range(0, len(DATA), 1000):
            write_into(filling.room, at, DATA[at : at + 1000])
        return filling.finished()


def test_what_was_filled_is_in_the_file(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    view = filled(tmp_path)
    assert view.readonly
    assert view == DATA
    release_pages(view)
    assert view == DATA
    assert os.listdir(tmp_path) == []
    view.release()
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("seed", range(4))
def test_less_than_was_asked_for_may_be_written(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with Filling(Spool(tmp_path), len(DATA)) as filling:
        at = 0
        while at < len(DATA):
            part = filling.room(at, min(len(DATA), at + rng.randrange(1, 300_000)))
            size = rng.randrange(len(part)) + 1
            part[:size] = DATA[at : at + size]
            at += size
        assert filling.finished() == DATA


def test_little_memory_is_used(tmp_path: Path) -> None:
    with Filling(Spool(tmp_path), len(DATA)) as filling:
        write_into(filling.room, 0, DATA)
        part = filling.room(len(DATA), len(DATA))
        assert isinstance(part.obj, mmap.mmap)
        assert len(part.obj) == 16 * PAGE


def test_parts_are_kept(tmp_path: Path) -> None:
    parts = (range(10, 20), range(PAGE, 3 * PAGE + 1))
    kept = Spool(tmp_path).copy_to_file(memoryview(DATA), parts)
    expected = bytearray(len(DATA))
    for part in parts:
        expected[part.start : part.stop] = DATA[part.start : part.stop]
    assert kept == expected
    assert os.listdir(tmp_path) == []


def test_only_its_maker_may_read_it(tmp_path: Path) -> None:
    fd = Spool(tmp_path).new_file(10)
    status = os.fstat(fd)
    os.close(fd)
    assert (stat.S_IMODE(status.st_mode), status.st_nlink, status.st_size) == (0o600, 0, 10)
    assert status.st_dev == tmp_path.stat().st_dev


def test_memory_is_left_alone() -> None:
    view = make_anonymous_memory(len(DATA))
    view[:] = DATA
    release_pages(view)
    release_pages(memoryview(DATA))
    assert view == DATA


def test_another_place_where_that_one_cannot_be_written(tmp_path: Path) -> None:
    os.close(Spool(tmp_path / "nowhere").new_file(10))
    with pytest.raises(
        RelinkError, match=r"a temporary file of .* bytes cannot be made there; raise --max-memory"
    ):
        Spool(tmp_path).new_file(1 << 62)


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, MachineError, "make room beside the output"),
        (errno.EIO, MachineError, "check it"),
        (errno.EPERM, RelinkError, "cannot be written"),
    ],
)
def test_a_disk_that_does_not_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception], words: str
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(kind, match=words):
        filled(tmp_path)
    assert os.listdir("/proc/self/fd") == before
