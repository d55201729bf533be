"""relink's command line in the process of a test: the fixture `run`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from relink import cli

__all__ = ["Run", "run"]

Run: TypeAlias = Callable[..., tuple[int, str, str]]
"""Words of a command to (exit code, standard output, standard error)."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """relink with these words, in this process: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)  # the default output directory
    modules = ("ROCM_PATH", "CRAY_ROCM_PREFIX", "CRAY_ROCM_DIR", "LOADEDMODULES")
    for name in ("FORCE_COLOR", "RELINK_DEBUG", "SOURCE_DATE_EPOCH", "COLUMNS", *modules):
        monkeypatch.delenv(name, raising=False)

    def go(*words: str | Path) -> tuple[int, str, str]:
        arguments = [str(word) for word in words]
        monkeypatch.setattr(sys, "argv", ["relink", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        code = end.value.code
        captured = capsys.readouterr()
        return (code if isinstance(code, int) else 0), captured.out, captured.err

    return go
