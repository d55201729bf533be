"""wheel.reverse_delta: what is read of a delta that may be damaged, or made to harm."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from relink.errors import WheelError
from relink.wheel.reverse_delta import DELTA_MAGIC, DELTA_SIZES, DELTA_STEP, digest_of, read_delta
from relink.wheel.zipformat import DEFLATED, STORED, Member

OUTPUT = bytes(range(100))  # what comes before the member in the output


def member(size: int, method: int = STORED) -> Member:
    header, data = len(OUTPUT), len(OUTPUT) + 30
    return Member(
        "d/relink.delta",
        method,
        0,
        0,
        size,
        size,
        header,
        data,
        0,
        (1980, 1, 1, 0, 0, 0),
        0,
        3,
        is_directory=False,
    )


@dataclass(frozen=True)
class Delta:
    """An output that has a delta behind 100 bytes of other members."""

    steps: Sequence[tuple[int, int, int]]
    own: bytes
    size: int

    def data(self) -> bytes:
        return (
            DELTA_MAGIC
            + digest_of([member(7)])
            + DELTA_SIZES.pack(self.size, len(self.steps))
            + b"".join(DELTA_STEP.pack(*one) for one in self.steps)
            + self.own
        )


def original(data: bytes) -> bytes:
    whole = OUTPUT + bytes(30) + data

    def read(offset: int, length: int) -> bytes:
        part = whole[offset : offset + length]
        assert len(part) == length, "asked for more than there is"
        return part

    delta = read_delta(member(len(data)), read, [member(7)])
    found = delta.read(read, 0, delta.size)
    for _ in range(50):  # any part of it
        start = random.randrange(delta.size + 1)
        length = random.randrange(delta.size + 1 - start)
        assert delta.read(read, start, length) == found[start : start + length]
    for start, length in ((0, delta.size + 1), (delta.size, 1), (-1, 1)):
        with pytest.raises(WheelError, match="not in the original"):
            delta.read(read, start, length)
    return found


def test_copies_and_bytes_of_its_own() -> None:
    data = Delta([(0, 0, 3), (10, 5, 0), (15, 5, 2), (90, 10, 0)], b"abcde", 25).data()
    assert original(data) == b"abc" + OUTPUT[10:20] + b"de" + OUTPUT[90:]


def test_nothing_at_all() -> None:
    assert original(Delta([], b"", 0).data()) == b""


@pytest.mark.parametrize(
    ("delta", "message"),
    [
        (Delta([(10, 5, 0), (14, 5, 0)], b"", 10), "copies what is not there, or twice"),
        (Delta([(50, 5, 0), (10, 5, 0)], b"", 10), "copies what is not there, or twice"),
        (Delta([(90, 11, 0)], b"", 11), "copies what is not there, or twice"),
        (Delta([(2**64 - 1, 2, 0)], b"", 2), "copies what is not there, or twice"),
        (Delta([(0, 0, 3)], b"ab", 3), "ends early"),
        (Delta([(0, 0, 2**63)], b"ab", 2**63), "ends early"),
        (Delta([(0, 0, 2)], b"abc", 2), "sizes do not agree"),
        (Delta([(0, 10, 2)], b"ab", 13), "sizes do not agree"),
    ],
)
def test_what_does_not_fit(delta: Delta, message: str) -> None:
    with pytest.raises(WheelError, match=message):
        original(delta.data())


def test_another_version_a_count_without_end_and_a_deflated_one() -> None:
    data = Delta([(10, 5, 0)], b"", 5).data()
    with pytest.raises(WheelError, match="of another version"):
        original(data.replace(b"delta 1", b"delta 2"))
    with pytest.raises(WheelError, match="of another version"):
        original(data[:-40] + DELTA_SIZES.pack(5, 2**60) + data[-24:])
    with pytest.raises(WheelError, match="not as relink writes it"):
        original(DELTA_MAGIC)
    with pytest.raises(WheelError, match="not as relink writes it"):
        read_delta(member(len(data), DEFLATED), lambda _offset, length: bytes(length), [])


def test_an_output_that_was_changed() -> None:
    data = Delta([(10, 5, 0)], b"", 5).data()
    for others in (
        [],
        [member(8)],
        [member(7), member(7)],
        [replace(member(7), crc=1)],
        [replace(member(7), name="x")],
    ):
        with pytest.raises(WheelError, match="changed after relink had written it"):
            read_delta(
                member(len(data)),
                lambda offset, length: (OUTPUT + bytes(30) + data)[offset : offset + length],
                others,
            )
