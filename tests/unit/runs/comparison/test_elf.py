"""What differs between two ELF files, and what the differing bytes are called."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.elf.sections import read_sections
from relink.runs.comparison.content import ranges_of
from relink.runs.comparison.elf import named_ranges
from relink.runs.comparison.wheels import diff
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works
from tests.unit.runs.comparison.pairs import member


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
