"""Processes of a Python whose modules are written by a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from relink.python.events import ImportEvents
from relink.python.facts_cache import FactsCache
from relink.python.modules import Interpreter
from relink.python.process import PythonProcesses

SUFFIXES = (".cpython-311-x86_64-linux-gnu.so", ".abi3.so", ".so")


def python_of(site: Path, *builtins: str) -> Interpreter:
    """Return a Python 3.11 that has one directory of modules, and `sys` and others inside of itself."""
    return Interpreter(
        program=str(site.parent / "bin" / "python"),
        version=(3, 11),
        suffixes=SUFFIXES,
        path=(str(site),),
        site_packages=(str(site),),
        standard=(str(site.parent / "lib"),),
        builtins=frozenset({"sys", "builtins", "posixpath", "_ctypes", *builtins}),
        prefix=str(site.parent),
    )


STANDARD = {
    "os.py": "import sys\nimport posixpath as path\nsys.modules['os.path'] = path\ndef listdir(path): ...\n",
    "ctypes/__init__.py": "import _ctypes\nclass CDLL: ...\nclass PyDLL(CDLL): ...\n",
    "pathlib.py": "class Path: ...\n",
    "glob.py": "def glob(pattern): ...\n",
    "contextlib.py": "class suppress: ...\nclass _BaseExitStack:\n def enter_context(self, cm): ...\n"
    "class ExitStack(_BaseExitStack): ...\n",
    "_collections_abc.py": "class Mapping:\n def get(self, key, default=None): ...\n",
    "collections/abc.py": "from _collections_abc import *\n",
    "importlib/resources.py": "def files(package): ...\ndef as_file(path): ...\n",
    "typing.py": "TYPE_CHECKING = False\n",
    "importlib/__init__.py": "def import_module(name, package=None): ...\n",
}
"""What modules of the standard library look like to who follows them: the functions that are known, by their names."""


def write_files(site: Path, files: Mapping[str, str | bytes]) -> None:
    """Write modules by their paths, beside :data:`STANDARD`; one that ends in ``.so`` is empty, and no ELF file."""
    for name, content in {**STANDARD, **files}.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def read_events(site: Path, name: str, variables: Mapping[str, str] | None = None) -> ImportEvents:
    """Return what ``import NAME`` does there."""
    processes = PythonProcesses(python_of(site), cache=FactsCache(None), variables=variables or {})
    return processes.read_import(name)


def opened(events: ImportEvents, site: Path) -> list[tuple[str, str]]:
    """Return what is opened, in order, and how sure that is; paths below `site`."""
    return [
        (event.name.removeprefix(f"{site}/"), event.when)
        for event in events.events
        if event.kind in ("extension", "library")
    ]
