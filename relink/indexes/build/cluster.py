"""Tasks on many machines, by Dask distributed: the extra ``rocm-relink[cluster]``.

The scheduler gets all tasks at once, and what becomes of them is its business: which worker has one, what runs again when a
worker leaves, how many workers an adaptive cluster has. A worker says itself whether it can be used, by one of Dask's resources:
a plugin, which Dask runs on each worker that comes, asks for its release of relink, whether it sees the site's files, and for its
fingerprint of each target. Each task needs the resource that is called by the release and the fingerprints of this machine.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from relink import __version__
from relink.indexes.build.engine import Job, LostWorkerError
from relink.indexes.build.recipe import IndexTarget
from relink.system.errors import RelinkError, UsageError

__all__ = ["ClusterEngine", "ClusterError"]

_CONNECT = "30s"
_TRIES = 2  # of a task that Dask gives up, since its workers died
_LOOK = 5.0  # seconds between two looks at the workers, while no task ends
_RETRIES = (
    2  # of a task that raises: a download that broke, a prefix that has changed since its worker was asked
)
_BATCH = 1000  # tasks of one message to the scheduler
_STEP = 256 << 20  # bytes: tasks are given together with those that need as much memory
_MEMORY = "relink memory"
_LEAST = 2 << 30  # bytes that each worker offers at least: what the largest task says that it needs


class ClusterError(RelinkError):
    """The scheduler cannot be reached, or no worker can be used."""


class ClusterEngine:
    """Workers of a Dask cluster.

    :param address: of the scheduler: ``tcp://host:8786``.
    :param targets: what is relinked for.
    :param expected: the fingerprint of each target on this machine, by name.
    :param files: the directory of the site's wheels.
    :param say: called with a sentence about each worker that cannot be used.
    :param patience: seconds to wait for a scheduler to come back, and for a worker that can be used where others are there.
    :raises UsageError: Dask is not installed.
    :raises ClusterError: the scheduler cannot be reached.
    """

    def __init__(
        self,
        address: str,
        targets: tuple[IndexTarget, ...],
        expected: Mapping[str, str],
        files: str,
        say: Callable[[str], None],
        patience: float = 60,
    ) -> None:
        try:
            import distributed
        except ImportError as error:
            raise UsageError("--scheduler needs Dask: pip install 'rocm-relink[cluster]'") from error
        self._dask: Any = distributed  # not typed
        self._address, self._say, self._patience = address, say, patience
        needed = json.dumps([__version__, files, sorted(expected.items())])
        self._token = f"relink {hashlib.sha256(needed.encode()).hexdigest()}"
        self._plugin = _plugin(self._token, targets, files, dict(expected))
        self._answers: dict[
            str, Sequence[str]
        ] = {}  # of workers, by address: what keeps each from being used
        self._told: set[str] = set()
        self._count = 1  # workers
        self._looked = self._useful = time.monotonic()
        self._client = self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell()
        self._client.close()

    def _connect(self) -> Any:
        try:
            client = self._dask.Client(self._address, timeout=_CONNECT, set_as_default=False)
            client.subscribe_topic(self._token, self._answered)
            for last in (False, False, True):
                try:
                    client.register_plugin(self._plugin, name=self._token)
                    break
                except OSError:  # a worker that dies meanwhile ends the call for all workers
                    if last:
                        raise
        except (OSError, ValueError) as error:
            raise ClusterError(f"{self._address}: the scheduler cannot be reached ({error})") from error
        return client

    def _answered(self, event: tuple[float, Mapping[str, Any]]) -> None:
        """Take the answer of a worker; on the thread of Dask's client."""
        self._answers[event[1]["worker"]] = event[1]["wrong"]

    def room(self, job: Job, running: Collection[Job]) -> bool:
        """All at once, as the scheduler has room; but of those whose workers died no more than there are workers.

        The scheduler blames each task that a lost worker had, also those that it had not begun. So the second time each has a
        worker for itself, and the one to blame is known.
        """
        return not job.losses or sum(bool(other.losses) for other in running) < self._count

    def submit(self, jobs: Sequence[Job]) -> list[Any]:
        """Give jobs to the scheduler; those that need the same together."""
        alike: dict[tuple[Any, int], list[Job]] = {}
        for job in jobs:
            memory = min(-(-job.memory // _STEP) * _STEP, _LEAST)
            alike.setdefault((job.function, memory), []).append(job)
        futures: dict[Job, Any] = {}
        for (function, memory), own in alike.items():
            given = self._client.map(
                function,
                [job.task for job in own],
                pure=False,
                retries=_RETRIES,
                resources={self._token: 1} | ({_MEMORY: memory} if memory else {}),
                batch_size=_BATCH,
            )
            futures.update(zip(own, given, strict=True))
        return [futures[job] for job in jobs]

    def returned(self, job: Job, future: Any, error: BaseException) -> Job | BaseException:
        """What Dask has given up, since workers died, runs once more; so does what a scheduler had that was lost.

        :raises ClusterError: no scheduler comes back.
        """
        if isinstance(error, self._dask.KilledWorker):
            job.losses += 1
            self._count = max(len(self._workers()), 1)
            return LostWorkerError() if job.losses == _TRIES else job
        if future.status == "error":
            return error
        if future.client is self._client and (future.cancelled() or self._client.status != "running"):
            self._reconnect()
        return job

    def _reconnect(self) -> None:
        """Wait for the scheduler, or for another one at its address, which knows nothing of what this one was told."""
        end = time.monotonic() + self._patience
        old = self._client
        while self._client is old:
            time.sleep(0.1)
            if old.status not in ("running", "closed"):  # it tries to connect
                continue
            old.close()
            try:
                self._client = self._connect()
            except ClusterError as error:
                if time.monotonic() > end:
                    raise ClusterError(f"{error.message}; run the same again to go on") from error

    def _workers(self) -> dict[str, dict[str, Any]]:
        """What the scheduler knows of each worker, by its address."""
        try:
            # Not Client.scheduler_info, which may give what its heartbeat has asked for: no workers.
            found: dict[str, dict[str, Any]] = self._client.sync(
                self._client.scheduler.identity, n_workers=-1
            )["workers"]
        except (OSError, AttributeError):  # the client notices by itself, and connects again
            return {}
        return found

    def look(self) -> None:
        """Say which workers cannot be used; end where none of those that are there can be, and none comes for a while.

        Where there is no worker it is waited for: it may stand in a queue. ``distributed.scheduler.no-workers-timeout`` is Dask's
        own limit for that.

        :raises ClusterError: no worker can be used.
        """
        now = time.monotonic()
        self._tell()
        if now < self._looked + _LOOK and now < self._useful + self._patience:
            return
        self._looked = now
        workers = self._workers()
        asked = all(address in self._answers for address in workers)
        if not workers or not asked or any(self._token in worker["resources"] for worker in workers.values()):
            self._useful = now
        elif now > self._useful + self._patience:
            raise ClusterError(f"{self._address}: no worker can be used; see what is said of each")

    def _tell(self) -> None:
        for address, wrong in list(self._answers.items()):
            for reason in wrong:
                if (text := f"worker {address} gets no task: {reason}") not in self._told:
                    self._told.add(text)
                    self._say(text)


def _plugin(token: str, targets: tuple[IndexTarget, ...], files: str, expected: Mapping[str, str]) -> Any:
    """What Dask runs on each worker. It goes there by value, so that a worker without relink, or with another one, can say so."""
    from distributed import WorkerPlugin

    release, pickled = __version__, pickle.dumps(targets)

    class Offer(WorkerPlugin):
        name = token

        def setup(self, worker: Any) -> None:
            import asyncio

            self.task = asyncio.get_running_loop().create_task(self.offer(worker))

        async def offer(self, worker: Any) -> None:
            import asyncio
            import pickle

            from distributed.core import Status

            wrong = []
            try:
                import relink
                from relink.indexes.build.work import fingerprints

                if relink.__version__ == release:
                    targets = pickle.loads(pickled)  # noqa: S301 (the coordinator's)
                    own = await asyncio.to_thread(fingerprints, targets, files)
                    for name, said in own.items():
                        if said != expected[name]:
                            short = (
                                f"its prefix has other content ({said[:12]}…)" if len(said) == 64 else said
                            )
                            wrong.append(f"{name}: {short}")
                else:
                    wrong.append(f"it has relink {relink.__version__}, and {release} is needed")
            except Exception as error:  # noqa: BLE001 (whatever a worker cannot do, it cannot be used)
                wrong.append(f"{type(error).__name__}: {error}")
            if not wrong:
                limit = worker.state.total_resources.get("memory", worker.memory_manager.memory_limit)
                await worker.set_resources(**{token: 1e9, _MEMORY: max(limit or 1e15, _LEAST)})
                if worker.status == Status.running:  # or tasks that wait for this would not be told of it
                    worker.status = Status.paused
                    worker.status = Status.running
            worker.log_event(token, {"worker": worker.contact_address, "wrong": wrong})

    return Offer()
