"""Files that relink ships beside its code."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.system import shipped_files
from relink.system.shipped_files import load_schema, shipped_directory
from tests.support.built import ROOT


@pytest.mark.parametrize("name", ["profiles", "examples/demo"])
def test_a_source_tree_has_them_beside_the_package(name: str) -> None:
    assert shipped_directory(name) == ROOT / name
    assert shipped_directory(name).is_dir()


@pytest.mark.parametrize(
    "name", ["recipe", "report", "settings", "statement", "profile", "rocm/rocm", "rocm/rocm-names"]
)
def test_every_schema_is_found(name: str) -> None:
    assert load_schema(name)["$schema"].startswith("https://json-schema.org/")


def test_an_installed_package_has_them_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "relink" / "_demo").mkdir(parents=True)
    monkeypatch.setattr(shipped_files, "PACKAGE", tmp_path / "relink")
    assert shipped_directory("examples/demo") == tmp_path / "relink" / "_demo"
    assert shipped_directory("profiles") == tmp_path / "profiles"
