"""Coverage-guided fuzzing of the pure parsers; without atheris the corpus alone.

RELINK_FUZZ_RUNS (100,000) inputs for each parser in `make fuzz`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.atheris_corpus import CORPUS, seeds
from tests.fuzz.atheris_targets import TARGETS, attempt
from tests.fuzz.conftest import COUNTED, SEED

RUNS = int(os.environ.get("RELINK_FUZZ_RUNS", "100000"))
ROOT = Path(__file__).resolve().parents[2]
ATHERIS = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris is not installed (group fuzz of pyproject.toml)",
)

Property = Callable[[str, object], None]


def fuzz(target: str, place: Path, runs: int) -> subprocess.CompletedProcess[str]:
    """Run libFuzzer on a target, from a copy of its corpus; at most 10 s and 1 GiB for each input."""
    (place / "corpus").mkdir()
    limits = [
        f"-runs={runs}",
        "-timeout=10",
        "-rss_limit_mb=1024",
        f"-seed={SEED or 1}",
        "-max_len=8192",
        "-print_final_stats=1",
    ]
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz.atheris_run", target, *limits, f"-artifact_prefix={place}/",
         str(place / "corpus"), str(CORPUS / target)],
        cwd=ROOT, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus(target: str) -> None:
    inputs = [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]
    assert {*seeds()[target]} <= {*inputs}, "make it anew: python -m tests.fuzz.atheris_corpus"
    for data in inputs:
        attempt(target, data)


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 200_000


@ATHERIS
@pytest.mark.fuzz
@pytest.mark.parametrize("target", TARGETS)
def test_many(target: str, tmp_path: Path, record_property: Property) -> None:
    ended = fuzz(target, tmp_path, RUNS)
    assert ended.returncode == 0, f"{ended.stdout}{ended.stderr}"[-8000:]
    found = re.search(r"stat::number_of_executed_units: (\d+)", ended.stderr)
    assert found is not None
    assert int(found[1]) >= RUNS
    record_property(f"{COUNTED}atheris inputs", int(found[1]))
