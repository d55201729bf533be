"""Processes: against what the Python that runs the tests loads, and sources that cannot be read."""

from __future__ import annotations

import importlib.machinery
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from relink.python.evaluation import Evaluation
from relink.python.facts_cache import FactsCache
from relink.python.modules import Interpreter
from relink.python.process import PythonProcesses
from relink.python.values import Module
from tests.support.python_processes import opened, python_of, read_events, write_files

_LOADED = """
import sys
before = set(sys.modules)
__import__(sys.argv[1])
print(*(m.__file__ for n, m in sys.modules.items() if n not in before and getattr(m, "__file__", None)), sep="\\n")
"""


def this_python() -> Interpreter:
    paths = sysconfig.get_paths()
    return Interpreter(
        program=sys.executable,
        version=sys.version_info[:2],
        suffixes=tuple(importlib.machinery.EXTENSION_SUFFIXES),
        path=tuple(path for path in sys.path if path.startswith(sys.base_prefix)),
        site_packages=(),
        standard=(paths["stdlib"],),
        builtins=frozenset(sys.builtin_module_names),
        prefix=sys.prefix,
    )


@pytest.mark.few(2, reason="the same of other values")
@pytest.mark.parametrize("name", ["ssl", "lzma", "sqlite3", "decimal", "hashlib", "uuid"])
def test_the_extensions_of_the_standard_library(name: str) -> None:
    python = this_python()
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _LOADED, name], capture_output=True, text=True, check=True
    )
    expected = {file for file in run.stdout.splitlines() if file.endswith(".so")}
    events = PythonProcesses(python, cache=FactsCache(None), variables={}).read_import(name)
    assert {event.name for event in events.events if event.kind == "extension"} == expected
    assert events.failure is None


def test_one_source_is_read_once_for_all_imports(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.py": "import c\n", "b.py": "import c\n", "c.so": ""})
    processes = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables={})
    assert [opened(processes.read_import(name), tmp_path) for name in ("a", "b", "a")] == [
        [("c.so", "certain")]
    ] * 3
    assert processes.read_import("absent").failure == "ModuleNotFoundError: No module named 'absent'"


def test_what_comes_to_no_refused_dlopen_is_followed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What imports a module that does is followed again; what only a handler imports is there for later imports."""
    opens = "import ctypes\nctypes.CDLL('lib{}.so')\n"
    sources = {
        "plain/__init__.py": opens.format("plain"),
        "plain/inside.py": "import plain.below\n",
        "plain/below.py": opens.format("below"),
        "own/__init__.py": "try:\n from own import _ext\n FAST = 1\nexcept ImportError:\n import plain.inside\n FAST = 0\n",
        "own/_ext.so": "",
        "user.py": f"import plain, own\nif not own.FAST:\n    {opens.format('slow')!r}\n    import slow\n",
        "slow.py": opens.format("slow"),
        "later.py": "from plain import inside\n",
    }
    write_files(tmp_path, sources)
    followed: list[str] = []
    follow = Evaluation.follow_module

    def follow_noted(evaluation: Evaluation, module: Module) -> Module:
        followed.append(module.name)
        return follow(evaluation, module)

    monkeypatch.setattr(Evaluation, "follow_module", follow_noted)
    processes = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables={})
    assert opened(processes.read_import("user"), tmp_path) == [
        ("libplain.so", "certain"),
        ("own/_ext.so", "guarded"),
    ]
    refused = frozenset({f"{tmp_path}/own/_ext.so"})
    names = [name for name, _ in opened(processes.read_import("user", refused), tmp_path)]
    assert names == ["libplain.so", "own/_ext.so", "libbelow.so", "libslow.so"]
    assert opened(processes.read_import("later"), tmp_path) == [
        ("libplain.so", "certain"),
        ("libbelow.so", "certain"),
    ]
    assert {name: followed.count(name) for name in ("plain", "plain.below", "own", "user")} == {
        "plain": 1,
        "plain.below": 1,
        "own": 2,
        "user": 2,
    }


def test_a_handler_is_followed_where_the_dlopen_is_refused(tmp_path: Path) -> None:
    """Which dlopen ends the import is said; a module of which one was refused fails for whoever imports it."""
    write_files(
        tmp_path,
        {
            "way.py": "try:\n import a\nexcept ImportError:\n import b\n",
            "ended.py": "try:\n import way\nexcept ValueError:\n pass\nimport c\n",
            "a.so": "",
            "b.so": "",
            "c.so": "",
        },
    )
    processes = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables={})
    first, second = str(tmp_path / "a.so"), str(tmp_path / "b.so")
    assert opened(processes.read_import("way"), tmp_path) == [("a.so", "guarded")]
    assert opened(processes.read_import("way", frozenset({first})), tmp_path) == [
        ("a.so", "guarded"),
        ("b.so", "certain"),
    ]
    for name in ("way", "ended"):
        events = processes.read_import(name, frozenset({first, second}))
        assert (events.opening, opened(events, tmp_path)) == (
            first,
            [("a.so", "guarded"), ("b.so", "certain")],
        )
    assert processes.read_import("ended").failure is None


def test_imports_are_followed_in_a_limited_address_space(tmp_path: Path) -> None:
    """A stack for many imports inside of each other has no room there."""
    write_files(tmp_path, {"package.py": "import x\n", "x.so": ""})
    code = f"""
