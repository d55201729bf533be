"""Running a program that answers a question: a Python, pip, patchelf, a package manager."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from relink.system.errors import RelinkError
from relink.system.sandbox.environment import child_environment
from relink.system.system_errors import raise_if_machine_fault


class NoAnswerError(RelinkError):
    """A program gave no answer; the message says why, and does not name the program."""


def ask_program(
    command: Sequence[str], *, directory: str | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with nothing to read and its output as text; whether it failed is the caller's to see.

    :raises NoAnswerError: it cannot be run, or runs for longer than `timeout` seconds.
    :raises MachineError: the machine has no process or no memory for it.
    """
    try:
        return subprocess.run(
            command,
            env=child_environment(),
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
