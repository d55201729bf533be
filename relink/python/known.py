"""The functions and variables of the standard library whose results are known without running anything.

Each has the name of the module and the class that define it, as :class:`relink.python.values.Function` has; methods of Python's
own values have the name of the type, and ``path`` for those of pathlib.
"""

from __future__ import annotations

import builtins
import posixpath
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from relink.python.disk_functions import disk_functions, find_library_beside, read_content, take_argument
from relink.python.evaluation import Evaluation, Known
from relink.python.expressions import TURNS, enter_context, item, read_variable
from relink.python.modules import Interpreter, Spec, SpecKind, find_module
from relink.python.syntax import UnreadableSourceError, parse_source
from relink.python.values import (
    LARGEST_VALUE,
    MISSING,
    SPEC,
    UNKNOWN,
    Bound,
    Class,
    Frame,
    Function,
    Instance,
    Matched,
    Module,
    Native,
    Pattern,
    Raised,
    absolute_name,
    bounded,
    exception_kind,
    is_known,
    items,
    truth,
)
from relink.system.bounded_json import parse_json

# bits/dlfcn.h of glibc.
_FLAGS = {
    "RTLD_LAZY": 1,
    "RTLD_NOW": 2,
    "RTLD_NOLOAD": 4,
    "RTLD_DEEPBIND": 8,
    "RTLD_GLOBAL": 256,
    "RTLD_LOCAL": 0,
    "RTLD_NODELETE": 4096,
}
# Patterns that could take many steps, how many repetitions one has, and the characters of a pattern and of a text.
_COSTLY = re.compile(r"\)[*+{]|\{|\(\?(?!:|P<)|\\\d")
_REPEATS, _MATCHED = 3, 80
_LIBRARY = Class("ctypes.CDLL of a library", {}, [])
_LOADER = Class("importlib.machinery.ExtensionFileLoader of a file", {}, [])
_PLATFORM = Class("platform.uname_result", {}, [])
_DISTRIBUTION = Class("importlib.metadata.Distribution", {}, [])
_IN_C = ("utf_8", "utf8", "ascii", "latin_1", "latin1", "utf_16", "utf_32")  # which str.encode knows itself
_OBJECT = Class("builtins.object", {}, [])
_POSIXPATH = "join dirname basename normpath split splitext isabs relpath commonpath"
_STR = "find isdigit join lower lstrip partition removeprefix removesuffix replace rpartition rsplit rstrip split splitlines"
_STR += " startswith endswith strip upper"
_SET = "add update discard remove clear copy union difference intersection"
_TYPES = {f"builtins.{kind.__name__}": kind for kind in (str, int, list, tuple, bool, set)}


def known_values(interpreter: Interpreter) -> dict[str, Any]:
    """Return the variables that say what platform and which Python this is."""
    return {
        "sys.platform": "linux",
        "sys.version_info": (*interpreter.version, interpreter.micro, "final", 0),
        "sys.version": ".".join(map(str, (*interpreter.version, interpreter.micro))),
        "sys.maxsize": (1 << 63) - 1,
        "sys.byteorder": "little",
        "sys.executable": interpreter.program,
        "sys.prefix": interpreter.prefix,
        "sys.exec_prefix": interpreter.prefix,
        "sys.base_prefix": posixpath.dirname(posixpath.dirname(next(iter(interpreter.standard), ""))),
        "sys.path": list(interpreter.path),
        "sys.modules": Native("sys.modules"),
        "sys.meta_path": Native("sys.meta_path"),
        "sys.implementation": Native("sys.implementation"),
        "sys.implementation.name": "cpython",
        "sys.builtin_module_names": tuple(sorted(interpreter.builtins)),
        "sys.argv": ["-c"],
        "os.name": "posix",
        "os.sep": "/",
        "os.pathsep": ":",
        "os.environ": Native("os.environ"),
        "importlib.machinery.EXTENSION_SUFFIXES": list(interpreter.suffixes),
        "importlib.machinery.FileFinder": Native("importlib.machinery.FileFinder"),
        "ctypes.DEFAULT_MODE": 0,
        # What only Windows, frozen programs and PyPy have.
        **dict.fromkeys(("os.add_dll_directory", "os.startfile", "sys.getwindowsversion"), MISSING),
        **dict.fromkeys(("sys.frozen", "sys._MEIPASS", "sys.winver", "sys.pypy_version_info"), MISSING),
        **{f"rapidfuzz._feature_detector_cpp.{name}": name.lower() for name in ("AVX2", "SSE2")},
        **{f"os.{name}": value for name, value in _FLAGS.items()},
        **{f"ctypes.{name}": _FLAGS[name] for name in ("RTLD_LOCAL", "RTLD_GLOBAL")},
    }


