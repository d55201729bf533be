"""Running a program that answers a question: a Python, pip, patchelf, a package manager.

Work in steps, each of which ends when a process has been started: several processes side by side, all in the caller's thread.

A thread for each would do as well, but Ctrl-C reaches only the main one, and the sandbox ends a process with the thread that
started it.

The environments of the programs that relink starts: each gets what it needs, and nothing that would load code into it.
"""

from __future__ import annotations

import fnmatch
import os
import subprocess
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from relink.system.errors import RelinkError, raise_if_machine_fault

_USER: Final = (
    "HOME",
    "USER",
    "LOGNAME",
    "PATH",
    "TMPDIR",
    "LANG",
    "LC_*",
    "XDG_*",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
NIX: Final = (*_USER, "NIX_*", "IN_NIX_SHELL", "LOCALE_ARCHIVE")
"""What nix-instantiate and nix-store read (nix(1), "Common environment variables"). They find their libraries by RUNPATH."""
# Python's own variables are there by which relink itself was found and by which it runs; what pip and the compiler read; and what
# the user's shell says about the terminal.
DEMO: Final = (
    *(
        *_USER,
        "LD_LIBRARY_PATH",
        "NIX_*",
        "LOCALE_ARCHIVE",
        "SOURCE_DATE_EPOCH",
        "RELINK_*",
    ),
    *(
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONNOUSERSITE",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONPYCACHEPREFIX",
        "VIRTUAL_ENV",
    ),
    *("PIP_*", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    *(
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
        "CC",
        "CFLAGS",
        "LDFLAGS",
        "CPATH",
        "LIBRARY_PATH",
    ),
    *("TERM", "COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"),
)
"""What the demo reads, beside the variables of the vendors: it runs relink, pip and a C compiler."""


def make_child_environment() -> dict[str, str]:
    """Return relink's environment for a program that it starts, less what would load code into it (ld.so(8), python(1)).

    LD_LIBRARY_PATH stays: a Python may find its own library by it. The loader in its dry run and patchelf get no environment.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name == "LD_LIBRARY_PATH" or not name.startswith(("LD_", "GLIBC_", "PYTHON"))
    }


def make_named_environment(patterns: Sequence[str]) -> dict[str, str]:
    """Return the variables of relink's environment that one of the globs names."""
    return {
        name: value
        for name, value in os.environ.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }


T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Work that pauses while its process runs, waits for it when it goes on, and returns a T. Closing it ends the process."""


def finish_steps(steps: Steps[T]) -> T:
    """Take all steps that are left; return the result, and raise as the work does."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def run_side_by_side(work: Iterable[tuple[int, Steps[T]]], jobs: int, room: int) -> Iterator[T]:
    """Yield the results of several pieces of work, in order; what has been begun is ended if one raises or nobody asks on.

    :param work: each with the bytes of memory that it takes.
    :param jobs: how many are under way at most.
    :param room: bytes that those under way may take together; one that takes more is under way alone.
    """
    waiting = iter(work)
    following = next(waiting, None)
    begun: deque[tuple[int, Steps[T]]] = deque()
    try:
        while following or begun:
            while following and (
                not begun or (len(begun) < jobs and sum(cost for cost, _ in begun) + following[0] <= room)
            ):
                cost, steps = following
                begun.append((cost, _started(steps)))
                following = next(waiting, None)
            # The work stays in `begun` until it has ended, so that a failure closes it below.
            yield finish_steps(begun[0][1])
            begun.popleft()
    finally:
        for _, steps in begun:
            steps.close()


def _started(steps: Steps[T]) -> Steps[T]:
    """Take the first step of work that pauses there once more, or has its result already."""
    try:
        next(steps)
    except StopIteration as end:
        return _returning(end.value)
    return steps


def _returning(result: T) -> Steps[T]:
    yield from ()
    return result


class NoAnswerError(RelinkError):
    """A program gave no answer; the message says why, and does not name the program."""


def ask_program(
    command: Sequence[str],
    *,
    directory: str | None = None,
    timeout: float = 60,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with nothing to read and its output as text; whether it failed is the caller's to see.

    :param environment: what it gets in place of :func:`make_child_environment`.
    :raises NoAnswerError: it cannot be run, or runs for longer than `timeout` seconds.
    :raises MachineError: the machine has no process or no memory for it.
    """
    environment = make_child_environment() if environment is None else environment
    try:
        return subprocess.run(
            command,
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except OSError as error:
        raise_if_machine_fault(error, f"{command[0]}: cannot be run")
        raise NoAnswerError(f"cannot be run ({error.strerror})") from error
    except ValueError as error:  # a NUL, or half of a surrogate pair, which a plan may have
        raise NoAnswerError(f"cannot be run ({error})") from error
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"gave no answer in {timeout:g} s") from error
