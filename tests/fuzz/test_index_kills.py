"""`relink index build` and `prune` killed at random moments: the site is old or new, and the same command goes on.

RELINK_FUZZ_KILLS kills (60) of each kind in `make fuzz`. After each one the site is read as an installer does; then the command
runs again, and the site is byte for byte that of a copy of the same store on which it ran undisturbed. Prefixes change each time.
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

from relink.indexes.build.site import check_site
from tests.support.cc import shared
from tests.support.indexes import contents, copied, recipe_of
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works

KILLS = int(os.environ.get("RELINK_FUZZ_KILLS", "60"))
KINDS = ("build", "publish", "prune")
WHEELS = 4


def prepared(works: Works, place: Path) -> Works:
    prefix = place / "rocm"
    shutil.copytree(works.prefix, prefix)
    for number in range(WHEELS):
        make_wheel(place / "wheels", {"demo/a.so": works.library}, version=f"1.{number}", tag=TAG)
    own = replace(works, prefix=prefix)
    recipe_of(place, own, head='superseded = "0d"')
    return own


def started(place: Path, *words: str, site: str = "site") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "relink", "index", words[0], "index.toml", "-o", site, *words[1:]]
    environment = os.environ | {"XDG_CACHE_HOME": str(place / "cache"), "SOURCE_DATE_EPOCH": "1000000000"}
    output = subprocess.DEVNULL
    return subprocess.Popen(
        command, cwd=place, env=environment, stdout=output, stderr=output, start_new_session=True
    )


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", KINDS)
def test_killed_commands(works: Works, tmp_path: Path, kind: str) -> None:
    found = hunt(works, tmp_path, KILLS, kind)
    print(kind, dict(found))  # noqa: T201 (for who runs it)
    assert found["killed"] > KILLS // 4, found


@pytest.mark.slow(reason="whole builds, each killed")
@pytest.mark.parametrize("kind", KINDS)
def test_a_few_killed_commands(works: Works, tmp_path: Path, kind: str) -> None:
    hunt(works, tmp_path, 2, kind)


def wait_for_pages(sites: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until a run begins to write its pages, or has ended."""
    before = set(os.listdir(sites))
    while process.poll() is None and set(os.listdir(sites)) <= before:
        time.sleep(0.001)


def hunt(works: Works, place: Path, kills: int, kind: str) -> Counter[str]:
    """Kill a command so many times; returns how often it had ended before."""
    own = prepared(works, place)
    site, sites = place / "site", place / "site.relink" / "sites"
    words = ("prune", "--keep", "2") if kind == "prune" else ("build", "-j", "2", "-q")
    assert started(place, "build", "-q").wait() == 0
    begin = time.monotonic()
    assert started(place, *words).wait() == 0
    whole = time.monotonic() - begin
    chance = random.Random(7)
    seen: Counter[str] = Counter()
    for number in range(kills):
        # Another content each time, so that every wheel is to be done again.
        library = shared(place / "new" / "libdeep.so.1", f"int deep(void){{return {number};}}")
        os.replace(library, own.prefix / "lib/libdeep.so.1")
        if kind == "prune":
            assert started(place, "build", "-q").wait() == 0
            for directory in (site / "files").resolve().glob("??/*"):
                os.utime(directory, (0, 0))
        before = contents(site)
        copied(site, place / "same")
        process = started(place, *words)
        if kind == "publish":
            wait_for_pages(sites, process)
            time.sleep(chance.uniform(0, 0.03))
        else:
            time.sleep(chance.uniform(0, whole))
        # The whole group, as where a machine is switched off; or the coordinator alone, which its workers follow.
        if process.poll() is None:
            (os.killpg if chance.random() < 0.5 else os.kill)(process.pid, signal.SIGKILL)
        seen["killed" if process.wait() == -signal.SIGKILL else "ended"] += 1
        seen["old" if contents(site).items() >= before.items() else "new"] += 1
        assert check_site(site).problems == (), f"after kill {number}"
        assert started(place, *words).wait() == 0
        assert started(place, *words, site="same").wait() == 0
        assert contents(site) == contents(place / "same"), f"after kill {number}"
        found = check_site(site)
        assert (found.problems, found.files) == ((), 2 if kind == "prune" else WHEELS), f"after kill {number}"
    left = [path.name for path in (site / "files").resolve().iterdir() if path.name.startswith(".relink-")]
    assert left == []
    return seen
