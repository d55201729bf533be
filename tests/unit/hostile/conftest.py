"""The command line in this process, under the eyes of a hook that sees what is opened for writing."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from relink import cli
from tests.fuzz.watch import watched
from tests.support.works import Works

Run = Callable[..., "Answer"]


@dataclass(frozen=True)
class Answer:
    """What the command said, and what it left in the output directory."""

    code: int
    out: str
    err: str
    left: list[str] = field(default_factory=list)


@pytest.fixture
def run(
    works: Works, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """relink on a wheel, in this process, under the eyes of a hook that sees what is opened for writing."""
    temporary, out = tmp_path / "tmp", tmp_path / "out"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))

    def go(wheel: Path, *words: str, prefix: Path | None = None) -> Answer:
        given = wheel.read_bytes()
        arguments = [str(wheel), "--prefix", str(prefix or works.prefix), "-o", str(out), *words]
        began = time.process_time()
        with watched(tmp_path) as outside, pytest.raises(SystemExit) as end:
            cli.main(arguments)
        assert time.process_time() - began < 10
        said = capsys.readouterr()
        code = end.value.code
        assert isinstance(code, int | None)
        assert "Traceback" not in said.out + said.err
        assert "fault of relink" not in said.err
        assert outside == []
        assert os.listdir(temporary) == []
        assert wheel.read_bytes() == given
        return Answer(code or 0, said.out, said.err, os.listdir(out) if out.exists() else [])

    return go
