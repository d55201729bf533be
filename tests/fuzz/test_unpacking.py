"""Generated wheels, unpacked by `installer`, `unzip`, pip, uv and bsdtar: what relink accepts is the same tree for all.

500 wheels in `make test-all`, a tenth of them in `make test`; in `make fuzz` RELINK_FUZZ_UNPACKED (5,000), and a fifth of them by
pip, uv and bsdtar.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.fuzz.conftest import COUNTED
from tests.fuzz.kills import Property
from tests.fuzz.unpacking import compare
from tests.support.amount import amount

LONG = int(os.environ.get("RELINK_FUZZ_UNPACKED", "5000"))

pytestmark = [
    pytest.mark.skipif(shutil.which("unzip") is None, reason="unzip is not installed"),
    # `installer` says what it leaves out.
    pytest.mark.filterwarnings("ignore:Skip installing:RuntimeWarning"),
]


def unpack(directory: Path, count: int, record_property: Property, *programs: str) -> None:
    counted: Counter[str] = Counter()
    differing = [line for n in range(count) for line in compare(n, directory, programs, counted)]
    for name, number in counted.items():
        record_property(f"{COUNTED}unpacked by {', '.join(programs)}: {name}", number)
    assert differing == []
    assert counted["accepted"] > count / 10, "hardly anything is accepted"


def test_some(tmp_path: Path, record_property: Property) -> None:
    unpack(tmp_path, amount(500), record_property, "installer", "unzip")


@pytest.mark.slow(reason="uv takes a tenth of a second for each that is accepted")
def test_some_by_uv(tmp_path: Path, record_property: Property) -> None:
    unpack(tmp_path, 30, record_property, "uv")


@pytest.mark.fuzz
def test_many(tmp_path: Path, record_property: Property) -> None:
    unpack(tmp_path, LONG, record_property, "installer", "unzip")


@pytest.mark.fuzz
@pytest.mark.parametrize("program", ["pip", "uv", "bsdtar"])
def test_many_by_others(tmp_path: Path, record_property: Property, program: str) -> None:
    if program == "bsdtar" and shutil.which(program) is None:
        pytest.skip("bsdtar is not installed")
    unpack(tmp_path, LONG // 5, record_property, program)
