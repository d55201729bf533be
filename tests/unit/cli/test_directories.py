"""`relink DIR -o NEWDIR` as a command; what the copy is like is in tests/unit/trees."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import forking
from tests.unit.runs.build_trees import make_vendor_tree, snapshot


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_vendor_tree(tmp_path / "vendor")


def ran(tree: Path) -> bool:
    return subprocess.run([tree / "bin/driver"], capture_output=True, check=False).stdout == b"ran\n"


def test_a_tree_that_has_all_it_needs(tree: Path, tmp_path: Path) -> None:
    before = snapshot(tree)
    assert not ran(tree)
    done = forking.run(tree, "-o", tmp_path / "new", "--report", tmp_path / "page.html")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-2] == f"{tmp_path / 'new'} is the relinked copy; {tree} is as it was."
    assert "$ORIGIN/../core/lib" in done.stdout
    assert "pip install" not in done.stdout
    assert (tmp_path / "page.html").exists()
    assert ran(tmp_path / "new")
    assert snapshot(tree) == before


def test_nothing_is_said_of_a_copy_that_is_not_there(tree: Path, tmp_path: Path) -> None:
    done = forking.run(tree, "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert "relinked copy" not in done.stdout
    assert forking.run(tree, "-o", tmp_path / "new", "--quiet").stdout == ""


def test_memory_is_bounded_as_for_a_wheel(tree: Path, tmp_path: Path) -> None:
    refused = forking.run(tree, "-o", tmp_path / "new", "--max-memory", "255")
    assert (refused.returncode, "255" in refused.stderr) == (2, True)
    assert forking.run(tree, "-o", tmp_path / "new", "--max-memory", "300").returncode == 0
    assert ran(tmp_path / "new")


def test_what_cannot_be_asked_for(tree: Path, tmp_path: Path) -> None:
    before = snapshot(tree)
    wheel = tmp_path / "demo-1.0-py3-none-any.whl"
    new = tmp_path / "new"
    for words, reason in {
        (tree,): "its relinked copy has no name; name by --output a directory that does not exist",
        (tree, "-o", tmp_path): "is there already",
        (tree, wheel, "-o", new): "a directory is relinked alone",
        (
            tree,
            "-o",
            new,
            "--no-verify-record",
            "--compress",
            "small",
        ): "--compress, --no-verify-record: for wheels",
    }.items():
        done = forking.run(*words)
        assert (done.returncode, reason in done.stderr) == (2, True), done.stderr
    (tree / "pyproject.toml").touch()
    done = forking.run(tree, "-o", new)
    assert (done.returncode, "is a directory with sources" in done.stderr) == (2, True)
    (tree / "pyproject.toml").unlink()
    assert not new.exists()
    assert {name: facts[6] for name, facts in snapshot(tree).items()} == {
        name: facts[6] for name, facts in before.items()
    }
