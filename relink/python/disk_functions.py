"""The functions of the standard library that ask for files: where the environment's Python would find them.

A relative path leads into the current directory of a process, which is taken to have no files.
"""

from __future__ import annotations

import fnmatch
import glob
import posixpath
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from relink.python.evaluation import Evaluation, Known
from relink.python.expressions import TURNS
from relink.python.values import NO_DIRECTORY, UNKNOWN, Bound, Class, Instance, Native, Raised, items

_TEXT = 1 << 20  # bytes of a file that a source reads
# proc(5): self is the process that reads, which is relink.
_OF_A_PROCESS = re.compile(r"/proc/(?:self/(maps$)?|thread-self/|\d+/)")
_FILE = Class("io.TextIOWrapper of a file", {}, [])
_ENTRY = Class("posix.DirEntry", {}, [])


def take_argument(
    arguments: list[Any], named: Mapping[str, Any], position: int, name: str, default: Any = UNKNOWN
) -> Any:
    """Return an argument; a path of pathlib as text."""
    value = arguments[position] if len(arguments) > position else named.get(name, default)
    return str(value) if isinstance(value, PurePosixPath) else value


def read_content(evaluation: Evaluation, path: str) -> Any:
    """Path.read_text, of a file that is no source; what the kernel says of a process is not known, but for what it has mapped."""
    with suppress(OSError, ValueError):
        if found := _OF_A_PROCESS.match(posixpath.normpath(path)):
            return _list_maps(evaluation) if found[1] == "maps" else UNKNOWN
        return evaluation.disk.read(path, _TEXT).decode()
    return UNKNOWN


def _list_maps(evaluation: Evaluation) -> Any:
    """Return the lines of /proc/self/maps (proc(5)): a line for each file, whose addresses and numbers are made up."""
    paths = evaluation.list_mapped()
    for path in paths or ():
        evaluation.disk.look(path)
    return UNKNOWN if paths is None else "".join(f"1000-2000 r-xp 0000 00:00 1 {path}\n" for path in paths)


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
        answer = question(evaluation, posixpath.join(evaluation.directory, path)) if is_known else UNKNOWN
        evaluation.state.has_sought |= answer is False and ".so" in posixpath.basename(path)
        return answer

    return asked


