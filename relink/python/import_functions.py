"""The functions of importlib, pkgutil and runpy by which a source imports, and finds what is installed."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from relink.python.disk_functions import read_content, take_argument
from relink.python.evaluation import Evaluation, Known
from relink.python.modules import Spec, SpecKind, find_module
from relink.python.values import (
    SPEC,
    UNKNOWN,
    Bound,
    Class,
    Instance,
    Module,
    Native,
    Raised,
    absolute_name,
    items,
)

_LAZY = Instance(Class("importlib.util.LazyLoader", {}, []))
_LOADER = Class("importlib.machinery.ExtensionFileLoader of a file", {}, [])
_ENTRY_POINTS_READ = 3_000
_ENTRY_POINT = Class("importlib.metadata.EntryPoint", {}, [])
_ENTRY_POINTS = Class("importlib.metadata.EntryPoints", {}, [])
_DISTRIBUTION = Class("importlib.metadata.Distribution", {}, [])


def _import_module(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    name, package = (
        take_argument(arguments, named, 0, "name"),
        take_argument(arguments, named, 1, "package", None),
    )
    level = len(name) - len(name.lstrip(".")) if isinstance(name, str) else 0
    if not isinstance(name, str) or (level and not isinstance(package, str)):
        evaluation.record("unknown", "a module whose name is made at run time", "importlib.import_module")
        return UNKNOWN
    above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
    whole = ".".join([*above, name[level:]]).rstrip(".")
    if whole in evaluation.taken_out:
        evaluation.taken_out.discard(whole)
        inside = evaluation.modules[whole].spec.search or ()
        spec = find_module(whole, inside, evaluation.interpreter, evaluation.disk)
        if spec is not None and spec.kind == "extension":
            return _import_file(evaluation, whole, spec.file, "importlib.import_module")
    return evaluation.import_module(whole, "importlib.import_module")


def _take_out(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """sys.modules.pop: a package that does so with itself imports an extension of its name from its directory (opencv-python)."""
    name = take_argument(arguments, {}, 0, "key")
    module = evaluation.modules.get(name) if isinstance(name, str) else None
    if module is not None:
        evaluation.taken_out.add(module.name)
    return module or UNKNOWN


def _add_finder(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """sys.meta_path.append and insert; for an editable package setuptools' finder has a dictionary of modules.

    scikit-build-core's has two, of sources and of what was built, whose paths are relative to the finder's own directory.
    """
    evaluation.state.module.has_finder = True
    frame = evaluation.state.frame
    finder = arguments[-1].names if arguments and isinstance(arguments[-1], Instance) else {}
    own = posixpath.dirname(frame.module.spec.file) if frame else ""
    for key in ("known_source_files", "known_wheel_files"):
        files = finder.get(key)
        for name, path in files.items() if isinstance(files, dict) else ():
            if isinstance(name, str) and isinstance(path, str):
                evaluation.disk.redirected[name] = posixpath.join(own, path)
    mapping = frame.module.names.get("MAPPING") if frame else None
    for name, path in mapping.items() if isinstance(mapping, dict) else ():
        if isinstance(name, str) and isinstance(path, str):
            evaluation.disk.editable[name] = path
    return None


def _import(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    """__import__: the fourth argument are names of submodules, the fifth is the level of a relative import."""
    name, level = take_argument(arguments, named, 0, "name"), take_argument(arguments, named, 4, "level", 0)
    wanted = items(take_argument(arguments, named, 3, "fromlist", ()))
    if not isinstance(name, str) or not isinstance(level, int):
        evaluation.record("unknown", "a module whose name is made at run time", "__import__")
        return UNKNOWN
    module = evaluation.import_module(absolute_name(evaluation.state.frame, level, name), "__import__")
    for one in wanted or ():
        if isinstance(one, str):
            evaluation.import_from(module, one)
    return module if wanted or level else evaluation.modules[name.partition(".")[0]]


def _find_spec(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    """Return a spec, or None where there is no such module; the packages above it are imported."""
    name = take_argument(arguments, named, 0, "name")
    if not isinstance(name, str) or name.startswith("."):
        return UNKNOWN
    above = name.rpartition(".")[0]
    parent = evaluation.import_module(above, "importlib.util.find_spec") if above else None
    spec = evaluation.find_spec(name, parent)
    spec = None if spec and spec.file in evaluation.disk.absent else spec
    return spec and Instance(
        SPEC,
        {"name": name, "origin": spec.file, "submodule_search_locations": spec.search and [*spec.search]},
    )


def _make_spec(_evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    name, path = take_argument(arguments, named, 0, "name"), take_argument(arguments, named, 1, "location")
    return Instance(SPEC, {"name": name, "origin": path})


def _make_loader(_evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    """importlib.machinery.ExtensionFileLoader, which spec_from_loader takes."""
    given = [take_argument(arguments, named, 0, "name"), take_argument(arguments, named, 1, "path")]
    load = Bound(given, Native("importlib.machinery.ExtensionFileLoader.load_module"))
    return Instance(_LOADER, {"path": given[1], "load_module": load})


def _load_module(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    (name, path), *_ = arguments
    return _import_spec(evaluation, [Instance(SPEC, {"name": name, "origin": path})], {})


def _make_spec_of_loader(_evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    name, loader = take_argument(arguments, named, 0, "name"), take_argument(arguments, named, 1, "loader")
    path = loader.names.get("path") if isinstance(loader, Instance) else UNKNOWN
    return Instance(SPEC, {"name": name, "origin": path})


def _make_finder(_evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """importlib.machinery.FileFinder: of a directory, by pairs of a loader and its suffixes (torchvision)."""
    find = Native("importlib.machinery.FileFinder.find_spec")
    return Instance(Class("importlib.machinery.FileFinder", {}, []), {"find_spec": Bound(arguments, find)})


def _find_in_directory(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    (directory, *loaders), name = arguments[0], take_argument(arguments, {}, 1, "fullname")
    suffixes = [suffix for pair in loaders if isinstance(pair, tuple) for suffix in items(pair[-1]) or ()]
    if not all(isinstance(one, str) for one in (directory, name, *suffixes)) or not suffixes:
        return UNKNOWN
    paths = (f"{directory}/{name.rpartition('.')[2]}{suffix}" for suffix in suffixes)
    found = next(filter(evaluation.disk.exists, paths), None)
    return found and Instance(SPEC, {"name": name, "origin": found})


def _import_spec(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    """module_from_spec: an extension is opened here; a source, which exec_module runs next, is followed here.

    What importlib.util.LazyLoader loads is read when something is asked of it.
    """
    spec = take_argument(arguments, named, 0, "spec")
    if isinstance(spec, Instance) and spec.names.get("loader") is _LAZY:
        return UNKNOWN
    name, path = (
        (spec.names.get("name"), spec.names.get("origin")) if isinstance(spec, Instance) else (None, None)
    )
    if not isinstance(path, str) or not isinstance(name, str):
        evaluation.record("unknown", "a module whose file is named at run time", "importlib.util")
        return UNKNOWN
    if not evaluation.disk.exists(path):
        raise Raised("FileNotFoundError", path, is_certain=True)
    return _import_file(evaluation, name, path, "importlib.util")


def _import_file(evaluation: Evaluation, name: str, path: str, by: str) -> Module:
    """Import a module from its file, beside another one of that name.

    :raises Raised: its import raises.
    """
    key = name if name not in evaluation.modules else f"{name} ({path})"
    evaluation.record("module", key, by)
    kind: SpecKind = "source" if path.endswith(".py") else "extension"
    search = (posixpath.dirname(path),) if path.endswith("/__init__.py") else None
    module = evaluation.follow_module(Module(key, Spec(key, kind, path, search)))
    if module.failure is not None:
        raise module.failure
    return module


def _ask_distribution(what: str) -> Known:
    """Return what gives the version of a distribution, or its files."""

    def asked(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
        found = _find_distribution(evaluation, arguments, named)
        return found.names[what] if isinstance(found, Instance) else found

    return asked


def _find_distribution(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    """importlib.metadata.distribution, by the name of the .dist-info; of its files the libraries."""
    name = take_argument(arguments, named, 0, "distribution_name")
    for site in evaluation.interpreter.site_packages if isinstance(name, str) else ():
        for entry in evaluation.disk.names(site):
            stem, _, version = entry.removesuffix(".dist-info").partition("-")
            if entry.endswith(".dist-info") and canonicalize_name(stem) == canonicalize_name(name):
                record = str(read_content(evaluation, f"{site}/{entry}/RECORD"))
                names = [line.partition(",")[0] for line in record.splitlines()]
                files = [PurePosixPath(site, one) for one in names if ".so" in one]
                return Instance(_DISTRIBUTION, {"version": version, "files": files})
    if not isinstance(name, str) or evaluation.required is not None:
        return UNKNOWN
    raise Raised("ModuleNotFoundError", f"No package metadata was found for {name}", is_certain=True)


def _list_entry_points(evaluation: Evaluation, _arguments: list[Any], named: dict[str, Any]) -> Any:
    """importlib.metadata.entry_points: those of all distributions, or of a group or a name; the first one of a name counts."""
    if evaluation.entry_points is None:
        found: dict[str, list[Instance]] = {}
        for site in evaluation.interpreter.site_packages:
            for entry in evaluation.disk.names(site):
                stem = canonicalize_name(entry.partition("-")[0])
                path = f"{site}/{entry}/entry_points.txt"
                if entry.endswith(".dist-info") and stem not in found and evaluation.disk.exists(path):
                    found[stem] = [*_read_entry_points(str(read_content(evaluation, path)))]
        evaluation.entry_points = [one for each in found.values() for one in each]
    known = evaluation.entry_points
    return _select_entry_points(evaluation, [known], named) if len(known) < _ENTRY_POINTS_READ else UNKNOWN


def _read_entry_points(text: str) -> Iterator[Instance]:
    """Yield the entry points of a file, as the specification "Entry points" of PyPA has it."""
    group = ""
    for line in (line.strip() for line in text.splitlines()):
        name, equals, value = (part.strip() for part in line.partition("="))
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1]
        elif equals and not line.startswith("#"):
            module, _, attribute = value.partition("[")[0].strip().partition(":")
            names = {"name": name, "value": value, "group": group, "module": module, "attr": attribute}
            load = Bound((module, attribute), Native("importlib.metadata.EntryPoint.load"))
            yield Instance(_ENTRY_POINT, {**names, "load": load})


def _select_entry_points(_evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    """EntryPoints.select; and SelectableGroups.get, which Python had before 3.12."""
    known, *group = arguments
    wanted = {**named, **({"group": group[0]} if group else {})}
    found = [one for one in known if all(one.names.get(key) == value for key, value in wanted.items())]
    if UNKNOWN in wanted.values():
        return UNKNOWN
    select = Bound(found, Native("importlib.metadata.EntryPoints.select"))
    return Instance(_ENTRY_POINTS, {"__iter__": found, "select": select, "get": select})


def _load_entry_point(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """EntryPoint.load: imports the module, and takes the attribute of it."""
    module, attribute = arguments[0]
    found: Any = evaluation.import_module(module, "importlib.metadata")
    for name in filter(None, attribute.split(".")):
        found = evaluation.attribute(found, name)
    return found


def _find_resource(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """importlib.resources.files and path: the directory of a package, and a file in it."""
    package = take_argument(arguments, {}, 0, "package")
    module = evaluation.import_module(package) if isinstance(package, str) else package
    with suppress(Raised):
        evaluation.import_module("importlib.readers")
    if (
        not isinstance(module, Module)
        or not module.spec.search
        or not all(isinstance(one, str) for one in arguments[1:])
    ):
        return UNKNOWN
    return PurePosixPath(module.spec.search[0], *arguments[1:])


def _run_path(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    path = take_argument(arguments, named, 0, "path_name")
    return _import_spec(evaluation, [Instance(SPEC, {"name": "<run_path>", "origin": path})], {})


def import_functions() -> Mapping[str, Known]:
    """Return these functions by their names."""
    return {
        "runpy.run_module": _import_module,
        "runpy.run_path": _run_path,
        "importlib.import_module": _import_module,
        "importlib.__import__": _import,
        "importlib.util.find_spec": _find_spec,
        "importlib.util.spec_from_file_location": _make_spec,
        "importlib.machinery.FileFinder": _make_finder,
        "importlib.machinery.FileFinder.find_spec": _find_in_directory,
        "importlib.util.module_from_spec": _import_spec,
        "importlib.machinery.ExtensionFileLoader": _make_loader,
        "importlib.machinery.ExtensionFileLoader.load_module": _load_module,
        "importlib.util.LazyLoader": lambda *_: _LAZY,
        "importlib.util.spec_from_loader": _make_spec_of_loader,
        "pkg_resources.resource_filename": lambda *given: take_argument([_find_resource(*given)], {}, 0, ""),
        "importlib.metadata.version": _ask_distribution("version"),
        "importlib.metadata.distribution": _find_distribution,
        "importlib.metadata.entry_points": _list_entry_points,
        "importlib_metadata.entry_points": _list_entry_points,
        "importlib.metadata.EntryPoints.select": _select_entry_points,
        "importlib.metadata.EntryPoint.load": _load_entry_point,
        "importlib.metadata.files": _ask_distribution("files"),
        "importlib.resources.files": _find_resource,
        "importlib.resources.path": _find_resource,
        "pkgutil.find_loader": _find_spec,
        "importlib.resources.read_text": lambda *given: read_content(given[0], str(_find_resource(*given))),
        "pkgutil.get_data": lambda *given: read_content(given[0], str(_find_resource(*given))),
        "builtins.__import__": _import,
        "sys.modules.pop": _take_out,
        "sys.meta_path.append": _add_finder,
        "sys.meta_path.insert": _add_finder,
    }
