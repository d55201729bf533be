"""`relink index build --scheduler` on real workers, one of which is killed: the site is that of one machine, nothing is double.

RELINK_FUZZ_KILLS builds (20) in `make fuzz`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relink.indexes.build.build_options import BuildOptions
from relink.indexes.build.building import build
from relink.indexes.build.checking import check_site
from relink.indexes.build.recipe import Recipe
from relink.indexes.build.running import Event
from tests.support.cc import shared
from tests.support.dask_cluster import DaskCluster, dask_cluster
from tests.support.indexes import recipe_of
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works

KILLS = int(os.environ.get("RELINK_FUZZ_KILLS", "20"))
WHEELS = 4


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    return tmp_path


@pytest.fixture
def cluster(place: Path) -> Iterator[DaskCluster]:
    with dask_cluster(place / "dask") as started:
        yield started


def prepared(works: Works, place: Path) -> Recipe:
    shutil.copytree(works.prefix, place / "rocm")
    for number in range(WHEELS):
        make_wheel(
            place / "wheels",
            {"demo/a.so": works.library, "demo/n": str(number).encode()},
            version=f"1.{number}",
            tag=TAG,
        )
    make_wheel(place / "wheels", {"demo/a.so": works.lost}, version="2.0", tag=TAG)
    return recipe_of(place, replace(works, prefix=place / "rocm"), "one", "two")


def shown(site: Path) -> dict[str, Any]:
    """What a site says, less times."""
    matrix = json.loads((site / "matrix.json").read_text())
    del matrix["changes"]
    pages = {
        str(path.relative_to(site)): path.read_text()
        for path in sorted(site.rglob("simple/**/*"))
        if path.is_file()
    }
    return {"matrix": matrix, **pages}


def files(site: Path) -> set[str]:
    return {path.parent.name for path in (site / "files").rglob("*.whl")}


def built(
    recipe: Recipe, site: Path, scheduler: str | None = None, after: Callable[[int], None] = lambda _: None
) -> Counter[tuple[str, str]]:
    """Build; returns how often each task had a result.

    :param after: called with the number of results so far.
    """
    results: Counter[tuple[str, str]] = Counter()

    def say(event: Event) -> None:
        if event.kind == "result":
            results[event.facts["wheel"], event.facts["target"]] += 1
            after(results.total())

    summary = build(recipe, site, BuildOptions(scheduler=scheduler), say)
    assert (summary.failed, summary.tasks) == (0, (WHEELS + 1) * 2)
    found = check_site(site)
    assert (found.problems, found.files) == ((), WHEELS)  # both targets have the same
    return results


def once(site: Path) -> Counter[tuple[str, str]]:
    rows = json.loads((site / "matrix.json").read_text())["rows"]
    return Counter((row["wheel"], target) for row in rows for target in row["cells"])


@pytest.mark.slow(reason="whole builds on a cluster")
def test_four_workers_make_the_site_of_one_machine(works: Works, place: Path, cluster: DaskCluster) -> None:
    recipe = prepared(works, place)
    cluster.add_workers(4)
    results = built(recipe, place / "many", cluster.address)
    built(recipe, place / "one")
    assert results == once(place / "one")
    assert shown(place / "many") == shown(place / "one")
    assert files(place / "many") == files(place / "one")


@pytest.mark.slow(reason="whole builds on a cluster")
def test_a_scheduler_that_is_started_anew(works: Works, place: Path, cluster: DaskCluster) -> None:
    recipe = prepared(works, place)
    cluster.add_workers(2)

    def restart(count: int) -> None:
        if count == 4:
            cluster.restart_scheduler()
            cluster.add_workers(2, wait=False)

    results = built(recipe, place / "many", cluster.address, restart)
    built(recipe, place / "one")
    assert results == once(place / "one")
    assert shown(place / "many") == shown(place / "one")


@pytest.mark.slow(reason="whole builds on a cluster")
def test_a_killed_worker(works: Works, place: Path, cluster: DaskCluster) -> None:
    hunt(works, place, cluster, 1)


@pytest.mark.fuzz
def test_killed_workers(works: Works, place: Path, cluster: DaskCluster) -> None:
    assert hunt(works, place, cluster, KILLS) >= KILLS // 4, "most builds had ended before the kill"


def hunt(works: Works, place: Path, cluster: DaskCluster, kills: int) -> int:
    """Kill a worker in each of so many builds; returns how many had not ended before."""
    recipe = prepared(works, place)
    cluster.add_workers(2)
    built(recipe, place / "warm", cluster.address)
    begin = time.monotonic()
    built(recipe, place / "many", cluster.address)
    whole = time.monotonic() - begin
    chance = random.Random(7)
    interrupted = 0
    for number in range(kills):
        # Another content each time, so that every wheel is to be done again.
        library = shared(place / "new" / "libdeep.so.1", f"int deep(void){{return {number};}}")
        os.replace(library, place / "rocm/lib/libdeep.so.1")
        for site in ("many", "one") if number else ("many",):  # or superseded wheels would be listed
            shutil.rmtree(place / f"{site}.relink")
            (place / site).unlink()
        ended = threading.Event()
        in_time: list[bool] = []

        def kill(ended: threading.Event = ended, in_time: list[bool] = in_time) -> None:
            in_time.append(not ended.wait(chance.uniform(0, whole)))
            victim = cluster.workers[chance.choice((-1, -2))]
            cluster.workers.remove(victim)
            os.killpg(victim.pid, signal.SIGKILL)
            victim.wait()
            cluster.add_workers(1, wait=False)

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            results = built(recipe, place / "many", cluster.address)
        finally:
            ended.set()
            thread.join()
        interrupted += in_time[0]
        assert results == once(place / "many"), f"after kill {number}"
        built(recipe, place / "one")
        assert shown(place / "many") == shown(place / "one"), f"after kill {number}"
        assert files(place / "many") <= files(place / "one")
    return interrupted