import resource
from pathlib import Path
from tests.support.python_processes import opened, read_events
resource.setrlimit(resource.RLIMIT_AS, (400 << 20, resource.RLIM_INFINITY))
print(opened(read_events(Path({str(tmp_path)!r}), "package"), Path({str(tmp_path)!r})))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (run.stdout, run.stderr) == ("[('x.so', 'certain')]\n", "")


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    write_files(tmp_path, {"user.py": "import newer\nimport large\nimport compiled\nimport x\n", "x.so": ""})
    write_files(
        tmp_path, {"newer.py": "match = [\n", "large.py": b"x = 1\n" * (1 << 20), "compiled.pyc": b""}
    )
    events = read_events(tmp_path, "user")
    told = [event.name.removeprefix(f"{tmp_path}/") for event in events.events if event.kind == "unknown"]
    assert [text.partition(" (")[0] for text in told] == [
        "newer.py: not of this Python's grammar",
        "large.py: [Errno 27] larger than 4 MiB: '" + str(tmp_path / "large.py") + "'",
        "compiled.pyc: bytecode without its source",
    ]
    assert opened(events, tmp_path) == [("x.so", "certain")]


def test_who_imports_an_extension_is_named(tmp_path: Path) -> None:
    write_files(tmp_path, {"user.py": "\n\nimport x\n", "x.so": ""})
    (event,) = (event for event in read_events(tmp_path, "user").events if event.kind == "extension")
    assert (event.module, event.file, event.line) == ("user", str(tmp_path / "user.py"), 3)


def test_what_runs_before_the_first_line_of_a_program(tmp_path: Path) -> None:
    """The executed lines of .pth files, each file up to the line that fails, then sitecustomize; no failure ends anything."""
    files = {
        "b.pth": "src\nimport hook; hook.install()\n",
        "a.pth": "# import never\n import never\nimport first\nimport absent\nimport never\n",
        ".hidden.pth": "import never\n",
        "hook.py": "import lib\ndef install():\n    import installed\n",
        "site.py": "def execsitecustomize():\n    try:\n        import sitecustomize\n    except Exception: ...\n",
        "sitecustomize.py": "import custom\nraise OSError\n",
        "user.py": "import lib",
        **{f"{name}.so": "" for name in ("first", "lib", "installed", "custom", "never")},
    }
    write_files(tmp_path, files)
    processes = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables={})
    start = [event for event in processes.read_start() if event.kind == "extension"]
    expected = ["first.so", "lib.so", "installed.so", "custom.so"]
    assert [(Path(event.name).name, event.when) for event in start] == [
        (name, "guarded") for name in expected
    ]
    assert [(Path(event.file).name, event.line) for event in start] == [
        ("a.pth", 3), ("hook.py", 1), ("hook.py", 3), ("sitecustomize.py", 1),
    ]  # fmt: skip
    # What a package imports itself is its own, whatever was there before.
    assert opened(processes.read_import("user"), tmp_path) == [("lib.so", "certain")]


