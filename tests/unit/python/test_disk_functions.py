"""The functions that ask for files: each against a directory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from relink.python.events import Event
from relink.python.facts_cache import FactsCache
from relink.python.process import PythonProcesses
from relink.python.values import UNKNOWN
from tests.support.python_processes import opened, python_of, read_events, write_files
from tests.unit.python.test_evaluation import OPEN, X, outcome


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("posixpath.exists", ["TOP/a.so"], True),
        ("posixpath.exists", [PurePosixPath("TOP/b.so")], False),
        ("posixpath.exists", ["relative"], False),
        ("posixpath.exists", [UNKNOWN], UNKNOWN),
        ("posixpath.isdir", ["TOP"], True),
        ("posixpath.expanduser", ["~/a"], "TOP/home/a"),
        ("posixpath.expanduser", ["~"], "TOP/home"),
        ("posixpath.expanduser", ["~other/a"], UNKNOWN),
        ("path.read_text", ["TOP/a.so"], "text"),
        ("glob.iglob", ["TOP/*.so"], ["TOP/a.so"]),
        ("glob.glob", ["TOP/*/*.so"], UNKNOWN),
        ("glob.glob", ["TOP/**/b"], ["TOP/deep/b"]),
        ("path.rglob", [PurePosixPath("TOP"), "*.so"], [PurePosixPath("TOP/a.so")]),
        ("os.access", ["TOP/a.so", 4], True),
        ("builtins.open", ["TOP/a.so", "w"], UNKNOWN),
        ("builtins.open", ["/proc/self/maps"], UNKNOWN),
        ("path.read_text", ["/sys/../proc/self/maps"], UNKNOWN),
        ("os.stat", ["TOP/a.so"], UNKNOWN),
        ("os.listdir", ["TOP"], ["a.so", "deep"]),
        ("os.walk", ["TOP"], [("TOP", ["deep"], ["a.so"]), ("TOP/deep", [], ["b"])]),
        ("os.walk", ["TOP/absent"], []),
    ],
)
def test_results(tmp_path: Path, name: str, arguments: list[Any], expected: Any) -> None:
    top = tmp_path / "top"
    (top / "deep").mkdir(parents=True)
    (top / "a.so").write_text("text")
    (top / "deep/b").write_text("")

    def placed(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(placed, value))
        if isinstance(value, str | PurePosixPath):
            return type(value)(str(value).replace("TOP", str(top)))
        return value

    variables = {"HOME": f"{top}/home"}
    evaluation = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables=variables).evaluation
    found = evaluation.known[name](evaluation, placed(arguments), {})
    assert (sorted(found) if name == "os.listdir" else found) == placed(expected)


def test_a_walk_of_many_directories_is_not_followed(tmp_path: Path) -> None:
    for number in range(201):
        (tmp_path / str(number)).mkdir()
    evaluation = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables={}).evaluation
    assert evaluation.known["os.walk"](evaluation, [str(tmp_path)], {}) is UNKNOWN


READ = {
    "for": "for name in open(here + '/names'):\n load(name.strip())",
    "with": "with open(here + '/names') as file:\n load(file.read().strip())",
    "lines": "load(open(here + '/names').readlines()[0].strip())",
    "json": "import json\nwith open(here + '/names.json') as file:\n load(json.load(file)['name'])",
    "exec": "exec(compile(open(here + '/code').read(), 'code', 'exec'))",
    "scan": "for one in os.scandir(here):\n if one.is_file() and one.name == 'x.so':\n  ctypes.CDLL(one.path)",
    "chdir": "os.chdir(os.path.dirname(here))\nctypes.CDLL('package/x.so')",
    "modules": "import pkgutil\nfor one in pkgutil.iter_modules(__path__, 'package.'):\n if one.name == 'package.x':\n"
    "  __import__(one.name)",
    "unpacked": "import pkgutil\nfor _, name, below in pkgutil.iter_modules(__path__):\n if name == 'x' and not below:\n"
    "  load('x')",
    "stat": "try:\n os.stat(here + '/absent')\nexcept OSError:\n load('x')",
}


@pytest.mark.parametrize("way", READ)
def test_what_a_source_reads_decides_what_it_loads(tmp_path: Path, way: str) -> None:
    files = {"names": "x\n", "names.json": '{"name": "x"}', "code": "def f():\n load('x')\nf()\n"}
    write_files(tmp_path, {f"package/{name}": text for name, text in files.items()})
    write_files(
        tmp_path,
        {"json.py": "def loads(text): ...\ndef load(file): ...\n", "pkgutil.py": "def iter_modules(): ...\n"},
    )
    source = OPEN + "def load(name):\n __import__('package.' + name)\n" + READ[way]
    assert outcome(tmp_path, source) == [(X, "certain")]


def test_a_file_that_is_not_there_ends_the_import(tmp_path: Path) -> None:
    assert outcome(tmp_path, OPEN + "open(here + '/absent')\nfrom . import x\n") == []
    assert read_events(tmp_path, "package").failure == f"FileNotFoundError: {tmp_path}/package/absent"


def test_what_a_process_has_mapped_is_listed_a_few_times(tmp_path: Path) -> None:
    """Each time all dlopens so far are simulated: a source may ask without end."""
    asked: list[int] = []

    def list_mapped(events: Iterable[Event]) -> list[str]:
        asked.append(len([*events]))
        return ["/lib/libone.so"]

    ask = "open('/proc/self/maps').read()"
    source = OPEN + f"if 'libone.so' in {ask} and 'libtwo.so' not in {ask}:\n from . import x\n"
    write_files(
        tmp_path, {"package/__init__.py": source + f"for _ in range(200):\n {ask}\n", "package/x.so": ""}
    )
    processes = PythonProcesses(
        python_of(tmp_path), cache=FactsCache(None), variables={}, list_mapped=list_mapped
    )
    assert opened(processes.read_import("package"), tmp_path) == [(X, "certain")]
    assert len(asked) == 50
