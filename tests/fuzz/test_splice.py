"""Streams of any valid layout of blocks go through the splicer: what is written is read by zipfile, and is the new content.

1,000 streams in `make test-all`, a tenth of them in `make test`, RELINK_FUZZ_STREAMS (20,000) in `make fuzz`.
A stream's number gives it again.
"""

from __future__ import annotations

import hashlib
import os
import random
import zipfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest

from relink.wheel.changes import NewContent
from relink.wheel.deflate import splice
from relink.wheel.deflate import stream as stream_module
from relink.wheel.deflate.splice import find_spans
from relink.wheel.deflate.stream import Checkpoint
from relink.wheel.deflate.stream import content as inflated
from relink.wheel.writer import ReadBack, ZipWriter, new_member
from relink.wheel.zipformat import DEFLATED
from tests.fuzz.conftest import COUNTED, SEED
from tests.support.amount import amount
from tests.support.deflate_layouts import encode
from tests.unit.wheel.streams import member, reader

ORDINARY = amount(1_000)
LONG = int(os.environ.get("RELINK_FUZZ_STREAMS", "20000"))
BATCH = 2_000
NAME = "demo/a.so"

Property = Callable[[str, object], None]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches and ways of any size, and checkpoints close to each other, since the streams are small."""
    monkeypatch.setattr(splice, "LEAST", 1)
    monkeypatch.setattr(splice, "LONG", 1)
    monkeypatch.setattr(stream_module, "COMPRESSED_CHUNK", 200)


def stretches_in(size: int, rng: random.Random) -> list[range]:
    """Draw what stays of a content: up to three ranges, apart and in order, most of them large."""
    places = sorted(rng.randrange(size + 1) for _ in range(2 * rng.choice((1, 1, 2, 3))))
    if rng.random() < 0.4:
        places[0] = 0
    if rng.random() < 0.3:
        places[-1] = size
    return [range(*pair) for pair in zip(places[::2], places[1::2], strict=True)]


def changed(content: bytes, stay: list[range], rng: random.Random) -> bytes:
    """Other bytes everywhere but in what stays, and sometimes more or fewer behind it."""
    new = bytearray(rng.randbytes(len(content)))
    for stretch in stay:
        new[stretch.start : stretch.stop] = content[stretch.start : stretch.stop]
    if rng.random() < 0.3:
        del new[max((stretch.stop for stretch in stay), default=0) :]
    return bytes(new + rng.randbytes(rng.choice((0, 0, 1, 500))))


def splice_one(number: int, path: Path) -> int:
    """Splice one stream; returns how many spans were reused."""
    stream, content = encode(number)
    assert zlib.decompress(stream, -15) == content
    rng = random.Random(-number)
    claimed = member(stream, content)
    read = reader(stream)
    checkpoints: list[Checkpoint] = []
    assert b"".join(inflated(read, claimed, checkpoints.append)) == content
    stay = stretches_in(len(content), rng)
    # Of most streams the blocks are walked through from the beginning: a search from checkpoints this close takes long.
    spans = find_spans(read, len(stream), memoryview(content), stay, () if number % 8 else checkpoints)
    new = changed(content, stay, rng)
    with path.open("w+b") as file:
        writer = ZipWriter(file, rng.choice((1, 3, 6)))
        header = new_member(NAME, DEFLATED, (2024, 1, 1, 0, 0, 0), 0)
        packed = writer.add(header, NewContent(new, spans=lambda: spans))
        file.flush()
        with ThreadPoolExecutor(1) as pool:
            readback = ReadBack(file.fileno(), pool)
            readback.begin(writer.members[-1], packed)
            assert readback.entries()[NAME].digest == hashlib.sha256(new).digest()
        writer.finish()
    with zipfile.ZipFile(BytesIO(path.read_bytes())) as archive:
        assert archive.read(NAME) == new
    return len(spans)


def splice_many(first: int, count: int, path: Path, record_property: Property) -> None:
    wrong, reused = [], 0
    for number in range(first, first + count):
        try:
            reused += splice_one(number, path)
        except Exception as error:  # noqa: BLE001 - all are reported at once, each with its number
            wrong.append((number, f"{type(error).__name__}: {str(error)[:200]}"))
    assert wrong == []
    assert reused > count / 10
    record_property(f"{COUNTED}deflate streams", count)
    record_property(f"{COUNTED}deflate streams' spans", reused)


def test_some(tmp_path: Path, record_property: Property) -> None:
    splice_many(0, ORDINARY, tmp_path / "a.zip", record_property)


def batches() -> Iterator[tuple[int, int]]:
    for first in range(0, LONG, BATCH):
        yield ORDINARY + first, min(BATCH, LONG - first)


@pytest.mark.fuzz
@pytest.mark.parametrize(("first", "count"), list(batches()))
def test_many(tmp_path: Path, first: int, count: int, record_property: Property) -> None:
    splice_many(SEED + first, count, tmp_path / "a.zip", record_property)
