"""Trying what was installed: its modules are imported, each in a process of its own, and its GPU part is loaded.

This runs the wheel's code, as whoever imports it will. It is not in the sandbox, which has no GPU.
"""

from __future__ import annotations

import json
import re
import signal
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from relink.system.programs import NoAnswerError, ask_program
from relink.wheel.archive import WheelArchive

_TIMEOUT = 600  # seconds: torch takes ten from a slow disk
_IMPORT = "import importlib, sys; importlib.import_module(sys.argv[1])"
_SCHEMES = ("purelib", "platlib")
# os._exit: destructors of a GPU runtime may fail where there is no GPU, which says nothing about loading.
_LOAD = """
import ctypes, importlib, json, os, sys
modules, preloads, members = json.loads(sys.argv[1])
for module in modules:
    importlib.import_module(module)
for path in preloads:
    ctypes.CDLL(path, os.RTLD_NOW | os.RTLD_GLOBAL)
for path in members:
    os.write(1, ("\\n" + path + "\\n").encode())
    try:
        ctypes.CDLL(path, os.RTLD_NOW)
    except OSError as error:
        os.write(1, ("\\n" + path + "\\t" + str(error) + "\\n").encode())
    else:
        os.write(1, ("\\n" + path + "\\t\\n").encode())
os._exit(0)
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of importing one module, or of loading one library.

    :ivar name: of the module, or of the wheel's member.
    :ivar problem: the last line of the traceback, what dlopen says, or how the process ended; None where it worked.
    :ivar without_gpu: how the process ended once all was bound, where there is no GPU.
    """

    name: str
    problem: str | None
    without_gpu: str | None = None


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
    return tuple(Trial(module, _run([python, "-c", _IMPORT, module])[1]) for module in modules)


def load_members(
    python: str, modules: Sequence[str], preloads: Sequence[str], members: Mapping[str, str], *, has_gpu: bool
) -> tuple[Trial, ...]:
    """Load libraries with RTLD_NOW in an environment's Python that has imported their package.

    A constructor may end the process where there is no GPU: onnxruntime's provider asks HIP for a device, and throws.
    When constructors run, all libraries are mapped and all symbols are bound (elf/dl-open.c, dl_open_worker).

    :param modules: imported first.
    :param preloads: the paths of what the package loads first, into the global scope.
    :param members: name in the wheel → path of each library that is tried.
    :param has_gpu: whether that ends the process although there is a GPU.
    """
    trials = []
    left = dict(members)
    while left:
        said, ended = _run([python, "-c", _LOAD, json.dumps([modules, preloads, [*left.values()]])])
        lines = said.split("\n")
        for name, path in tuple(left.items()):
            del left[name]
            problem = next((line[len(path) + 1 :] for line in lines if line.startswith(f"{path}\t")), ended)
            idle = problem == ended and not has_gpu and path in lines
            trials.append(Trial(name, None if idle else problem or None, problem if idle else None))
            if problem == ended and ended is not None:
                break
    return tuple(trials)


def _run(command: Sequence[str]) -> tuple[str, str | None]:
    """Return what a Python prints, and how it failed, or None."""
    with tempfile.TemporaryDirectory(prefix="relink-") as directory:
        try:
            run = ask_program(command, directory=directory, timeout=_TIMEOUT)
        except NoAnswerError as error:
            return "", f"{command[0]} {error}"
    return run.stdout, _ending(run.returncode, run.stderr) if run.returncode else None


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
