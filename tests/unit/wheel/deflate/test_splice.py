"""Deflate streams that take over blocks of others: what comes out has to be the new content, for every reader."""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Sequence

import pytest
from isal import isal_zlib

from relink.wheel.deflate import splice
from relink.wheel.deflate.bits import LAST_BLOCK_BYTES
from relink.wheel.deflate.blocks import Blocks
from relink.wheel.deflate.inflate import Block
from relink.wheel.deflate.splice import Joiner, Span
from tests.unit.wheel.streams import KIB, deflate, made, reader


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is worth it for real would make slow tests."""
    monkeypatch.setattr(splice, "LEAST", 64 * KIB)


def blocks_of(stream: bytes, content: bytes) -> list[Block]:
    found = [*Blocks(reader(stream), len(stream), memoryview(content)).walk(0)]
    assert found.pop() == (8 * len(stream), len(content))
    return found


def find_spans(stream: bytes, content: bytes, stretches: Sequence[range]) -> tuple[Span, ...]:
    """Each span inflates to the content there, behind the 32 KiB before it, and lies with these in a stretch."""
    spans = splice.find_spans(reader(stream), len(stream), memoryview(content), stretches)
    for span in spans:
        window = content[max(0, span.start - 32 * KIB) : span.start]
        inflater = zlib.decompressobj(-15, window)
        assert (
            inflater.decompress(b"".join(span.stream()) + LAST_BLOCK_BYTES) == content[span.start : span.stop]
        )
        assert inflater.eof
        assert any(
            stretch.start <= span.start - len(window) and span.stop <= stretch.stop for stretch in stretches
        )
    return spans


def joined(content: bytes, spans: Sequence[Span], block: int = 100 * KIB) -> bytes:
    parts: list[bytes] = []
    joiner = Joiner(
        lambda: isal_zlib.compressobj(1, isal_zlib.DEFLATED, -15),
        spans,
        lambda data: parts.append(bytes(data)),
    )
    for at in range(0, len(content), block):
        joiner.add(content[at : at + block])
    pieces = joiner.finish()
    crc = 0
    for piece in pieces:
        crc = isal_zlib.crc32_combine(crc, piece.crc, piece.size)
    assert crc == zlib.crc32(content)
    return b"".join(parts)


def check(stream: bytes, content: bytes) -> None:
    for inflater in (zlib.decompressobj(-15), isal_zlib.decompressobj(-15)):
        assert inflater.decompress(stream) == content
        assert inflater.eof
        assert not inflater.unused_data


@pytest.mark.parametrize("level", [1, 3, 6, 9])
@pytest.mark.parametrize("seed", range(4))
def test_what_stays_is_taken_over(level: int, seed: int) -> None:
    rng = random.Random(seed)
    old = made(seed, 900 * KIB)
    start, stop = rng.randrange(0, 200 * KIB), rng.randrange(700 * KIB, 900 * KIB)
    new = rng.randbytes(start) + old[start:stop] + rng.randbytes(len(old) - stop)
    spans = find_spans(deflate(old, level), old, [range(start, stop)])
    assert len(spans) == 1
    assert start + 32 * KIB <= spans[0].start < start + 200 * KIB
    assert stop - 200 * KIB < spans[0].stop <= stop
    check(joined(new, spans), new)


def test_every_place_in_a_byte() -> None:
    """Little memory makes small blocks, of which some begin at each bit of a byte."""
    old = made(7, 150 * KIB)
    stream = deflate(old, 6, memory=2)
    every = blocks_of(stream, old)
    late = len(every) // 2
    firsts = {bit % 8: (bit, start) for bit, start in every[:late] if start >= 32 * KIB}
    lasts = {bit % 8: (bit, stop) for bit, stop in every[late:]}
    assert firsts.keys() == lasts.keys() == set(range(8))
    for (first, start), (last, stop) in itertools.product(firsts.values(), lasts.values()):
        new = bytes(start - 32 * KIB) + old[start - 32 * KIB : stop] + b"tail"
        check(joined(new, [Span(start, stop, first, last, reader(stream))]), new)


def test_several_and_a_whole_beginning() -> None:
    old = made(3, 1500 * KIB)
    stretches = [
        range(500 * KIB),
        range(600 * KIB, 1000 * KIB),
        range(1010 * KIB, 1020 * KIB),
        range(1100 * KIB, 1500 * KIB),
    ]
    spans = find_spans(deflate(old, 6), old, stretches)
    assert len(spans) == 3  # one is too short
    assert (spans[0].start, spans[0].first) == (0, 0)
    new = bytearray(old)
    for before, after in ((stretches[0], stretches[1]), (stretches[1], stretches[3])):
        new[before.stop : after.start] = b"x" * (after.start - before.stop)
    check(joined(bytes(new), spans), bytes(new))
    for block in (7 * KIB, 1 << 20, 2 << 20):
        assert joined(bytes(new), spans, block) == joined(bytes(new), spans)


def test_what_does_not_compress_is_stored_and_taken_over() -> None:
    old = random.Random(1).randbytes(800 * KIB)
    stream = deflate(old, 6)
    assert len(stream) > len(old)
    (span,) = find_spans(stream, old, [range(100 * KIB, 700 * KIB)])
    new = bytes(100 * KIB) + old[100 * KIB : 700 * KIB] + bytes(100 * KIB)
    check(joined(new, [span]), new)


def test_a_stream_of_isal() -> None:
    old = made(9, 3000 * KIB)
    deflater = isal_zlib.compressobj(2, isal_zlib.DEFLATED, -15)
    stream = deflater.compress(old) + deflater.flush()
    spans = find_spans(stream, old, [range(100 * KIB, 2900 * KIB)])
    assert spans
    new = bytes(100 * KIB) + old[100 * KIB :]
    check(joined(new, spans), new)


def test_the_last_block_is_not_taken_over() -> None:
    """It would end the new stream."""
    old = made(5, 400 * KIB)
    stream = deflate(old, 6)
    (span,) = find_spans(stream, old, [range(len(old))])
    last, stop = blocks_of(stream, old)[-1]
    assert (span.start, span.stop, span.first, span.last) == (0, stop, 0, last)
    check(joined(old, [span]), old)
    check(joined(old + b"tail", [span]), old + b"tail")


def test_a_stretch_in_one_block_is_left_out() -> None:
    old = bytes(400 * KIB)
    assert find_spans(deflate(old, 6), old, [range(100 * KIB, 300 * KIB)]) == ()


def test_where_blocks_are_not_found_nothing_is_taken_over() -> None:
    old = made(5, 400 * KIB)
    stream = deflate(old, 6)
    for other in (b"?" + old[1:], old[: 250 * KIB] + bytes(150 * KIB)):
        assert find_spans(stream, other, [range(240 * KIB, 400 * KIB)]) == ()


def test_a_short_stretch_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    old = made(5, 400 * KIB)
    stream = deflate(old, 6)
    monkeypatch.setattr(splice, "LEAST", 300 * KIB)
    assert find_spans(stream, old, [range(300 * KIB)])
    assert not find_spans(stream, old, [range(300 * KIB - 1)])
