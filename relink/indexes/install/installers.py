"""pip and uv as programs: which of them there is, and running them.

pip downloads, since uv cannot. Both read their own configuration (index, proxies, credentials), of which relink knows nothing.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from relink.system.errors import RelinkError, UsageError
from relink.system.programs import NoAnswerError, ask_program
from relink.system.sandbox.environment import child_environment
from relink.system.system_errors import raise_if_machine_fault

_SHOWN = 8  # lines of what a program says before it fails


class InstallerError(RelinkError):
    """pip or uv has failed; the issues are its last lines."""


def has_pip(python: str) -> bool:
    """Whether a Python has pip."""
    try:
        return ask_program([python, "-I", "-m", "pip", "--version"], directory="/").returncode == 0
    except NoAnswerError:
        return False


def find_pip(pythons: Iterable[str] = ()) -> list[str]:
    """Return a command that is pip: of the Python that runs relink, of one of `pythons`, or of ``python3`` on PATH.

    Environments that pipx and uv make for a tool have none.

    :raises UsageError: none of them has it.
    """
    on_path = shutil.which("python3")
    for python in dict.fromkeys((sys.executable, *pythons, *((on_path,) if on_path else ()))):
        if has_pip(python):
            return [python, "-I", "-m", "pip"]
    raise UsageError(
        "no pip was found: not in the Python that runs relink, not in the target's, not in python3 on PATH; install pip, "
        "or download the wheel and pass its path"
    )


def find_uv() -> str | None:
    """Return the path of uv: beside the Python that runs relink, or on PATH."""
    return shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")


def run_installer(command: Sequence[str], directory: Path, failed: str, *, largest: int | None = None) -> str:
    """Run pip or uv in `directory`; on a terminal its progress is seen there, on standard error.

    :param failed: the beginning of the sentence if it fails.
    :param largest: bytes that a file which it writes may have.
    :return: what it has printed on standard error.
    :raises InstallerError: it does; has its last lines.
    """
    shown = sys.stderr.isatty()
    try:
        with subprocess.Popen(
            command,
            env=child_environment(),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr if shown else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as run:
            if largest is not None:
                resource.prlimit(run.pid, resource.RLIMIT_FSIZE, (largest, largest))
            said, complained = run.communicate()
    except OSError as error:
        raise_if_machine_fault(error, command[0])
        raise InstallerError(f"{failed}: {command[0]} cannot be run ({error.strerror})") from error
    if run.returncode != 0:
        lines = [line.strip() for line in f"{said or ''}\n{complained}".splitlines() if line.strip()]
        raise InstallerError(failed, lines[-_SHOWN:])
    return complained
