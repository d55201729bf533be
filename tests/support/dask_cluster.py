"""A Dask scheduler and workers as processes of their own, which a test may kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.built import ROOT

__all__ = ["DaskCluster", "dask_cluster"]

_SECONDS = 60.0


@dataclass
class DaskCluster:
    """:ivar workers: their processes; each has one thread, and no nanny that starts it again."""

    address: str
    scheduler: subprocess.Popen[bytes]
    directory: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add_worker(self, *words: str, before: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        """Start a worker; `before` is a command that starts it, such as unshare."""
        own = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "30"]
        place = ["--local-directory", str(self.directory / f"worker{len(self.workers)}")]
        command = [
            *before,
            sys.executable,
            "-m",
            "distributed.cli.dask_worker",
            self.address,
            *own,
            *place,
            *words,
        ]
        self.workers.append(_started(command, self.directory / f"worker{len(self.workers)}.log"))
        return self.workers[-1]

    def restart_scheduler(self) -> None:
        """Kill the scheduler and start another one at its address; workers come back by themselves or die."""
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
        return subprocess.Popen(command, cwd=log.parent, env=environment, stdout=file, stderr=file)


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
def dask_cluster(directory: Path, workers: int) -> Iterator[DaskCluster]:
    """Start a scheduler and workers; all of them end with the block."""
    pytest.importorskip("distributed", reason="Dask is not installed; it is in the group dev")
    directory.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    cluster = DaskCluster(address, _scheduler(address, directory), directory)
    try:
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        for process in (*cluster.workers, cluster.scheduler):
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
