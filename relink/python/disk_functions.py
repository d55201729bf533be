"""The functions of the standard library that ask for files: where the environment's Python would find them.

A relative path leads into the current directory of a process, which is taken to have no files.
"""

from __future__ import annotations

import fnmatch
import glob
import posixpath
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from relink.python.evaluation import Evaluation, Known
from relink.python.expressions import TURNS
from relink.python.values import UNKNOWN

_TEXT = 1 << 20  # bytes of a file that a source reads
_CURRENT = "/dev/null/current directory"  # a path that no file can have


def take_argument(
    arguments: list[Any], named: Mapping[str, Any], position: int, name: str, default: Any = UNKNOWN
) -> Any:
    """Return an argument; a path of pathlib as text."""
    value = arguments[position] if len(arguments) > position else named.get(name, default)
    return str(value) if isinstance(value, PurePosixPath) else value


def read_content(evaluation: Evaluation, path: str) -> Any:
    """Path.read_text, of a file that is no source."""
    with suppress(OSError, ValueError):
        return evaluation.disk.read(path, _TEXT).decode()
    return UNKNOWN


def find_library_beside(evaluation: Evaluation, name: str, place: str) -> str:
    """Return what numpy.ctypeslib.load_library opens: in a directory, or in that of a file, without or with an ending."""
    directory = place if evaluation.disk.is_directory(place) else posixpath.dirname(place)
    endings = ("",) if posixpath.splitext(name)[1] else (*evaluation.interpreter.suffixes[:1], ".so")
    paths = [posixpath.join(directory, f"{name}{ending}") for ending in endings]
    return next(filter(evaluation.disk.exists, paths), paths[-1])


def ask_disk(question: Callable[[Evaluation, str], Any]) -> Known:
    """Return what asks something of the file at a path; the current directory of the process has none."""

    def asked(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
        path = take_argument(arguments, named, 0, "path")
        is_known = isinstance(path, str) and not path.startswith("~")
        return question(evaluation, posixpath.join(_CURRENT, path)) if is_known else UNKNOWN

    return asked


def _glob(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """glob.glob and Path.glob, with wildcards in the last part of the path alone."""
    pattern = (
        "/".join(map(str, arguments))
        if all(isinstance(one, str | PurePosixPath) for one in arguments)
        else ""
    )
    directory, name = posixpath.split(pattern)
    if not pattern.startswith("/") or glob.has_magic(directory):
        return UNKNOWN
    kind = type(arguments[0])
    return [
        kind(posixpath.join(directory, one))
        for one in fnmatch.filter(sorted(evaluation.disk.names(directory)), name)
    ]


def _walk(evaluation: Evaluation, top: str) -> Any:
    """os.walk, from the top down: directories, with the names of those in them and of other files."""
    found: list[tuple[str, list[str], list[str]]] = []
    pending = [top] if evaluation.disk.is_directory(top) else []
    while pending:
        names = evaluation.disk.names(directory := pending.pop())
        inside = sorted(name for name in names if names[name])
        found.append((directory, inside, sorted(names.keys() - inside)))
        pending += [posixpath.join(directory, name) for name in reversed(inside)]
        if len(found) > TURNS:
            return UNKNOWN
    return found


def disk_functions() -> Mapping[str, Known]:
    """Return these functions by their names."""
    exists = ask_disk(lambda evaluation, path: evaluation.disk.exists(path))
    is_directory = ask_disk(lambda evaluation, path: evaluation.disk.is_directory(path))
    return {
        "os.listdir": ask_disk(lambda evaluation, path: [*evaluation.disk.names(path)]),
        "glob.glob": _glob,
        "glob.iglob": _glob,
        "os.walk": ask_disk(_walk),
        "os.getcwd": lambda *_: _CURRENT,
        "path.read_text": ask_disk(read_content),
        "path.glob": _glob,
        "path.exists": exists,
        "path.is_file": exists,
        "path.is_dir": is_directory,
        "path.resolve": ask_disk(lambda _evaluation, path: PurePosixPath(posixpath.realpath(path))),
        "path.absolute": ask_disk(lambda _evaluation, path: PurePosixPath(path)),
        "path.iterdir": ask_disk(
            lambda evaluation, path: [PurePosixPath(path, one) for one in evaluation.disk.names(path)]
        ),
        "posixpath.exists": exists,
        "posixpath.lexists": exists,
        "posixpath.isfile": exists,
        "posixpath.isdir": is_directory,
        "posixpath.realpath": ask_disk(lambda _evaluation, path: posixpath.realpath(path)),
        "posixpath.expanduser": ask_disk(lambda _evaluation, path: path),
        "posixpath.abspath": ask_disk(lambda _evaluation, path: posixpath.normpath(path)),
    }
