"""Wheels of ten damaged members through `verify`, against dlopen in the target's Python.

40 wheels in `make test-all`, a tenth of them in `make test`; RELINK_FUZZ_WHEELS (2,000) from the seed RELINK_FUZZ_FIRST on in
`make fuzz`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.loader import dryrun
from tests.fuzz.conftest import COUNTED
from tests.fuzz.damaged_members import SECONDS, Compared, compare, make_sources
from tests.support.amount import amount
from tests.support.elf_builder import SUPPORTED, WHY_NOT

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

FIRST, LONG = int(os.environ.get("RELINK_FUZZ_FIRST", "0")), int(os.environ.get("RELINK_FUZZ_WHEELS", "2000"))
BATCH = 50
# What ld.so reads and survives in one process by luck is refused: a bucket of a hash table outside of it, an initial TLS image
# that is larger than the block. No linker makes such a file.
DAMAGED = {"RLK506", "RLK605"}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return make_sources(tmp_path_factory.mktemp("sources"))


def hunt(
    sources: dict[str, bytes],
    first: int,
    count: int,
    directory: Path,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dryrun, "DRY_RUN_TIMEOUT", SECONDS)
    compared = Compared()
    for number in range(first, first + count):
        compare(sources, number, directory, compared)
    refused = [line for line in compared.refused if not any(code in line for code in DAMAGED)]
    for name, amount_of in (
        ("members", compared.members),
        ("members that load", compared.loads),
        ("sound tables refused", len(refused)),
        ("members that work", compared.works),
        ("damaged tables refused that work", len(compared.refused) - len(refused)),
    ):
        record_property(f"{COUNTED}damaged members: {name}", amount_of)
    assert compared.accepted == []
    assert compared.loads > compared.members / 4, "hardly anything was left to be accepted"
    # Of some 200 members that work, which is not the same number on each machine, two are a hundredth or more.
    assert len(refused) <= max(3, compared.works / 66), refused
    assert len(compared.refused) <= max(2, compared.works / 20), compared.refused


def test_some(
    sources: dict[str, bytes],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hunt(sources, FIRST, amount(40), tmp_path, record_property, monkeypatch)


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(FIRST, FIRST + LONG, BATCH))
def test_many(
    sources: dict[str, bytes],
    tmp_path: Path,
    first: int,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hunt(sources, first, min(BATCH, FIRST + LONG - first), tmp_path, record_property, monkeypatch)
