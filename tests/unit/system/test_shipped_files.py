"""Files that relink ships beside its code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from relink.system import shipped_files
from relink.system.shipped_files import COMMIT, load_schema, shipped_directory, source_commit
from tests.support.built import ROOT


@pytest.mark.parametrize("name", ["profiles", "examples/demo"])
def test_a_source_tree_has_them_beside_the_package(name: str) -> None:
    assert shipped_directory(name) == ROOT / name
    assert shipped_directory(name).is_dir()


@pytest.mark.parametrize("name", ["recipe", "report", "settings", "profile", "rocm/rocm", "rocm/rocm-names"])
def test_every_schema_is_found(name: str) -> None:
    assert load_schema(name)["$schema"].startswith("https://json-schema.org/")


def test_an_installed_package_has_them_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "relink" / "_demo").mkdir(parents=True)
    monkeypatch.setattr(shipped_files, "PACKAGE", tmp_path / "relink")
    assert shipped_directory("examples/demo") == tmp_path / "relink" / "_demo"
    assert shipped_directory("profiles") == tmp_path / "profiles"


def test_the_commit_is_that_of_the_checkout_or_of_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "checkout/relink"
    package.mkdir(parents=True)
    monkeypatch.setattr(shipped_files, "PACKAGE", package)
    assert source_commit() is None
    file = package / "a.py"
    file.write_text("1\n")
    identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "a"), ("tag", "v9.9.9")):
        subprocess.run(["git", "-C", package.parent, *words], check=True)
    asked = ["git", "-C", str(package.parent), "rev-parse", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=True).stdout[:12]
    assert source_commit() == commit
    file.write_text("2\n")
    assert source_commit() == f"{commit}-dirty"
    (package / COMMIT).write_text("1a2b3c4d5e6f\n")
    assert source_commit() == "1a2b3c4d5e6f"


def test_a_machine_without_git_tells_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(shipped_files, "PACKAGE", tmp_path / "relink")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert source_commit() is None
