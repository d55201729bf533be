"""What is deflated ahead: the same bytes, within the limits of memory and threads."""

from __future__ import annotations

import os
import random
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relink.system.errors import RelinkError
from relink.wheel import packing
from relink.wheel.changes import NewContent
from relink.wheel.packing import largest_packed_size, pack
from relink.wheel.zipformat import DEFLATED, STORED
from tests.unit.wheel.build import (
    make_wheel,
)
from tests.unit.wheel.rewriting import NOISE, accepted, rewrite

CONTENT = b"abc" * 100_000 + random.Random(1).randbytes(100_000)


def pieces() -> Iterator[bytes]:
    for start in range(0, len(CONTENT), 70_001):
        yield CONTENT[start : start + 70_001]


@pytest.mark.parametrize("level", range(1, 10))
def test_a_deflated_member(level: int) -> None:
    packed = pack("x", NewContent(CONTENT), level=level)
    stream = b"".join(packed.parts)
    assert zlib.decompress(stream, -15) == CONTENT
    assert (packed.crc, packed.size) == (zlib.crc32(CONTENT), len(CONTENT))
    assert packed.compressed_size == len(stream) < len(CONTENT)
    assert (packed.pieces, packed.sha256) == ((), None)  # nothing is reused


def test_pieces_are_the_same_as_the_whole() -> None:
    assert pack("x", NewContent(pieces(), len(CONTENT)), level=3) == pack("x", NewContent(CONTENT), level=3)


def test_a_stored_member() -> None:
    packed = pack("x", NewContent(pieces(), len(CONTENT), stored=True), level=3)
    assert b"".join(packed.parts) == CONTENT
    assert (packed.crc, packed.compressed_size, packed.size) == (
        zlib.crc32(CONTENT),
        len(CONTENT),
        len(CONTENT),
    )


def test_what_is_written_is_not_kept() -> None:
    written = bytearray()
    packed = pack("x", NewContent(CONTENT), level=3, write=written.extend)
    assert packed.parts == ()
    assert packed.compressed_size == len(written)
    assert zlib.decompress(written, -15) == CONTENT


@pytest.mark.parametrize("method", [STORED, DEFLATED])
@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_size_that_is_not_true(method: int, wrong: int) -> None:
    with pytest.raises(RelinkError, match=f"'x' was announced with {len(CONTENT) + wrong} bytes and has"):
        pack("x", NewContent(pieces(), len(CONTENT) + wrong, stored=method == STORED), level=3)


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000])
@pytest.mark.parametrize("level", [1, 3, 9])
def test_the_upper_bound_holds_for_what_does_not_compress(size: int, level: int) -> None:
    noise = random.Random(size).randbytes(size)
    assert pack("x", NewContent(noise), level=level).compressed_size <= largest_packed_size(DEFLATED, size)
    assert largest_packed_size(STORED, size) == size


# Several at once

AT_ONCE = {(1, 1 << 30), (2, 2_600_000), (4, 1), (4, 1 << 30)}
BETWEEN = pytest.mark.slow(reason="half a second each, between others of the same test")


@pytest.mark.few(1, reason="other sizes")
@pytest.mark.parametrize(
    ("jobs", "memory"),
    [
        (jobs, memory) if (jobs, memory) in AT_ONCE else pytest.param(jobs, memory, marks=BETWEEN)
        for jobs in (1, 2, 4)
        for memory in (1, 2_600_000, 1 << 30)
    ],
)
def test_what_is_deflated_at_once_changes_nothing(tmp_path: Path, jobs: int, memory: int) -> None:
    wheel = make_wheel(tmp_path, {f"demo_pkg/{number}.bin": bytes(10) for number in range(6)})
    changes = {f"demo_pkg/{number}.bin": NewContent(NOISE[number:]) for number in range(6)}
    expected = rewrite(wheel, tmp_path / "expected", replacements=changes, jobs=1)
    result = rewrite(wheel, tmp_path / "out", replacements=changes, jobs=jobs, max_memory=memory)
    assert result.path.read_bytes() == expected.path.read_bytes()
    accepted(result.path)


@pytest.mark.parametrize(
    ("jobs", "memory", "most"), [(1, 1 << 30, 1), (4, 1, 1), (4, 2 * len(NOISE), 2), (4, 1 << 30, 4)]
)
def test_memory_and_jobs_bound_what_is_deflated_at_once(
    tmp_path: Path, jobs: int, memory: int, most: int
) -> None:
    wheel = make_wheel(tmp_path, {f"demo_pkg/{number}.bin": bytes(10) for number in range(8)})
    changed = threading.Condition()
    active = highest = 0

    def slow() -> Iterator[bytes]:
        nonlocal active, highest
        with changed:
            active += 1
            highest = max(highest, active)
            changed.notify_all()
            changed.wait_for(lambda: highest >= most, timeout=5)
        yield NOISE
        with changed:
            active -= 1

    changes = {f"demo_pkg/{number}.bin": NewContent(slow(), len(NOISE)) for number in range(8)}
    rewrite(wheel, tmp_path / "out", replacements=changes, jobs=jobs, max_memory=memory)
    assert highest == most
    assert active == 0


def test_memory_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for one, the next is begun with when one is taken."""
    ahead = []

    def noted(name: str, new: NewContent, **how: Any) -> Any:
        ahead.append(name)
        return pack(name, new, **how)

    monkeypatch.setattr(packing, "pack", noted)
    wheel = make_wheel(tmp_path, {f"demo_pkg/{number}.bin": bytes(10) for number in range(8)})
    changes = {f"demo_pkg/{number}.bin": NewContent(NOISE) for number in range(8)}
    rewrite(wheel, tmp_path / "out", replacements=changes, jobs=4, max_memory=len(NOISE))
    assert [name for name in ahead if name.endswith(".bin")] == [*changes]


def test_what_goes_wrong_ahead_is_told(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {f"demo_pkg/{number}.bin": bytes(10) for number in range(3)})
    changes = {f"demo_pkg/{number}.bin": NewContent(iter([b"x"]), 1 + number // 2) for number in range(3)}
    with pytest.raises(RelinkError, match=r"2\.bin' was announced with 2 bytes and has 1"):
        rewrite(wheel, tmp_path / "out", replacements=changes, jobs=4)
    assert os.listdir(tmp_path / "out") == []
