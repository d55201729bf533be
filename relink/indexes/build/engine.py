"""Tasks in processes, by futures: of this machine here, of many machines in :mod:`relink.indexes.build.cluster`.

What is done lies in the store, and a task that is run twice gives the same. So nothing is remembered of a worker that dies: its
task runs again, alone.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Protocol, Self

from relink.system.errors import RelinkError
from relink.system.safe_open import read_text

_LOOK = 1.0  # seconds without a result after which an engine is asked about what runs
_RESULT = 60  # seconds for a result that is there to come from another machine
_PR_SET_PDEATHSIG = 1  # prctl(2)
_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)


class LostWorkerError(RelinkError):
    """The worker of a task died each time, at last with no other task on it: of memory, or of a fault that no Python sees."""

    def __init__(self) -> None:
        super().__init__("its worker died each time; it may need more memory")


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One task, and the function that does it in any process."""

    function: Callable[[Any], Any]
    task: Any


class Engine(Protocol):
    """Where tasks run; `window` jobs are given to it at the same time."""

    window: int

    def submit(self, jobs: Sequence[Job]) -> Iterable[Any]:
        """Start jobs; returns their futures, in the order of the jobs."""

    def error_of(self, future: Any, error: BaseException) -> BaseException:
        """Return what a future has ended with: :class:`LostWorkerError` where its worker died.

        :raises RelinkError: the engine cannot be used any more.
        """

    def look(self) -> None:
        """See whether anything can run; called while nothing ends.

        :raises RelinkError: nothing can.
        """


def call(job: Job) -> Any:
    """Run a job, in the process of a worker."""
    return job.function(job.task)


def drive(engine: Engine, jobs: Iterable[Job], on_done: Callable[[Job, Any], None]) -> None:
    """Run jobs until none is left; those whose workers died once more, one by one, so that the one to blame is known.

    :param on_done: gets a job and its result, or the exception that it ended with.
    :raises RelinkError: the engine cannot be used any more.
    """
    waiting, lost = deque(jobs), deque[Job]()
    running, alone = set[Job](), set[Job]()
    ended: SimpleQueue[tuple[Job, Any]] = SimpleQueue()
    while waiting or lost or running:
        started = [waiting.popleft() for _ in range(min(len(waiting), engine.window - len(running)))]
        if lost and not running and not started:
            started.append(lost.popleft())
            alone.update(started)
        for job, given in zip(started, engine.submit(started) if started else (), strict=True):
            running.add(job)
            given.add_done_callback(lambda future, job=job: ended.put((job, future)))
        try:
            job, future = ended.get(timeout=_LOOK)
        except Empty:
            engine.look()
            continue
        running.remove(job)
        try:
            result = future.result(_RESULT)
        except BaseException as error:  # noqa: BLE001 (whatever the task has raised)
            result = engine.error_of(future, error)
        if isinstance(result, LostWorkerError) and job not in alone:
            lost.append(job)
        else:
            on_done(job, result)


class LocalEngine:
    """Processes of this machine.

    :param need: bytes that one task may take.
    :param workers: how many processes at most.
    :param memory: bytes that all tasks together may take; None for nine tenths of what is free now.
    """

    def __init__(self, need: int, workers: int | None = None, memory: int | None = None) -> None:
        fitting = (memory or _free_memory() * 9 // 10) // need
        self.window = max(1, min(workers or len(os.sched_getaffinity(0)), fitting))
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")  # not forked: threads of this process hold locks
        return ProcessPoolExecutor(self.window, context, _begin, (os.getpid(),))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        processes = list((self._pool._processes or {}).values())  # noqa: SLF001 (there is no public way)
        self._pool.shutdown(wait=error is None, cancel_futures=True)
        for process in processes if error is not None else ():
            process.terminate()

    def submit(self, jobs: Sequence[Job]) -> Iterator[Future[Any]]:
        """Start jobs in processes of the pool; where one of its processes has died the pool has ended, and there is a new one."""
        for job in jobs:
            try:
                yield self._pool.submit(call, job)
            except BrokenProcessPool:
                self._pool.shutdown(wait=True, cancel_futures=True)
                self._pool = self._new_pool()
                yield self._pool.submit(call, job)

    def error_of(self, future: Any, error: BaseException) -> BaseException:
        """Where one process dies, all that ran in its pool is lost."""
        del future
        return LostWorkerError() if isinstance(error, BrokenProcessPool) else error

    def look(self) -> None:
        """Nothing: a pool notices by itself when a process dies."""


def _begin(parent: int) -> None:
    """A worker ends with its coordinator, also where that was killed; Ctrl-C is the coordinator's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before
        os._exit(1)


def _free_memory() -> int:
    """Bytes that can be taken without paging, as the kernel estimates them."""
    match = _AVAILABLE.search(read_text("/proc/meminfo", 1 << 16))
    return int(match[1]) << 10 if match else 1 << 30
