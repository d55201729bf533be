"""index.engine on Dask: a real scheduler and real workers, which are killed, leave, are short of memory, or have
another prefix."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import relink
from relink.indexes.build.engine import ClusterEngine, ClusterError, LostWorkerError, run_tasks
from relink.indexes.build.recipe import IndexTarget
from relink.indexes.build.work import fingerprints
from tests.support.dask_cluster import DaskCluster, dask_cluster
from tests.support.works import Works
from tests.unit.indexes.build.test_engine import Job, call

pytestmark = pytest.mark.slow(reason="a scheduler and workers are started")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaskCluster]:
    with dask_cluster(tmp_path / "dask") as started:
        yield started
    # A client that has just found its scheduler again when it is closed leaves that connection to the garbage collector.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def double(number: int) -> tuple[int, int]:
    time.sleep(0.1)
    return number * 2, os.getpid()


def take_a_while(number: int) -> tuple[int, int]:
    time.sleep(1)
    return number, os.getpid()


def die(place: str) -> None:
    with Path(place).open("a") as file:
        file.write(f"{os.getpid()}\n")
    os.kill(os.getpid(), signal.SIGKILL)


def take_all_memory(place: str) -> None:
    with Path(place).open("a") as file:
        file.write(f"{os.getpid()}\n")
    taken = []
    while True:
        taken.append(b"x" * (10 << 20))
        time.sleep(0.01)


def engine_of(
    cluster: Any, works: Works, files: Path, patience: float = 60, **expected: str
) -> tuple[ClusterEngine, list[str]]:
    """:param expected: other fingerprints than those of this machine, by target."""
    files.mkdir(exist_ok=True)
    targets = tuple(IndexTarget(name, (str(works.prefix),)) for name in {"one": "", **expected})
    said: list[str] = []
    own = fingerprints(targets, str(files)) | expected
    return ClusterEngine(
        getattr(cluster, "scheduler_address", "") or cluster.address,
        targets,
        own,
        str(files),
        1 << 20,
        said.append,
        patience,
    ), said


def run(
    engine: ClusterEngine, jobs: list[Job], after: Callable[[int, Any], None] = lambda _count, _result: None
) -> dict[Any, Any]:
    """:param after: called with the number of results so far, and the last of them."""
    found: dict[Any, Any] = {}

    def on_done(job: Job, result: Any) -> None:
        assert job.task not in found, "a task is done once"
        found[job.task] = result
        after(len(found), result)

    with engine:
        run_tasks(engine, call, jobs, on_done)
    return found


def doubles(count: int) -> list[Job]:
    return [Job(double, number) for number in range(count)]


def answers(found: dict[Any, Any]) -> dict[Any, int]:
    return {number: result[0] for number, result in found.items()}


def test_killed_workers_lose_nothing(cluster: DaskCluster, works: Works, tmp_path: Path) -> None:
    """The one that has just given a result has got the next task, and is killed; another one comes, as the first ones did."""
    cluster.add_workers(2, wait=False)
    engine, said = engine_of(cluster, works, tmp_path / "files")
    killed: set[int] = set()

    def kill(count: int, result: Any) -> None:
        if count % 10 == 0 and result[1] not in killed:
            killed.add(result[1])
            cluster.add_workers(1, wait=False)
            os.kill(result[1], signal.SIGKILL)

    assert answers(run(engine, doubles(40), kill)) == {number: number * 2 for number in range(40)}
    assert len(killed) >= 2
    assert said == []


def test_a_departure_is_no_loss(cluster: DaskCluster, works: Works, tmp_path: Path) -> None:
    """Of more workers than Dask allows to die (allowed-failures): by SIGTERM, as at the end of a job's time."""
    cluster.add_workers(1)
    engine, _ = engine_of(cluster, works, tmp_path / "files")
    left: set[int] = set()

    def leave(_count: int, result: Any) -> None:
        if len(left) < 6 and result[1] not in left:
            left.add(result[1])
            cluster.add_workers(1, wait=False)
            os.kill(result[1], signal.SIGTERM)

    assert answers(run(engine, doubles(30), leave)) == {number: number * 2 for number in range(30)}
    assert len(left) == 6


def test_an_adaptive_cluster_grows(works: Works, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed; it is in the group dev")
    dashboard: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "threads_per_worker": 1}
    with distributed.LocalCluster(n_workers=0, **dashboard) as local:
        local.adapt(minimum=1, maximum=4, interval="200ms", target_duration="1s")
        engine, _ = engine_of(local, works, tmp_path / "files")
        found = run(engine, [Job(take_a_while, number) for number in range(40)])
    assert len({worker for _, worker in found.values()}) == 4


