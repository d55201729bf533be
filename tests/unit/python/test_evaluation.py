"""Statements and expressions: which of them an import reaches, and how sure that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.python.facts_cache import FactsCache
from relink.python.process import PythonProcesses
from tests.support.python_processes import opened, python_of, read_events, write_files

OPEN = "import ctypes, os, sys\nhere = os.path.dirname(__file__)\n"


def outcome(site: Path, source: str, variables: dict[str, str] | None = None) -> list[tuple[str, str]]:
    """What the import of a package with this source opens."""
    write_files(site, {"package/__init__.py": source, "package/x.so": "", "package/y.so": ""})
    return opened(read_events(site, "package", variables), site)


X, Y = "package/x.so", "package/y.so"


def test_modules_that_a_finder_makes(tmp_path: Path) -> None:
    """six.moves is in no file: six puts a finder into sys.meta_path."""
    write_files(tmp_path, {"maker.py": "import sys\nsys.meta_path.append(object())\n", "plain.py": ""})
    assert outcome(tmp_path, "from maker.moves.deep import name\nfrom . import x") == [(X, "certain")]
    assert outcome(tmp_path, "from plain.moves import name\nfrom . import x") == []


@pytest.mark.parametrize(
    ("made", "is_there"),
    [
        ("for name in names():\n sys.modules[name] = object()", True),
        ("sys.modules['package.made'] = type(sys)('package.made')", True),
        ("sys.modules['package.other'] = type(sys)('package.other')", False),
        ("sys.modules['package.made'] = None", False),
    ],
)
def test_modules_that_a_source_puts_into_sys_modules(tmp_path: Path, made: str, is_there: bool) -> None:
    source = f"import sys\n{made}\nfrom package.made import name\nfrom . import x"
    assert outcome(tmp_path, source) == ([(X, "certain")] if is_there else [])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from . import x", [(X, "certain")]),
        ("from package import x, y", [(X, "certain"), (Y, "certain")]),
        ("import package.x as z", [(X, "certain")]),
        ("try:\n from . import x\nexcept ImportError:\n pass", [(X, "guarded")]),
        ("try:\n from . import x\nexcept (KeyError, OSError):\n pass", [(X, "guarded")]),
        ("try:\n from . import x\nexcept KeyError:\n pass", [(X, "certain")]),
        ("try:\n from . import x\nexcept ImportError as error:\n raise OSError from error", [(X, "certain")]),
        ("try:\n import absent\nexcept ImportError:\n from . import x", [(X, "certain")]),
        ("try:\n import absent\nexcept KeyError:\n from . import x\nfrom . import y", []),
        ("try:\n pass\nfinally:\n from . import x", [(X, "certain")]),
        ("import contextlib\nwith contextlib.suppress(ImportError):\n from . import x", [(X, "guarded")]),
        ("with open(__file__):\n from . import x", [(X, "certain")]),
        ("def f():\n from . import x", []),
        ("def f():\n from . import x\nf()", [(X, "certain")]),
        ("def f(name):\n __import__(name, globals(), fromlist=['y'])\nf('package')", [(Y, "certain")]),
        ("class A:\n from . import x", [(X, "certain")]),
        (
            "class A:\n def __init__(self):\n  self.load()\n def load(self):\n  from . import x\nA()",
            [(X, "certain")],
        ),
        (
            "import sys\nif sys.platform == 'win32':\n from . import x\nelse:\n from . import y",
            [(Y, "certain")],
        ),
        ("import sys\nif sys.version_info >= (3, 12):\n from . import x", []),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n from . import x", []),
        ("if f():\n from . import x\nelse:\n from . import y", [(X, "conditional"), (Y, "conditional")]),
        ("f() and __import__('package.x')", [(X, "conditional")]),
        ("for name in ('x', 'y'):\n __import__(f'package.{name}')", [(X, "certain"), (Y, "certain")]),
        ("for name in names():\n from . import x", [(X, "conditional")]),
        ("for name in ('x', 'y'):\n __import__('package.' + name)\n break", [(X, "certain")]),
        ("while True:\n from . import x\n break", [(X, "certain")]),
        ("match f():\n case 1:\n  from . import x", [(X, "conditional")]),
        ("def __getattr__(name):\n from . import x\n", []),
        ("f = lambda name, last='y': __import__(f'package.{name}')\nf('x')", [(X, "certain")]),
        ("f = lambda name: __import__(f'package.{name}')", []),
        ("if __name__ == '__main__':\n from . import x", []),
        ("raise ValueError('text')\nfrom . import x", [(X, "certain")]),
        ("[__import__('package.' + name) for name in ['x', 'y'] if name != 'x']", [(Y, "certain")]),
        ("name = 'x' if True else 'y'\n__import__('package.%s' % name)", [(X, "certain")]),
        ("if (name := 'x') == 'x':\n __import__('package.' + name)", [(X, "certain")]),
        ("import __main__\nfrom . import x", [(X, "certain")]),
        ("exec('from . import ' + 'x', globals())", [(X, "certain")]),
        ("names = {}\nexec('name = 1', names)\nif 'name' in names:\n from . import x", [(X, "certain")]),
        ("exec('def f():\\n from . import x\\nf()', {})", []),
        ("exec('from . import x', names())", []),
        ("exec('((((', {})\nfrom . import y", [(Y, "certain")]),
        ("if set(['a', 'b']) | {'c'} == {'c', 'b', 'a'}:\n from . import x", [(X, "certain")]),
        ("s = set()\ns.add('x')\nfor name in s:\n __import__('package.' + name)", [(X, "certain")]),
        ("for name in list({'y', 'x'} - {'y'}):\n __import__('package.' + name)", [(X, "certain")]),
        ("if {[]}:\n from . import x", [(X, "conditional")]),
        ("s = set()\ns.update(names())\nif 'x' in s:\n from . import x", [(X, "conditional")]),
        ("d = {}\nfor one in names():\n d[one] = 1\nif not d:\n from . import x", [(X, "conditional")]),
        ("d = {}\nd[name()] = 1\nif 'x' in d:\n from . import x", [(X, "conditional")]),
        ("d = {}\ntry:\n d['x']\nexcept KeyError:\n from . import x", [(X, "certain")]),
        ("d = {'x': 1}\ntry:\n d['y']\nexcept KeyError:\n from . import x", []),
        ("def f(a):\n if a:\n  return 1\nif f(g()) is None:\n from . import x", [(X, "conditional")]),
        (
            "def f(a):\n match a:\n  case 1:\n   return 1\nif f(g()) is None:\n from . import x",
            [(X, "conditional")],
        ),
        ("NONE = object()\ndef f(a=NONE):\n if a is NONE:\n  from . import x\nf()", [(X, "certain")]),
        ("NONE = object()\nif None is NONE:\n from . import x", []),
        ("class A(object):\n pass\nif A():\n from . import x", [(X, "certain")]),
        (
            "class A:\n def f(self):\n  from . import x\nclass B(A[int]):\n pass\nB().f()",
            [(X, "certain")],
        ),
        (
            "class A:\n def __getitem__(self, key):\n  return key\n__import__('package.' + A()['x'])",
            [(X, "certain")],
        ),
        (
            "class A:\n def __enter__(self):\n  return 'x'\nwith A() as name:\n __import__('package.' + name)",
            [(X, "certain")],
        ),
        (
            (
                "from collections.abc import Mapping\nclass A(Mapping[str, str]):\n def __getitem__(self, key):\n"
                "  raise KeyError(key)\n__import__('package.' + A().get('a', 'x'))"
            ),
            [(X, "certain")],
        ),
        ("import builtins\nif hasattr(builtins, 'absent'):\n from . import x", []),
        ("import sys\nif sys.version < '3':\n from . import x", []),
        ("for name in {'x', 1}:\n from . import x", [(X, "conditional")]),
        (
            "class Lazy:\n def __getattr__(self, name):\n  import absent\nLazy().name\nfrom . import x",
            [(X, "certain")],
        ),
    ],
)
def test_statements(tmp_path: Path, source: str, expected: list[tuple[str, str]]) -> None:
    assert outcome(tmp_path, source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "ctypes.CDLL(os.path.join(here, 'x.so'))",
        "ctypes.PyDLL(here + '/x.so')",
        "ctypes.CDLL(f'{here}/x.so')",
        "ctypes.CDLL(os.path.join(os.path.abspath(here), '..', 'package', 'x.so').replace('/../package', ''))",
        "NAME = '%s.so' % 'x'\nctypes.CDLL(os.path.join(here, NAME))",
        "names = {'linux': 'x.so'}\nctypes.CDLL(os.path.join(here, names[sys.platform]))",
        "class Library(ctypes.CDLL):\n pass\nLibrary(os.path.join(here, 'x.so'))",
        "from pathlib import Path\nctypes.CDLL(Path(__file__).parent / 'x.so')",
        "from pathlib import Path\nctypes.CDLL(str(Path(__file__).resolve().parent.joinpath('x.so')))",
        "from glob import glob\nctypes.CDLL(glob(os.path.join(here, 'x*.so'))[0])",
        "from glob import iglob\nfor path in iglob(os.path.join(here, 'x*.so')):\n ctypes.CDLL(path)",
        "for top, _, names in os.walk(here):\n if 'x.so' in names:\n  ctypes.CDLL(os.path.join(top, 'x.so'))",
        (
            "for top in ('.', here):\n path = os.path.join(os.path.realpath(top), 'x.so')\n"
            " if os.path.isfile(path):\n  ctypes.CDLL(path)"
        ),
        (
            "import contextlib\nfrom importlib.resources import as_file, files\n"
            "ctypes.CDLL(str(contextlib.ExitStack().enter_context(as_file(files('package'))) / 'x.so'))"
        ),
        (
            "from pathlib import Path\nclass A:\n def __enter__(self):\n  return Path(here).__enter__()\n"
            "with A() as top:\n ctypes.CDLL(str(top / 'x.so'))"
        ),
        "path = [p for p in os.listdir(here) if p.startswith('x')][0]\nctypes.CDLL(os.path.join(here, path))",
    ],
)
def test_a_library_is_opened_by_a_path_that_is_put_together(tmp_path: Path, source: str) -> None:
    assert outcome(tmp_path, OPEN + source) == [(X, "certain")]


def test_flags_and_the_caller_of_dlopen(tmp_path: Path) -> None:
    source = OPEN + "from . import x\nsys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)\nfrom . import y\n"
    source += "ctypes.CDLL('libz.so.1', mode=ctypes.RTLD_GLOBAL)\n"
    write_files(tmp_path, {"package/__init__.py": source, "package/x.so": "", "package/y.so": ""})
    found = [
        event for event in read_events(tmp_path, "package").events if event.kind in ("extension", "library")
    ]
    assert [(event.name.rpartition("/")[2], event.flags, event.by) for event in found] == [
        ("x.so", 2, "import"),
        ("y.so", 258, "import"),
        ("libz.so.1", 258, "ctypes.CDLL"),
    ]
    assert [(event.line, event.module) for event in found][-1] == (6, "package")


def test_the_variable_that_decides_is_named(tmp_path: Path) -> None:
    source = (
        "import os\nif os.environ.get('BACKEND', 'x') == 'x':\n from . import x\nelse:\n from . import y\n"
    )
    assert outcome(tmp_path, source) == [(X, "certain")]
    assert outcome(tmp_path, source, {"BACKEND": "other"}) == [(Y, "certain")]
    event = next(event for event in read_events(tmp_path, "package").events if event.name.endswith("x.so"))
    assert event.variables == ("BACKEND",)


def test_a_library_that_is_not_there_raises(tmp_path: Path) -> None:
    source = OPEN + "try:\n ctypes.CDLL(here + '/absent.so')\nexcept OSError:\n from . import x\n"
    assert outcome(tmp_path, source) == [("package/absent.so", "guarded"), (X, "certain")]
    events = read_events(tmp_path, "ctypes")
    assert events.failure is None


def test_a_missing_module_ends_the_import(tmp_path: Path) -> None:
    write_files(
        tmp_path, {"package/__init__.py": "import first\nfrom . import x\n", "first.py": "import absent\n"}
    )
    assert read_events(tmp_path, "package").failure == "ModuleNotFoundError: No module named 'absent'"


def test_a_module_that_is_imported_in_two_ways_has_the_strictest(tmp_path: Path) -> None:
    write_files(tmp_path, {"package/__init__.py": "try:\n import a\nexcept ImportError:\n pass\nimport b\n"})
    write_files(tmp_path, {"a.py": "import c\n", "b.py": "import a\n", "c.so": ""})
    assert opened(read_events(tmp_path, "package"), tmp_path) == [("c.so", "certain")]


def test_what_a_hook_has_bound_is_imported_by_the_next_process_too(tmp_path: Path) -> None:
    """concurrent.futures binds ThreadPoolExecutor where somebody asks for it first, and numpy its submodules."""
    hook = "def __getattr__(name):\n global E\n if name == 'E':\n  from .deep import E as e\n  E = e\n  return e\n"
    files = {
        "package/__init__.py": f"__all__ = ('E',)\n{hook}",
        "package/deep.py": "from . import x\nE = 1\n",
    }
    users = {
        "one.py": "from package import E\n",
        "two.py": "from package import E\n",
        "star.py": "from package import *\n",
    }
    write_files(tmp_path, {**files, **users, "package/x.so": ""})
    processes = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables={})
    for name in ("one", "two", "star", "one"):
        assert opened(processes.read_import(name), tmp_path) == [(X, "certain")], name


def test_the_calls_of_decorators(tmp_path: Path) -> None:
    """Arguments are followed (astropy names functions of numpy.fft there), and a class is what its decorator makes of it."""
    load = "def load(given):\n from . import x\n"
    assert outcome(tmp_path, f"{load}@load(1)\ndef f(): ...\n") == [(X, "certain")]
    assert outcome(tmp_path, f"{load}@load\nclass C: ...\n") == [(X, "certain")]
    assert outcome(tmp_path, f"{load}def f():\n @load\n class C: ...\n") == []
    made = "def make(cls):\n return Other\nclass Other:\n value = 1\n@{}\nclass C:\n value = 0\n"
    assert outcome(tmp_path, made.format("make") + "if C.value:\n from . import x\n") == [(X, "certain")]
    assert outcome(tmp_path, made.format("unknown") + "if not C.value:\n from . import x\n") == [
        (X, "certain")
    ]


def test_the_package_of_a_module_by_its_spec(tmp_path: Path) -> None:
    """pydantic's hook has `(__spec__.parent, '.main')` by the name of what is asked for."""
    source = "import importlib\nimportlib.import_module('.x', package=__spec__.parent)\n"
    assert outcome(tmp_path, source) == [(X, "certain")]
    write_files(
        tmp_path, {"package/y.py": source, "user.py": "import package.y\n", "package/__init__.py": ""}
    )
    (tmp_path / Y).unlink()
    assert opened(read_events(tmp_path, "user"), tmp_path) == [(X, "certain")]


