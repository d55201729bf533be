"""`relink index build --scheduler` on real workers: one is killed, or the scheduler is, and the site is that of one machine.

RELINK_FUZZ_KILLS builds (20) of each kind in `make fuzz`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from relink.indexes.build.building import build
from relink.indexes.build.engine import ClusterError
from relink.indexes.build.recipe import Recipe
from relink.indexes.build.running import BuildOptions
from relink.indexes.build.site import check_site
from tests.support.cc import shared
from tests.support.dask_cluster import DaskCluster, dask_cluster
from tests.support.indexes import contents, copied, recipe_of
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
    return recipe_of(place, replace(works, prefix=place / "rocm"), "one", "two", head='superseded = "0d"')


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

    def say(event: str, facts: Any) -> None:
        if event == "result":
            results[facts["wheel"], facts["target"]] += 1
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
@pytest.mark.parametrize("kind", ["worker", "scheduler"])
def test_one_kill(works: Works, place: Path, cluster: DaskCluster, kind: str) -> None:
    hunt(works, place, cluster, 1, kind)


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ["worker", "scheduler"])
def test_kills(works: Works, place: Path, cluster: DaskCluster, kind: str) -> None:
    in_time = hunt(works, place, cluster, KILLS, kind)
    print(kind, "killed in time:", in_time, "of", KILLS)  # noqa: T201 (for who runs it)
    assert in_time >= KILLS // 4, "most builds had ended before the kill"


def _set(begun: threading.Event, _: int) -> None:
    begun.set()


def hunt(works: Works, place: Path, cluster: DaskCluster, kills: int, kind: str) -> int:
    """Kill a worker or the scheduler in each of so many builds; returns how many had not ended before.

    In the end the site is byte for byte that of a copy of the same store, built on one machine. Each build has another prefix.
    """
    recipe = prepared(works, place)
    cluster.add_workers(2)
    built(recipe, place / "many", cluster.address)
    chance = random.Random(7)
    interrupted = 0
    for number in range(kills):
        # Another content each time, so that every wheel is to be done again.
        library = shared(place / "new" / "libdeep.so.1", f"int deep(void){{return {number};}}")
        os.replace(library, place / "rocm/lib/libdeep.so.1")
        copied(place / "many", place / "same")
        built(recipe, place / "same")
        ended, begun = threading.Event(), threading.Event()
        in_time: list[bool] = []

        def kill(
            ended: threading.Event = ended, begun: threading.Event = begun, in_time: list[bool] = in_time
        ) -> None:
            begun.wait(chance.choice((0, 60)))  # at once, or after the first of ten results
            in_time.append(not ended.wait(chance.uniform(0, 0.2)))
            if kind == "scheduler":
                cluster.restart_scheduler()
                cluster.add_workers(2, wait=False)
                return
            victim = cluster.workers[chance.choice((-1, -2))]
            cluster.workers.remove(victim)
            os.killpg(victim.pid, signal.SIGKILL)
            victim.wait()
            cluster.add_workers(1, wait=False)

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            built(recipe, place / "many", cluster.address, partial(_set, begun))
        except ClusterError:
            assert kind == "scheduler", "a worker that dies ends no build"
            thread.join()
            built(recipe, place / "many", cluster.address)
        finally:
            begun.set()
            ended.set()
            thread.join()
        interrupted += in_time[0]
        assert contents(place / "many") == contents(place / "same"), f"after kill {number}"
    return interrupted