def open_library(by: str, first: int = 0) -> Known:
    """Return what notes a dlopen of ctypes or cffi, and knows nothing of the library.

    :param first: the position of the name.
    """

    def opened(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
        name = take_argument(arguments, named, first, "name")
        mode = take_argument(arguments, named, first + 1, "mode", named.get("flags", 0))
        if name is None or isinstance(name, Native):
            return UNKNOWN
        if not isinstance(name, str) or not name:
            evaluation.record("unknown", "a library whose name is made at run time", by)
            return UNKNOWN
        caller = evaluation.modules.get("_cffi_backend" if by == "cffi.dlopen" else "_ctypes")
        flags = (mode if isinstance(mode, int) else 0) | _FLAGS["RTLD_NOW"]
        evaluation.record("library", name, by, flags=flags, caller=caller.spec.file if caller else "")
        if "/" in name and not evaluation.disk.exists(name):
            raise Raised("OSError", f"{name}: cannot open shared object file", is_certain=True, opening=name)
        return Instance(_LIBRARY)

    return opened


def _find_library(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    name = take_argument(arguments, {}, 0, "name")
    return evaluation.find_soname(name) if isinstance(name, str) else UNKNOWN


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
    return spec and Instance(
        SPEC,
        {"name": name, "origin": spec.file, "submodule_search_locations": spec.search and [*spec.search]},
    )


def _make_spec(_evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    name, path = take_argument(arguments, named, 0, "name"), take_argument(arguments, named, 1, "location")
    return Instance(SPEC, {"name": name, "origin": path})


def _make_loader(_evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    """importlib.machinery.ExtensionFileLoader, which spec_from_loader takes."""
    return Instance(_LOADER, {"path": take_argument(arguments, named, 1, "path")})


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


def _load_beside(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    """numpy.ctypeslib.load_library: of a directory, or of that of a file, by a name that needs no ending."""
    name = take_argument(arguments, named, 0, "libname")
    place = take_argument(arguments, named, 1, "loader_path")
    are_known = isinstance(name, str) and isinstance(place, str)
    path = find_library_beside(evaluation, name, place) if are_known else UNKNOWN
    return open_library("numpy.ctypeslib")(evaluation, [path], {})


def _load_nvidia_library(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """cuda.pathfinder.load_nvidia_dynamic_lib: what NVIDIA's packages have of that name, if they have one."""
    start = f"lib{take_argument(arguments, {}, 0, 'libname')}.so."
    for site in evaluation.interpreter.site_packages:
        for package in sorted(evaluation.disk.names(f"{site}/nvidia")):
            directory = f"{site}/nvidia/{package}/lib"
            for name in sorted(evaluation.disk.names(directory)):
                if name.startswith(start):
                    return open_library("cuda.pathfinder")(evaluation, [f"{directory}/{name}"], {})
    return UNKNOWN


def _has_gpu(evaluation: Evaluation, _arguments: list[Any], _named: dict[str, Any]) -> Any:
    """torch.cuda.is_available: not without a device of NVIDIA's, AMD's or WSL's driver, in an environment that is here."""
    devices = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
    return UNKNOWN if evaluation.required is not None or any(map(evaluation.disk.exists, devices)) else False


def _import_spec(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    """module_from_spec: an extension is opened here; a source, which exec_module runs next, is followed here."""
    spec = take_argument(arguments, named, 0, "spec")
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


def _register(evaluation: Evaluation, _arguments: list[Any], _named: dict[str, Any]) -> Any:
    """The method that functools.singledispatch gives to a function: from Python 3.11 on it looks for typing.Union."""
    if evaluation.interpreter.version >= (3, 11):
        evaluation.import_module("typing", "functools.singledispatch")
    return UNKNOWN


def _make_version(_evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    with suppress(InvalidVersion):
        return Version(arguments[0]) if arguments and isinstance(arguments[0], str) else UNKNOWN
    return UNKNOWN


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


def _make_partial(_evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """functools.partial of a class or a known function, which named arguments alone are given to; or of one more argument."""
    function, *given = arguments or [UNKNOWN]
    if len(given) == 1 and isinstance(function, Function | Native):
        return Bound(given[0], function)
    return function if not given and isinstance(function, Class | Native) else UNKNOWN


def _has_attribute(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    name = take_argument(arguments, {}, 1, "name")
    found = evaluation.attribute(arguments[0], name) if isinstance(name, str) else UNKNOWN
    if isinstance(arguments[0], Module) and arguments[0].name == "builtins":
        return name in arguments[0].names or hasattr(builtins, str(name))
    if found is UNKNOWN:
        # The standard library asks its own extension modules for what Linux has.
        frame = evaluation.state.frame
        return True if frame and evaluation.interpreter.is_standard(frame.module.spec.file) else UNKNOWN
    return found is not MISSING


def _get_attribute(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    name = take_argument(arguments, {}, 1, "name")
    found = evaluation.attribute(arguments[0], name) if isinstance(name, str) else UNKNOWN
    if found is not MISSING:
        return found
    if len(arguments) > 2:
        return arguments[2]
    evaluation.raise_where_caught("AttributeError")
    return UNKNOWN


def _set_attribute(_evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    if (
        len(arguments) > 2
        and isinstance(arguments[0], Module | Instance | Class)
        and isinstance(arguments[1], str)
    ):
        arguments[0].names[arguments[1]] = arguments[2]


def _read_globals(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    frame = evaluation.state.frame
    return frame.module.names if frame and not arguments else UNKNOWN


def _is_instance(_evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    kind = _TYPES.get(arguments[1].name) if len(arguments) > 1 and isinstance(arguments[1], Native) else None
    return UNKNOWN if kind is None or not is_known(arguments[0]) else isinstance(arguments[0], kind)


def _is_callable(_evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    value = (arguments or [UNKNOWN])[0]
    return isinstance(value, Function | Class) or (False if is_known(value) else UNKNOWN)


def _set_flags(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    flags = take_argument(arguments, {}, 0, "flags")
    evaluation.flags = flags if isinstance(flags, int) else _FLAGS["RTLD_NOW"]


def _read_variable(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    key = take_argument(arguments, named, 0, "key")
    return read_variable(evaluation, key, take_argument(arguments, named, 1, "default", None))


def _execute(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """Follow a text that is known, as an import in one; not one with functions, whose bodies would be in no file."""
    text, names, frame = (
        take_argument(arguments, {}, 0, ""),
        take_argument(arguments, {}, 1, ""),
        evaluation.state.frame,
    )
    if isinstance(text, str) and isinstance(names, dict) and frame is not None:
        with suppress(UnreadableSourceError):
            statements, bodies = parse_source(text.encode())
            if not bodies:
                evaluation.block(Frame(frame.module, names), statements)
                return None
    evaluation.record("unknown", "code that is made at run time", "exec")
    return UNKNOWN


def _suppress(_evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    return ("suppress", *map(exception_kind, arguments))


def _decide(whole: bool) -> Known:
    """Return any (`whole` false) or all: the first item whose truth differs from `whole` decides."""

    def decided(_evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
        values = items(take_argument(arguments, {}, 0, "values"))
        tests = [None] if values is None else [truth(one) for one in values]
        return not whole if (not whole) in tests else UNKNOWN if None in tests else whole

    return decided


def _map(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """map, of one sequence."""
    values = items(arguments[1]) if len(arguments) == 2 else None
    return (
        UNKNOWN
        if values is None or len(values) > TURNS
        else [evaluation.call(arguments[0], [one], {}) for one in values]
    )


def _next(_evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """next, of what is used for nothing else: the first item, or the default."""
    values = items(take_argument(arguments, {}, 0, "values"))
    return UNKNOWN if values is None else values[0] if values else take_argument(arguments, {}, 1, "default")


def _match(how: str) -> Known:
    """Return re.search and the like for patterns that need few steps in a short text."""

    def matched(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
        pattern, text = [*arguments, UNKNOWN, UNKNOWN][:2]
        if len(arguments) != 2 or not isinstance(pattern, str) or not isinstance(text, str):
            return UNKNOWN
        if len(text) > _MATCHED or len(pattern) > _MATCHED or _COSTLY.search(pattern):
            return UNKNOWN
        if sum(map(pattern.count, "*+?")) > _REPEATS:
            return UNKNOWN
        evaluation.state.steps -= len(text)
        with suppress(re.error):
            found = getattr(re, how)(pattern, text)
            return found and Matched((found[0], *found.groups()))
        return UNKNOWN

    return matched


def _compute(function: Callable[..., Any]) -> Known:
    """Return what computes a result where all arguments are known."""

    def computed(_evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
        if all(map(is_known, (*arguments, *named.values()))):
            # Those of a set in one order, whatever the hash seed.
            given = [items(one) if isinstance(one, set) else one for one in arguments]
            with suppress(TypeError, ValueError, AttributeError, LookupError, OSError):
                return bounded(function(*given, **named))
        return UNKNOWN

    return computed


def _encode(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    """str.encode: the module of the encoding is imported (encodings.search_function)."""
    name = take_argument(arguments, named, 1, "encoding", "utf-8")
    plain = name.lower().replace("-", "_") if isinstance(name, str) else "ascii"
    if plain not in _IN_C:
        with suppress(Raised):
            evaluation.import_module(f"encodings.{plain}", "codecs.lookup")
    return UNKNOWN


def _read_processor(evaluation: Evaluation, _arguments: list[Any], _named: dict[str, Any]) -> Any:
    """platform.processor: asks the program uname."""
    with suppress(Raised):
        evaluation.import_module("subprocess", "platform.processor")
    return UNKNOWN


def _has_instructions(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """rapidfuzz's question of the processor, in C, which decides what it imports: of an environment that is here."""
    text = read_content(evaluation, "/proc/cpuinfo") if evaluation.required is None else UNKNOWN
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE) if isinstance(text, str) else None
    return arguments[0] in flags[1].split() if flags and arguments else UNKNOWN


def _get_item(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """Mapping.get, of a class of a source."""
    owner, key, default = [*arguments, UNKNOWN, None][:3]
    frame = evaluation.state.frame
    try:
        with evaluation.at_least("certain", frozenset({"KeyError"})):
            return item(evaluation, frame, owner, key) if frame else UNKNOWN
    except Raised as raised:
        if raised.kind != "KeyError":
            raise
        return default


def _change(name: str) -> Known:
    """Return a method that changes a list or dictionary in place."""

    def changed(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
        if arguments[0] is evaluation.values["sys.path"] and UNKNOWN in arguments:
            return None  # Whether another directory is in it would not be known.
        with suppress(TypeError, ValueError, LookupError):
            return (
                getattr(arguments[0], name)(*arguments[1:]) if len(arguments[0]) < LARGEST_VALUE else UNKNOWN
            )
        if isinstance(arguments[0], set):
            arguments[0].add(UNKNOWN)  # Whether something else is in it is not known.
        return UNKNOWN

    return changed


def _read_dictionary(name: str) -> Known:
    def read(_evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
        owner, *rest = arguments
        with suppress(TypeError):
            if UNKNOWN in owner and name == "get" and rest and rest[0] not in owner:
                return UNKNOWN
            if name not in ("get", "copy"):
                owner = {key: value for key, value in owner.items() if key is not UNKNOWN}
            found = getattr(owner, name)(*rest)
            return found if name in ("get", "copy") else [*found]
        return UNKNOWN

    return read


def _format(text: str, *arguments: Any, **named: Any) -> Any:
    """Fill in the fields of a text; those with a width, an attribute or an index could give anything of any size."""
    return UNKNOWN if set(text) & set(":![") else text.format(*arguments, **named)


def _count(*arguments: int) -> Any:
    return [*range(*arguments)] if len(range(*arguments)) < LARGEST_VALUE else UNKNOWN


def known_functions(interpreter: Interpreter) -> Mapping[str, Known]:
    """Return the known functions by their names."""
    suffix = next(iter(interpreter.suffixes), ".so")
    config = {"EXT_SUFFIX": suffix, "SOABI": suffix.strip(".").removesuffix(".so"), "Py_GIL_DISABLED": 0}
    known: dict[str, Known] = {
        **disk_functions(),
        "ctypes.CDLL": open_library("ctypes.CDLL"),
        "ctypes.PyDLL": open_library("ctypes.PyDLL"),
        "ctypes.LibraryLoader.LoadLibrary": open_library("LoadLibrary", 1),
        "cffi.api.FFI.dlopen": open_library("cffi.dlopen", 1),
        "?.dlopen": open_library("cffi.dlopen"),
        "?.LoadLibrary": open_library("LoadLibrary"),
        "ctypes.util.find_library": _find_library,
        "importlib.import_module": _import_module,
        "importlib.__import__": _import,
        "importlib.util.find_spec": _find_spec,
        "importlib.util.spec_from_file_location": _make_spec,
        "importlib.machinery.FileFinder": _make_finder,
        "importlib.machinery.FileFinder.find_spec": _find_in_directory,
        "importlib.util.module_from_spec": _import_spec,
        "importlib.machinery.ExtensionFileLoader": _make_loader,
        "importlib.util.spec_from_loader": _make_spec_of_loader,
        "pkg_resources.resource_filename": lambda *given: take_argument([_find_resource(*given)], {}, 0, ""),
        "functools.partial": _make_partial,
        "importlib.metadata.version": _ask_distribution("version"),
        "importlib.metadata.distribution": _find_distribution,
        "importlib.metadata.files": _ask_distribution("files"),
        "functools.singledispatch.register": _register,
        "importlib.resources.files": _find_resource,
        "importlib.resources.path": _find_resource,
        "importlib.resources.as_file": lambda _evaluation, arguments, _named: (arguments or [UNKNOWN])[0],
        "packaging.version.Version": _make_version,
        "packaging.version.parse": _make_version,
        "pkgutil.find_loader": _find_spec,
        "cuda.pathfinder._dynamic_libs.load_nvidia_dynamic_lib.load_nvidia_dynamic_lib": _load_nvidia_library,
        "rapidfuzz._feature_detector_cpp.supports": _has_instructions,
        "numpy.ctypeslib.load_library": _load_beside,
        "numpy.ctypeslib._ctypeslib.load_library": _load_beside,
        "torch.cuda.is_available": _has_gpu,
        "builtins.__import__": _import,
        "builtins.hasattr": _has_attribute,
        "builtins.getattr": _get_attribute,
        "builtins.setattr": _set_attribute,
        "builtins.globals": _read_globals,
        "builtins.vars": _read_globals,
        "builtins.isinstance": _is_instance,
        "builtins.callable": _is_callable,
        "builtins.object": lambda *_: Instance(_OBJECT),
        "builtins.exec": _execute,
        "builtins.any": _decide(whole=False),
        "builtins.all": _decide(whole=True),
        "builtins.map": _map,
        "builtins.next": _next,
        "builtins.min": _compute(min),
        "builtins.max": _compute(max),
        "builtins.range": _compute(_count),
        "builtins.reversed": _compute(lambda values: values[::-1]),
        "builtins.enumerate": _compute(lambda values: [*enumerate(values)]),
        "sys.modules.pop": _take_out,
        "sys.meta_path.append": _add_finder,
        "sys.meta_path.insert": _add_finder,
        "sys.setdlopenflags": _set_flags,
        "sys.getdlopenflags": lambda evaluation, _arguments, _named: evaluation.flags,
        "os.environ.get": _read_variable,
        "os.getenv": _read_variable,
        "os.fspath": _compute(str),
        "contextlib.suppress": _suppress,
        "contextlib._BaseExitStack.enter_context": lambda evaluation, arguments, _named: enter_context(
            evaluation, arguments[-1]
        ),
        "_collections_abc.Mapping.get": _get_item,
        "platform.system": lambda *_: "Linux",
        "platform.processor": _read_processor,
        "platform.machine": lambda *_: interpreter.machine,
        "platform.architecture": lambda *_: ("64bit", "ELF"),
        "platform.uname": lambda *_: Instance(_PLATFORM, {"system": "Linux", "machine": interpreter.machine}),
        "os.uname": lambda *_: ("Linux", UNKNOWN, UNKNOWN, UNKNOWN, interpreter.machine),
        "platform.python_implementation": lambda *_: "CPython",
        "sysconfig.get_config_var": _compute(config.get),
        "struct.calcsize": _compute({"P": 8, "L": 8, "l": 8, "q": 8}.__getitem__),
        "pathlib.Path": _compute(PurePosixPath),
        "pathlib.PurePath": _compute(PurePosixPath),
        "re.compile": _compute(lambda pattern: Pattern(pattern)),  # noqa: PLW0108 - no other argument
        "Matched.group": _compute(lambda match, number=0: match[number]),
        "Matched.groups": _compute(lambda match: match[1:]),
        **{
            f"{owner}.{how}": _match(how)
            for owner in ("re", "Pattern")
            for how in ("search", "match", "fullmatch")
        },
        "str.format": _compute(_format),
        "str.encode": _encode,
        "json.loads": _compute(parse_json),
        "path.locate": _compute(str),
        "path.is_absolute": _compute(PurePosixPath.is_absolute),
        "path.__enter__": _compute(PurePosixPath),
    }
    for name in _POSIXPATH.split():
        known[f"posixpath.{name}"] = _compute(getattr(posixpath, name))
    for kind in (str, int, bool, list, tuple, set, sorted, len):
        known[f"builtins.{kind.__name__}"] = _compute(kind)
    known["builtins.frozenset"] = known["builtins.set"]
    for name in _STR.split():
        known[f"str.{name}"] = _compute(getattr(str, name))
    for name in ("joinpath", "with_name", "with_suffix", "as_posix"):
        known[f"path.{name}"] = _compute(getattr(PurePosixPath, name))
    for name in ("append", "extend", "insert", "remove", "pop", "copy", "index"):
        known[f"list.{name}"] = _change(name)
    for name in ("update", "setdefault", "pop"):
        known[f"dict.{name}"] = _change(name)
    for name in _SET.split():
        known[f"set.{name}"] = _change(name)
    for name in ("get", "items", "keys", "values", "copy"):
        known[f"dict.{name}"] = _read_dictionary(name)
    return known