def test_what_registers_an_implementation_of_a_function(tmp_path: Path) -> None:
    """functools.singledispatch looks for typing.Union from Python 3.11 on (pkgutil)."""
    source = "from functools import singledispatch\n@singledispatch\ndef walk(one): ...\nwalk.register(int, print)\n"
    functools = "def singledispatch(function):\n return function\n"
    files = {"typing.py": "import _typing\n", "_typing.so": "", "functools.py": functools, "user.py": source}
    write_files(tmp_path, files)
    assert opened(read_events(tmp_path, "user"), tmp_path) == [("_typing.so", "certain")]


def test_submodules_that_a_process_before_has_imported_count_for_a_star(tmp_path: Path) -> None:
    files = {"package/__init__.py": "__all__ = ['deep']\n", "package/deep.py": "from . import x\n"}
    users = {"one.py": "import package.deep\n", "star.py": "from package import *\n"}
    write_files(tmp_path, {**files, **users, "package/x.so": ""})
    processes = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables={})
    for name in ("one", "star"):
        assert opened(processes.read_import(name), tmp_path) == [(X, "certain")], name


def test_a_hook_for_attributes_is_followed_where_one_is_asked_for(tmp_path: Path) -> None:
    hook = (
        "def __getattr__(name):\n import importlib\n return importlib.import_module(f'.{name}', __name__)\n"
    )
    write_files(
        tmp_path, {"package/__init__.py": hook, "package/x.so": "", "user.py": "import package\npackage.x\n"}
    )
    assert opened(read_events(tmp_path, "package"), tmp_path) == []
    assert opened(read_events(tmp_path, "user"), tmp_path) == [(X, "certain")]


