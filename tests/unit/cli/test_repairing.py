"""relink repair --in-place and relink DIR as commands; repair of an installed wheel is in tests/unit/install."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from relink.cli.installing import install_options
from relink.cli.options import SandboxMode
from relink.trees.journal import place_of
from tests.support.works import Works
from tests.unit.trees.build import make_vendor_tree, snapshot


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_vendor_tree(tmp_path / "vendor")


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "relink", *map(str, words)], capture_output=True, text=True, check=False
    )


def ran(tree: Path) -> bool:
    return subprocess.run([tree / "bin/driver"], capture_output=True, check=False).stdout == b"ran\n"


def test_a_tree_that_has_all_it_needs(tree: Path, tmp_path: Path) -> None:
    """Broken before, works after one command, also where it is moved to; and is what it was after the undo."""
    before = snapshot(tree)
    assert not ran(tree)
    done = command(tree, "--report", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert "was changed in place" in done.stdout
    assert "$ORIGIN/../core/lib" in done.stdout
    assert ran(tree)
    tree.rename(tmp_path / "moved")
    assert ran(tmp_path / "moved")
    (tmp_path / "moved").rename(tree)
    changed = {name for name, facts in snapshot(tree).items() if facts[3] != before[name][3]}
    assert changed == {"mod/m.so", "bin/driver"}
    undone = command("repair", tree, "--in-place", "--undo")
    assert undone.returncode == 0, undone.stderr
    assert snapshot(tree) == before
    assert not place_of(tree).exists()


def test_memory_is_bounded_as_for_a_wheel(tree: Path) -> None:
    refused = command("repair", tree, "--in-place", "--max-memory", "255")
    assert (refused.returncode, "255" in refused.stderr) == (2, True)
    assert command("repair", tree, "--in-place", "--max-memory", "300").returncode == 0
    assert ran(tree)


@pytest.mark.parametrize(("given", "taken"), [(None, None), (300, 300 << 20)])
def test_memory_of_a_run_that_installs(given: int | None, taken: int | None) -> None:
    options = install_options(
        None, Path(), preload_known=True, profile=None, max_memory=given, sandbox=SandboxMode.auto
    )
    assert options.max_memory == taken


@pytest.mark.slow(reason="makes an environment and installs into it")
def test_an_installed_distribution_in_place(works: Works, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "-q",
        "--disable-pip-version-check",
        "--python",
        str(python),
        "install",
        "--no-index",
    ]
    subprocess.run([*pip, "--no-deps", "--no-compile", works.small(tmp_path / "in")], check=True)
    (site,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    shutil.copy(works.library, site / "another.so")
    before = snapshot(site)
    words = ("repair", "demo", "--in-place", "--python", python)
    done = command(*words, "--prefix", works.prefix)
    assert done.returncode == 0, done.stderr
    changed = {name for name, facts in snapshot(site).items() if facts[3] != before[name][3]}
    assert changed == {"demo/a.so", "demo-1.0.dist-info/RECORD"}
    undone = command(*words, "--undo")
    assert undone.returncode == 0, undone.stderr
    assert snapshot(site) == before


def test_a_tree_that_another_program_keeps(tree: Path) -> None:
    (tree / "conda-meta").mkdir()
    (tree / "conda-meta/history").touch()
    before = snapshot(tree)
    refused = command(tree)
    assert refused.returncode == 2
    assert "kept by conda" in refused.stderr
    assert snapshot(tree) == before
    done = command("repair", tree, "--in-place", "--managed")
    assert done.returncode == 0, done.stderr
    assert ran(tree)


def test_managed_alone(tmp_path: Path) -> None:
    assert "--managed goes with --in-place" in command("repair", tmp_path, "--managed").stderr


def test_a_directory_of_sources_is_not_changed_by_mistake(tree: Path) -> None:
    (tree / "pyproject.toml").touch()
    before = snapshot(tree)
    refused = command(tree)
    assert refused.returncode == 2
    assert "is a directory with sources" in refused.stderr
    assert snapshot(tree) == before
    assert command("repair", tree, "--in-place").returncode == 0
    assert ran(tree)


def test_a_statement_of_a_tree(tree: Path, tmp_path: Path) -> None:
    before = snapshot(tree)
    assert "a tree that is changed in place has none" in command(tree, "--statement", tmp_path / "s").stderr
    assert snapshot(tree) == before
