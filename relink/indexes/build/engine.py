"""Tasks in processes, by futures: of this machine, or of many by Dask distributed, the extra ``rocm-relink[cluster]``.

What is done lies in the store, and a task that is run twice gives the same. So nothing is remembered of a worker that dies: its
task runs again, alone.

Dask's scheduler gets all tasks at once, and what becomes of them is its business: which worker has one, what runs again when a
worker leaves, how many workers an adaptive cluster has. A worker says itself whether it can be used, by one of Dask's resources:
a plugin, which Dask runs on each worker that comes, asks for its release of relink, whether it sees the site's files, and for its
fingerprint of each target. Each task needs the resource that is called by the release and the fingerprints of this machine.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import multiprocessing
import os
import pickle
import re
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue
from typing import Any

from relink import __version__
from relink.indexes.build.recipe import IndexTarget
from relink.system.errors import RelinkError, UsageError
from relink.system.safe_open import read_text

# Seconds without a result after which an engine is asked about what runs.
_LOOK = 1.0
# Seconds in which a result has to come from another machine, once it is there.
_RESULT = 60
_PR_SET_PDEATHSIG = 1  # prctl(2)
_CONNECT = "30s"
# Seconds between two looks at the workers, while no task ends.
_ASK = 5.0
# Of a task that raises: a download that broke, a prefix that has changed since its worker was asked.
_RETRIES = 2
_BATCH = 1000  # tasks of one message
_MEMORY = "relink memory"
# Bytes that each worker offers at least: what the largest task says that it needs.
_LEAST = 2 << 30


class LostWorkerError(RelinkError):
    """The worker of a task died each time, at last with no other task on it: of memory, or of a fault that no Python sees."""

    def __init__(self) -> None:
        super().__init__("its worker died each time; it may need more memory")


def run_tasks(
    engine: LocalEngine | ClusterEngine,
    function: Callable[[Any], Any],
    tasks: Iterable[Any],
    on_done: Callable[[Any, Any], None],
) -> None:
    """Do tasks until none is left; those whose workers died again, one by one, so that the one to blame is known.

    :param engine: gets `window` tasks at the same time, and one whose workers die `tries` times; looks while none ends.
    :param function: does a task in any process.
    :param on_done: gets a task and its result, or the exception that it ended with.
    :raises RelinkError: the engine cannot be used any more.
    """
    waiting, lost, losses = deque(tasks), deque[Any](), Counter[Any]()
    ended: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
    running = 0
    while waiting or lost or running:
        started = [waiting.popleft() for _ in range(min(len(waiting), engine.window - running))]
        if lost and not running and not started:
            started.append(lost.popleft())
        for task, given in zip(started, engine.submit(function, started) if started else (), strict=True):
            running += 1
            given.add_done_callback(lambda future, task=task: ended.put((task, future)))
        try:
            task, future = ended.get(timeout=_LOOK)
        except Empty:
            engine.check_workers()
            continue
        running -= 1
        try:
            result = future.result(_RESULT)
        except BaseException as error:  # noqa: BLE001 (whatever the task has raised)
            result = engine.error_of(future, error)
        if isinstance(result, LostWorkerError) and losses[task] + 1 < engine.tries:
            losses[task] += 1
            lost.append(task)
        else:
            on_done(task, result)


class LocalEngine(ExitStack):
    """Processes of this machine.

    :param need: bytes that one task may take.
    :param workers: how many processes at most.
    :param memory: bytes that all tasks together may take; None for nine tenths of what is free now.
    """

    # All tasks of a pool are lost with one process: a task may be lost first by the death of another one.
    tries = 3

    def __init__(self, need: int, workers: int | None = None, memory: int | None = None) -> None:
        super().__init__()
        if memory is None:
            # What can be taken without paging, as the kernel estimates it.
            known = re.search(
                r"^MemAvailable:\s+(\d+) kB$", read_text("/proc/meminfo", 1 << 16), re.MULTILINE
            )
            memory = (int(known[1]) << 10 if known else 1 << 30) * 9 // 10
        fitting = memory // need
        self.window = max(1, min(workers or len(os.sched_getaffinity(0)), fitting))
        self._pool = self._new_pool()
        self.push(self._end)

    def _new_pool(self) -> ProcessPoolExecutor:
        # A forked process would have the locks that threads of this process hold.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.window, context, _begin, (os.getpid(),))

    def _end(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        processes = list((self._pool._processes or {}).values())  # noqa: SLF001 (there is no public way)
        self._pool.shutdown(wait=error is None, cancel_futures=True)
        for process in processes if error is not None else ():
            process.terminate()

    def submit(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Future[Any]]:
        """Start tasks in processes of the pool; where one of its processes has died there is a new pool."""
        for task in tasks:
            try:
                yield self._pool.submit(function, task)
            except BrokenProcessPool:
                self._pool.shutdown(wait=True, cancel_futures=True)
                self._pool = self._new_pool()
                yield self._pool.submit(function, task)

    def error_of(self, _future: Future[Any], error: BaseException) -> BaseException:
        """Return what a task has ended with: where one process dies, all that ran in its pool is lost."""
        return LostWorkerError() if isinstance(error, BrokenProcessPool) else error

    def check_workers(self) -> None:
        """Do nothing: a pool notices by itself when a process dies."""


def _begin(parent: int) -> None:
    """A worker ends with its coordinator, also where that was killed; Ctrl-C is the coordinator's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before
        os._exit(1)


