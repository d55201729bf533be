"""What the import of a package really does, in a process of the environment's own Python; its code runs. `relink check --import`
and benchmarks/imports.py compare it with what is predicted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from relink.system.errors import raise_if_machine_fault
from relink.system.programs import Steps, run_side_by_side

IMPORT_LIMIT = 120.0
"""Seconds of one process."""
_PAUSE = 0.02
_IMPORTS_AT_ONCE = 4
# Bytes of its answer, which the package's code could write as well.
_ANSWER = 16 << 20
_PROGRAM = r"""
import json, os, sys
answer, error, process = int(sys.argv[1]), None, os.getpid()
for name in sys.argv[2:]:
    try:
        __import__(name)
    except BaseException as raised:
        error = error or f"import {name}: {type(raised).__name__}: {raised}"[:2000].rstrip(": ")
found = {}
with open("/proc/self/maps") as maps:
    for line in maps:
        path = line.rstrip("\n").split(None, 5)[5:]
        if path and path[0].startswith("/"):
            try:
                with open(path[0], "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        status = os.fstat(file.fileno())
                        found[f"{status.st_dev}:{status.st_ino}"] = path[0]
            except OSError:
                pass
if process == os.getpid():
    os.write(answer, json.dumps({"mapped": found, "error": error}).encode())
os._exit(0)
"""


class RealImport(msgspec.Struct, frozen=True):
    """What came of importing modules one after the other in one process.

    :ivar mapped: the ELF files that it has mapped in the end: by device and inode the path.
    :ivar error: the first exception, or how the process ended; None where all were imported.
    """

    mapped: Mapping[str, str]
    error: str | None

    def differs(
        self, predicted: Iterable[str], before: RealImport
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the paths that are mapped and not predicted, and the other way round.

        :param before: a process that imports nothing.
        """
        expected = identify(predicted)
        missed = {self.mapped[key] for key in self.mapped.keys() - expected.keys() - before.mapped.keys()}
        invented = {expected[key] for key in expected.keys() - self.mapped.keys() - before.mapped.keys()}
        return tuple(sorted(missed)), tuple(sorted(invented))


def import_all(python: str, modules: Mapping[str, Sequence[str]]) -> dict[str, RealImport]:
    """Import the modules of each distribution in a process of its own, several at once; the key "" imports nothing."""
    wanted = {"": ("sys",), **modules}
    work = [(0, import_really(python, names)) for names in wanted.values()]
    return dict(
        zip(wanted, run_side_by_side(work, min(_IMPORTS_AT_ONCE, os.cpu_count() or 1), 0), strict=True)
    )


def identify(paths: Iterable[str]) -> dict[str, str]:
    """Return paths by device and inode, without those that are not there."""
    found = {}
    for path in paths:
        with suppress(OSError, ValueError):
            status = os.stat(path)
            found[f"{status.st_dev}:{status.st_ino}"] = path
    return found


def import_really(python: str, names: Sequence[str]) -> Steps[RealImport]:
    """Import modules in a process of a Python, with this process's environment variables and in an empty directory.

    What it prints is not read. When it has ended, or its time is over, what it has started is ended with it.

    :raises MachineError: the machine has no process or no memory for it.
    """
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryDirectory(prefix="relink-") as directory:
        try:
            process = subprocess.Popen(
                [python, "-c", _PROGRAM, str(answer.fileno()), *names],
                pass_fds=[answer.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=directory,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                start_new_session=True,
            )
        except OSError as error:
            raise_if_machine_fault(error, python)
            return RealImport({}, f"{python} cannot be run ({error.strerror})")
        end, ended = time.monotonic() + IMPORT_LIMIT, None
        try:
            yield
            while ended is None and time.monotonic() < end:
                # It is not waited for yet: until then no other group gets its number.
                ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
                time.sleep(0 if ended else _PAUSE)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
        if ended is None:
            return RealImport({}, f"import {' '.join(names)}: did not end in {IMPORT_LIMIT:g} s")
        answer.seek(0)
        with suppress(msgspec.MsgspecError):
            return msgspec.json.decode(answer.read(_ANSWER), type=RealImport)
    how = f"died of {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
    return RealImport({}, f"import {' '.join(names)}: the process {how}")
