"""Where a Python finds a module: importlib's FileFinder over directories, and what installers put before it.

Sources: importlib/_bootstrap_external.py (FileFinder.find_spec: of one directory first a package, then extension modules, then
sources, then bytecode), PEP 420 (namespace packages).
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from relink.system.errors import raise_if_machine_fault
from relink.system.safe_open import read_bytes


class Interpreter(msgspec.Struct, frozen=True):
    """What decides which modules a Python finds, and what they are told.

    :ivar program: its executable file.
    :ivar version: major and minor; `micro` has the third part.
    :ivar suffixes: endings of extension modules, in the order in which they are tried (``.cpython-311-x86_64-linux-gnu.so``).
    :ivar path: sys.path without the directory of the script, in order.
    :ivar site_packages: those of `path` whose .pth files are read.
    :ivar standard: the directories of its standard library.
    :ivar builtins: the modules inside of the program.
    :ivar prefix: sys.prefix.
    :ivar machine: ``x86_64``, as platform.machine() says.
    """

    program: str
    version: tuple[int, int]
    suffixes: tuple[str, ...]
    path: tuple[str, ...]
    site_packages: tuple[str, ...]
    standard: tuple[str, ...]
    builtins: frozenset[str]
    prefix: str
    machine: str = "x86_64"
    micro: int = 0

    @property
    def own_suffixes(self) -> tuple[str, ...]:
        """The endings that name this Python: ``name.so`` is taken, too, and may as well be any library."""
        return tuple(suffix for suffix in self.suffixes if suffix != ".so")

    def is_standard(self, file: str) -> bool:
        """Whether a file is of the standard library."""
        return file.startswith(self.standard) and not file.startswith(self.site_packages)


# Entries of a search path that are looked into: sources may add any number.
_DIRECTORIES = 200
_FROZEN = frozenset({"_frozen_importlib", "_frozen_importlib_external", "__main__"})
"""Modules that every Python has, and sys.builtin_module_names lacks."""
SpecKind: TypeAlias = Literal["source", "extension", "builtin", "namespace", "bytecode"]


class Spec(msgspec.Struct, frozen=True):
    """A module that was found.

    :ivar file: its file; empty for builtin modules and namespace packages.
    :ivar search: where its submodules are looked for; None where it is no package.
    """

    name: str
    kind: SpecKind
    file: str = ""
    search: tuple[str, ...] | None = None


def identify(path: str) -> str:
    """Return what tells whether a file or directory is still the one that was looked at; empty where there is none."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # a NUL
        return ""
    # What the kernel makes has another time in each process.
    if path.startswith(("/proc/", "/sys/", "/dev/")):
        return "there"
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def identify_code(*packages: str) -> list[str]:
    """Return what tells whether packages of relink itself are the same as before: another relink may give other answers."""
    above = Path(__file__).parents[1]
    return [
        identify(str(path)) for package in packages for path in sorted(above.joinpath(package).glob("*.py"))
    ]


