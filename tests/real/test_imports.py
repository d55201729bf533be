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
    outcomes = [*measure(build(tmp_path / "environment", PACKAGES), set(PACKAGES))]
    if not outcomes:
        pytest.skip("no package could be installed")
    assert {outcome.package for outcome in outcomes} == set(PACKAGES)
    assert [outcome for outcome in outcomes if bool(outcome.error) != bool(outcome.predicted_error)] == []
    assert [
        name for outcome in outcomes for name in (*outcome.missed, *outcome.invented) if "/" in name
    ] == []
