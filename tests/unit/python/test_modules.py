"""Where a module lies: the answers of importlib's own finders, over generated directories."""

from __future__ import annotations

import importlib.machinery
import random
from pathlib import Path

import pytest

from relink.python.modules import Disk, find_module
from tests.support.python_processes import python_of

NAMES = (
    "a.py",
    "a.so",
    "a.abi3.so",
    "a.cpython-311-x86_64-linux-gnu.so",
    "a.cpython-27m.so",
    "a.pyc",
    "a.txt",
)


@pytest.mark.parametrize("seed", range(60))
def test_the_finder_agrees_with_that_of_python(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    directories = [tmp_path / name for name in ("one", "two", "three")]
    for directory in directories:
        directory.mkdir()
        for name in rng.sample(NAMES, rng.randrange(3)):
            (directory / name).write_bytes(b"")
        if rng.random() < 0.5:
            (directory / "a").mkdir()
            for name in rng.sample(
                ("__init__.py", "__init__.abi3.so", "b.py", "__init__.pyc"), rng.randrange(3)
            ):
                (directory / "a" / name).write_bytes(b"")
    python = python_of(tmp_path)
    loaders = [
        (importlib.machinery.ExtensionFileLoader, [*python.suffixes]),
        (importlib.machinery.SourceFileLoader, [".py"]),
        (importlib.machinery.SourcelessFileLoader, [".pyc"]),
    ]
    portions, expected = [], None
    for directory in directories:
        spec = importlib.machinery.FileFinder(str(directory), *loaders).find_spec("a")
        if spec is not None and spec.loader is not None:
            expected = (spec.origin, tuple(spec.submodule_search_locations or ()) or None)
            break
        portions += (spec and spec.submodule_search_locations) or []
    if expected is None and portions:
        expected = ("", tuple(portions))
    found = find_module("a", [*map(str, directories)], python, Disk())
    assert (found and (found.file, found.search)) == expected


def test_a_builtin_module_comes_first(tmp_path: Path) -> None:
    (tmp_path / "sys.py").write_text("")
    found = find_module("sys", [str(tmp_path)], python_of(tmp_path), Disk())
    assert found is not None
    assert found.kind == "builtin"


def test_a_search_path_without_end_is_not_followed(tmp_path: Path) -> None:
    """Sources may add any number of directories, and import any number of modules after that."""
    (tmp_path / "a.py").write_text("")
    python, absent = python_of(tmp_path), ["/absent"]
    assert find_module("a", [None, *absent * 100, str(tmp_path)], python, Disk()) is not None
    assert find_module("a", [*absent * 1000, str(tmp_path)], python, Disk()) is None


def test_members_of_a_wheel_lie_over_the_disk(tmp_path: Path) -> None:
    site = str(tmp_path)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "a.py").write_text("")
    disk = Disk({f"{site}/package/__init__.py": lambda: b"import b", f"{site}/other/c.so": lambda: b""})
    assert disk.names(f"{site}/package") == {"a.py": False, "__init__.py": False}
    assert disk.is_directory(f"{site}/other")
    assert disk.exists(f"{site}/other/c.so")
    assert not disk.exists(f"{site}/other/d.so")
    assert not disk.exists("/\0")
    assert disk.read(f"{site}/package/__init__.py", 100) == b"import b"
    found = find_module("package", [site], python_of(tmp_path), disk)
    assert found is not None
    assert found.search == (f"{site}/package",)


def test_a_link_that_leads_nowhere_is_no_module(tmp_path: Path) -> None:
    (tmp_path / "one.so").symlink_to("absent")
    (tmp_path / "one.py").write_text("")
    spec = find_module("one", [str(tmp_path)], python_of(tmp_path), Disk())
    assert spec is not None
    assert spec.kind == "source"
