"""A program that is asked: its answer, or why there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from relink.system.programs import NoAnswerError, ask_program


def test_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read from the terminal, and no variable loads code into it; that it failed is told by its exit code."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "import os, sys; print(os.getcwd(), os.environ.get('PYTHONPATH'), sys.stdin.read()); sys.exit(3)"
    run = ask_program([sys.executable, "-c", code], directory=str(tmp_path))
    assert (run.returncode, run.stdout) == (3, f"{tmp_path.resolve()} None \n")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["/nowhere/program"], "cannot be run (No such file or directory)"),
        (["a\0b"], "cannot be run (embedded null byte)"),
        (["sleep", "9"], "gave no answer in 0.1 s"),
    ],
)
def test_no_answer(command: list[str], why: str) -> None:
    with pytest.raises(NoAnswerError) as caught:
        ask_program(command, timeout=0.1)
    assert caught.value.message == why
