"""New members, read again from the file: a byte that the disk changed is found, in new blocks as in reused ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from relink.system.errors import RelinkError
from relink.wheel.changes import NewContent
from relink.wheel.deflate import splice
from relink.wheel.deflate.splice import Piece, find_spans
from relink.wheel.packing import Packed
from relink.wheel.readback import ReadBack
from relink.wheel.zipformat import DEFLATED, Member
from relink.wheel.zipwriter import MemberHeader, ZipWriter
from tests.unit.wheel.streams import KIB, deflate, made, reader

OLD = made(3, 900 * KIB)
NEW = bytes(1000) + OLD[1000:]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is worth it for real would make slow tests."""
    monkeypatch.setattr(splice, "LEAST", 64 * KIB)


@dataclass
class Written:
    """A file with one member."""

    path: Path
    member: Member
    packed: Packed

    def read_back(self, on_progress: Callable[[int], object] = lambda _: None) -> bytes | None:
        with self.path.open("rb") as file, ThreadPoolExecutor(1) as pool:
            readback = ReadBack(file.fileno(), pool, on_progress)
            readback.begin(self.member, self.packed)
            return readback.entries()[self.member.name].digest

    def damage(self, offset: int) -> None:
        data = bytearray(self.path.read_bytes())
        data[self.member.data_offset + offset] ^= 0x10
        self.path.write_bytes(data)

    def first(self, *, reused: bool) -> tuple[int, Piece]:
        """Where the first piece begins that is reused, or new, and that piece."""
        at = 0
        for piece in self.packed.pieces:
            if bool(piece.span) is reused:
                return at, piece
            at += piece.length
        raise AssertionError("no such piece")


def write(path: Path, content: bytes, *, spliced: bool = False) -> Written:
    stream = deflate(OLD, 6)
    spans = find_spans(reader(stream), len(stream), memoryview(OLD), [range(1000, len(OLD))])
    with path.open("w+b") as file:
        writer = ZipWriter(file, 3)
        header = MemberHeader("demo/a.so", DEFLATED, (2024, 1, 1, 0, 0, 0), 0, 3)
        packed = writer.add(header, NewContent(content, spans=lambda: spans if spliced else ()))
        member = writer.members[-1]
        writer.finish()
    return Written(path, member, packed)


@pytest.mark.parametrize("spliced", [True, False])
def test_what_was_written_is_what_is_there(tmp_path: Path, spliced: bool) -> None:
    written = write(tmp_path / "x", NEW, spliced=spliced)
    told: list[int] = []
    assert written.read_back(told.append) == hashlib.sha256(NEW).digest()
    assert sum(told) == len(NEW)
    assert bool(written.packed.pieces) is spliced


def test_a_large_member_is_hashed_on_a_thread_of_its_own(tmp_path: Path) -> None:
    content = NEW * 10
    assert write(tmp_path / "x", content).read_back() == hashlib.sha256(content).digest()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_changed_byte_of_a_new_member(tmp_path: Path, share: float) -> None:
    written = write(tmp_path / "x", NEW)
    written.damage(int(share * (written.member.compressed_size - 1)))
    with pytest.raises(RelinkError, match="the disk does not give back what was written to it"):
        written.read_back()


@pytest.mark.parametrize("reused", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_changed_byte_of_a_spliced_member(tmp_path: Path, reused: bool, share: float) -> None:
    written = write(tmp_path / "x", NEW, spliced=True)
    at, piece = written.first(reused=reused)
    written.damage(at + int(share * (piece.length - 1)))
    said = (
        "'demo/a.so' has other blocks than were reused: the disk" if reused else "the disk does not give back"
    )
    with pytest.raises(RelinkError, match=said):
        written.read_back()


@pytest.mark.parametrize("spliced", [True, False])
def test_a_file_that_became_shorter(tmp_path: Path, spliced: bool) -> None:
    written = write(tmp_path / "x", NEW, spliced=spliced)
    with written.path.open("r+b") as file:
        file.truncate(written.member.data_offset + written.member.compressed_size // 2)
    with pytest.raises(RelinkError, match="are missing: the disk"):
        written.read_back()
