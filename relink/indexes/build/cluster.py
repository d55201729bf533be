"""Tasks on many machines, by Dask distributed: the extra ``rocm-relink[cluster]``.

Every worker has to see the same files: the directory of the site's wheels, and each target's prefix under its path with the same
content. That is asked of each worker before it gets a task, and what a task finds is checked once more where it runs.

A task is given to one worker by name, and a worker gets no more tasks than it has threads. So what ran on a lost worker is known
exactly. Left to itself the scheduler would blame every task that a lost worker had received, and keep a task whose workers are
gone until one of that address comes back.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

from relink.indexes.build.engine import Job, Judgement
from relink.indexes.build.recipe import IndexTarget
from relink.indexes.build.work import fingerprints
from relink.system.errors import RelinkError, UsageError

__all__ = ["ClusterEngine", "ClusterError"]

_CONNECT = "30s"
_ANSWER = 600  # seconds for a worker to read its prefixes, which it does once
_RESULT = 30  # seconds for the result of a task, which is a few KiB
_LOOK = 0.2  # seconds between two looks at the workers
_MEMORY = "memory"  # the resource that workers declare: dask worker --resources "memory=8e9"


class ClusterError(RelinkError):
    """The scheduler cannot be reached, or no worker can be used."""


class _LostWorkerError(Exception):
    """The worker that had the task is gone."""


class _LostResultError(Exception):
    """The scheduler, or a result that a worker had, is gone; the task is not to blame."""


@dataclass(frozen=True, slots=True)
class _Given:
    """A job that a worker has.

    :ivar remote: Dask's future; the scheduler forgets a task of which nobody has one.
    """

    job: Job
    worker: str
    remote: Any


class ClusterEngine:
    """Workers of a Dask cluster.

    :param address: of the scheduler: ``tcp://host:8786``.
    :param targets: what is relinked for.
    :param expected: the fingerprint of each target on this machine, by name.
    :param files: the directory of the site's wheels.
    :param say: called with a sentence about each worker that is lost, or not used for a target.
    :param patience: seconds to wait for a scheduler, or a worker of a target, to come back.
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
        patience: float = 60,
    ) -> None:
        try:
            import distributed
        except ImportError as error:
            raise UsageError("--scheduler needs Dask: pip install 'rocm-relink[cluster]'") from error
        self._dask: Any = distributed  # not typed
        self._address, self._targets, self._expected = address, targets, dict(expected)
        self._files, self._say, self._patience = files, say, patience
        self._present: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, dict[str, str]] = {}
        self._asked: dict[str, Any] = {}
        self._given: dict[Future[Any], _Given] = {}
        self._looked = 0.0
        self._client = self._connect()
        began = time.monotonic()
        self._worked = {target.name: began for target in targets}
        self._look()
        while not self._usable() and (self._asked or not self._seen):
            if time.monotonic() > began + (_ANSWER if self._asked else self._patience):
                break
            time.sleep(_LOOK)
            self._look()
        if not self._usable():
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
            return self._dask.Client(self._address, timeout=_CONNECT, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ClusterError(f"{self._address}: the scheduler cannot be reached ({error})") from error

    def _look(self) -> None:
        """See which workers there are, ask new ones for their fingerprints, and take the answers that have come."""
        now = time.monotonic()
        if now < self._looked + _LOOK or self._client.status != "running":
            return
        try:
            # Not Client.scheduler_info, which may give what its heartbeat has asked for: no workers.
            found = self._client.sync(self._client.scheduler.identity, n_workers=-1)
        except OSError:  # the client notices by itself, and connects again
            return
        self._looked = now
        present = self._present = found["workers"]
        self._seen = {address: facts for address, facts in self._seen.items() if address in present}
        self._asked = {address: future for address, future in self._asked.items() if address in present}
        for address in present.keys() - self._seen.keys() - self._asked.keys():
            # A task, and not Client.run, which would keep the worker from answering as long as it reads its prefixes.
            self._asked[address] = self._client.submit(
                fingerprints, self._targets, self._files, workers=[address], pure=False, priority=1
            )
        for address in [address for address, future in self._asked.items() if future.done()]:
            self._answered(address, self._asked.pop(address))
        for target in self._targets:
            if self._workers(target.name):
                self._worked[target.name] = now

    def _answered(self, address: str, future: Any) -> None:
        if future.status == "cancelled":  # with its scheduler
            return
        try:
            answer: Any = future.result(_RESULT)
        except Exception as error:  # noqa: BLE001 (whatever a worker cannot do, it cannot be used)
            answer = f"it does not say what it has ({type(error).__name__}: {error})"
        facts = self._seen[address] = answer if isinstance(answer, dict) else {}
        for name, fingerprint in self._expected.items():
            said = facts.get(name, str(answer))
            if said != fingerprint:
                short = f"its prefix has other content ({said[:12]}…)" if len(said) == 64 else said
                self._say(f"worker {address} gets no task of {name}: {short}")

    def _workers(self, target: str | None) -> list[str]:
        """The workers that have the prefix of a target; None: of any target."""
        return [
            address
            for address, facts in self._seen.items()
            if any(
                facts.get(name) == fingerprint
                for name, fingerprint in self._expected.items()
                if target in (None, name)
            )
        ]

    def _usable(self) -> bool:
        return bool(self._workers(None))

    def _place(self, job: Job) -> str | None:
        """The worker to give a job to; None where none has room.

        A worker has as many jobs as threads, as far as its memory goes; a job that is larger than that has it for itself.
        """
        places = []
        for address in self._workers(job.target):
            facts = self._present[address]
            own = [given.job for given in self._given.values() if given.worker == address]
            limit: float = facts["resources"].get(_MEMORY) or facts["memory_limit"] or math.inf
            if facts["status"] != "running" or len(own) >= facts["nthreads"]:
                continue
            if own and (job.losses or any(one.losses for one in own)):
                continue
            if own and sum(one.memory for one in own) + job.memory > limit:
                continue
            places.append((job.memory > limit, len(own), address))
        return min(places)[2] if places else None

    def room(self, job: Job, running: Collection[Job]) -> bool:
        """Whether a worker with the job's prefix can take it; where there has been none for long, that becomes its result."""
        del running
        if self._client.status != "running":
            return False
        return self._place(job) is not None or self._missing(job.target)

    def _missing(self, target: str | None) -> bool:
        waited = target is not None and time.monotonic() > self._worked[target] + self._patience
        return waited and self._usable()

    def submit(self, job: Job) -> Future[Any]:
        """Give a job to a worker; where workers declare memory, with what it needs."""
        started: Future[Any] = Future()
        worker = self._place(job)
        if worker is None:
            started.set_exception(ClusterError(f"no worker has the prefix of {job.target}"))
            return started
        declared = self._present[worker]["resources"].get(_MEMORY)
        remote = self._client.submit(
            job.function,
            job.task,
            pure=False,
            workers=[worker],
            allow_other_workers=False,
            resources={_MEMORY: min(job.memory, declared)} if declared else {},
        )
        self._given[started] = _Given(job, worker, remote)
        remote.add_done_callback(partial(_pass_on, started))
        return started

    def tend(self) -> None:
        """Take back what lost workers had."""
        self._look()
        gone = set()
        for started, given in list(self._given.items()):
            # All futures are cancelled where the scheduler is lost, and no task is to blame.
            lost = given.worker not in self._present and given.remote.status != "cancelled"
            if lost and not started.done():
                gone.add(given.worker)
                _settle(started, error=_LostWorkerError())
                given.remote.cancel()  # or it would run as soon as a worker of this address came
            if started.done():
                del self._given[started]
        for worker in sorted(gone):
            self._say(f"worker {worker} is lost; what it had runs again")

    def judge(self, error: BaseException) -> Judgement:
        """Say what an exception means; Dask raises its own where a worker comes back under its address each time."""
        if isinstance(error, _LostWorkerError | self._dask.KilledWorker):
            return "suspect"
        return "again" if isinstance(error, _LostResultError) else "result"

    def restore(self) -> None:
        """Wait until there is a worker; the scheduler may have been started anew, and then knows nothing of earlier tasks.

        :raises ClusterError: none comes.
        """
        end = time.monotonic() + self._patience
        reason = "no worker is left"
        while True:
            time.sleep(_LOOK)
            try:
                if self._client.status == "closed":  # it has tried to connect for a while
                    self._client = self._connect()
            except ClusterError as error:
                reason = str(error)
            self._look()
            if self._client.status == "running" and self._usable():
                return
            if time.monotonic() > end:
                raise ClusterError(f"{self._address}: {reason}; run the same again to go on")


def _pass_on(started: Future[Any], remote: Any) -> None:
    """Take over a result; on a thread of Dask's client. Where it does not come, its worker was lost after it had ended."""
    try:
        result = remote.result(_RESULT)
    except BaseException as error:  # noqa: BLE001 (whatever the task has raised)
        _settle(started, error=error if remote.status == "error" else _LostResultError())
    else:
        _settle(started, result)


def _settle(started: Future[Any], result: Any = None, error: BaseException | None = None) -> None:
    """Give a future its end, unless it has one."""
    with suppress(InvalidStateError):
        if error is None:
            started.set_result(result)
        else:
            started.set_exception(error)
