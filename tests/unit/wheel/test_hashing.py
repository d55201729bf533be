"""Hashing beside the work: the order counts, what waits is bounded, no thread is left."""

from __future__ import annotations

import hashlib
import threading

import pytest

from relink.wheel.hashing import Hasher


@pytest.mark.parametrize("waiting", [0, 1, 5])
def test_pieces_are_hashed_in_their_order(waiting: int) -> None:
    pieces = [bytes([number]) * (1 << 12) for number in range(100)]
    with Hasher(waiting) as hasher:
        for piece in pieces:
            hasher.add(piece)
        assert hasher.digest() == hashlib.sha256(b"".join(pieces)).digest()
        hasher.add(b"more")
        assert hasher.digest() == hashlib.sha256(b"".join([*pieces, b"more"])).digest()


def test_a_piece_may_be_changed_after_so_many_others() -> None:
    content = bytearray(b"first")
    with Hasher(0) as hasher:
        hasher.add(content)
        content[:] = b"other"
        assert hasher.digest() == hashlib.sha256(b"first").digest()


def test_no_thread_is_left() -> None:
    before = threading.active_count()
    with Hasher(3) as hasher:
        hasher.add(b"x")
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
