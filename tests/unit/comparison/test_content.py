"""The contents of both wheels: whole, in pieces, and never all of them at once."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from relink.comparison.content import Ranges, open_both
from relink.wheel.archive import WheelArchive
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.support.works import TAG
from tests.unit.comparison.pairs import flipped


def test_both_contents_are_whole_whatever_pieces_they_come_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share the pages that are the same, and a piece may end in the middle of one that is not."""
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
        open_both(first, second, ("demo/data", "demo/data"), ranges := Ranges()) as (old, new),
    ):
        assert bytes(old) == before
        assert bytes(new) == after
    assert ranges.differing == len(range(100, len(after), 50_001))


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
from pathlib import Path
from relink.comparison import diff
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
        cwd=Path(__file__).parents[3],
    )
    assert int(run.stdout) < 3 << 14  # KiB
