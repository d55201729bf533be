"""Functions whose results are known: each against the real one."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from relink.python.facts_cache import FactsCache
from relink.python.modules import Disk
from relink.python.process import PythonProcesses
from relink.python.values import UNKNOWN, Class, Instance, Native
from tests.support.python_processes import opened, python_of, read_events, write_files

PATHS: list[tuple[str, list[Any], Any]] = [
    (f"posixpath.{name}", [*arguments], getattr(posixpath, name)(*arguments))
    for name, *arguments in (
        ("join", "/a", "b", "/c"),
        ("dirname", "/a/b.so"),
        ("basename", "/a/b.so"),
        ("normpath", "/a/../b"),
        ("split", "/a/b"),
        ("splitext", "/a/b.so"),
        ("relpath", "/a/b", "/a/c"),
        ("abspath", "/a/./b"),
    )
]
OTHERS: list[tuple[str, list[Any], Any]] = [
    ("str.join", ["-", ["a", "b"]], "a-b"),
    ("str.split", ["a b"], ["a", "b"]),
    ("str.format", ["{a}-{b:>9}"], UNKNOWN),
    ("str.format", ["{}.so", "a"], "a.so"),
    ("str.replace", ["a" * 100, "a", "b" * 1000], UNKNOWN),
    ("str.join", ["-", ["a", UNKNOWN]], UNKNOWN),
    ("builtins.len", [["a"]], 1),
    ("builtins.range", [3], [0, 1, 2]),
    ("builtins.range", [1 << 40], UNKNOWN),
    ("itertools.product", [["a", "b"], ["c"]], [("a", "c"), ("b", "c")]),
    ("itertools.product", [[1] * 900] * 3, UNKNOWN),
    ("itertools.product", [[1] * 9_000] * 3, UNKNOWN),
    ("itertools.chain", [["a"], ("b",)], ["a", "b"]),
    ("builtins.any", [[UNKNOWN, True]], True),
    ("builtins.any", [[UNKNOWN, False]], UNKNOWN),
    ("builtins.all", [[UNKNOWN, False]], False),
    ("builtins.all", [[]], True),
    ("builtins.int", ["no number"], UNKNOWN),
    ("dict.get", [{"a": 1}, "b", 2], 2),
    ("platform.system", [], "Linux"),
    ("sysconfig.get_config_var", ["EXT_SUFFIX"], ".cpython-311-x86_64-linux-gnu.so"),
    ("struct.calcsize", ["P"], 8),
    ("builtins.callable", [None], False),
    ("builtins.callable", [UNKNOWN], UNKNOWN),
    ("dict.get", [{UNKNOWN: UNKNOWN, "a": 1}, "a"], 1),
    ("dict.get", [{UNKNOWN: UNKNOWN, "a": 1}, "b"], UNKNOWN),
    ("dict.keys", [{UNKNOWN: UNKNOWN, "a": 1}], ["a"]),
    ("pathlib.Path", ["/a", "b"], PurePosixPath("/a/b")),
    ("os.fspath", [PurePosixPath("/a")], "/a"),
    ("builtins.isinstance", [["a", UNKNOWN], (Native("builtins.str"),)], False),
    ("builtins.isinstance", ["a", (Native("builtins.bytes"), Native("builtins.str"))], True),
    ("builtins.isinstance", ["a", (UNKNOWN, Native("builtins.str"))], True),
    ("builtins.isinstance", ["a", (UNKNOWN, Native("builtins.list"))], UNKNOWN),
    ("builtins.isinstance", [[], Native("builtins.type")], False),
    ("builtins.isinstance", [Class("A", {}, []), Native("builtins.type")], True),
    ("builtins.isinstance", [Instance(Class("A", {}, [])), Native("builtins.str")], UNKNOWN),
    ("builtins.isinstance", [UNKNOWN, Native("builtins.str")], UNKNOWN),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), PATHS + OTHERS)
def test_results(tmp_path: Path, name: str, arguments: list[Any], expected: Any) -> None:
    evaluation = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables={}).evaluation
    assert evaluation.known[name](evaluation, arguments, {}) == expected


def test_names_of_platform_and_python(tmp_path: Path) -> None:
    values = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables={}).evaluation.values
    assert values["sys.version_info"][:2] == (3, 11)
    assert values["os.RTLD_GLOBAL"] == os.RTLD_GLOBAL
    assert values["os.RTLD_DEEPBIND"] == os.RTLD_DEEPBIND


def loaded(site: Path, source: str) -> list[str]:
    """The names of what a module opens, and of what cannot be read."""
    write_files(site, {"user.py": source})
    events = read_events(site, "user").events
    return [
        event.name.removeprefix(f"{site}/")
        for event in events
        if event.kind in ("extension", "library", "unknown")
    ]


SPEC = "import importlib.util as util\nspec = util.spec_from_file_location('x', '{}')\nmodule = util.module_from_spec(spec)\n"


def test_modules_that_are_imported_by_functions(tmp_path: Path) -> None:
    util = "def spec_from_file_location(a, b): ...\ndef module_from_spec(a): ...\ndef find_spec(a): ...\n"
    write_files(
        tmp_path, {"importlib/util.py": util, "package/__init__.py": "", "package/x.so": "", "y.so": ""}
    )
    assert loaded(tmp_path, "import importlib\nimportlib.import_module('.x', 'package')\n") == [
        "package/x.so"
    ]
    assert loaded(tmp_path, "import importlib\nimportlib.import_module(name())\n") == [
        "a module whose name is made at run time"
    ]
    assert loaded(tmp_path, SPEC.format(tmp_path / "y.so")) == ["y.so"]
    assert loaded(
        tmp_path,
        f"try:\n import os\n {SPEC.format('/absent').replace(chr(10), chr(10) + ' ')}\nexcept OSError:\n import y\n",
    ) == ["y.so"]
    found = "from importlib.util import find_spec\nif find_spec('{}') is not None:\n import y\n"
    assert loaded(tmp_path, found.format("package.x")) == ["y.so"]
    assert loaded(tmp_path, found.format("package.absent")) == []


def test_versions_and_resources(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "other_thing-2.1.dist-info/METADATA": "",
            "importlib/metadata.py": "def version(name): ...\n",
            "importlib/resources.py": "def files(package): ...\n",
            "importlib/readers.py": "import lib\n",
            "lib.so": "",
            "packaging/version.py": "def parse(text): ...\n",
            "pandas/util/version.py": "class Version:\n def __init__(self, version): self.parts = version.split()\n",
            "other/__init__.py": "",
            "other/y.so": "",
        },
    )
    source = "from importlib.metadata import version\nfrom packaging.version import parse\n"
    source += "import ctypes\nfrom importlib.resources import files\n"
    source += "if parse(version('Other.Thing')) >= parse('2.0'):\n ctypes.CDLL(files('other') / 'y.so')\n"
    source += "else:\n ctypes.CDLL('libother.so')\n"
    assert loaded(tmp_path, source) == ["lib.so", "other/y.so"], "what files imports comes first"
    source = source.replace("packaging.version import parse", "pandas.util.version import Version as parse")
    assert loaded(tmp_path, source) == ["lib.so", "other/y.so"]


def test_libraries_by_name(tmp_path: Path) -> None:
    files = {
        "ctypes/util.py": "def find_library(name): ...\n",
        "cffi/api.py": "class FFI:\n def dlopen(self, name): ...\n",
    }
    source = """import ctypes, ctypes.util
