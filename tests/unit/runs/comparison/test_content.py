"""The contents of both wheels: whole, in pieces, and never all of them at once; and what differs between two ELF files."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.elf.sections import read_sections
from relink.runs.comparison.content import named_ranges, open_both, ranges_of, text_differences
from relink.runs.comparison.wheels import diff
from relink.wheel.archive import WheelArchive
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works
from tests.unit.runs.comparison.pairs import flipped, member


def test_both_contents_are_whole_whatever_pieces_they_come_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relink.wheel.deflate.stream.COMPRESSED_CHUNK", 5000)
    before = random.Random(1).randbytes(300_000) * 5
    after = bytearray(before)
    for at in range(100, len(after), 50_001):
        after[at] ^= 1
    one = make_wheel(tmp_path / "1", {"demo/data": before}, tag=TAG)
    two = make_wheel(tmp_path / "2", {"demo/data": bytes(after)}, tag=TAG)
    with (
        WheelArchive(one) as first,
        WheelArchive(two) as second,
        open_both(first, second, "demo/data", "demo/data") as (old, new),
    ):
        ranges = ranges_of(old, new, 10)
        assert bytes(old) == before
        assert bytes(new) == after
    assert ranges.differing == len(range(100, len(after), 50_001))
    assert len(ranges.found) == 10
    assert ranges.found[-1][1] > len(after) - 50_001


def test_ranges() -> None:
    def found(old: bytes, new: bytes) -> list[tuple[int, int]]:
        return ranges_of(memoryview(old), memoryview(new), 100).found

    data = bytes(3 << 20)
    for at in (0, 4095, 4096, (1 << 20) - 1, 1 << 20, len(data) - 1):
        assert found(data, flipped(data, at)) == [(at, at + 1)]
    assert found(data, data) == []
    assert found(data[:10], data[:15]) == found(data[:15], data[:10]) == [(10, 15)]
    assert found(data, flipped(flipped(data, 10), 26)) == [(10, 27)]
    assert found(data, flipped(flipped(data, 10), 27)) == [(10, 11), (27, 28)]


def said(old: str, new: str) -> tuple[str, ...]:
    return text_differences(memoryview(old.encode()), memoryview(new.encode()))


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ('{"a": 1}', '{"a": true}', ('- {"a": 1}', '+ line 1: {"a": true}')),
        ("x", "[" * 2000, ("- x", f"+ line 1: {'[' * 490}")),
        ("x\ny\n", "y\nx\n", ("the same lines in another order, or with other ends",)),
        ("a\nb\n", "a\nc\nb\n", ("+ line 2: c",)),
        (
            "".join(f"{number}\n" for number in range(99)),
            "",
            (*(f"- {number}" for number in range(20)), "and more"),
        ),
    ],
)
def test_texts(old: str, new: str, lines: tuple[str, ...]) -> None:
    assert said(old, new) == lines


def test_what_is_no_text() -> None:
    assert text_differences(memoryview(b"x"), memoryview(b"\xff")) == ()
    large = "line\n" * 1_000_000
    assert said(large, f"{large}x") == ()


@pytest.mark.slow(reason="deflates and reads 320 MB")
def test_memory_is_that_of_one_file(tmp_path: Path) -> None:
    """Two wheels of 24 x 16 MB of libraries: less than 3 of them at once, and those of other kinds in pieces."""
    library = shared(tmp_path / "big.so", "char big[1 << 24] = {1};").read_bytes()
    files = {f"demo/{number}.so": library for number in range(6)}
    one = make_wheel(tmp_path / "1", {**files, "demo/data": bytes(1 << 26)}, tag=TAG)
    edited = {name: flipped(data, len(data) // 2) for name, data in files.items()}
    two = make_wheel(tmp_path / "2", {**edited, "demo/data": bytes((1 << 26) - 1) + b"x"}, tag=TAG)
    script = """
import sys
import time
from pathlib import Path
from relink.runs.comparison.wheels import diff
from tests.support.memory import peak
before = peak()
found = diff(Path(sys.argv[1]), Path(sys.argv[2]))
assert [change.differing for change in found.changed][:-1] == [1] * 7, found
print((peak() - before) >> 10)
"""
    run = subprocess.run(
        [sys.executable, "-c", script, str(one), str(two)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[4],
    )
    assert int(run.stdout) < 3 << 14  # KiB


def test_the_facts_of_a_changed_library(pair: tuple[Path, Path], works: Works) -> None:
    change = next(change for change in diff(*pair).changed if change.path == "demo/a.so")
    old, new = (member(wheel, "demo/a.so") for wheel in pair)
    assert (change.size_before, change.size_after) == (len(old), len(new))
    assert change.elf is not None
    assert "- RUNPATH /opt/rocm-0.0.0/lib:" in change.elf.dynamic
    assert any(
        line.startswith("+ RPATH") and str(works.prefix / "lib") in line for line in change.elf.dynamic
    )
    assert not any(".text" in item.where for item in change.ranges)
    different = {at for at in range(min(len(old), len(new))) if old[at] != new[at]}
    different |= set(range(min(len(old), len(new)), max(len(old), len(new))))
    covered = {at for item in change.ranges for at in range(item.start, item.stop)}
    assert different <= covered
    assert all(item.start in different and item.stop - 1 in different for item in change.ranges)
    assert all(a.stop + 16 <= b.start for a, b in zip(change.ranges, change.ranges[1:], strict=False))
    assert change.ranges[0].where == "the ELF header"
    assert any(".dynstr" in item.where for item in change.ranges)


@pytest.mark.slow(reason="a second for 65,279 sections")
def test_sections_without_end(works: Works) -> None:
    """65,000 sections of one name, each the whole file: told in no time."""
    data = works.library.read_bytes()
    rows = 65_000
    start = len(data) + -len(data) % 8
    row = struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 0, start, 0, 0, 1, 0)
    table = bytearray(data) + bytes(start - len(data)) + bytes(64) + row * (rows - 1)
    struct.pack_into("<Q", table, 40, start)
    struct.pack_into("<HHH", table, 58, 64, rows, 0)
    old, new = bytes(table), bytearray(table)
    for at in range(0x400, start, 64):
        new[at] ^= 1
    began = time.monotonic()
    with memoryview(old) as a, memoryview(new) as b:
        ranges = ranges_of(a, b, 10_000)
        places = named_ranges(ranges, b, read_image(new, "x"), read_sections(new, "x"))
    assert len(places) == len(ranges.found) > 100
    assert time.monotonic() - began < 10


def test_a_damaged_library(works: Works, tmp_path: Path) -> None:
    data = works.library.read_bytes()
    one = make_wheel(tmp_path / "1", {"demo/a.so": data}, tag=TAG)
    two = make_wheel(tmp_path / "2", {"demo/a.so": data[:100]}, tag=TAG)
    (change, _) = diff(one, two).changed
    assert change.elf is None
    assert [(item.start, item.stop) for item in change.ranges] == [(100, len(data))]
