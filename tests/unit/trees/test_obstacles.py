"""trees.obstacles: when a directory is not exchanged in one step, and that asking changes nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from relink.trees.obstacles import exchange_names, mounts_at, obstacle
from tests.unit.trees.build import snapshot


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree/sub dir").mkdir(parents=True)
    (tmp_path / "tree/file").write_text("x")
    (tmp_path / "place").mkdir()
    return tmp_path / "tree"


def test_nothing_is_in_the_way_and_nothing_changes(tree: Path, tmp_path: Path) -> None:
    before = snapshot(tree), tree.stat().st_mtime_ns
    assert obstacle(tree, tmp_path / "place") is None
    assert (snapshot(tree), tree.stat().st_mtime_ns) == before
    assert os.listdir(tmp_path / "place") == []


def test_two_directories_exchange_their_names(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    (one / "1").mkdir(parents=True)
    other.mkdir()
    exchange_names(one, other)
    assert (os.listdir(one), os.listdir(other)) == ([], ["1"])
    with pytest.raises(FileNotFoundError):
        exchange_names(one, tmp_path / "missing")


@pytest.mark.parametrize("folder", ["", "sub dir"])
def test_a_process_that_works_in_it(tree: Path, tmp_path: Path, folder: str) -> None:
    with subprocess.Popen(["sleep", "60"], cwd=tree / folder) as process:
        found = obstacle(tree, tmp_path / "place")
        process.kill()
    assert found == f"process {process.pid} (sleep) has its working directory in it"


MOUNTS = """
import subprocess, sys
from pathlib import Path
from relink.trees.obstacles import obstacle
tree, point, place = map(Path, sys.argv[1:])
subprocess.run(["mount", "--bind", "/usr", point], check=True)
print(obstacle(tree, place))
"""


@pytest.mark.parametrize("folder", ["", "sub dir"])
def test_a_mount(tree: Path, tmp_path: Path, folder: str) -> None:
    """A bind mount in a mount namespace of its own, also one whose name the kernel escapes."""
    command = [
        "unshare",
        "-rm",
        sys.executable,
        "-c",
        MOUNTS,
        *map(str, (tree, tree / folder, tmp_path / "place")),
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        pytest.skip(f"no mount namespace can be made here: {run.stderr.strip().splitlines()[-1]}")
    assert run.stdout == f"{tree / folder} is a mount point\n"


def test_all_mounts_below_a_directory() -> None:
    assert "/proc" in mounts_at(Path("/"))
    assert "/proc" in mounts_at(Path("/proc"))


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS])
def test_a_file_system_that_cannot_exchange(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(*_: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("relink.trees.obstacles.exchange_names", refused)
    found = obstacle(tree, tmp_path / "place")
    assert found == f"the file system cannot exchange two directories ({os.strerror(number)})"


def test_what_the_kernel_refuses(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a directory of a lower layer (overlayfs: EXDEV); and a file system that does not keep to rename(2)."""
    real = os.rename

    def refused(*_: Path) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "rename", refused)
    assert "Invalid cross-device link" in str(obstacle(tree, tmp_path / "place"))

    def replacing(source: Path, target: Path) -> None:
        if target.exists():
            (target / "x").rmdir()
        real(source, target)

    before = snapshot(tree)
    monkeypatch.setattr(os, "rename", replacing)
    assert "not empty" in str(obstacle(tree, tmp_path / "place"))
    assert snapshot(tree) == before
