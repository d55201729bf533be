"""The method that a new member has, and the ranges of it that are reused."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relink.system.errors import RelinkError
from relink.wheel.changes import Content, NewContent, content_size, pieces
from relink.wheel.zipformat import DEFLATED, STORED

DATA = bytes(range(256)) * (10 << 10)  # some pieces of a MiB, and a rest
Make = Callable[[Path], Content]


def a_file(path: Path) -> Path:
    path.write_bytes(DATA)
    return path


def in_pieces(_: Path) -> Iterator[bytes]:
    yield DATA[:5]
    yield b""
    yield DATA[5:]


FORMS: dict[str, Make] = {
    "bytes": lambda _: DATA,
    "bytearray": lambda _: bytearray(DATA),
    "memoryview": lambda _: memoryview(DATA).cast("H"),
    "path": a_file,
    "file": lambda path: a_file(path).open("rb", buffering=0),
    "in memory": lambda _: io.BytesIO(DATA),
    "pieces": in_pieces,
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form(tmp_path: Path, form: str) -> None:
    content = FORMS[form](tmp_path / "a")
    size = content_size(content, len(DATA) if form == "pieces" else None)
    assert size == len(DATA)
    assert b"".join(bytes(piece) for piece in pieces(content)) == DATA
    if isinstance(content, io.IOBase):
        content.close()


def test_a_file_is_read_from_where_it_stands() -> None:
    file = io.BytesIO(b"0123456789")
    file.seek(4)
    assert content_size(file, None) == 6
    assert file.tell() == 4
    assert b"".join(bytes(piece) for piece in pieces(file)) == b"456789"


def test_the_piece_before_is_still_valid() -> None:
    found = pieces(io.BytesIO(DATA))
    first, second = next(found), next(found)
    assert bytes(first) + bytes(second) == DATA[: 2 << 20]


def test_pieces_need_a_size(tmp_path: Path) -> None:
    with pytest.raises(RelinkError, match="needs its size"):
        content_size(in_pieces(tmp_path), None)


def test_the_method() -> None:
    assert NewContent(b"").method == DEFLATED
    assert NewContent(b"", stored=True).method == STORED


def test_the_length_is_the_announced_or_the_true_one() -> None:
    assert NewContent(b"abc").length == 3
    assert NewContent(iter([b"abc"]), 4).length == 4
