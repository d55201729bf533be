"""The functions and variables of the standard library whose results are known without running anything.

Each has the name of the module and the class that define it, as :class:`relink.python.values.Function` has; methods of Python's
own values have the name of the type, and ``path`` for those of pathlib.
"""

from __future__ import annotations

import builtins
import fnmatch
import itertools
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from packaging.version import InvalidVersion, Version

from relink.python.disk_functions import disk_functions, find_library_beside, read_content, take_argument
from relink.python.evaluation import Evaluation, Known
from relink.python.expressions import TURNS, item, read_variable
from relink.python.import_functions import import_functions
from relink.python.modules import Interpreter
from relink.python.objects import make_super, run_within
from relink.python.syntax import UnreadableSourceError, parse_source
from relink.python.values import (
    LARGEST_VALUE,
    MISSING,
    PLAIN,
    UNKNOWN,
    Class,
    Deferred,
    Frame,
    Function,
    Instance,
    Matched,
    Module,
    Native,
    Opened,
    Pattern,
    Raised,
    bounded,
    exception_kind,
    is_kind,
    is_known,
    items,
    raised_after,
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
_PLATFORM = Class("platform.uname_result", {}, [])
_IN_C = ("utf_8", "utf8", "ascii", "latin_1", "latin1", "utf_16", "utf_32")  # which str.encode knows itself
_OBJECT = Class("builtins.object", {}, [])
_POSIXPATH = "join dirname basename normpath split splitext isabs relpath commonpath"
_STR = "find isdigit join lower lstrip partition removeprefix removesuffix replace rpartition rsplit rstrip split splitlines"
_STR += " startswith endswith strip upper"
_SET = "add update discard remove clear copy union difference intersection"
_TYPES: Mapping[str, type] = {
    **{f"builtins.{kind.__name__}": kind for kind in (str, int, float, bytes, list, tuple, bool, set, dict)},
    "builtins.type": Class,
}


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
        name = posixpath.join(evaluation.directory, name) if "/" in name else name
        caller = evaluation.modules.get("_cffi_backend" if by == "cffi.dlopen" else "_ctypes")
        flags = (mode if isinstance(mode, int) else 0) | _FLAGS["RTLD_NOW"]
        evaluation.record("library", name, by, flags=flags, caller=caller.spec.file if caller else "")
        if "/" in name and not evaluation.disk.exists(name):
            raise Raised("OSError", f"{name}: cannot open shared object file", is_certain=True, opening=name)
        made = arguments[0] if first and isinstance(arguments[0], Instance) else Instance(_LIBRARY)
        made.names["<opened>"] = Opened(name, by)
        return made

    return opened


def _look_up_function(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """A prototype of ctypes, which is called with a name and a library, or with a function."""
    match arguments:
        case [(str(name), Instance() as library), *_]:
            return evaluation.look_up(library, name)
    return UNKNOWN


def _look_up_variable(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """The method in_dll of a type of ctypes."""
    match arguments:
        case [_, Instance() as library, str(name)]:
            return evaluation.look_up(library, name, "in_dll")
    return UNKNOWN


def _find_library(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    name = take_argument(arguments, {}, 0, "name")
    return evaluation.find_soname(name) if isinstance(name, str) else UNKNOWN


def _ask_for_pandas(evaluation: Evaluation, _arguments: list[Any], _named: dict[str, Any]) -> Any:
    """What pyarrow makes of an object of Python may be one of pandas (_PandasAPIShim in pandas-shim.pxi)."""
    with suppress(Raised), evaluation.at_least("guarded", frozenset({"ImportError"})):
        evaluation.import_module("pandas")
    return UNKNOWN


def _find_beside_caller(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    """TensorFlow's resource_loader.get_path_to_datafile: in the directory of the source that calls it."""
    name, frame = take_argument(arguments, named, 0, "path"), evaluation.state.frame
    if frame is None or not isinstance(name, str):
        return UNKNOWN
    return posixpath.join(posixpath.dirname(frame.module.spec.file), name)


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


def _register(evaluation: Evaluation, _arguments: list[Any], _named: dict[str, Any]) -> Any:
    """The method that functools.singledispatch gives to a function: from Python 3.11 on it looks for typing.Union."""
    if evaluation.interpreter.version >= (3, 11):
        evaluation.import_module("typing", "functools.singledispatch")
    return UNKNOWN


def _make_version(_evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    with suppress(InvalidVersion):
        return Version(arguments[0]) if arguments and isinstance(arguments[0], str) else UNKNOWN
    return UNKNOWN


def _make_partial(_evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
    """functools.partial; of a class or a known function that is given nothing the function, which others may ask for."""
    function, *given = arguments or [UNKNOWN]
    is_plain = not given and isinstance(function, Class | Native)
    return function if is_plain else Instance(_OBJECT, {"<partial>": Deferred(function, given, named)})


def _ask_attribute(evaluation: Evaluation, owner: Any, name: Any) -> Any:
    """Return an attribute; MISSING where it is known that there is none, or where asking for it raises that."""
    try:
        with evaluation.at_least("guarded", frozenset({"AttributeError"})):
            return evaluation.attribute(owner, name) if isinstance(name, str) else UNKNOWN
    except Raised as raised:
        if raised.kind != "AttributeError":
            raise
        return MISSING


def _has_attribute(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    name = take_argument(arguments, {}, 1, "name")
    found = _ask_attribute(evaluation, arguments[0], name)
    if isinstance(arguments[0], Module) and arguments[0].name == "builtins":
        return name in arguments[0].names or hasattr(builtins, str(name))
    if found is UNKNOWN:
        # The standard library asks its own extension modules for what Linux has.
        frame = evaluation.state.frame
        return True if frame and evaluation.interpreter.is_standard(frame.module.spec.file) else UNKNOWN
    return found is not MISSING


def _get_attribute(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    name = take_argument(arguments, {}, 1, "name")
    if len(arguments) > 2:
        found = _ask_attribute(evaluation, arguments[0], name)
        return arguments[2] if found is MISSING else found
    found = evaluation.attribute(arguments[0], name) if isinstance(name, str) else UNKNOWN
    if found is not MISSING:
        return found
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


def _kinds(arguments: list[Any]) -> list[Any]:
    return [*arguments[1]] if isinstance(arguments[1], tuple) else [arguments[1]]


def _is_subclass(_evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """issubclass, of exceptions."""
    if len(arguments) < 2 or not isinstance(arguments[0], Native | Class):
        return UNKNOWN
    return any(is_kind(exception_kind(arguments[0]), exception_kind(one)) for one in _kinds(arguments))


def _is_instance(_evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    taken = arguments[0].names.get("<raised>") if arguments and isinstance(arguments[0], Instance) else None
    if len(arguments) > 1 and isinstance(taken, Raised):
        return any(is_kind(taken.kind, exception_kind(one)) for one in _kinds(arguments))
    if len(arguments) > 1 and arguments[0] is None and isinstance(arguments[1], Class):
        return False
    value, *rest = arguments or [UNKNOWN]
    kinds = [_TYPES.get(one.name) for one in _kinds(arguments) if isinstance(one, Native)] if rest else []
    if isinstance(value, PLAIN | dict | Function | Class) and kinds:
        if any(kind is not None and isinstance(value, kind) for kind in kinds):
            return True
        return False if all(kinds) and len(kinds) == len(_kinds(arguments)) else UNKNOWN
    return UNKNOWN


def _make_object(_evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    return Instance(arguments[0]) if arguments and isinstance(arguments[0], Class) else UNKNOWN


def _exit(evaluation: Evaluation, _arguments: list[Any], _named: dict[str, Any]) -> Any:
    frame = evaluation.state.frame
    raise raised_after(frame.lost if frame else None, Native("SystemExit"), evaluation.state)


def _ask_exception(evaluation: Evaluation, _arguments: list[Any], _named: dict[str, Any]) -> Any:
    raised = evaluation.handling[-1] if evaluation.handling else None
    return (Native(raised.kind), raised.value, UNKNOWN) if raised else UNKNOWN


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
    """Follow a text that is known, as an import in one."""
    frame = evaluation.state.frame
    text = take_argument(arguments, {}, 0, "")
    names = take_argument(arguments, {}, 1, "", frame and frame.names)
    inside = take_argument(arguments, {}, 2, "", names)
    if isinstance(text, str) and isinstance(names, dict) and isinstance(inside, dict) and frame is not None:
        with suppress(UnreadableSourceError):
            statements, bodies = parse_source(text.encode())
            # Its functions are in no file: their bodies stay with the module that is made for them.
            made = Module(frame.module.name, frame.module.spec, names, is_open=True, bodies=[*bodies])
            evaluation.block(Frame(made, inside), statements)
            return UNKNOWN
    evaluation.record("unknown", "code that is made at run time", "exec")
    return UNKNOWN


def _suppress(_evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    return ("suppress", *map(exception_kind, arguments))


def _enter(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """ExitStack.enter_context: what the manager gives."""
    entered: list[Any] = []
    run_within(evaluation, arguments[-1], entered.append)
    return entered[0] if entered else UNKNOWN


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


def _next(evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """next, of an iterator: the first item, which is taken from it, or the default."""
    values = take_argument(arguments, {}, 0, "values")
    values = values if isinstance(values, list) else items(values)
    if values == [] and len(arguments) < 2 and evaluation.state.has_sought:
        raise raised_after(None, Native("StopIteration"), evaluation.state)
    return (
        UNKNOWN if values is None else values.pop(0) if values else take_argument(arguments, {}, 1, "default")
    )


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
        elif isinstance(arguments[0], dict) and name != "pop":
            evaluation.open_dictionary(arguments[0])
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


def _combine(combine: Callable[..., Iterable[Any]]) -> Known:
    """Return what makes one list of several, which are not too long together."""

    def combined(*lists: Any) -> Any:
        is_short = sum(map(len, lists)) <= LARGEST_VALUE
        return [*itertools.islice(combine(*lists), LARGEST_VALUE + 1)] if is_short else UNKNOWN

    return _compute(combined)


def known_functions(interpreter: Interpreter) -> Mapping[str, Known]:
    """Return the known functions by their names."""
    suffix = next(iter(interpreter.suffixes), ".so")
    config = {"EXT_SUFFIX": suffix, "SOABI": suffix.strip(".").removesuffix(".so"), "Py_GIL_DISABLED": 0}
    known: dict[str, Known] = {
        **disk_functions(),
        **import_functions(),
        "ctypes.CDLL": open_library("ctypes.CDLL"),
        "ctypes.PyDLL": open_library("ctypes.PyDLL"),
        "ctypes.LibraryLoader.LoadLibrary": open_library("LoadLibrary", 1),
        "cffi.api.FFI.dlopen": open_library("cffi.dlopen", 1),
        "?.dlopen": open_library("cffi.dlopen"),
        "?.LoadLibrary": open_library("LoadLibrary"),
        "dataclasses.field": lambda _evaluation, _arguments, named: Instance(_OBJECT, named),
        "types.SimpleNamespace": lambda _evaluation, _arguments, named: Instance(_OBJECT, named),
        "site.getsitepackages": lambda *_: [*interpreter.site_packages],
        "sysconfig.get_path": lambda *_: next(iter(interpreter.site_packages), UNKNOWN),
        "fnmatch.filter": _compute(lambda names, pattern: fnmatch.filter(names, pattern)),  # noqa: PLW0108 - no other
        "ctypes.util.find_library": _find_library,
        "functools.partial": _make_partial,
        "functools.singledispatch.register": _register,
        "importlib.resources.as_file": lambda _evaluation, arguments, _named: (arguments or [UNKNOWN])[0],
        "packaging.version.Version": _make_version,
        "packaging.version.parse": _make_version,
        "cuda.pathfinder._dynamic_libs.load_nvidia_dynamic_lib.load_nvidia_dynamic_lib": _load_nvidia_library,
        "rapidfuzz._feature_detector_cpp.supports": _has_instructions,
        "numpy.ctypeslib.load_library": _load_beside,
        "numpy.ctypeslib._ctypeslib.load_library": _load_beside,
        # C++ opens these two (TF_LoadLibrary).
        "tensorflow.python.framework.load_library.load_op_library": open_library("tf.load_op_library"),
        "tensorflow.python.framework.load_library.load_file_system_library": open_library(
            "tf.load_op_library"
        ),
        "tensorflow.python.platform.resource_loader.get_path_to_datafile": _find_beside_caller,
        **dict.fromkeys(("pyarrow.lib.array", "pyarrow.lib.scalar"), _ask_for_pandas),
        "torch.cuda.is_available": _has_gpu,
        "ctypes.CFUNCTYPE": lambda *_: Native("ctypes.prototype"),
        "ctypes.PYFUNCTYPE": lambda *_: Native("ctypes.prototype"),
        "ctypes.prototype": _look_up_function,
        "ctypes.in_dll": _look_up_variable,
        "builtins.hasattr": _has_attribute,
        "builtins.getattr": _get_attribute,
        "builtins.setattr": _set_attribute,
        "builtins.globals": _read_globals,
        "builtins.vars": _read_globals,
        "builtins.isinstance": _is_instance,
        "builtins.callable": _is_callable,
        "builtins.exit": _exit,
        "builtins.iter": _compute(list),
        "builtins.object.__setattr__": _set_attribute,
        "builtins.issubclass": _is_subclass,
        **dict.fromkeys(("builtins.type", "builtins.float", "builtins.bytes"), lambda *_: UNKNOWN),
        "builtins.eval": _execute,
        "builtins.zip": _combine(zip),
        "builtins.object": lambda *_: Instance(_OBJECT),
        "builtins.object.__new__": _make_object,
        "builtins.super": make_super,
        "ctypes.CDLL.__init__": open_library("ctypes.CDLL", 1),
        "builtins.exec": _execute,
        "builtins.compile": lambda _evaluation, arguments, _named: (arguments or [UNKNOWN])[0],
        "builtins.any": _decide(whole=False),
        "builtins.all": _decide(whole=True),
        "builtins.map": _map,
        "builtins.next": _next,
        "builtins.min": _compute(min),
        "builtins.max": _compute(max),
        "builtins.range": _compute(_count),
        "itertools.chain": _combine(itertools.chain),
        "itertools.product": _combine(itertools.product),
        "builtins.reversed": _compute(lambda values: values[::-1]),
        "builtins.enumerate": _compute(lambda values: [*enumerate(values)]),
        "sys.exit": _exit,
        "sys.exc_info": _ask_exception,
        "sys.setdlopenflags": _set_flags,
        "sys.getdlopenflags": lambda evaluation, _arguments, _named: evaluation.flags,
        "os.environ.get": _read_variable,
        "os.getenv": _read_variable,
        "os.fspath": _compute(str),
        "contextlib.suppress": _suppress,
        "contextlib._BaseExitStack.enter_context": _enter,
        "_collections_abc.Mapping.get": _get_item,
        "platform.system": lambda *_: "Linux",
        "platform.processor": _read_processor,
        "platform.machine": lambda *_: interpreter.machine,
        "platform.architecture": lambda *_: ("64bit", "ELF"),
        "platform.uname": lambda *_: Instance(_PLATFORM, {"system": "Linux", "machine": interpreter.machine}),
        "os.uname": lambda *_: ("Linux", UNKNOWN, UNKNOWN, UNKNOWN, interpreter.machine),
        "platform.python_implementation": lambda *_: "CPython",
        "sysconfig.get_config_var": _compute(config.get),
        "struct.calcsize": _compute({"P": 8, "L": 8, "l": 8, "q": 8, "i": 4, "I": 4}.__getitem__),
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
        "str.decode": _compute(lambda text, *_: text),
        "str.encode": _encode,
        "json.loads": _compute(parse_json),
        "path.locate": _compute(str),
        "path.is_absolute": _compute(PurePosixPath.is_absolute),
        "path.__enter__": _compute(PurePosixPath),
    }
    for name in _POSIXPATH.split():
        known[f"posixpath.{name}"] = _compute(getattr(posixpath, name))
    for kind in (str, int, bool, list, tuple, set, dict, sorted, len):
        known[f"builtins.{kind.__name__}"] = _compute(kind)
    known["builtins.frozenset"] = known["builtins.set"]
    known["collections.OrderedDict"] = known["builtins.dict"]
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
