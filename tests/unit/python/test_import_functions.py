"""The functions of importlib, pkgutil and runpy; test_known has those of importlib.util and of metadata."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.python_processes import write_files
from tests.unit.python.test_evaluation import X, outcome

ENTRY_POINTS = "from importlib.metadata import entry_points\n"
UTIL = "class LazyLoader: ...\ndef find_spec(name): ...\ndef module_from_spec(spec): ...\n"
LOADER = "from importlib.machinery import ExtensionFileLoader\n"


@pytest.mark.parametrize(
    "source",
    [
        "import runpy\nrunpy.run_path(__file__.replace('__init__', 'other'))",
        "import runpy\nrunpy.run_module('package.other')",
        "import pkgutil\nif pkgutil.get_data('package', 'names.txt').decode().split() == ['x']:\n from . import x",
        LOADER + "ExtensionFileLoader('package.x', __file__.replace('__init__.py', 'x.so')).load_module()",
    ],
)
def test_modules_and_files_by_name(tmp_path: Path, source: str) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/other.py").write_text("from package import x\n")
    (tmp_path / "package/names.txt").write_text("x\n")
    (tmp_path / "runpy.py").write_text("def run_path(p): ...\ndef run_module(m): ...\n")
    (tmp_path / "pkgutil.py").write_text("def get_data(package, name): ...\n")
    (tmp_path / "importlib").mkdir()
    (tmp_path / "importlib/machinery.py").write_text("class ExtensionFileLoader: ...\n")
    assert outcome(tmp_path, source) == [(X, "certain")]


@pytest.mark.parametrize(
    "source",
    [
        "for one in entry_points(group='p.plugins'):\n one.load()",
        "for one in entry_points().select(group='p.plugins'):\n __import__(f'{one.module}')",
        "for one in entry_points().get('p.plugins', ()):\n if one.name == 'good':\n  __import__(one.module)",
        "one, = entry_points(name='good', group='p.plugins')\none.load()",
        "one, = entry_points(value='package.other:Thing.make [extra]')\none.load()",
    ],
)
def test_entry_points(tmp_path: Path, source: str) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/other.py").write_text("from package import x\nclass Thing: ...\n")
    text = "# a plugin\n[console_scripts]\ngood = absent:main\n\n[p.plugins]\ngood = package.other:Thing.make [extra]\n"
    for directory in ("plug_in-1.0.dist-info", "plug_in-2.0.egg-info"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "entry_points.txt").write_text(text)
    (tmp_path / "importlib").mkdir()
    (tmp_path / "importlib/metadata.py").write_text("def entry_points(**params): ...\n")
    assert outcome(tmp_path, ENTRY_POINTS + source) == [(X, "certain")]


def test_of_entry_points_of_another_group_nothing_is_imported(tmp_path: Path) -> None:
    (tmp_path / "a-1.dist-info").mkdir()
    (tmp_path / "a-1.dist-info/entry_points.txt").write_text("[other]\na = package.x\n")
    (tmp_path / "importlib").mkdir()
    (tmp_path / "importlib/metadata.py").write_text("def entry_points(**params): ...\n")
    source = "from importlib.metadata import entry_points\nfor one in entry_points(group='p.plugins'):\n one.load()"
    assert outcome(tmp_path, source) == []


@pytest.mark.parametrize("lazy", [True, False])
def test_a_module_that_is_loaded_when_it_is_asked(tmp_path: Path, lazy: bool) -> None:
    """As cupy.testing, which imports what a bare import of cupy does not."""
    write_files(tmp_path, {"importlib/util.py": UTIL, "package/other.py": "from package import x\n"})
    source = "import importlib.util\nspec = importlib.util.find_spec('package.other')\n"
    source += "spec.loader = importlib.util.LazyLoader(spec.loader)\n" * lazy
    source += "module = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(module)\n"
    assert outcome(tmp_path, source) == ([] if lazy else [(X, "certain")])


def test_more_entry_points_than_are_followed(tmp_path: Path) -> None:
    (tmp_path / "a-1.dist-info").mkdir()
    lines = "".join(f"a{number} = package.x\n" for number in range(3_000))
    (tmp_path / "a-1.dist-info/entry_points.txt").write_text(f"[p.plugins]\n{lines}")
    write_files(tmp_path, {"importlib/metadata.py": "def entry_points(**params): ...\n"})
    source = ENTRY_POINTS + "for one in entry_points(group='p.plugins'):\n one.load()\n"
    assert outcome(tmp_path, source) == []
