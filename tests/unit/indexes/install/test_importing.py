"""The import test: what it says of a module that cannot be imported. test_installing.py imports real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.indexes.install.importing import Trial, import_modules


def python_that_fails(directory: Path, *stderr: str, code: str = "exit 1") -> str:
    """A program that prints lines on standard error and ends, as a Python does that cannot import a module."""
    path = directory / "python"
    path.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in stderr) + code + "\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["Traceback (most recent call last):", "ImportError: no such"], "ImportError: no such"),
        (
            ["ModuleNotFoundError: No module named numpy", "", "The above exception …", "ImportError"],
            "ImportError (ModuleNotFoundError: No module named numpy)",
        ),
        (["  what", "demo.OddError"], "demo.OddError"),
        ([], "exit code 1"),
    ],
)
def test_the_reason(tmp_path: Path, lines: list[str], problem: str) -> None:
    python = python_that_fails(tmp_path, *lines)
    assert import_modules(python, ["demo"]) == (Trial("demo", problem),)


def test_how_it_died(tmp_path: Path) -> None:
    python = python_that_fails(tmp_path, code="kill -SEGV $$")
    assert import_modules(python, ["a", "b"]) == tuple(
        Trial(module, "the process died of SIGSEGV") for module in "ab"
    )


def test_what_can_be_imported(tmp_path: Path) -> None:
    assert import_modules(python_that_fails(tmp_path, code="exit 0"), ["a"]) == (Trial("a", None),)
