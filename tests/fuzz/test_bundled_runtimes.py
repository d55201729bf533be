"""No result has two HIP runtimes in one process without a word, whatever relink prints is typed.

20 wheels in `make test-all`, a tenth of them in `make test`; RELINK_FUZZ_BUNDLES (1,000) in `make fuzz`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.bundled_runtimes import try_bundle
from tests.fuzz.conftest import COUNTED, SEED
from tests.situations.standins import rocm
from tests.support.amount import amount
from tests.support.command import Run
from tests.support.elf_builder import SUPPORTED, WHY_NOT

LONG = int(os.environ.get("RELINK_FUZZ_BUNDLES", "1000"))
BATCH = 100
Property = Callable[[str, object], None]

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


def hunt(first: int, count: int, directory: Path, run: Run, record_property: Property) -> None:
    prefixes = [
        rocm(directory / f"rocm{hip}", release, hip) for hip, release in (("7", "7.2.4"), ("6", "6.4.3"))
    ]
    counted: Counter[str] = Counter()
    tried = (try_bundle(n, directory / str(n), prefixes, run, counted) for n in range(first, first + count))
    wrong = [*filter(None, tried)]
    for name, number in counted.items():
        record_property(f"{COUNTED}bundled runtimes: {name}", number)
    assert wrong == []
    assert counted["written"] > count / 4, counted


def test_some(tmp_path: Path, run: Run, record_property: Property) -> None:
    hunt(0, amount(20), tmp_path, run, record_property)


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(0, LONG, BATCH))
def test_many(first: int, tmp_path: Path, run: Run, record_property: Property) -> None:
    hunt(SEED + first, min(BATCH, LONG - first), tmp_path, run, record_property)
