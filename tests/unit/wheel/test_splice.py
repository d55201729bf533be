"""Deflate streams that take over blocks of others: what comes out has to be the new content, for every reader."""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Callable, Sequence
from unittest.mock import Mock

import pytest
from isal import isal_zlib

from relink.wheel import splice
from relink.wheel.splice import Joiner, Span, find_spans
from relink.wheel.stream import Compressed, Mark

KIB = 1 << 10


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is worth it for real would make slow tests."""
    monkeypatch.setattr(splice, "LEAST", 64 * KIB)


def made(seed: int, size: int) -> bytes:
    """Content like a program's: repetitive, with stretches that do not compress and others of zeros."""
    rng = random.Random(seed)
    words = [rng.randbytes(rng.randrange(1, 12)) for _ in range(200)]
    content = bytearray()
    while len(content) < size:
        kind = rng.random()
        if kind < 0.1:
            content += rng.randbytes(rng.randrange(1, 40 * KIB))
        elif kind < 0.2:
            content += bytes(rng.randrange(1, 40 * KIB))
        else:
            content += b"".join(rng.choices(words, k=4000))
    return bytes(content[:size])


def compressed(stream: bytes, size: int, step: int = 8 * KIB) -> Compressed:
    """The same with marks at every `step` bytes of the stream."""
    inflater = isal_zlib.decompressobj(-15)
    marks: list[Mark] = []
    out = 0
    for at in range(0, len(stream), step):
        out += len(inflater.decompress(stream[at : at + step]))
        marks.append((min(at + step, len(stream)), out))
    return Compressed(lambda offset, length: stream[offset : offset + length], len(stream), size, marks)


def deflate(content: bytes, level: int, strategy: int = zlib.Z_DEFAULT_STRATEGY, memory: int = 8) -> bytes:
    deflater = zlib.compressobj(level, zlib.DEFLATED, -15, memory, strategy)
    return deflater.compress(content) + deflater.flush()


def joined(content: bytes, spans: Sequence[Span], block: int = 100 * KIB) -> bytes:
    parts: list[bytes] = []
    joiner = Joiner(
        lambda: isal_zlib.compressobj(1, isal_zlib.DEFLATED, -15),
        spans,
        lambda data: parts.append(bytes(data)),
    )
    for at in range(0, len(content), block):
        joiner.add(content[at : at + block])
    joiner.finish()
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
    spans = find_spans(compressed(deflate(old, level), len(old)), [range(start, stop)])
    assert len(spans) == 1
    assert start + 32 * KIB <= spans[0].start < start + 200 * KIB
    assert stop - 200 * KIB < spans[0].stop <= stop
    check(joined(new, spans), new)


def test_every_place_in_a_byte() -> None:
    """Little memory makes small blocks, of which some begin at each bit of a byte."""
    old = made(7, 150 * KIB)
    stream = deflate(old, 6, memory=2)
    data = compressed(stream, len(old))
    blocks = [(0, 0)]
    for bit in splice._candidates(data, 0, len(stream)):
        if (length := splice._length(data, blocks[-1][0], bit, splice._Patience(1 << 40))) is not None:
            blocks.append((bit, blocks[-1][1] + length))
    late = len(blocks) // 2
    firsts = {bit % 8: (bit, start) for bit, start in blocks[:late] if start >= 32 * KIB}
    lasts = {bit % 8: (bit, stop) for bit, stop in blocks[late:]}
    assert firsts.keys() == lasts.keys() == set(range(8))
    for (first, start), (last, stop) in itertools.product(firsts.values(), lasts.values()):
        new = bytes(start - 32 * KIB) + old[start - 32 * KIB : stop] + b"tail"
        check(joined(new, [Span(start, stop, first, last, data)]), new)


def test_several_and_a_whole_beginning() -> None:
    old = made(3, 1500 * KIB)
    stretches = [
        range(500 * KIB),
        range(600 * KIB, 1000 * KIB),
        range(1010 * KIB, 1020 * KIB),
        range(1100 * KIB, 1500 * KIB),
    ]
    spans = find_spans(compressed(deflate(old, 6), len(old)), stretches)
    assert len(spans) == 3  # one is too short
    assert (spans[0].start, spans[0].first) == (0, 0)
    new = bytearray(old)
    for before, after in ((stretches[0], stretches[1]), (stretches[1], stretches[3])):
        new[before.stop : after.start] = b"x" * (after.start - before.stop)
    check(joined(bytes(new), spans), bytes(new))
    check(joined(bytes(new), spans, block=1 << 20), bytes(new))


def test_the_marks_make_no_difference() -> None:
    old = made(5, 1500 * KIB)
    stream = deflate(old, 6)
    stretches = [range(400 * KIB, 1300 * KIB)]
    for step in (KIB, 100 * KIB):
        assert _places(find_spans(compressed(stream, len(old), step), stretches)) == _places(
            find_spans(compressed(stream, len(old)), stretches)
        )


def _places(spans: Sequence[Span]) -> list[tuple[int, int, int, int]]:
    return [(span.start, span.stop, span.first, span.last) for span in spans]


def test_what_does_not_compress_is_stored_and_taken_over() -> None:
    old = random.Random(1).randbytes(800 * KIB)
    stream = deflate(old, 6)
    assert len(stream) > len(old)
    (span,) = find_spans(compressed(stream, len(old)), [range(100 * KIB, 700 * KIB)])
    new = bytes(100 * KIB) + old[100 * KIB : 700 * KIB] + bytes(100 * KIB)
    check(joined(new, [span]), new)


def test_where_blocks_cannot_be_told_there_are_none() -> None:
    """Blocks with fixed codes have headers of three bits, which stand everywhere."""
    old = made(2, 800 * KIB)
    data = compressed(deflate(old, 6, zlib.Z_FIXED), len(old))
    assert find_spans(data, [range(100 * KIB, 700 * KIB)]) == ()


@pytest.mark.parametrize(
    "find",
    [
        splice._first,
        lambda data, highest, patience: splice._last(data, highest, (0, 0), patience),
        lambda data, highest, patience: splice._last(data, highest, (0, 13 << 20), patience),
    ],
    ids=["first", "last, from the end", "last, from the beginning"],
)
def test_what_looks_like_headers_everywhere_ends_the_search(
    find: Callable[[Compressed, int, splice._Patience], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content full of what a stored block's length looks like, in stored blocks."""
    old = b"\0\1\0\xfe\xff" * (3 << 20) + random.Random(1).randbytes(1 << 20)
    data = compressed(deflate(old, 0), len(old), 32 * KIB)
    tried = Mock(wraps=splice._length)
    monkeypatch.setattr(splice, "_length", tried)
    assert find(data, 14 << 20, splice._Patience(1 << 20)) is None
    assert 0 < tried.call_count <= 33


def test_a_stream_of_isal() -> None:
    old = made(9, 3000 * KIB)
    deflater = isal_zlib.compressobj(2, isal_zlib.DEFLATED, -15)
    stream = deflater.compress(old) + deflater.flush()
    spans = find_spans(compressed(stream, len(old)), [range(100 * KIB, 2900 * KIB)])
    assert spans
    new = bytes(100 * KIB) + old[100 * KIB :]
    check(joined(new, spans), new)


def test_the_filling() -> None:
    number, count = splice._odd()
    assert count % 2 == 1
    stream = (number | splice._END[0] << count).to_bytes(-(-(count + splice._END[1]) // 8), "little")
    check(stream, b"")
