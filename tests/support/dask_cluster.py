"""A Dask scheduler and workers as processes of their own, which a test may kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.built import ROOT

__all__ = ["DaskCluster", "dask_cluster"]

_SECONDS = 60.0


@dataclass
class DaskCluster:
    """:ivar workers: their processes, each in a group with those that it starts; each has one thread unless said."""

    address: str
    scheduler: subprocess.Popen[bytes]
    directory: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add_workers(
        self, count: int, *words: str, before: tuple[str, ...] = (), wait: bool = True
    ) -> list[subprocess.Popen[bytes]]:
        """Start workers, without a nanny that starts them again unless `words` say so.

        :param before: a command that starts the worker's own, such as bwrap.
        :param wait: for the scheduler to know them.
        """
        started = []
        for _ in range(count):
            log = self.directory / f"worker{len(self.workers)}.log"
            own = ["--nthreads", "1", "--no-dashboard", "--local-directory", str(log.with_suffix(""))]
            own += [] if "--nanny" in words else ["--no-nanny"]
            program = [sys.executable, "-m", "distributed.cli.dask_worker", self.address]
            started.append(_started([*before, *program, *own, *words], log))
            self.workers.append(started[-1])
        logs = [self.directory / f"worker{len(self.workers) - 1 - number}.log" for number in range(count)]
        end = time.monotonic() + _SECONDS
        while wait and not all("Registered to:" in log.read_text() for log in logs):
            assert time.monotonic() < end, logs[0].read_text()
            time.sleep(0.05)
        return started

    def restart_scheduler(self) -> None:
        """Kill the scheduler and start another one at its address; its workers end."""
        self.scheduler.kill()
        self.scheduler.wait()
        self.scheduler = _scheduler(self.address, self.directory)


def _started(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "60s",
    }
    with log.open("ab") as file:
        return subprocess.Popen(
            command, cwd=log.parent, env=environment, stdout=file, stderr=file, start_new_session=True
        )


def _scheduler(address: str, directory: Path) -> subprocess.Popen[bytes]:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    words = ["--host", host, "--port", port, "--no-dashboard"]
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", *words]
    process = _started(command, directory / "scheduler.log")
    end = time.monotonic() + _SECONDS
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            assert process.poll() is None, (directory / "scheduler.log").read_text()
            assert time.monotonic() < end, "the scheduler does not start"
            time.sleep(0.05)
        else:
            return process


@contextmanager
def dask_cluster(directory: Path) -> Iterator[DaskCluster]:
    """Start a scheduler; it and all workers end with the block."""
    pytest.importorskip("distributed", reason="Dask is not installed; it is in the group dev")
    directory.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    cluster = DaskCluster(address, _scheduler(address, directory), directory)
    try:
        yield cluster
    finally:
        for process in (*cluster.workers, cluster.scheduler):
            with suppress(ProcessLookupError):  # its nanny's workers, too
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
