"""The beginnings of blocks: thousands of bits asked at once give what one after the other gives."""

from __future__ import annotations

import random
import zlib

from hypothesis import given
from hypothesis import strategies as st

from relink.wheel.blocks import HEADER, _dynamic, _has_codes, possible_headers

SOME = [b"\0", b"\0\0\xff\xff", b"\x04\xc0", b"\xfd\xff\x02\0", b"\x24\x49", b"\x01\0\xfe\xff"]


def one_by_one(text: bytes, length: int) -> tuple[list[int], list[int]]:
    """What RFC 1951, 3.2.3 to 3.2.7, says of headers, bit by bit: where stored blocks could begin, and dynamic ones."""
    text += bytes(HEADER)
    stored, dynamic = [], []
    for bit in range(8 * length):
        field = int.from_bytes(text[bit // 8 : bit // 8 + 11], "little") >> bit % 8
        if field & 7 == 0:  # not the last
            at = (bit + 3 + 7) // 8
            empty = not field & (1 << 8 * at - bit) - 1
            if empty and text[at] ^ text[at + 2] == text[at + 1] ^ text[at + 3] == 255:
                stored.append(bit)
        elif field & 7 == 0b100 and field >> 3 & 31 <= 29 and field >> 8 & 31 <= 29:
            lengths = [field >> 17 + 3 * place & 7 for place in range((field >> 13 & 15) + 4)]
            if sum(128 >> length for length in lengths if length) == 128:
                dynamic.append(bit)
    return stored, dynamic


@given(
    st.one_of(
        st.binary(max_size=200),
        st.integers(0, 1 << 32).map(lambda seed: random.Random(seed).randbytes(1000)),
        st.lists(st.sampled_from(SOME), max_size=80).map(b"".join),
    ),
    st.integers(0, 1000),
)
def test_they_are_found_where_they_could_be(text: bytes, length: int) -> None:
    length = min(length, len(text))
    stored, dynamic = one_by_one(text, length)
    padded = text + bytes(HEADER)
    assert sorted(_dynamic(padded, length)) == dynamic
    right = [bit for bit in dynamic if _has_codes(padded, bit)]
    assert [*possible_headers(text, length)] == sorted(stored + right)


def test_real_ones_are_found() -> None:
    rng = random.Random(3)
    words = [rng.randbytes(5) for _ in range(300)]
    stream = zlib.compress(b"".join(rng.choices(words, k=60_000)), wbits=-15)
    found = [*possible_headers(stream, len(stream))]
    stored, dynamic = one_by_one(stream, len(stream))
    assert {*stored} < {*found} <= {*stored, *dynamic}
    assert 0 in found
