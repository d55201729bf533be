"""relink's ELF reader and pyelftools on the same files: equal on sound ones, and on damaged ones but for what is known.

800 files in the ordinary run, RELINK_FUZZ_EXAMPLES (100,000) in ``pytest -m fuzz``; the number of a file gives it again.
"""

from __future__ import annotations

import dataclasses
import os
import random
import struct
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from relink.elf.image import read_image
from tests.fuzz.conftest import COUNTED, SEED
from tests.fuzz.readers import KNOWN, REFUSED, answers, differing, mutated, sound, unexplained
from tests.support.amount import amount
from tests.support.elf_builder import Import, Library, build

ORDINARY = amount(800)
LONG = int(os.environ.get("RELINK_FUZZ_EXAMPLES", "100000"))
BATCH = 5_000  # files of one test


def compare(first: int, count: int) -> int:
    """Compare the readers on files of these numbers, sound and damaged; returns on how many damaged ones both had an answer."""
    both = 0
    for number in range(first, first + count):
        rng = random.Random(number)
        data = sound(rng)
        found = answers(data)
        assert (found.ours, found.theirs, differing(found)) == ("", "", ()), number
        data = mutated(data, rng)
        found = answers(data)
        assert not unexplained(data, found), (number, unexplained(data, found), found)
        both += found.image is not None and found.other is not None
    return both


def test_some(record_property: Callable[[str, object], None]) -> None:
    both = compare(0, ORDINARY)
    assert both > ORDINARY / 2, "too few damaged files can be read at all"
    record_property(f"{COUNTED}ELF files by two readers", ORDINARY)


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(ORDINARY, ORDINARY + LONG, BATCH))
def test_many(first: int, record_property: Callable[[str, object], None]) -> None:
    count = min(BATCH, ORDINARY + LONG - first)
    compare(SEED + first, count)
    record_property(f"{COUNTED}ELF files by two readers", count)


# Each known difference, in a file that has no other


GOOD = build(
    Library(
        "libx.so.1",
        ("liba.so.1", "libb.so.1"),
        runpath="/p",
        interpreter="/ld",
        imports=(Import("h", "V_2", "liba.so.1"),),
    )
)


def put(*words: tuple[int, str, int], data: bytes = GOOD) -> bytes:
    changed = bytearray(data)
    for at, form, value in words:
        struct.pack_into(form, changed, at, value)
    return bytes(changed)


def entry(tag: int) -> int:
    """The offset of a dynamic entry's tag; its value is 8 bytes further."""
    (start,) = (one.offset for one in read_image(GOOD, "x").segments if one.type == 2)
    return next(at for at in range(start, len(GOOD), 16) if struct.unpack_from("<Q", GOOD, at)[0] == tag)


def value(tag: int) -> int:
    return int(struct.unpack_from("<Q", GOOD, entry(tag) + 8)[0])


def program(kind: int) -> int:
    """The offset of a program header."""
    return next(
        64 + 56 * number for number, one in enumerate(read_image(GOOD, "x").segments) if one.type == kind
    )


def with_another_array() -> bytes:
    """A second dynamic array behind the file, with one NEEDED less, to which p_offset of PT_DYNAMIC leads."""
    start = entry(1)
    size = len(GOOD) - start
    at = len(GOOD) + -len(GOOD) % 8
    return put((program(2) + 8, "<Q", at), data=GOOD.ljust(at, b"\0") + GOOD[start + 16 :].ljust(size, b"\0"))


NAMES = ("liba.so.1", "libb.so.1")
CASES: dict[str, tuple[bytes, str, object, object]] = {
    # What: the file, the field, relink's answer, pyelftools's.
    "a string beyond the string table": (
        put((entry(6) + 8, "<Q", value(5) + 4)),
        REFUSED[0],
        "outside of DT_STRTAB",
        "",
    ),
    "no symbol table": (put((entry(6), "<Q", 0x12345678)), "needs", 0, 1),
    "counts of version needs": (put((entry(0x6FFFFFFF) + 8, "<Q", 0)), "needs", 1, 0),
    "a dynamic array without DT_NULL": (
        GOOD[:-16] + struct.pack("<QQ", 1, 0),
        REFUSED[1],
        "has no end",
        "expected",
    ),
    "PT_DYNAMIC at another offset than its address": (with_another_array(), "needed", NAMES, NAMES[1:]),
    "an interpreter without end": (
        put((program(3) + 32, "<Q", 2)),
        "interpreter",
        "/l",
        "/ld",
    ),
    "segments past the end of the file": (
        put((program(1) + 32, "<Q", len(GOOD) + 1)),
        REFUSED[0],
        "PT_LOAD ends past the end of the file",
        "",
    ),
    "program headers of another size": (
        put((54, "<H", 57), (56, "<H", 1)),
        REFUSED[0],
        "program headers of 57 bytes instead of 56",
        "",
    ),
    "an e_phnum of 0xffff": (
        put((56, "<H", 0xFFFF)),
        REFUSED[0],
        "65535 program headers at 0x40 do not fit",
        "",
    ),
    "PT_DYNAMIC that is not loaded": (
        put((program(2) + 16, "<Q", 1 << 40)),
        REFUSED[0],
        "PT_DYNAMIC lies in no PT_LOAD segment",
        "",
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_differences(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, field, ours, theirs = CASES[name]
    found = answers(data)
    if field == REFUSED[0]:
        assert found.image is None
        assert found.other is not None
        assert str(ours) in found.ours
    elif field == REFUSED[1]:
        assert found.image is not None
        assert found.other is None
        assert str(ours) in found.ours
        assert str(theirs) in found.theirs
    elif field == "needs":
        assert found.other is not None
        assert (len(found.needs), len(found.other.needs)) == (ours, theirs)
    else:
        assert (getattr(found.image, field), getattr(found.other, field)) == (ours, theirs)
    assert unexplained(data, found) == set()
    # Nothing else explains it.
    monkeypatch.delitem(KNOWN, name)
    assert field in unexplained(data, found)


def test_every_known_difference_has_a_case_and_a_reason() -> None:
    assert set(CASES) == set(KNOWN)
    assert all(
        len(known.reason.split()) > 8 and known.right in ("relink", "pyelftools") for known in KNOWN.values()
    )


def test_the_comparison_sees_a_difference() -> None:
    """A reader that drops a NEEDED, and one that refuses a sound file, are seen."""
    found = answers(GOOD)
    assert found.image is not None
    assert found.other is not None
    assert unexplained(GOOD, dataclasses.replace(found, image=replace(found.image, needed=NAMES[:1]))) == {
        "needed"
    }
    assert unexplained(
        GOOD, dataclasses.replace(found, other=dataclasses.replace(found.other, interpreter=None))
    ) == {"interpreter"}
    assert unexplained(GOOD, dataclasses.replace(found, needs=())) == {"needs"}
    assert unexplained(GOOD, dataclasses.replace(found, image=None)) == {REFUSED[0]}
    assert unexplained(GOOD, dataclasses.replace(found, other=None)) == {REFUSED[1]}
