from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pip
import pytest

from tests.support.outside import OFFLINE

Tree = dict[str, str]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of wheels that pip takes for its index, and a cache of its own."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name, value in OFFLINE.items():  # also where a slow test may use the network
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(directory))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    return directory


@pytest.fixture
def make_environment(tmp_path: Path) -> Callable[..., Path]:
    """Make a virtual environment, with the pip of the tests in it or without any; gives its directory."""

    def make(name: str = "venv", *, with_pip: bool = True) -> Path:
        directory = tmp_path / name
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
        if with_pip:
            (site_of(directory) / "pip").symlink_to(Path(pip.__file__).parent)
        return directory

    return make


@pytest.fixture(params=["pip", "uv"])
def environment(request: pytest.FixtureRequest, make_environment: Callable[..., Path]) -> Path:
    """A virtual environment that has pip, and one that has none, so that uv installs."""
    return make_environment(with_pip=request.param == "pip")


def site_of(environment: Path) -> Path:
    return environment / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"


def python_of(environment: Path) -> Path:
    return environment / "bin" / "python"


def pip_install(environment: Path, *words: str | Path) -> None:
    """Install as a user does, with the pip of the tests."""
    command = [sys.executable, "-m", "pip", "-q", "--python", str(python_of(environment)), "install"]
    subprocess.run([*command, *map(str, words)], check=True)


def tree(environment: Path) -> Tree:
    """The SHA-256 of every file that is installed, by path: not of pip, which is a link here, and not of uv's lock (empty)."""
    return {
        str(path.relative_to(environment)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(environment.rglob("*"))
        if path.is_file() and not path.is_symlink() and path != environment / ".lock"
    }
