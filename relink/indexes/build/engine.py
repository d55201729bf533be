"""Tasks in processes: as many at a time as there are workers and memory, and what becomes of those whose worker dies.

An engine starts a task and gives a future; :func:`drive` goes through all of them. On one machine it is :class:`LocalEngine`, of
`concurrent.futures`; of many machines :mod:`relink.indexes.build.cluster` has one.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import signal
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias

from relink.system.errors import RelinkError
from relink.system.safe_open import read_text

__all__ = ["Engine", "Job", "Judgement", "LocalEngine", "LostWorkerError", "drive"]

Judgement: TypeAlias = Literal["result", "suspect", "again"]
"""What an exception of a future means: the task's own; its worker died, and it may be to blame; it is not to blame."""

_TRIES = 3  # of a task whose worker dies
_RETURNS = 100  # of a task that comes back by no fault of its own
_LOOK = 1.0  # seconds after which an engine is asked to look after what runs
_PR_SET_PDEATHSIG = 1  # prctl(2)
_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)


class LostWorkerError(RelinkError):
    """The worker of a task died each time that it ran alone: of memory, or of a fault that no Python sees."""


@dataclass(slots=True, eq=False)
class Job:
    """One task, and how it went so far.

    :ivar memory: bytes that it may take.
    :ivar target: the name of the target whose prefix it reads; None where it reads none.
    :ivar losses: so many workers died under it; `returns`: so often it came back, and no worker died of it.
    """

    function: Callable[[Any], Any]
    task: Any
    memory: int = 0
    target: str | None = None
    losses: int = 0
    returns: int = 0


class Engine(Protocol):
    """Where tasks run."""

    def room(self, job: Job, running: Collection[Job]) -> bool:
        """Whether a job can be started beside those that run; one with losses gets a worker that runs nothing else."""

    def submit(self, job: Job) -> Future[Any]:
        """Start a job for which there is room."""

    def judge(self, error: BaseException) -> Judgement:
        """Say what an exception means."""

    def tend(self) -> None:
        """Look after what runs: called at least once a second."""

    def restore(self) -> None:
        """Make it usable again after a worker or a scheduler was lost.

        :raises RelinkError: it cannot be.
        """


def drive(engine: Engine, jobs: Iterable[Job], on_done: Callable[[Job, Any], Iterable[Job]]) -> None:
    """Run jobs until none is left.

    Where a worker dies, all that ran there are suspects. When all others are done, each of them runs again with a worker for
    itself: so the one that kills its workers is found, and others lose nothing but time.

    :param on_done: gets a job and its result, or the exception that it ended with; gives the jobs that follow from it.
    :raises RelinkError: the engine cannot be used any more, and jobs are left that no worker has died of.
    """
    waiting = deque(jobs)
    suspects: deque[Job] = deque()
    running: dict[Future[Any], Job] = {}
    while waiting or suspects or running:
        for job in _startable(engine, waiting or suspects, running):
            running[engine.submit(job)] = job
        lost = not running  # there is no worker
        for future in wait(running, _LOOK, return_when=FIRST_COMPLETED).done:
            job = running.pop(future)
            error = future.exception()
            judgement = "result" if error is None else engine.judge(error)
            if judgement == "result":
                waiting.extend(on_done(job, future.result() if error is None else error))
                continue
            lost = True
            job.losses += judgement == "suspect"
            job.returns += judgement == "again"
            if job.returns > _RETURNS:
                waiting.extend(on_done(job, error))
            elif job.losses >= _TRIES:
                reason = (
                    "its worker died each time, at last with no other task on it; it may need more memory"
                )
                waiting.extend(on_done(job, LostWorkerError(reason)))
            else:
                (suspects if job.losses else waiting).append(job)
        engine.tend()
        if lost and (waiting or suspects or running):
            try:
                engine.restore()
            except RelinkError as error:
                if waiting:
                    raise
                for job in suspects:
                    on_done(job, error)
                suspects.clear()


def _startable(engine: Engine, waiting: deque[Job], running: Mapping[Future[Any], Job]) -> Iterator[Job]:
    """The jobs to start now: as many as there is room for."""
    passed: list[Job] = []
    # Behind one that is too large for now a smaller one may go first; a few are looked at, so that the large one has its turn.
    while waiting and len(passed) < 8:
        job = waiting.popleft()
        if engine.room(job, running.values()):
            yield job
        else:
            passed.append(job)
    waiting.extendleft(reversed(passed))


class _NotStartedError(Exception):
    """The pool had ended before the job could begin."""


class LocalEngine:
    """Processes of this machine.

    :param workers: how many.
    :param memory: bytes that all tasks together may take; None for nine tenths of what is free now. A task that needs more than
        that runs alone.
    """

    def __init__(self, workers: int | None = None, memory: int | None = None) -> None:
        self.workers = workers or len(os.sched_getaffinity(0))
        self.memory = memory or _free_memory() * 9 // 10
        self._pool = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=error is None, cancel_futures=True)
        if error is not None:
            for process in list((self._pool._processes or {}).values()):  # noqa: SLF001 (there is no public way to end them)
                process.terminate()

    def _start(self) -> ProcessPoolExecutor:
        # Not forked: threads of this process hold locks.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.workers, context, _begin, (os.getpid(),))

    def room(self, job: Job, running: Collection[Job]) -> bool:
        """Whether a worker is free, and the memory of all fits; where one process dies, all end, so a suspect runs alone."""
        if running and (job.losses or any(one.losses for one in running)):
            return False
        if len(running) >= self.workers:
            return False
        return not running or sum(one.memory for one in running) + job.memory <= self.memory

    def submit(self, job: Job) -> Future[Any]:
        """Start a job in a process of the pool."""
        try:
            return self._pool.submit(job.function, job.task)
        except BrokenProcessPool:  # by another job, of which nothing has been heard so far
            future: Future[Any] = Future()
            future.set_exception(_NotStartedError())
            return future

    def judge(self, error: BaseException) -> Judgement:
        """Say what an exception means: where one process dies, the pool ends, and all that ran are suspects."""
        if isinstance(error, _NotStartedError):
            return "again"
        return "suspect" if isinstance(error, BrokenProcessPool) else "result"

    def tend(self) -> None:
        """Nothing: a pool notices by itself when a process dies."""

    def restore(self) -> None:
        """Start a new pool."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = self._start()


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
