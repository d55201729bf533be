"""What popular packages map when they are imported, against what relink predicts; their code runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.imports import build, measure

PACKAGES = ("numpy", "pillow", "lxml", "cryptography", "h5py", "pydantic-core", "zstandard", "pyodbc")


@pytest.mark.network
def test_imports_are_predicted(tmp_path: Path) -> None:
    if shutil.which("uv") is None:
        pytest.skip("uv is not on PATH; `make ready` puts it into .venv/bin")
    build(tmp_path / "environment", PACKAGES)
    outcomes = {outcome.package: outcome for outcome in measure(tmp_path / "environment")}
    if not outcomes:
        pytest.skip("no package could be installed")
    assert outcomes.keys() >= {*PACKAGES}
    assert [outcome for outcome in outcomes.values() if outcome.is_wrong] == []
    assert outcomes["pyodbc"].verdict == "fails", "libodbc.so.2 is not here"
    files = (path for name in PACKAGES for path in (*outcomes[name].missed, *outcomes[name].invented))
    assert [path for path in files if "/" in path] == []
