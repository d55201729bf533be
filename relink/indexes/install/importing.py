"""Trying what was installed: its modules are imported, each in a process of its own, and its GPU part is loaded.

This runs the wheel's code. An import may do what any Python program may; what loading a library runs is in the sandbox, since
no library has to write a file or reach a network for it.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from relink.system.bounded_json import parse_json
from relink.system.sandbox import Limits, Sandbox, child_environment, status_of, stop
from relink.system.system_errors import raise_if_machine_fault
from relink.wheel.archive import WheelArchive

__all__ = ["Trial", "import_modules", "load_members", "modules_of"]

_TIMEOUT = 600  # seconds: torch takes ten from a slow disk
_IMPORT = "import importlib, sys; importlib.import_module(sys.argv[1])"
_SCHEMES = ("purelib", "platlib")
# os._exit: destructors of a GPU runtime may fail where there is no GPU, which says nothing about loading.
_LOAD = """
import ctypes, json, os, sys
preloads, members = json.loads(sys.argv[1])
for path in preloads:
    ctypes.CDLL(path, os.RTLD_NOW | os.RTLD_GLOBAL)
for path in members:
    os.write(1, (json.dumps(path) + "\\n").encode())
    try:
        ctypes.CDLL(path, os.RTLD_NOW)
    except OSError as error:
        problem = str(error)
    else:
        problem = None
    os.write(1, (json.dumps([problem]) + "\\n").encode())
os._exit(0)
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of importing one module, or of loading one library.

    :ivar name: of the module, or of the wheel's member.
    :ivar problem: the last line of the traceback, what dlopen says, or how the process ended; None where it worked.
    """

    name: str
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


def import_modules(python: str, modules: Iterable[str]) -> tuple[Trial, ...]:
    """Import each module in an environment's Python, in an empty directory."""
    with tempfile.TemporaryDirectory(prefix="relink-") as directory:
        return tuple(Trial(module, _problem(python, module, directory)) for module in modules)


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
    return None if run.returncode == 0 else _ending(run.returncode, run.stderr)


def load_members(
    python: str, preloads: Sequence[tuple[str, str]], members: Sequence[tuple[str, str]], sandbox: Sandbox
) -> tuple[Trial, ...]:
    """Load libraries in an environment's Python, in one process in the sandbox, as the package would load them.

    :param preloads: name and path of what the package loads first, into the global scope.
    :param members: name and path of each library that is tried.
    """
    if not members:
        return ()
    paths = json.dumps([[path for _, path in preloads], [path for _, path in members]])
    process = sandbox.start(
        [shutil.which(python) or python, "-I", "-S", "-c", _LOAD, paths],
        child_environment(),
        Limits(seconds=_TIMEOUT),
    )
    try:
        output, errors = process.communicate(timeout=_TIMEOUT)
        ended = _ending(status_of(sandbox, process.returncode), errors)
    except subprocess.TimeoutExpired:
        output, ended = "", f"did not end within {_TIMEOUT} s"
    finally:
        stop(process)
    problems: dict[str, str | None] = {}
    path = ""
    for line in output.splitlines():
        try:
            said = parse_json(line)
        except ValueError:  # a library may print, too
            continue
        if isinstance(said, str):
            path = said
            problems[path] = ended
        elif isinstance(said, list) and path in problems and len(said) == 1:
            problems[path] = said[0] if isinstance(said[0], str) else None
    return tuple(Trial(name, problems.get(path, ended)) for name, path in members)


def _ending(status: int, errors: str) -> str:
    """Say how a Python ended that did not do what it was to do."""
    if status < 0:
        return f"the process died of {signal.Signals(-status).name}"
    return _reason(errors) or f"exit code {status}"


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
