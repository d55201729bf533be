"""The dlopen metadata of a PT_NOTE segment: what is as the specification says, and damage, which is no error."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from relink.elf.dlopen_notes import DlopenNote, dlopen_notes

TYPE = 0x407C0C0A


def note(
    payload: Any, *, kind: int = TYPE, owner: bytes = b"FDO\0", order: str = "<", step: int = 4
) -> bytes:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode() + b"\0"

    def padded(text: bytes) -> bytes:
        return text + bytes(-len(text) % step)

    return struct.pack(f"{order}III", len(owner), len(data), kind) + padded(owner) + padded(data)


def read(data: bytes, *, little: bool = True, align: int = 4) -> list[DlopenNote]:
    return list(dlopen_notes(data, little_endian=little, align=align))


FULL = [{"soname": ["liba.so.2", "liba.so.1"], "feature": "audio", "priority": "suggested"}]
FOUND = [DlopenNote(("liba.so.2", "liba.so.1"), "audio", "suggested")]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("step", [4, 8])
def test_notes_among_others(order: str, step: int) -> None:
    other = note(b"12345", kind=3, owner=b"GNU\0", order=order, step=step)
    named_so = note(FULL, kind=3, order=order, step=step)  # the type of another note
    data = other + note(FULL, order=order, step=step) + named_so + note(FULL, order=order, step=step)
    assert read(data, little=order == "<", align=step) == FOUND * 2


def test_what_may_be_left_out() -> None:
    assert read(note([{"soname": "liba.so"}, {"soname": ["libb.so"], "feature": "f"}])) == [
        DlopenNote(("liba.so",), "", "recommended"),
        DlopenNote(("libb.so",), "f", "recommended"),
    ]


@pytest.mark.parametrize(
    "payload",
    [b"no JSON\0", b"\xff\xfe\0", 7, {"soname": "a"}, [7], [{"feature": "f"}], [{"soname": 7}], b"[" * 5000],
)
def test_damage_in_one_note_leaves_the_others(payload: Any) -> None:
    assert read(note(payload) + note(FULL)) == FOUND


def test_entries_before_damage_count() -> None:
    assert read(note([*FULL, {"soname": None}, *FULL])) == FOUND


@pytest.mark.parametrize("cut", [8, 12, 40])
def test_a_note_that_is_cut_ends_it(cut: int) -> None:
    assert read(note(FULL) + note(FULL)[:-cut]) == FOUND
    assert read(note(FULL)[: 12 - min(cut, 12)]) == []


def test_another_owner() -> None:
    assert read(note(FULL, owner=b"XDG\0")) == []
