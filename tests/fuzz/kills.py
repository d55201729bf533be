"""A program of tests/fuzz that kills relink at random moments, run with a seed that a failure names."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.conftest import COUNTED, SEED
from tests.support.works import Works

ROOT = Path(__file__).resolve().parents[2]
LONG = int(os.environ.get("RELINK_FUZZ_KILLS", "200"))

Property = Callable[[str, object], None]


def run_kills(
    program: str, works: Works, scratch: Path, count: int, record_property: Property, *more: str
) -> None:
    """Run a program for `count` kills, and record what it counted.

    :param program: the name of its module in tests/fuzz.
    :param more: further arguments, which are named with what was counted.
    """
    scratch.mkdir(exist_ok=True)
    seed = random.Random(f"{SEED} {more}").getrandbits(32)
    arguments = [str(works.root), str(scratch), str(seed), str(count), *more]
    command = [sys.executable, "-m", f"tests.fuzz.{program}", *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{program}, seed {seed}\n{ended.stdout}{ended.stderr}"
    for name, value in json.loads(ended.stdout).items():
        record_property(f"{COUNTED}{' '.join((program, *more))}: {name}", value)