@pytest.mark.parametrize("is_environment", [True, False])
def test_a_function_in_the_place_of_one_of_site(tmp_path: Path, is_environment: bool) -> None:
    """As pip_system_certs does it: where there is a user's directory, the last function is that of usercustomize."""
    site = tmp_path / "site"
    hook = (
        "import site\ndef around(function, is_last):\n    def wrapper():\n        try:\n            return function()\n"
        "        finally:\n            if is_last or not site.ENABLE_USER_SITE:\n                import lib\n            else:\n"
        "                import other\n    return wrapper\ndef install():\n"
        "    site.execsitecustomize = around(site.execsitecustomize, False)\n"
        "    site.execusercustomize = around(site.execusercustomize, True)\n"
    )
    names = "def execsitecustomize(): ...\ndef execusercustomize(): ...\nENABLE_USER_SITE = made()\n"
    files = {"a.pth": "import hook; hook.install()\n", "hook.py": hook, "site.py": names}
    write_files(site, {**files, "lib.so": "", "other.so": ""})
    if is_environment:
        (tmp_path / "pyvenv.cfg").touch()
    processes = PythonProcesses(python_of(site), cache=FactsCache(None), variables={})
    start = [Path(event.name).name for event in processes.read_start() if event.kind == "extension"]
    assert start == (["lib.so"] if is_environment else ["other.so", "lib.so"])


def test_an_editable_package_of_scikit_build_core(tmp_path: Path) -> None:
    """Its finder is asked first: the sources lie elsewhere, and beside the finder a directory with the extension alone."""
    site, project = tmp_path / "site", tmp_path / "project"
    write_files(project, {"pkg/__init__.py": "from . import core"})
    finder = f"""import sys
class Finder:
    def __init__(self, sources, built):
        self.known_source_files = sources
        self.known_wheel_files = built
def install(sources, built):
    for finder in sys.meta_path:
        if finder.known_source_files == sources:
            return
    sys.meta_path.insert(0, Finder(sources, built))
install({{"pkg": "{project}/pkg/__init__.py"}}, {{"pkg.core": "pkg/core.so"}})
"""
    write_files(site, {"_editable.py": finder, "_editable.pth": "import _editable", "pkg/core.so": ""})
    processes = PythonProcesses(python_of(site), cache=FactsCache(None), variables={})
    processes.read_start()
    assert opened(processes.read_import("pkg"), site) == [("pkg/core.so", "certain")]


def test_editable_packages_of_a_finder_of_setuptools(tmp_path: Path) -> None:
    """MAPPING has a package and a module; what site-packages has comes first, and a name that it lacks is not there."""
    site, project = tmp_path / "site", tmp_path / "project"
    write_files(
        project, {"src/pkg/__init__.py": "", "src/pkg/core.so": "", "one.py": "import lib", "both.py": ""}
    )
    mapping = {name: f"{project}/{name}" for name in ("one", "both", "gone")} | {"pkg": f"{project}/src/pkg"}
    finder = f"import sys\nMAPPING: dict = {mapping!r}\ndef install():\n    sys.meta_path.append(object)\n"
    files = {
        "__editable__.p-1.pth": "import __editable___p; __editable___p.install()",
        "__editable___p.py": finder,
    }
    user = "import pkg.core\nimport one\nimport both\ntry:\n    import gone\nexcept ImportError:\n    import without\n"
    write_files(site, {**files, "user.py": user, "both.so": "", "lib.so": "", "without.so": ""})
    processes = PythonProcesses(python_of(site), cache=FactsCache(None), variables={})
    processes.read_start()
    expected = [str(project / "src/pkg/core.so"), "lib.so", "both.so", "without.so"]
    assert [name for name, _ in opened(processes.read_import("user"), site)] == expected