from cffi.api import FFI
ctypes.CDLL(ctypes.util.find_library('usb-1.0'))
FFI().dlopen('libx.so.1')
ctypes.CDLL(None)
ctypes.CDLL(name())
unknown.LoadLibrary('liby.so')
ctypes.CDLL(ctypes.util.find_library('absent'))
"""
    write_files(tmp_path, {**files, "user.py": source})
    sonames = {"usb-1.0": "libusb-1.0.so.0"}
    processes = PythonProcesses(
        python_of(tmp_path), cache=FactsCache(None), variables={}, find_soname=sonames.get
    )
    events = [event for event in processes.read_import("user").events if event.kind in ("library", "unknown")]
    assert [(event.kind, event.name, event.line) for event in events] == [
        ("library", "libusb-1.0.so.0", 3),
        ("library", "libx.so.1", 4),
        ("unknown", "a library whose name is made at run time", 6),
        ("library", "liby.so", 7),
    ]


def test_a_library_that_is_opened_is_something(tmp_path: Path) -> None:
    source = (
        "import ctypes\nlib = ctypes.CDLL('libx.so')\nif lib is None or not lib:\n ctypes.CDLL('liby.so')\n"
    )
    assert loaded(tmp_path, source) == ["libx.so"]


def test_the_files_of_a_distribution(tmp_path: Path) -> None:
    """As rtree finds its library; no wheel is installed for PyPy."""
    record = "one/__init__.py,,\none.libs/libx-1a2b.so.6,,\n"
    metadata = "def files(name): ...\n"
    write_files(tmp_path, {"one-1.dist-info/RECORD": record, "importlib/metadata.py": metadata})
    source = "import ctypes, importlib.metadata, sys\nfor file in importlib.metadata.files('one'):\n"
    source += " if file.parent.name == 'one.libs' and '.so' in file.suffixes and not hasattr(sys, 'pypy_version_info'):\n"
    write_files(tmp_path, {"user.py": f"{source}  ctypes.CDLL('libfound.so')\n"})
    assert opened(read_events(tmp_path, "user"), tmp_path) == [("libfound.so", "certain")]


def test_a_gpu_needs_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables={}).evaluation
    is_available = evaluation.known["torch.cuda.is_available"]
    for device, expected in (("", False), ("/dev/kfd", UNKNOWN), ("/dev/nvidiactl", UNKNOWN)):
        monkeypatch.setattr(Disk, "exists", lambda _self, path, device=device: path == device)
        assert is_available(evaluation, [], {}) is expected
    monkeypatch.setattr(Disk, "exists", lambda *_: False)
    evaluation.required = frozenset()
    assert is_available(evaluation, [], {}) is UNKNOWN, "the wheel is for another machine"


def test_what_an_encoding_imports(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "encodings/__init__.py": "",
            "encodings/a_b.py": "import encodings.x",
            "encodings/ascii.py": "import encodings.y",
            "encodings/x.so": "",
            "encodings/y.so": "",
            "package/__init__.py": "'text'.encode('A-b')\n'text'.encode('ascii')\n'text'.encode('absent')\n",
        },
    )
    assert opened(read_events(tmp_path, "package"), tmp_path) == [("encodings/x.so", "certain")]


@pytest.mark.parametrize(("flags", "expected"), [("fpu avx2 sse2", ["fast"]), ("fpu sse2", ["slow"])])
def test_a_test_of_the_processor(tmp_path: Path, flags: str, expected: list[str]) -> None:
    """As rapidfuzz asks it in C."""
    source = (
        "from rapidfuzz._feature_detector_cpp import AVX2, SSE2, supports\n"
        "if supports(AVX2):\n import rapidfuzz.fast\nelif supports(SSE2):\n import rapidfuzz.slow\n"
    )
    names = ("_feature_detector_cpp", "fast", "slow")
    files = {f"rapidfuzz/{name}.so": "" for name in names}
    write_files(tmp_path, {"rapidfuzz/__init__.py": source, **files})
    processes = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables={})
    processes.evaluation.disk.members = {"/proc/cpuinfo": f"model\t: 1\nflags\t\t: {flags}\n".encode}
    found = opened(processes.read_import("rapidfuzz"), tmp_path)
    assert found[1:] == [(f"rapidfuzz/{name}.so", "certain") for name in expected]


def test_what_asks_for_the_processor_runs_a_program(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "platform.py": "def processor():\n pass\n",
            "subprocess.py": "import x\n",
            "x.so": "",
            "package.py": "import platform\nplatform.processor()\n",
        },
    )
    assert opened(read_events(tmp_path, "package"), tmp_path) == [("x.so", "certain")]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [("'x', HERE", "x.so"), ("'x.so', __file__", "x.so"), ("'y', HERE", "y.cpython-311-x86_64-linux-gnu.so")],
)
def test_the_library_that_numpy_loads(tmp_path: Path, arguments: str, expected: str) -> None:
    head = "import os\nfrom numpy.ctypeslib import load_library\nHERE = os.path.dirname(__file__)\n"
    files: dict[str, str | bytes] = {
        "numpy/__init__.py": "",
        "numpy/ctypeslib.py": "def load_library(libname, loader_path): ...\n",
        "package/__init__.py": f"{head}load_library({arguments})\n",
        **dict.fromkeys(("package/x.so", "package/y.so", "package/y.cpython-311-x86_64-linux-gnu.so"), ""),
    }
    write_files(tmp_path, files)
    assert opened(read_events(tmp_path, "package"), tmp_path) == [(f"package/{expected}", "certain")]


def test_what_pyarrow_makes_asks_for_pandas(tmp_path: Path) -> None:
    files = {
        "pyarrow/__init__.py": "from pyarrow.lib import scalar\n",
        "pyarrow/lib.so": "",
        "pandas.so": "",
        "package/__init__.py": "import pyarrow as pa\nONE = pa.scalar(1)\n",
    }
    write_files(tmp_path, files)
    found = [("pyarrow/lib.so", "certain"), ("pandas.so", "guarded")]
    assert opened(read_events(tmp_path, "package"), tmp_path) == found
    (tmp_path / "pandas.so").unlink()
    assert opened(read_events(tmp_path, "package"), tmp_path) == found[:1]


def test_the_operations_that_tensorflow_loads(tmp_path: Path) -> None:
    """As a package with operations of its own: C++ opens the library, which lies beside the source."""
    files: dict[str, str | bytes] = {
        "tensorflow/python/framework/load_library.py": "def load_op_library(library_filename): ...\n",
        "tensorflow/python/platform/resource_loader.py": "def get_path_to_datafile(path): ...\n",
        "package/__init__.py": "from package.ops import own\n",
        "package/ops/own.py": "from tensorflow.python.framework import load_library\n"
        "from tensorflow.python.platform import resource_loader\n"
        "load_library.load_op_library(resource_loader.get_path_to_datafile('_own.so'))\n",
        "package/ops/_own.so": "",
    }
    write_files(tmp_path, files)
    assert opened(read_events(tmp_path, "package"), tmp_path) == [("package/ops/_own.so", "certain")]


def test_the_file_that_pkg_resources_names(tmp_path: Path) -> None:
    source = "import ctypes, pkg_resources\nctypes.CDLL(pkg_resources.resource_filename(__name__, 'x.so'))\n"
    files: dict[str, str | bytes] = {
        "pkg_resources.py": "globals().update(made_at_run_time())\n",
        "package/__init__.py": source,
        "package/x.so": "",
    }
    write_files(tmp_path, files)
    assert opened(read_events(tmp_path, "package"), tmp_path) == [("package/x.so", "certain")]
