"""In-place edits of a tree killed at random moments: the next run makes it what it was before or after, never between."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.conftest import COUNTED
from tests.support.amount import amount
from tests.support.works import Works

ROOT = Path(__file__).resolve().parents[2]
LONG = int(os.environ.get("RELINK_FUZZ_KILLS", "200"))

Property = Callable[[str, object], None]


def kill(works: Works, scratch: Path, count: int, record_property: Property) -> None:
    scratch.mkdir()
    seed = random.randrange(1 << 32)
    arguments = [str(works.root), str(scratch), str(seed), str(count)]
    command = [sys.executable, "-m", "tests.fuzz.tree_killing", *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"seed {seed}\n{ended.stdout}{ended.stderr}"
    for name, value in json.loads(ended.stdout).items():
        record_property(f"{COUNTED}kills of a tree: {name}", value)


@pytest.mark.slow(reason="several seconds for one kill")
def test_some_kills(works: Works, tmp_path: Path, record_property: Property) -> None:
    kill(works, tmp_path / "scratch", amount(10), record_property)


@pytest.mark.fuzz
def test_many_kills(works: Works, tmp_path: Path, record_property: Property) -> None:
    kill(works, tmp_path / "scratch", LONG, record_property)
