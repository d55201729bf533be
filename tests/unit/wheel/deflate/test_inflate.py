"""What relink reads is what zlib, and so pip, accepts: no stream more, and none less.

An inflater that is made for speed may accept what zlib refuses: a set of codes that is not complete, say. A wheel with such a
stream would be relinked, and nobody could install the result.
"""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest
from isal import isal_zlib

from relink.errors import WheelError
from relink.spool import room_in
from relink.wheel.deflate.stream import content, inflate_into
from tests.support.amount import amount
from tests.support.deflate_encoder import DEFECTS
from tests.support.deflate_layouts import BLOCK_DEFECTS, damaged, encode
from tests.unit.wheel.streams import member, reader

STREAMS = amount(400)


def by_zlib(stream: bytes) -> bytes | None:
    """What pip reads, by zipfile; None if it reads nothing. zipfile ignores what comes behind the end; relink does not."""
    inflater = zlib.decompressobj(-15)
    try:
        data = inflater.decompress(stream)
    except zlib.error:
        return None
    return data if inflater.eof and not inflater.unused_data else None


def by_isal(stream: bytes) -> bytes | None:
    """What a lax inflater reads; None if it reads nothing."""
    inflater = isal_zlib.decompressobj(-15)
    try:
        data: bytes = inflater.decompress(stream)
    except isal_zlib.error:  # type: ignore[misc] # a stub calls it an instance
        return None
    return data if inflater.eof and not inflater.unused_data else None


def by_relink(stream: bytes, claimed: bytes) -> tuple[bytes | None, bytes | None]:
    """What relink reads in chunks, and at once."""
    of = replace(member(stream, claimed), compressed_size=len(stream))
    try:
        chunks = b"".join(content(reader(stream), of))
    except WheelError:
        chunks = None
    into = bytearray(len(claimed))
    start = inflate_into(reader(stream), of, room_in(memoryview(into))) if claimed else None
    return chunks, None if start is None else bytes(into)


@pytest.mark.parametrize("defect", [*DEFECTS, *BLOCK_DEFECTS])
def test_zlib_and_relink_read_the_same(defect: str) -> None:
    differing, refused = [], 0
    for seed in range(STREAMS):
        stream, written = damaged(seed, defect)
        wanted = by_zlib(stream)
        for claimed in {written, wanted or b"", by_isal(stream) or b""}:
            right = wanted if wanted == claimed else None
            at_once = right or None  # one without content is read in chunks alone
            if by_relink(stream, claimed) != (right, at_once):
                differing.append((seed, len(claimed)))
        refused += wanted is None
    assert differing == []
    assert refused > STREAMS // 8


def test_both_read_what_is_valid() -> None:
    for seed in range(STREAMS // 4):
        stream, written = encode(seed)
        assert by_zlib(stream) == written
        assert by_relink(stream, written) == (written, written or None)


def test_a_lax_inflater_would_be_seen() -> None:
    """The streams are such that isal reads them otherwise than zlib: the comparison above is not of two that agree anyway."""
    lax = {
        defect
        for defect in (*DEFECTS, *BLOCK_DEFECTS)
        for stream, _ in (damaged(seed, defect) for seed in range(50))
        if by_isal(stream) != by_zlib(stream)
    }
    assert lax >= {"literals incomplete", "distances incomplete", "one long distance"}
