"""Tasks on many machines, by Dask distributed: the extra ``rocm-relink[cluster]``.

Every worker has to see the same files: the directory of the site's wheels, and each target's prefix under its path with the same
content. That is asked of each worker before it gets a task, and what a task finds is checked once more where it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Self

from relink.errors import RelinkError, UsageError
from relink.index.engine import CancelledTaskError, Job, Judgement
from relink.index.recipe import IndexTarget
from relink.index.work import fingerprints

__all__ = ["ClusterEngine", "ClusterError"]

_CONNECT = "30s"
_AHEAD = 2  # tasks for each thread of the workers that are given to the scheduler, and no more: it may have to run them again
_ANSWER = 600  # seconds for a worker to read its prefixes, which it does once
_RESTORE = 60  # seconds for a scheduler to come back
_MEMORY = "memory"  # the resource that workers declare: dask worker --resources "memory=8e9"


class ClusterError(RelinkError):
    """The scheduler cannot be reached, or no worker can be used."""


class ClusterEngine:
    """Workers of a Dask cluster.

    :param address: of the scheduler: ``tcp://host:8786``.
    :param targets: what is relinked for.
    :param expected: the fingerprint of each target on this machine, by name.
    :param files: the directory of the site's wheels.
    :param say: called with a sentence about each worker that is not used for a target.
    :raises UsageError: Dask is not installed.
    :raises ClusterError: the scheduler cannot be reached, or no worker can be used.
    """

    def __init__(
        self,
        address: str,
        targets: tuple[IndexTarget, ...],
        expected: Mapping[str, str],
        files: str,
        say: Callable[[str], None],
    ) -> None:
        try:
            import distributed
            from distributed.comm.core import CommClosedError
        except ImportError as error:
            raise UsageError("--scheduler needs Dask: pip install 'rocm-relink[cluster]'") from error
        self._dask, self._lost = distributed, CommClosedError
        self._address, self._targets, self._expected = address, targets, dict(expected)
        self._files, self._say = files, say
        self._seen: dict[str, dict[str, str]] = {}
        self._given: dict[Future[Any], frozenset[str]] = {}
        self._asked: dict[str, Any] = {}
        self._client: Any = self._connect()
        end = time.monotonic() + _ANSWER
        self._look()
        while (
            self._asked
            and not any(self._workers(target.name) for target in targets)
            and time.monotonic() < end
        ):
            time.sleep(0.1)
            self._look()
        if not any(self._workers(target.name) for target in targets):
            self._client.close()
            raise ClusterError(f"{address}: no worker can be used; see what is said of each")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def _connect(self) -> Any:
        try:
            make: Any = self._dask.Client  # not typed
            return make(self._address, timeout=_CONNECT, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ClusterError(f"{self._address}: the scheduler cannot be reached ({error})") from error

    def _look(self) -> None:
        """Ask workers that have come since for their fingerprints, and take the answers that are there; waits for none."""
        present = self._client.scheduler_info(n_workers=-1)["workers"]
        self._seen = {address: facts for address, facts in self._seen.items() if address in present}
        for address in [address for address in self._asked if address not in present]:
            self._asked.pop(address).cancel()
        for address in present.keys() - self._seen.keys() - self._asked.keys():
            # A task, and not Client.run, which would keep the worker from answering as long as it reads its prefixes.
            self._asked[address] = self._client.submit(
                fingerprints, self._targets, self._files, workers=[address], pure=False, priority=1
            )
        for address in [address for address, future in self._asked.items() if future.done()]:
            self._answered(address, self._asked.pop(address))

    def _answered(self, address: str, future: Any) -> None:
        try:
            answer: Any = future.result(_CONNECT)
        except Exception as error:  # noqa: BLE001 (whatever a worker cannot do, it cannot be used)
            answer = f"it does not say what it has ({type(error).__name__}: {error})"
        facts = self._seen[address] = answer if isinstance(answer, dict) else {}
        for name, fingerprint in self._expected.items():
            said = facts.get(name, str(answer))
            if said != fingerprint:
                short = f"its prefix has other content ({said[:12]}…)" if len(said) == 64 else said
                self._say(f"worker {address} gets no task of {name}: {short}")

    def _workers(self, target: str | None) -> list[str]:
        if target is None:
            return [address for address, facts in self._seen.items() if facts]
        return [
            address for address, facts in self._seen.items() if facts.get(target) == self._expected[target]
        ]

    def room(self, job: Job, running: Collection[Job]) -> bool:
        """Whether the scheduler has few tasks waiting, and there are workers."""
        del job
        self._look()
        threads = sum(
            worker["nthreads"] for worker in self._client.scheduler_info(n_workers=-1)["workers"].values()
        )
        return bool(self._seen) and len(running) < max(1, threads * _AHEAD)

    def submit(self, job: Job) -> Future[Any]:
        """Give a job to the scheduler, for the workers that it can run on; where they declare memory, with what it needs."""
        workers = self._workers(job.target)
        if not workers:
            future: Future[Any] = Future()
            future.set_exception(ClusterError(f"no worker has the prefix of {job.target}"))
            return future
        declared = self._client.scheduler_info(n_workers=-1)["workers"]
        limits = [
            declared[address].get("resources", {}).get(_MEMORY) for address in workers if address in declared
        ]
        resources = {}
        if limits and None not in limits:
            resources = {_MEMORY: min(job.memory, max(limits))}  # a larger one has a worker for itself
        executor = self._client.get_executor(
            pure=False, workers=workers, allow_other_workers=False, resources=resources
        )
        started: Future[Any] = executor.submit(job.function, job.task)
        self._given[started] = frozenset(workers)
        return started

    def tend(self, running: Collection[Future[Any]]) -> None:
        """Take back tasks that were given to workers of which none is left: the scheduler would wait for these to come back."""
        self._look()
        present = self._seen.keys()
        self._given = {future: workers for future, workers in self._given.items() if future in running}
        for future, workers in self._given.items():
            if not workers & present:
                future.cancel()

    def judge(self, error: BaseException) -> Judgement:
        """Say what an exception means: the scheduler itself runs the tasks of a lost worker again, and finds who is to blame."""
        if isinstance(error, self._dask.KilledWorker):
            return "poison"
        gone = (
            CancelledError,
            CancelledTaskError,
            self._dask.CancelledError,
            self._lost,
        )
        return "again" if isinstance(error, gone) else "result"

    def restore(self) -> None:
        """Reach the scheduler again; it may have been started anew, and then knows nothing of earlier tasks.

        :raises ClusterError: it does not come back in a minute.
        """
        end = time.monotonic() + _RESTORE
        while True:
            try:
                if self._client.status != "running":
                    self._client = self._connect()
                    self._seen, self._asked = {}, {}
                self._look()
                if self._seen:
                    return
            except (ClusterError, OSError) as error:
                if time.monotonic() > end:
                    raise ClusterError(
                        f"{self._address}: the scheduler is lost; run the same again to go on"
                    ) from error
            if time.monotonic() > end:
                raise ClusterError(f"{self._address}: no worker is left; run the same again to go on")
            time.sleep(0.5)