def test_sources_add_to_the_search_path_of_modules(tmp_path: Path) -> None:
    """As ray does for what lies inside of it, and setuptools."""
    added = "os.path.join(os.path.dirname(__file__), 'inside')"
    source = (
        f"import os, sys\nsys.path.extend(((place := {added}) not in sys.path) * [place])\nimport below\n"
    )
    write_files(
        tmp_path, {"package/__init__.py": source, "package/inside/below.so": "", "other.py": "import sys\n"}
    )
    assert opened(read_events(tmp_path, "package"), tmp_path) == [("package/inside/below.so", "certain")]


def test_a_package_takes_itself_out_for_an_extension_of_its_name(tmp_path: Path) -> None:
    """As opencv-python does, with a search path that nobody can read."""
    source = "import importlib, sys\nown = sys.modules.pop('package')\nimportlib.import_module('package')\n"
    write_files(tmp_path, {"package/__init__.py": source, "package/package.abi3.so": ""})
    assert opened(read_events(tmp_path, "package"), tmp_path) == [("package/package.abi3.so", "certain")]


def test_a_python_without_distutils_has_that_of_setuptools(tmp_path: Path) -> None:
    files = {"package/__init__.py": "import distutils.core\nfrom . import x\n", "package/x.so": ""}
    write_files(tmp_path, files)
    assert read_events(tmp_path, "package").failure == "ModuleNotFoundError: No module named 'distutils'"
    inside = {f"setuptools/_distutils/{name}.py": "" for name in ("__init__", "core")}
    write_files(tmp_path, {**inside, "distutils-precedence.pth": ""})
    assert opened(read_events(tmp_path, "package"), tmp_path) == [(X, "certain")]


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n f()\n" + "f()\n" * 100,
        "while True:\n pass\n",
        "x = 'a'\n" + "x = x + x\n" * 200,
        "x = 2\n" + "x = x + x\n" * 200,
        "x = []\nx.append(x)\nx == x\nfor y in x:\n x.append(y)\n",
        "x = {}\nx['x'] = x\n",
        "for a in range(10 ** 9):\n pass\n",
        "for a in [1] * 10 ** 9:\n pass\n",
        "class A(A): ...\nA()\n",
        "import package\n" * 1000,
        "x = (" + "1," * 5000 + ")\n" + "y = [z for z in x]\n" * 100,
    ],
)
def test_what_has_no_end_ends(tmp_path: Path, source: str) -> None:
    assert outcome(tmp_path, source + "\nfrom . import x\n")[-1:] in ([(X, "certain")], [])


