from __future__ import annotations

import sys
from pathlib import Path

import pytest

from relink import cli
from tests.support.command import Run
from tests.support.works import Works, build_works


@pytest.fixture(scope="session")
def works(tmp_path_factory: pytest.TempPathFactory) -> Works:
    return build_works(tmp_path_factory.mktemp("works"))


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