def _glob(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """glob.glob and Path.glob, with wildcards in the last part of the path alone."""
    pattern = (
        "/".join(map(str, arguments))
        if all(isinstance(one, str | PurePosixPath) for one in arguments)
        else ""
    )
    directory, name = posixpath.split(pattern)
    above, last = posixpath.split(directory)
    below = _walk(evaluation, above) if last == "**" else [(directory, [], [])]
    if (
        not pattern.startswith("/")
        or glob.has_magic(above if last == "**" else directory)
        or below is UNKNOWN
    ):
        return UNKNOWN
    kind = type(arguments[0])
    found = [
        kind(posixpath.join(inside, one))
        for inside, *_ in below
        for one in fnmatch.filter(sorted(evaluation.disk.names(inside)), name)
    ]
    evaluation.state.has_sought |= not found and ".so" in name
    return found


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


def _change_directory(evaluation: Evaluation, path: str) -> None:
    evaluation.directory = posixpath.normpath(path)


def _expand_user(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    """os.path.expanduser, by HOME; the user's entry of the system is not asked for."""
    path, home = take_argument(arguments, named, 0, "path"), evaluation.variables.get("HOME")
    is_own = isinstance(path, str) and f"{path}/".startswith("~/")
    if is_own and home:
        return home.rstrip("/") + path[1:]
    return path if isinstance(path, str) and not path.startswith("~") else UNKNOWN


def _demand(evaluation: Evaluation, path: str) -> Any:
    """Return nothing that is known of a file.

    :raises Raised: there is none; in the current directory there may be one.
    """
    if not (path.startswith(NO_DIRECTORY) or evaluation.disk.exists(path)):
        raise Raised("FileNotFoundError", path, is_certain=True)
    return UNKNOWN


def _open(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    path, mode = take_argument(arguments, named, 0, "file"), take_argument(arguments, named, 1, "mode", "r")
    if not isinstance(path, str) or not isinstance(mode, str) or set(mode) & set("wax+"):
        return UNKNOWN
    path = posixpath.join(evaluation.directory, path)
    _demand(evaluation, path)
    if not isinstance(text := read_content(evaluation, path), str):
        return UNKNOWN
    methods = {name: Bound(text, Native(f"file.{name}")) for name in ("read", "readlines")}
    return Instance(_FILE, {"<text>": text, "__iter__": text.splitlines(keepends=True), **methods})


def _load_json(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    file = (arguments or [UNKNOWN])[0]
    text = file.names.get("<text>", UNKNOWN) if isinstance(file, Instance) else UNKNOWN
    return evaluation.known["json.loads"](evaluation, [text], named)


def _scan(evaluation: Evaluation, path: str) -> Any:
    """os.scandir, whose entries can be asked for their kind."""
    found = []
    for name, is_directory in evaluation.disk.names(path).items():
        kinds = {"is_dir": is_directory, "is_file": not is_directory}
        asked = {what: Bound(answer, Native("builtins.bool")) for what, answer in kinds.items()}
        found.append(Instance(_ENTRY, {"name": name, "path": posixpath.join(path, name), **asked}))
    return found


def _list_modules(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    """pkgutil.iter_modules of directories: entries with attributes that are a tuple, too."""
    paths = items(take_argument(arguments, named, 0, "path"))
    prefix = take_argument(arguments, named, 1, "prefix", "")
    if paths is None or not isinstance(prefix, str):
        return UNKNOWN
    found: dict[str, Any] = {}
    for path in paths:
        names = evaluation.disk.names(path) if isinstance(path, str) else {}
        for entry in sorted(names):
            suffixes = ("",) if names[entry] else (*evaluation.interpreter.suffixes, ".py")
            stem = next((entry.removesuffix(one) for one in suffixes if entry.endswith(one)), "")
            is_package = names[entry] and "__init__.py" in evaluation.disk.names(posixpath.join(path, entry))
            if stem.isidentifier() and stem != "__init__" and (is_package or not names[entry]):
                values = (UNKNOWN, prefix + stem, is_package)
                found.setdefault(stem, dict(zip(("module_finder", "name", "ispkg"), values, strict=True)))
    return [Instance(_ENTRY, {**one, "__iter__": [*one.values()]}) for one in found.values()]


def disk_functions() -> Mapping[str, Known]:
    """Return these functions by their names."""
    exists = ask_disk(lambda evaluation, path: evaluation.disk.exists(path))
    is_directory = ask_disk(lambda evaluation, path: evaluation.disk.is_directory(path))
    return {
        "os.listdir": ask_disk(lambda evaluation, path: [*evaluation.disk.names(path)]),
        "glob.glob": _glob,
        "glob.iglob": _glob,
        "os.walk": ask_disk(_walk),
        "os.getcwd": lambda evaluation, *_: evaluation.directory,
        "os.chdir": ask_disk(_change_directory),
        "os.scandir": ask_disk(_scan),
        "os.access": exists,
        "os.stat": ask_disk(_demand),
        "path.stat": ask_disk(_demand),
        "builtins.open": _open,
        "io.open": _open,
        "path.open": _open,
        "file.read": lambda _evaluation, arguments, _named: arguments[0],
        "file.readlines": lambda _evaluation, arguments, _named: arguments[0].splitlines(keepends=True),
        "json.load": _load_json,
        "pkgutil.iter_modules": _list_modules,
        "pkgutil.walk_packages": _list_modules,
        "path.rglob": lambda evaluation, arguments, named: _glob(
            evaluation, [arguments[0], "**", *arguments[1:]], named
        ),
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
        "posixpath.expanduser": _expand_user,
        "posixpath.abspath": ask_disk(lambda _evaluation, path: posixpath.normpath(path)),
    }