def test_what_loads_nothing_is_not_followed_for_ever(tmp_path: Path) -> None:
    """The value of the 501st call with arguments is not known; a function that loads something is followed each time."""
    many = "".join(f"f({number})\ng({number})\n" for number in range(600))
    # An attribute that is a module counts as an import of that one.
    source = (
        "import package\nfrom . import other\ndef f(a):\n package.other\n return a\ndef g(a):\n if a == 599:\n  from . import y\n"
        + many
    )
    write_files(tmp_path / "many", {"package/other.py": ""})
    assert outcome(tmp_path / "many", f"{source}if f(1):\n from . import x") == [
        (Y, "certain"),
        (X, "conditional"),
    ]
    assert outcome(tmp_path / "one", "def f(a):\n return a\nif f(1):\n from . import x") == [(X, "certain")]


def test_a_chain_of_imports_has_an_end(tmp_path: Path) -> None:
    write_files(tmp_path, {f"m{number}.py": f"import m{number + 1}\n" for number in range(400)})
    events = read_events(tmp_path, "m0")
    assert [event.name for event in events.events if event.kind == "unknown"] == [
        "more than 250 imports inside of each other"
    ]


def test_what_follows_a_return_that_is_not_decided_is_conditional(tmp_path: Path) -> None:
    function = "def f():\n if unknown:\n  return\n from . import x\n import absent\nf()\nfrom . import y\n"
    assert outcome(tmp_path, function) == [(X, "conditional"), (Y, "certain")]
    assert read_events(tmp_path, "package").failure is None


