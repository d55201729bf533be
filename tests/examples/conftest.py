"""What the examples work on: real wheels, a real ROCm, and a directory beside a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.conftest import bitsandbytes_wheel, jax_plugin_wheel, small_prefix
from tests.support.built import ROOT

__all__ = ["beside", "bitsandbytes_wheel", "environment", "jax_plugin_wheel", "linked", "small_prefix"]


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """Return an empty directory that has the checkout beside it as ``../relink``."""
    (tmp_path / "relink").symlink_to(ROOT)
    (tmp_path / "try").mkdir()
    return tmp_path / "try"


@pytest.fixture
def environment() -> dict[str, str]:
    """Return an environment in which ``relink``, ``python`` and ``pip`` are those that run the tests."""
    own = os.path.dirname(sys.executable)
    given = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR")}
    return given | {
        "PATH": f"{own}:{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def linked(prefix: Path, place: Path) -> None:
    """Put a copy of a prefix at `place`: of links to the same files where the file system has both."""
    done = subprocess.run(["cp", "-al", str(prefix), str(place)], capture_output=True, check=False)
    if done.returncode:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(prefix, place, symlinks=True)
