"""The functions of importlib, pkgutil and runpy; test_known has those of importlib.util and of metadata."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.python.test_evaluation import X, outcome

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