class Disk(msgspec.Struct):
    """The directories of the target, each read once, with files laid over it that are not installed yet.

    :ivar members: by absolute path what returns the content; for a wheel that is looked at where it will be installed.
    :ivar editable: by the names of modules where setuptools' finder for a package that is installed as editable has them: the
        path of a package's directory, or of a module without its ending.
    :ivar redirected: by the names of modules the files that scikit-build-core's finder has, which is asked before any directory.
    :ivar absent: extensions that their distribution lists and that are gone: an import that comes to one, and to nothing else of
        its name, ends there.
    :ivar looked: by path what identifies each file and directory that was looked at, before it was.
    """

    members: Mapping[str, Callable[[], bytes]] = msgspec.field(default_factory=dict)
    editable: dict[str, str] = msgspec.field(default_factory=dict)
    redirected: dict[str, str] = msgspec.field(default_factory=dict)
    looked: dict[str, str] = msgspec.field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    _listed: dict[str, dict[str, bool]] = msgspec.field(default_factory=dict)
    _added: dict[str, dict[str, bool]] | None = None

    def look(self, path: str) -> None:
        """Note that a file or directory is looked at."""
        if path not in self.looked:
            self.looked[path] = identify(path)

    def names(self, directory: str) -> dict[str, bool]:
        """Return the names in a directory, and whether each is a directory; nothing where there is none."""
        if directory not in self._listed:
            self.look(directory)
            found: dict[str, bool] = {}
            try:
                with os.scandir(directory) as entries:
                    found = {entry.name: entry.is_dir() for entry in entries}
            except (OSError, ValueError) as error:
                raise_if_machine_fault(error, directory)
            self._listed[directory] = found | self._overlay().get(directory, {})
        return self._listed[directory]

    def _overlay(self) -> dict[str, dict[str, bool]]:
        if self._added is None:
            self._added = {}
            for path in self.members:
                directory, name = posixpath.split(path)
                self._added.setdefault(directory, {})[name] = False
                while directory not in ("", "/"):
                    directory, name = posixpath.split(directory)
                    self._added.setdefault(directory, {})[name] = True
        return self._added

    def is_directory(self, path: str) -> bool:
        """Whether there is such a directory."""
        directory, name = posixpath.split(path.rstrip("/"))
        return self.names(directory).get(name, False)

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory; a symbolic link that leads nowhere is none."""
        self.look(path)
        return path in self.members or self.is_directory(path) or self.looked[path] != ""

    def read(self, path: str, limit: int) -> bytes:
        """Return the content of a file.

        :raises OSError: it cannot be read, or is larger.
        """
        self.look(path)
        member = self.members.get(path)
        return member() if member is not None else read_bytes(path, limit)


def find_module(name: str, search: Sequence[Any], interpreter: Interpreter, disk: Disk) -> Spec | None:
    """Return where a module lies, or None.

    :param name: the whole name, with dots.
    :param search: sys.path, or the search path of the package above it; what is no text in it is passed over.
    """
    tail = name.rpartition(".")[2]
    if name in interpreter.builtins or name in _FROZEN:
        return Spec(name, "builtin")
    if file := disk.redirected.get(name):
        within = (posixpath.dirname(file),) if posixpath.basename(file) == "__init__.py" else None
        return Spec(name, "source" if file.endswith(".py") else "extension", file, within)
    portions = []
    for directory in search[:_DIRECTORIES]:
        if not isinstance(directory, str):
            continue
        names = disk.names(directory)
        if names.get(tail):
            inside = posixpath.join(directory, tail)
            if found := _file_of("__init__", inside, interpreter, disk):
                return Spec(name, found[0], found[1], (inside,))
            portions.append(inside)
        if found := _file_of(tail, directory, interpreter, disk):
            return Spec(name, *found)
    if portions:
        return Spec(name, "namespace", search=tuple(portions))
    if place := disk.editable.get(name):
        if found := _file_of("__init__", place, interpreter, disk):
            return Spec(name, *found, (place,))
        if found := _file_of(posixpath.basename(place), posixpath.dirname(place), interpreter, disk):
            return Spec(name, *found)
    for site in interpreter.site_packages if name == "distutils" else ():
        # Python 3.12 has none; setuptools puts its own there (_distutils_hack.DistutilsMetaFinder.spec_for_distutils).
        inside = f"{site}/setuptools/_distutils"
        if disk.exists(f"{site}/distutils-precedence.pth") and disk.exists(f"{inside}/__init__.py"):
            return Spec(name, "source", f"{inside}/__init__.py", (inside,))
    return None


def _file_of(tail: str, directory: str, interpreter: Interpreter, disk: Disk) -> tuple[SpecKind, str] | None:
    names = disk.names(directory)
    kinds: list[tuple[str, SpecKind]] = [(suffix, "extension") for suffix in interpreter.suffixes]
    for suffix, kind in (*kinds, (".py", "source"), (".pyc", "bytecode")):
        # A link that leads nowhere is no file.
        if names.get(tail + suffix) is False and disk.exists(
            path := posixpath.join(directory, tail + suffix)
        ):
            return kind, path
    paths = (posixpath.join(directory, tail + suffix) for suffix in interpreter.suffixes)
    return next((("extension", path) for path in paths if path in disk.absent), None)
