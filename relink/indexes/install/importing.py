"""The import test: the modules of an installed wheel are imported, each in a process of its own. This runs the wheel's code."""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass

from relink.system.sandbox import child_environment
from relink.system.system_errors import raise_if_machine_fault
from relink.wheel.archive import WheelArchive

__all__ = ["ImportResult", "import_modules", "modules_of"]

_TIMEOUT = 600  # seconds: torch takes ten from a slow disk
_IMPORT = "import importlib, sys; importlib.import_module(sys.argv[1])"
_SCHEMES = ("purelib", "platlib")


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What came of importing one module.

    :ivar problem: the last line of the traceback, or how the process ended; None where it was imported.
    """

    module: str
    problem: str | None


def modules_of(archive: WheelArchive) -> tuple[str, ...]:
    """Return the modules and packages at the top of a wheel; private ones only where there are no others.

    A directory without ``__init__`` is part of a namespace that other distributions share, and is left out.
    """
    found = set()
    for name in archive.members:
        parts = name.split("/")
        if archive.data_dir is not None and parts[0] == archive.data_dir and parts[1] in _SCHEMES:
            parts = parts[2:]
        stem, _, ending = parts[-1].partition(".")
        is_module = ending in {"py", "so"} or ending.endswith(".so")
        if is_module and (len(parts) == 1 or (len(parts) == 2 and stem == "__init__")):
            found.add(stem if len(parts) == 1 else parts[0])
    names = sorted(name for name in found if name.isidentifier())
    return tuple([name for name in names if not name.startswith("_")] or names)


def import_modules(python: str, modules: Iterable[str]) -> tuple[ImportResult, ...]:
    """Import each module in an environment's Python, in an empty directory."""
    with tempfile.TemporaryDirectory(prefix="relink-") as directory:
        return tuple(ImportResult(module, _problem(python, module, directory)) for module in modules)


def _problem(python: str, module: str, directory: str) -> str | None:
    try:
        run = subprocess.run(
            [python, "-c", _IMPORT, module],
            env=child_environment(),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except OSError as error:
        raise_if_machine_fault(error, python)
        return f"{python} cannot be run ({error.strerror})"
    except subprocess.TimeoutExpired:
        return f"did not end within {_TIMEOUT} s"
    if run.returncode == 0:
        return None
    if run.returncode < 0:
        return f"the process died of {signal.Signals(-run.returncode).name}"
    return _reason(run.stderr) or f"exit code {run.returncode}"


def _reason(traceback: str) -> str:
    """The last line of a traceback; where that is a bare name, the last line before it that says more, too.

    onnxruntime without numpy ends in ``ImportError``, and what is missing stands above it.
    """
    lines = [line.strip() for line in traceback.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    if not re.fullmatch(r"[\w.]+", last):
        return last
    above = next((line for line in reversed(lines) if re.match(r"[\w.]*(Error|Exception): .", line)), None)
    return f"{last} ({above})" if above else last