def test_a_task_that_kills_its_workers(cluster: DaskCluster, works: Works, tmp_path: Path) -> None:
    """Dask gives it to four of them (allowed-failures), and blames all that they had; the second time it runs alone."""
    cluster.add_workers(1, "--nanny")
    engine, _ = engine_of(cluster, works, tmp_path / "files")
    deadly = str(tmp_path / "runs")
    found = run(engine, [Job(die, deadly), *doubles(3)])
    assert isinstance(found.pop(deadly), LostWorkerError)
    assert answers(found) == {number: number * 2 for number in range(3)}
    assert len(Path(deadly).read_text().splitlines()) == 8


def test_a_task_that_takes_all_memory(cluster: DaskCluster, works: Works, tmp_path: Path) -> None:
    """The nanny kills its worker each time."""
    cluster.add_workers(1, "--nanny", "--memory-limit", "400MB")
    engine, _ = engine_of(cluster, works, tmp_path / "files")
    large = str(tmp_path / "runs")
    found = run(engine, [*doubles(5), Job(take_all_memory, large)])
    assert "it may need more memory" in str(found.pop(large))
    assert answers(found) == {number: number * 2 for number in range(5)}
    assert len(Path(large).read_text().splitlines()) == 8


def test_a_scheduler_that_is_lost(cluster: DaskCluster, works: Works, tmp_path: Path) -> None:
    """What it had is in the store as far as it was done; the next run goes on."""
    cluster.add_workers(2)
    engine, _ = engine_of(cluster, works, tmp_path / "files")

    def restart(count: int, _result: Any) -> None:
        if count == 10:
            cluster.restart_scheduler()

    with pytest.raises(ClusterError, match="run the same again to go on"):
        run(engine, doubles(30), restart)


def test_a_client_that_just_looks_for_its_scheduler_is_closed(
    cluster: DaskCluster, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Dask raises then does not take the place of the error that the run ends with."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed; it is in the group dev")
    close = distributed.Client.close

    def closed(client: Any) -> None:
        before = client.status
        close(client)
        if before != "closed":  # the client's __del__ closes it once more
            raise RuntimeError("ConnectionPool is closed")

    monkeypatch.setattr(distributed.Client, "close", closed)
    cluster.add_workers(1)
    engine, _ = engine_of(cluster, works, tmp_path / "files")
    assert answers(run(engine, doubles(2))) == {0: 0, 1: 2}


def test_a_worker_with_another_prefix_is_told_and_gets_no_task(
    cluster: DaskCluster, works: Works, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(works.prefix, other)
    with (other / "lib" / "libdeep.so.1").open("ab") as library:
        library.write(b"\0")
    mounts = ("bwrap", "--dev-bind", "/", "/", "--bind", str(other), str(works.prefix))
    if not shutil.which("bwrap") or subprocess.run([*mounts, "true"], check=False).returncode:
        pytest.skip("bwrap cannot mount here")
    cluster.add_workers(1)
    foreign = cluster.add_workers(1, before=mounts)
    engine, said = engine_of(cluster, works, tmp_path / "files")
    found = run(engine, doubles(10))
    assert len({worker for _, worker in found.values()}) == 1
    assert not {worker for _, worker in found.values()} & {process.pid for process in foreign}
    assert len(said) == 1
    assert "gets no task: one: its prefix has other content" in said[0]


def test_a_target_that_no_worker_has(cluster: DaskCluster, works: Works, tmp_path: Path) -> None:
    """The run ends, after a while in which such a worker may come."""
    cluster.add_workers(1)
    engine, said = engine_of(cluster, works, tmp_path / "files", patience=1, two="0" * 64)
    with pytest.raises(ClusterError, match="no worker can be used"):
        run(engine, doubles(3))
    assert len(said) == 1


def test_a_worker_with_another_release_gets_no_task(
    cluster: DaskCluster, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_workers(1)
    monkeypatch.setattr("relink.indexes.build.engine.__version__", "99.0")
    engine, said = engine_of(cluster, works, tmp_path / "files", patience=1)
    with pytest.raises(ClusterError, match="no worker can be used"):
        run(engine, doubles(1))
    assert f"it has relink {relink.__version__}, and 99.0 is needed" in said[0]


def test_no_scheduler(works: Works, tmp_path: Path) -> None:
    target = IndexTarget("one", (str(works.prefix),))
    with pytest.raises(ClusterError, match="the scheduler cannot be reached"):
        ClusterEngine("bad://127.0.0.1:1", (target,), {"one": "x"}, str(tmp_path), 1, print)
