"""What `make bench-check` calls a regression, what it counts of a run, and the commits that its record names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.check import CASES, COUNTED, ROOT, Ratio, grown_counts, read_record

COUNTS = {"hashed": 1_000_000, "processes": 3, "flushes": 5}
PROGRAM = """
import hashlib, os, subprocess, sys, zlib
from isal import isal_zlib
from zlib_ng import zlib_ng
data = bytes(3_000_000)
hashlib.sha256(data[:1000]).update(data[1000:])
with open(sys.argv[1], "wb") as file:
    file.write(data)
    os.fsync(file.fileno())
with open(sys.argv[1], "rb") as file:
    hashlib.file_digest(file, "sha512")
deflater = isal_zlib.compressobj(1)
stream = deflater.compress(data) + deflater.flush()
zlib.decompressobj().decompress(stream)
inflater = zlib_ng.decompressobj().copy()
assert len(inflater.decompress(stream, 1_000_000) + inflater.flush()) == len(data)
subprocess.run([sys.executable, "-c", ""], check=True)
"""


def test_a_slower_median_is_a_regression() -> None:
    assert Ratio.of([1.0, 1.1, 1.17]).median <= Ratio.of([1.0, 1.1, 1.17]).limit
    slower = Ratio.of([1.22, 1.25, 1.24, 1.26, 1.27])
    assert slower.median > slower.limit


def test_one_slow_turn_is_none() -> None:
    ratio = Ratio.of([1.0, 1.01, 0.99, 1.02, 3.0])
    assert ratio.median == 1.01
    assert ratio.median <= ratio.limit


def test_turns_that_differ_widen_the_limit() -> None:
    assert Ratio.of([0.8, 1.0, 1.25, 1.5]).limit > 1.3


def test_counts_may_not_grow() -> None:
    assert grown_counts(COUNTS, COUNTS, {}) == []
    assert grown_counts(COUNTS | {"hashed": 1_009_000}, COUNTS, {}) == []
    assert grown_counts(COUNTS | {"hashed": 1_020_000}, COUNTS, {}) == [
        "hashed: 1020000, and the record 1000000"
    ]
    assert grown_counts(COUNTS | {"processes": 4}, COUNTS, {}) == ["processes: 4, and the record 3"]
    assert grown_counts(COUNTS | {"inflated": 1}, COUNTS, {}) == ["inflated: 1, and the record 0"]


def test_a_line_of_the_record_lets_a_count_grow() -> None:
    assert grown_counts(COUNTS | {"hashed": 1_090_000}, COUNTS, {"hashed": 1.1}) == []
    assert grown_counts(COUNTS | {"hashed": 1_110_000}, COUNTS, {"hashed": 1.1})


def test_each_case_has_a_commit_before_this_one() -> None:
    record = read_record()
    assert record.keys() == CASES.keys()
    shallow = subprocess.run(
        ["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if shallow.stdout.strip() != "false":
        pytest.skip("this is no clone with its history")
    for table in record.values():
        assert len(table["commit"]) == 40
        subprocess.run(["git", "merge-base", "--is-ancestor", table["commit"], "HEAD"], cwd=ROOT, check=True)


def test_bytes_flushes_files_and_processes_are_counted(tmp_path: Path) -> None:
    (tmp_path / "relink").mkdir()
    (tmp_path / "relink" / "__init__.py").touch()
    (tmp_path / "relink" / "__main__.py").write_text(PROGRAM)
    counts, file = tmp_path / "counts", tmp_path.parent / f"{tmp_path.name}.data"
    subprocess.run([sys.executable, str(COUNTED), str(counts), str(file)], cwd=tmp_path, check=True)
    found = json.loads(counts.read_text())
    expected = {"hashed": 6_000_000, "deflated": 3_000_000, "inflated": 6_000_000}
    assert expected.items() <= found.items()
    assert (found["flushes"], found["processes"], found["opened"]) == (1, 1, 2)
    assert found["read"] >= 3_000_000 <= found["written"]