def test_an_extension_may_make_modules_below_itself(tmp_path: Path) -> None:
    source = "import package.x.made\nfrom package.x.made import name\nimport package.x.made.below\nfrom . import y\n"
    assert outcome(tmp_path, source) == [
        (X, "certain"),
        (Y, "certain"),
    ]


def test_a_submodule_that_is_not_there_while_its_package_is_imported(tmp_path: Path) -> None:
    source = "def f():\n try:\n  from . import marker\n except ImportError:\n  return\n import absent\nf()\nfrom . import x\n"
    assert outcome(tmp_path, source) == [(X, "certain")]


@pytest.mark.parametrize(
    ("given", "again"),
    [("unknown", "one.NAME"), ("[unknown]", "[one[0].NAME]"), ("unknown, box()", "one.NAME, *more")],
)
def test_what_calls_itself_with_what_is_not_known(tmp_path: Path, given: str, again: str) -> None:
    """As what goes through a value of any shape (pydantic): each call of its own tells the same, and there are 3**16 of them."""
    calls = "".join(f" if unknown:\n  go({again.replace('NAME', name)})\n" for name in "abc")
    recursion = "def go(one, *more):\n" + " a = 1\n" * 20 + calls
    source = f"class box: ...\n{recursion}def start():\n go({given})\n from . import x\nstart()\n"
    assert outcome(tmp_path, source) == [(X, "certain")]


@pytest.mark.parametrize(
    "source",
    [
        "def go(name):\n if name:\n  go(name[1:])\n else:\n  from . import x\ngo('abc')\n",
        "def go(names):\n for one in names:\n  return go([])\n from . import x\ngo([unknown])\n",
    ],
)
def test_a_call_of_itself_with_other_values_is_followed(tmp_path: Path, source: str) -> None:
    """An empty list is known, and one with something that is not known is another."""
    assert outcome(tmp_path, source) == [(X, "certain")]


def test_a_module_that_may_not_be_imported(tmp_path: Path) -> None:
    """As pyomo, whose function returns something else where the module is not there yet."""
    late = "def late(name):\n if unknown:\n  return None, False\n return load(name)\n"
    load = "def load(name):\n return importlib.import_module(name), True\n"
    write_files(tmp_path, {"other.py": f"import importlib\n{late}{load}found, _ = late('package.x')\n"})
    assert outcome(tmp_path, "from other import found\n") == [(X, "conditional")]
