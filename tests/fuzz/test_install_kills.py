"""Install, repair and undo that are interrupted, or whose disk is full: the environment is as before or as after."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.kills import LONG, Property, run_kills
from tests.support.works import Works

LONG_COUNTS = {"interrupted": LONG * 5 // 4, "full": LONG // 8}


@pytest.fixture(params=[*LONG_COUNTS])
def what(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """What befalls the steps; a full disk is a small file system where the environment is."""
    disk = tmp_path / "scratch/disk"
    disk.mkdir(parents=True)
    if request.param != "full":
        yield request.param
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    yield request.param
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.slow(reason="some seconds for the installations before the first one that is disturbed")
@pytest.mark.parametrize("by", ["uv", "pip"])
def test_some(works: Works, tmp_path: Path, record_property: Property, by: str, what: str) -> None:
    run_kills("install_killing", works, tmp_path / "scratch", 1, record_property, by, what)


@pytest.mark.fuzz
@pytest.mark.parametrize("by", ["uv", "pip"])
def test_many(works: Works, tmp_path: Path, record_property: Property, by: str, what: str) -> None:
    count = LONG_COUNTS[what]
    run_kills("install_killing", works, tmp_path / "scratch", count, record_property, by, what)
