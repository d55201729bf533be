"""index.engine: what runs at the same time, and what becomes of the rest when a worker dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from relink.indexes.build.engine import LocalEngine, LostWorkerError, run_tasks
from relink.system.errors import RelinkError


class Job(NamedTuple):
    """A task of these tests: each may do something else."""

    function: Callable[[Any], Any]
    task: Any


def call(job: Job) -> Any:
    return job.function(job.task)


def add(numbers: tuple[int, int]) -> int:
    return sum(numbers)


def die(_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(place: str) -> str:
    """Of memory for example, where others run beside it; alone it ends well."""
    marker = Path(place)
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "well"


def fail(_: Any) -> None:
    raise ValueError("a task's own")


def take_long(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def results(engine: Any, jobs: list[Job]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}

    def on_done(job: Job, result: Any) -> None:
        assert job.task not in found, "a task is done once"
        found[job.task] = result

    run_tasks(engine, call, jobs, on_done)
    return found


@pytest.mark.slow(reason="processes are started")
def test_a_deadly_job_is_found_and_others_are_done(tmp_path: Path) -> None:
    numbers = [(number, number) for number in range(6)]
    jobs = [Job(add, pair) for pair in numbers]
    jobs[2:2] = [Job(die, "deadly"), Job(die_once, str(tmp_path / "x")), Job(fail, "failing")]
    with LocalEngine(1, 2) as engine:
        found = results(engine, jobs)
    assert isinstance(found.pop("deadly"), LostWorkerError)
    assert isinstance(found.pop("failing"), ValueError)
    assert found.pop(str(tmp_path / "x")) == "well"
    assert found == {pair: sum(pair) for pair in numbers}


@pytest.mark.slow(reason="processes are started")
def test_workers_end_with_a_killed_coordinator() -> None:
    child = os.fork()
    if child == 0:  # pragma: no cover (another process)
        os.setpgid(0, 0)
        engine = LocalEngine(1, 1)
        list(engine.submit(take_long, [60.0]))
        while True:
            time.sleep(1)
    end = time.monotonic() + 60
    while not (workers := children(child)) and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(1.5)  # it is in its task, having called prctl
    workers = children(child)
    assert workers
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while any(alive(worker) for worker in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(alive(worker) for worker in workers)


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Manual:
    """Gives futures that have ended; the worker of "lost" dies so many times."""

    window = tries = 2

    def __init__(self, losses: int = 0) -> None:
        self.losses = losses
        self.together: list[list[Any]] = []

    def submit(self, _: Callable[[Any], Any], jobs: Sequence[Job]) -> Iterator[Future[Any]]:
        self.together.append([job.task for job in jobs])
        for job in jobs:
            future: Future[Any] = Future()
            if job.task == "lost" and self.losses:
                self.losses -= 1
                future.set_exception(ConnectionError("its worker is gone"))
            elif job.task != "never":
                future.set_result(job.task)
            yield future

    def error_of(self, future: Any, error: BaseException) -> BaseException:
        assert future.done()
        return LostWorkerError() if isinstance(error, ConnectionError) else error

    def check_workers(self) -> None:
        raise RelinkError("nobody can be used")


@pytest.mark.parametrize("losses", [1, 2])
def test_what_has_lost_its_worker_runs_once_more_and_alone(losses: int) -> None:
    engine = Manual(losses)
    found = results(engine, [Job(add, "lost"), Job(add, "other"), Job(add, "third")])
    assert isinstance(found.pop("lost"), str if losses == 1 else LostWorkerError)
    assert found == {"other": "other", "third": "third"}
    assert engine.together[-1] == ["lost"]
    assert engine.losses == 0


def test_no_more_than_a_window_at_a_time() -> None:
    engine = Manual()
    assert len(results(engine, [Job(add, str(number)) for number in range(5)])) == 5
    assert max(map(len, engine.together)) == 2


def test_an_engine_that_cannot_be_used_ends_a_run() -> None:
    with pytest.raises(RelinkError, match="nobody can be used"):
        results(Manual(), [Job(add, "never"), Job(add, "other")])


def test_memory_of_this_machine() -> None:
    assert LocalEngine(1 << 30, 4, 3 << 30).window == 3
    assert LocalEngine(1 << 30, 2, 3 << 30).window == 2
    assert LocalEngine(1 << 30, 4, 1).window == 1
    assert LocalEngine(1 << 50).window == 1
