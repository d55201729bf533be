"""What the command line needs of the process it runs in: three open standard streams, and a clean end by a signal."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn, TextIO

from relink.system.errors import RelinkError

_ENDING: Final = tuple(
    getattr(signal, name)
    for name in (
        "SIGINT",
        "SIGTERM",
        "SIGHUP",
        "SIGQUIT",
        "SIGXCPU",
        "SIGUSR1",
        "SIGUSR2",
        "SIGALRM",
        "SIGVTALRM",
    )
)
"""Signals that end a process (signal(7)) and that people, terminals, limits and batch systems send."""


class OutputError(RelinkError):
    """Standard output cannot be written, so whoever reads it does not get everything."""


class EndedError(SystemExit):
    """A signal asks this process to end. Everything unwinds, so that no temporary file stays.

    :ivar number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


def open_streams() -> None:
    """Open what is closed of the descriptors 0 to 2 (``2>&-``) on /dev/null.

    Otherwise the next file that is opened would take the number, and what a program prints would go into it. A character that the
    reader's encoding lacks is escaped: it is no reason to fail.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            # open(2) returns the lowest free number.
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            # Python opens files so that no child process gets them (PEP 446); standard streams are for children, too.
            os.set_inheritable(number, True)
    sys.stdin = sys.stdin or _stream(0, "r")
    sys.stdout = sys.stdout or _stream(1, "w")
    sys.stderr = sys.stderr or _stream(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _stream(number: int, mode: str) -> TextIO:
    raw = io.FileIO(number, mode, closefd=False)
    buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    return io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace", line_buffering=number == 2)


def drop_stream(stream: TextIO) -> None:
    """Let what is still to be written to a stream go nowhere: its reader has left, or it is full."""
    # A stream of a test may have no descriptor.
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def drop_output(error: OSError) -> OutputError | None:
    """Drop standard output after an error; return the error to report, None where its reader closed the pipe."""
    drop_stream(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return None
    return OutputError(
        f"standard output cannot be written ({error.strerror}), so what was to be read there is not complete; "
        "files that were written are. Name another place for it"
    )


@contextmanager
def unwind_on_signals() -> Iterator[None]:
    """Let the first signal that ends this process raise :class:`EndedError`; while that unwinds, others are ignored.

    A signal that is ignored already stays so (nohup(1)).
    """
    # signal.signal() works in the main thread alone.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        raise EndedError(number)

    own = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: signal.getsignal(number) for number in _ENDING if signal.getsignal(number) in own}
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def die_of(number: int) -> NoReturn:
    """End as the signal would have ended this process, so that a shell or batch system sees what it was."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    signal.signal(number, signal.SIG_DFL)
    # A signal that is blocked would stay pending.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    # Reached only in the first process of a container, which its own signal does not kill (pid_namespaces(7)).
    os._exit(128 + number)
