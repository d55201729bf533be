"""The content of new members, deflated or stored, and what is said of it."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from relink.system.errors import RelinkError
from relink.wheel.changes import NewContent
from relink.wheel.packing import Packed, largest_packed_size, pack
from relink.wheel.zipformat import DEFLATED, STORED
from tests.unit.wheel.build import (
    make_wheel,
)
from tests.unit.wheel.rewriting import NOISE, accepted, rewrite

CONTENT = b"abc" * 100_000 + random.Random(1).randbytes(100_000)


def pieces() -> Iterator[bytes]:
    for start in range(0, len(CONTENT), 70_001):
        yield CONTENT[start : start + 70_001]


def packed_bytes(new: NewContent, level: int = 3) -> tuple[bytes, Packed]:
    written = bytearray()
    packed = pack("x", new, written.extend, level=level)
    assert packed.compressed_size == len(written)
    return bytes(written), packed


@pytest.mark.parametrize("level", range(1, 10))
def test_a_deflated_member(level: int) -> None:
    stream, packed = packed_bytes(NewContent(CONTENT), level)
    assert zlib.decompress(stream, -15) == CONTENT
    assert (packed.crc, packed.size) == (zlib.crc32(CONTENT), len(CONTENT))
    assert len(stream) < len(CONTENT)
    assert (packed.pieces, packed.sha256) == ((), None)  # nothing is reused


def test_pieces_are_the_same_as_the_whole() -> None:
    assert packed_bytes(NewContent(pieces(), len(CONTENT))) == packed_bytes(NewContent(CONTENT))


def test_a_stored_member() -> None:
    written, packed = packed_bytes(NewContent(pieces(), len(CONTENT), stored=True))
    assert written == CONTENT
    assert (packed.crc, packed.size) == (zlib.crc32(CONTENT), len(CONTENT))


@pytest.mark.parametrize("method", [STORED, DEFLATED])
@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_size_that_is_not_true(method: int, wrong: int) -> None:
    with pytest.raises(RelinkError, match=f"'x' was announced with {len(CONTENT) + wrong} bytes and has"):
        packed_bytes(NewContent(pieces(), len(CONTENT) + wrong, stored=method == STORED))


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000])
@pytest.mark.parametrize("level", [1, 3, 9])
def test_the_upper_bound_holds_for_what_does_not_compress(size: int, level: int) -> None:
    noise = random.Random(size).randbytes(size)
    assert len(packed_bytes(NewContent(noise), level)[0]) <= largest_packed_size(DEFLATED, size)
    assert largest_packed_size(STORED, size) == size


# Several members


@pytest.mark.parametrize("jobs", [1, 4])
def test_jobs_change_nothing(tmp_path: Path, jobs: int) -> None:
    wheel = make_wheel(tmp_path, {f"demo_pkg/{number}.bin": bytes(10) for number in range(6)})
    changes = {f"demo_pkg/{number}.bin": NewContent(NOISE[number:]) for number in range(6)}
    expected = rewrite(wheel, tmp_path / "expected", replacements=changes, jobs=2)
    result = rewrite(wheel, tmp_path / "out", replacements=changes, jobs=jobs)
    assert result.path.read_bytes() == expected.path.read_bytes()
    accepted(result.path)


def test_what_goes_wrong_is_told(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {f"demo_pkg/{number}.bin": bytes(10) for number in range(3)})
    changes = {f"demo_pkg/{number}.bin": NewContent(iter([b"x"]), 1 + number // 2) for number in range(3)}
    with pytest.raises(RelinkError, match=r"2\.bin' was announced with 2 bytes and has 1"):
        rewrite(wheel, tmp_path / "out", replacements=changes, jobs=4)
    assert os.listdir(tmp_path / "out") == []
