"""index.cluster: a real scheduler and real workers, which are killed, lost, or have another prefix."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relink.index.cluster import ClusterEngine, ClusterError
from relink.index.engine import Job, drive
from relink.index.recipe import IndexTarget
from relink.index.work import fingerprints
from tests.support.dask_cluster import DaskCluster, dask_cluster
from tests.support.works import Works

pytestmark = pytest.mark.slow(reason="a scheduler and workers are started")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaskCluster]:
    with dask_cluster(tmp_path / "dask", 2) as started:
        yield started


def double(number: int) -> tuple[int, int]:
    time.sleep(0.1)
    return number * 2, os.getpid()


def engine_of(
    cluster: DaskCluster, works: Works, files: Path, **expected: str
) -> tuple[ClusterEngine, list[str]]:
    files.mkdir(exist_ok=True)
    target = IndexTarget("one", (str(works.prefix),))
    said: list[str] = []
    own = expected or fingerprints((target,), str(files))
    end = time.monotonic() + 60
    while True:  # workers take a moment to come
        try:
            return ClusterEngine(cluster.address, (target,), own, str(files), said.append), said
        except ClusterError:
            if said or time.monotonic() > end:
                raise
            time.sleep(0.2)


def run(
    engine: ClusterEngine, jobs: list[Job], after: Callable[[int, Any], None] = lambda _count, _result: None
) -> dict[Any, Any]:
    """:param after: called with the number of results so far, and the last of them."""
    found: dict[Any, Any] = {}

    def on_done(job: Job, result: Any) -> tuple[Job, ...]:
        assert job.task not in found
        found[job.task] = result
        after(len(found), result)
        return ()

    with engine:
        drive(engine, jobs, on_done)
    return found


def test_killed_workers_lose_nothing(cluster: DaskCluster, works: Works, tmp_path: Path) -> None:
    """The one that has just given a result is killed, and another one comes."""
    engine, _ = engine_of(cluster, works, tmp_path / "files")
    killed: set[int] = set()

    def kill(count: int, result: Any) -> None:
        if count % 10 == 0 and result[1] not in killed:
            killed.add(result[1])
            cluster.add_worker()
            os.kill(result[1], signal.SIGKILL)

    found = run(engine, [Job(double, number, target="one") for number in range(40)], kill)
    assert {number: result[0] for number, result in found.items()} == {
        number: number * 2 for number in range(40)
    }
    assert len(killed) >= 2


def test_another_prefix_is_told_and_gets_no_task(cluster: DaskCluster, works: Works, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no worker can be used"):
        engine_of(cluster, works, tmp_path / "files", one="0" * 64)


def test_no_scheduler(works: Works, tmp_path: Path) -> None:
    target = IndexTarget("one", (str(works.prefix),))
    with pytest.raises(ClusterError, match="the scheduler cannot be reached"):
        ClusterEngine("bad://127.0.0.1:1", (target,), {"one": "x"}, str(tmp_path), print)
