"""New content in each of its forms, its method and its length."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relink.system.errors import RelinkError
from relink.wheel.changes import Content, NewContent, iterate_content
from relink.wheel.zipformat import DEFLATED, STORED

DATA = bytes(range(256)) * (10 << 10)


def in_pieces() -> Iterator[bytes]:
    yield DATA[:5]
    yield b""
    yield DATA[5:]


@pytest.mark.parametrize(
    "content",
    [DATA, bytearray(DATA), memoryview(DATA).cast("H"), in_pieces()],
    ids=lambda content: type(content).__name__,
)
def test_each_form(content: Content) -> None:
    new = NewContent(content, len(DATA) if isinstance(content, Iterator) else None)
    assert new.length == len(DATA)
    assert b"".join(bytes(piece) for piece in iterate_content(new.content)) == DATA


def test_pieces_need_a_size() -> None:
    with pytest.raises(RelinkError, match="needs its size"):
        _ = NewContent(in_pieces()).length


def test_the_method() -> None:
    assert NewContent(b"").method == DEFLATED
    assert NewContent(b"", stored=True).method == STORED


def test_the_length_is_the_announced_or_the_true_one() -> None:
    assert NewContent(b"abc").length == 3
    assert NewContent(iter([b"abc"]), 4).length == 4
