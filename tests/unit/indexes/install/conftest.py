from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pip
import pytest

from tests.support.cc import shared
from tests.support.outside import OFFLINE
from tests.support.wheels import make_wheel
from tests.support.works import TAG

Tree = dict[str, str]
VENDOR = "-Wl,-rpath,/opt/rocm-of-the-vendor/lib"
HERE = "-Wl,-rpath,$ORIGIN"
USES = "extern int blas(void); int uses(void){return blas();}"


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
        venv.create(directory, symlinks=True)
        if with_pip:
            (site_of(directory) / "pip").symlink_to(Path(pip.__file__).parent)
        return directory

    return make


@pytest.fixture
def rocm(tmp_path: Path) -> Path:
    """A prefix with a HIP runtime and rocBLAS, which finds it beside itself."""
    hip = shared(tmp_path / "rocm/lib/libamdhip64.so.7", "int hip(void){return 7;}")
    shared(
        tmp_path / "rocm/lib/librocblas.so.5",
        "extern int hip(void); int blas(void){return hip();}",
        needed=[hip],
        flags=[HERE],
    )
    return tmp_path / "rocm"


@pytest.fixture
def gpu(rocm: Path, index: Path, tmp_path: Path) -> Path:
    """The vendor's wheel, whose library needs rocBLAS."""
    library = shared(tmp_path / "gpu.so", USES, needed=[rocm / "lib/librocblas.so.5"], flags=[VENDOR])
    return make_wheel(index, {"gpu/__init__.py": b"", "gpu/a.so": library}, name="gpu", tag=TAG)


@pytest.fixture(params=["uv", "pip"])
def environment(request: pytest.FixtureRequest, make_environment: Callable[..., Path]) -> Path:
    """A virtual environment that has no pip, so that uv installs, and one that has it."""
    return make_environment(with_pip=request.param == "pip")


def site_of(environment: Path) -> Path:
    return environment / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"


def python_of(environment: Path) -> Path:
    return environment / "bin" / "python"


def pip_install(environment: Path, *words: str | Path) -> None:
    """Install as a user does, with the pip of the tests."""
    command = [sys.executable, "-m", "pip", "-q", "--python", str(python_of(environment)), "install"]
    subprocess.run([*command, *map(str, words)], check=True)


def put(environment: Path, *words: str | Path) -> None:
    """Install with uv, which takes a twentieth of pip's time: where it does not matter who has installed."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    assert uv
    command = [uv, "pip", "install", "--quiet", f"--python={python_of(environment)}"]
    subprocess.run([*command, *map(str, words)], check=True)


def tree(environment: Path) -> Tree:
    """The SHA-256 of every file that is installed, by path: not of pip, which is a link here, and not of uv's lock (empty)."""
    return {
        str(path.relative_to(environment)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(environment.rglob("*"))
        if path.is_file() and not path.is_symlink() and path != environment / ".lock"
    }
