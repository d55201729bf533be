"""The import test: what it says of a module that cannot be imported. test_installing.py imports real ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from relink.indexes.install.importing import Trial, import_modules, load_members
from tests.support.cc import shared


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


def test_what_dlopen_says_of_each_library(tmp_path: Path) -> None:
    """One that cannot be loaded keeps no other from being tried, and one that ends the process neither."""
    good = shared(tmp_path / "good.so", "int f(void){return 1;}")
    lost = shared(
        tmp_path / "lost.so",
        "extern int nowhere(void); int g(void){return nowhere();}",
        flags=["-Wl,-z,undefs"],
    )
    dies = shared(
        tmp_path / "dies.so", "void abort(void); __attribute__((constructor)) static void d(void){abort();}"
    )
    members = {path.name: str(path) for path in (lost, dies, good)}
    for has_gpu in (True, False):
        told = {trial.name: trial for trial in load_members(sys.executable, [], [], members, has_gpu=has_gpu)}
        assert "undefined symbol: nowhere" in (told["lost.so"].problem or "")
        died = "the process died of SIGABRT"
        assert told["dies.so"] == (Trial("dies.so", died) if has_gpu else Trial("dies.so", None, died))
        assert told["good.so"] == Trial("good.so", None)
    exporter = shared(tmp_path / "exporter.so", "int nowhere(void){return 1;}")
    (trial,) = load_members(sys.executable, [], [str(exporter)], {"lost.so": str(lost)}, has_gpu=True)
    assert trial.problem is None
