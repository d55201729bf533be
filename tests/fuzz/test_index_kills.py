"""`relink index build` killed at random moments: the site is the old one or the new one, and the next run goes on.

RELINK_FUZZ_KILLS kills (200) in `make fuzz`. After each one the site is read as an installer does.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from relink.indexes.build.checking import check_site
from tests.support.cc import shared
from tests.support.indexes import recipe_of
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works

KILLS = int(os.environ.get("RELINK_FUZZ_KILLS", "200"))
WHEELS = 4


def prepared(works: Works, place: Path) -> Works:
    prefix = place / "rocm"
    shutil.copytree(works.prefix, prefix)
    for number in range(WHEELS):
        make_wheel(place / "wheels", {"demo/a.so": works.library}, version=f"1.{number}", tag=TAG)
    own = replace(works, prefix=prefix)
    recipe_of(place, own, head='superseded = "0d"')
    return own


def started(place: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "relink", "index", "build", "index.toml", "-o", "site", "-j", "2", "-q"]
    environment = os.environ | {"XDG_CACHE_HOME": str(place / "cache")}
    output = subprocess.DEVNULL
    return subprocess.Popen(
        command, cwd=place, env=environment, stdout=output, stderr=output, start_new_session=True
    )


@pytest.mark.fuzz
def test_killed_builds(works: Works, tmp_path: Path) -> None:
    found = hunt(works, tmp_path, KILLS)
    assert found["old"] > KILLS // 4, found


@pytest.mark.slow(reason="whole builds, each killed")
def test_a_few_killed_builds(works: Works, tmp_path: Path) -> None:
    hunt(works, tmp_path, 5)


def wait_for_pages(sites: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until a run begins to write its pages, or has ended."""
    before = set(os.listdir(sites))
    while process.poll() is None and set(os.listdir(sites)) <= before:
        time.sleep(0.001)


def hunt(works: Works, place: Path, kills: int) -> Counter[str]:
    """Kill builds; returns how many had ended before, and which site the others have left."""
    own = prepared(works, place)
    begin = time.monotonic()
    assert started(place).wait() == 0
    whole = time.monotonic() - begin
    chance = random.Random(7)
    seen: Counter[str] = Counter()
    for number in range(kills):
        # Another content each time, so that every wheel is to be done again.
        library = shared(place / "new" / "libdeep.so.1", f"int deep(void){{return {number};}}")
        os.replace(library, own.prefix / "lib/libdeep.so.1")
        before = os.readlink(place / "site")
        process = started(place)
        # The whole group, as where a machine is switched off; or the coordinator alone, which its workers follow.
        if chance.random() < 0.3:
            wait_for_pages(place / "site.relink" / "sites", process)
            time.sleep(chance.uniform(0, 0.03))
        else:
            time.sleep(chance.uniform(0, whole))
        kill = os.killpg if chance.random() < 0.5 else os.kill
        if process.poll() is None:
            kill(process.pid, signal.SIGKILL)
        ended = process.wait() != -signal.SIGKILL
        found = check_site(place / "site")
        assert (found.problems, found.files) == ((), WHEELS), f"after kill {number}"
        seen["ended" if ended else "old" if os.readlink(place / "site") == before else "new"] += 1
    assert started(place).wait() == 0
    found = check_site(place / "site")
    assert (found.problems, found.files) == ((), WHEELS)
    left = [
        path.name for path in (place / "site.relink" / "files").iterdir() if path.name.startswith(".relink-")
    ]
    assert left == []
    return seen