class ClusterError(RelinkError):
    """The scheduler cannot be reached, or no worker can be used."""


class ClusterEngine(ExitStack):
    """Workers of a Dask cluster. Its scheduler has all tasks at once.

    :param address: of the scheduler: ``tcp://host:8786``.
    :param targets: what is relinked for.
    :param expected: the fingerprint of each target on this machine, by name.
    :param files: the directory of the site's wheels.
    :param need: bytes that one task may take.
    :param say: called with a sentence about each worker that cannot be used.
    :param patience: seconds to wait for a worker that can be used where others are there.
    :raises UsageError: Dask is not installed.
    :raises ClusterError: the scheduler cannot be reached.
    """

    window = sys.maxsize
    # Each of these is several tries of Dask's own (distributed.scheduler.allowed-failures).
    tries = 2

    def __init__(
        self,
        address: str,
        targets: tuple[IndexTarget, ...],
        expected: Mapping[str, str],
        files: str,
        need: int,
        say: Callable[[str], None],
        patience: float = 60,
    ) -> None:
        super().__init__()
        try:
            import distributed
        except ImportError as error:
            raise UsageError("--scheduler needs Dask: pip install 'rocm-relink[cluster]'") from error
        self._dask: Any = distributed  # not typed
        self._address, self._patience, self._need = address, patience, need
        self._say = functools.cache(say)  # a sentence once
        needed = json.dumps([__version__, files, sorted(expected.items())])
        self._token = f"relink {hashlib.sha256(needed.encode()).hexdigest()}"
        # What keeps a worker from being used, by its address; Dask's client adds to it on a thread of its own.
        self._answers: dict[str, Sequence[str]] = {}
        self._looked = self._useful = time.monotonic()
        try:
            self._client: Any = self._dask.Client(address, timeout=_CONNECT, set_as_default=False)
            self.callback(self._close)
            self.callback(self._tell)
            self._client.subscribe_topic(self._token, lambda event: self._answers.update([event[1]]))
            plugin = _plugin(self._token, targets, files, dict(expected))
            for last in (False, False, True):
                try:
                    self._client.register_plugin(plugin, name=self._token)
                    break
                except OSError:  # a worker that dies meanwhile ends the call for all workers
                    if last:
                        raise
        except (OSError, ValueError) as error:
            self.close()
            raise ClusterError(f"{address}: the scheduler cannot be reached ({error})") from error

    def _close(self) -> None:
        # What Dask raises where its client just looks for a scheduler that has gone.
        with suppress(RuntimeError):
            self._client.close()

    def submit(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Sequence[Any]:
        """Give tasks to the scheduler."""
        resources = {self._token: 1, _MEMORY: min(self._need, _LEAST)}
        futures: Sequence[Any] = self._client.map(
            function, tasks, pure=False, retries=_RETRIES, resources=resources, batch_size=_BATCH
        )
        return futures

    def error_of(self, future: Any, error: BaseException) -> BaseException:
        """Return what a task has ended with. What Dask has given up is lost: it blames also what a worker had not begun.

        :raises ClusterError: the scheduler has gone.
        """
        if isinstance(error, self._dask.KilledWorker):
            return LostWorkerError()
        if future.status != "error":
            raise ClusterError(
                f"{self._address}: the scheduler has gone ({error}); run the same again to go on"
            )
        return error

    def check_workers(self) -> None:
        """Say which workers cannot be used; end where none of those that are there can be, and none comes for a while.

        Where there is no worker it is waited for: it may stand in a queue. ``distributed.scheduler.no-workers-timeout`` is Dask's
        own limit for that.

        :raises ClusterError: no worker can be used.
        """
        now = time.monotonic()
        self._tell()
        if now < self._looked + _ASK and now < self._useful + self._patience:
            return
        self._looked = now
        try:
            # Not Client.scheduler_info, which may give what its heartbeat has asked for: no workers.
            workers = self._client.sync(self._client.scheduler.identity, n_workers=-1)["workers"]
        except (OSError, AttributeError):  # the client notices by itself
            return
        asked = all(address in self._answers for address in workers)
        if not workers or not asked or any(self._token in worker["resources"] for worker in workers.values()):
            self._useful = now
        elif now > self._useful + self._patience:
            raise ClusterError(f"{self._address}: no worker can be used; see what is said of each")

    def _tell(self) -> None:
        for address, wrong in list(self._answers.items()):
            for reason in wrong:
                self._say(f"worker {address} gets no task: {reason}")


def _plugin(token: str, targets: tuple[IndexTarget, ...], files: str, expected: Mapping[str, str]) -> Any:
    """What Dask runs on each worker. It goes there by value, so that a worker without relink, or with another one, can say so."""
    import asyncio

    from distributed import WorkerPlugin
    from distributed.core import Status

    release, pickled = __version__, pickle.dumps(targets)

    class Offer(WorkerPlugin):
        name = token

        def setup(self, worker: Any) -> None:
            self.task = asyncio.get_running_loop().create_task(self.offer(worker))

        async def offer(self, worker: Any) -> None:
            wrong = []
            try:
                import relink
                from relink.indexes.build.work import fingerprints

                if relink.__version__ == release:
                    targets = pickle.loads(pickled)  # noqa: S301 (the coordinator's)
                    own = await asyncio.to_thread(fingerprints, targets, files)
                    for name, said in own.items():
                        short = f"its prefix has other content ({said[:12]}…)" if len(said) == 64 else said
                        if said != expected[name]:
                            wrong.append(f"{name}: {short}")
                else:
                    wrong.append(f"it has relink {relink.__version__}, and {release} is needed")
            except Exception as error:  # noqa: BLE001 (whatever a worker cannot do, it cannot be used)
                wrong.append(f"{type(error).__name__}: {error}")
            if not wrong:
                limit = worker.state.total_resources.get("memory", worker.memory_manager.memory_limit)
                await worker.set_resources(**{token: 1e9, _MEMORY: max(limit or 1e15, _LEAST)})
                # Tasks that wait for the resource are looked at again only when a worker starts running.
                if worker.status == Status.running:
                    worker.status = Status.paused
                    worker.status = Status.running
            worker.log_event(token, (worker.contact_address, wrong))

    return Offer()
