"""Bits of a stream at which a dynamic block may begin."""

from __future__ import annotations

import random
import zlib
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relink.wheel.deflate import headers
from relink.wheel.deflate.bits import LAST_BLOCK_BYTES, PADDING, Bits, copy_bits
from relink.wheel.deflate.headers import SEARCH_READ, likely_headers
from tests.unit.wheel.deflate.test_blocks import walked, whole
from tests.unit.wheel.streams import KIB, deflate, made, reader


def possible(text: bytes) -> list[int]:
    """The bits where a header could begin, each looked at alone (RFC 1951, 3.2.7)."""
    found = []
    for bit in range(8 * len(text) - 88):
        number = int.from_bytes(text[bit // 8 : bit // 8 + 12], "little") >> bit % 8
        final, kind, literals, distances = number & 1, number >> 1 & 3, number >> 3 & 31, number >> 8 & 31
        if final or kind != 0b10 or literals > 29 or distances > 29:
            continue
        lengths = [number >> 17 + 3 * place & 7 for place in range((number >> 13 & 15) + 4)]
        if sum(128 >> length for length in lengths if length) == 128:
            found.append(bit)
    return found


def test_headers_in_what_is_none() -> None:
    text = random.Random(2).randbytes(16 * KIB)
    assert [*headers.find_headers(text)] == possible(text) != []


@pytest.mark.parametrize("level", [1, 6, 9])
def test_headers_of_a_stream(level: int) -> None:
    content = made(level, 30 * KIB)
    stream = deflate(content, level, memory=2)
    found = [*headers.find_headers(stream)]
    assert found == possible(stream)
    dynamic = [
        bit
        for bit, _ in walked(stream, content)[:-1]
        if int.from_bytes(stream[bit // 8 :][:2], "little") >> bit % 8 & 0b111 == 0b100
    ]
    assert {*dynamic} & {*range(8 * len(stream) - 88)} <= {*found}
    assert len(dynamic) > 10


@st.composite
def header(draw: st.DrawFn) -> Bits:
    """A header's bits, mostly of a complete code."""
    lengths = [1, 1]
    for place in draw(st.lists(st.integers(0, 18), max_size=17)):
        if lengths[place % len(lengths)] < 7:
            lengths.append(lengths[place % len(lengths)] + 1)
            lengths[place % (len(lengths) - 1)] += 1
    lengths += [0] * draw(st.integers(0, 19 - len(lengths)))
    number = width = 0
    fields = [(draw(st.sampled_from((0b100, 0b100, 0b100, 0b101, 0b010))), 3)]
    fields += [(draw(st.integers(0, 31)), 5), (draw(st.integers(0, 31)), 5)]
    fields += [(max(0, len(lengths) - 4), 4)]
    fields += [(length, 3) for length in draw(st.permutations(lengths + [0] * max(0, 4 - len(lengths))))]
    for value, count in fields:
        number |= value << width
        width += count
    return number, width


@given(
    st.lists(st.one_of(header(), st.tuples(st.just(0), st.integers(0, 9))), max_size=6),
    st.binary(max_size=40),
)
def test_headers_are_those_that_are_possible(parts: list[Bits], rest: bytes) -> None:
    text = whole(*parts) + rest
    assert [*headers.find_headers(text)] == possible(text)


def found_in(stream: bytes, start: int = 0) -> list[int]:
    """Those up to 64 KiB behind a byte; the last piece that is searched may go on a little farther."""
    searched = range(start, min(len(stream), start + SEARCH_READ))
    return [bit for bit in likely_headers(reader(stream), len(stream), searched) if bit // 8 in searched]


@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_where_a_block_is_likely_one_is(level: int) -> None:
    content = made(level, 1 << 20)
    stream = deflate(content, level, memory=6)
    start = len(stream) // 2
    begun = {bit for bit, _ in walked(stream, content) if start <= bit // 8 < start + SEARCH_READ}
    assert begun <= {*found_in(stream, start)}
    assert begun


def test_stored_blocks_begin_at_any_bit() -> None:
    """Behind a block that ends there; the bits up to the next byte can be anything."""
    for place in range(8):
        for filling in (0, 255):
            number, count = PADDING[place]
            number |= filling << count + 3
            count += 3 + -(count + 3) % 8
            head = (number & (1 << count) - 1).to_bytes(count // 8, "little")
            stream = head + b"\x05\0\xfa\xffbytes" + LAST_BLOCK_BYTES
            assert zlib.decompress(stream, -15) == b"bytes"
            assert PADDING[place][1] in [*headers.find_stored(stream)]


def test_a_header_is_found_wherever_it_is_in_what_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = deflate(made(6, 300 * KIB), 6)
    expected = found_in(stream)
    assert len(expected) > 1
    for searched in range(50, 70, 3):
        monkeypatch.setattr(headers, "SEARCHED", searched)
        assert found_in(stream) == expected


@pytest.mark.parametrize("tries", [1, 7, 50])
def test_so_many_headers_that_are_none_are_given_up(monkeypatch: pytest.MonkeyPatch, tries: int) -> None:
    monkeypatch.setattr(headers, "TRIES", tries)
    trying = Mock(wraps=copy_bits)
    monkeypatch.setattr(headers, "copy_bits", trying)
    assert found_in(random.Random(3).randbytes(300 * KIB)) == []
    assert trying.call_count == tries
