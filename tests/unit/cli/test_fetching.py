"""cli.fetching: `relink fetch` without an index; tests/unit/indexes/install/test_fetching.py has the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import Run


def test_offline_with_an_empty_cache(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code, out, error = run("fetch", "demo==1.0", "--offline", "-o", tmp_path / "out")
    assert (code, out) == (2, "")
    assert "demo==1.0" in error
    assert not (tmp_path / "out").exists()
