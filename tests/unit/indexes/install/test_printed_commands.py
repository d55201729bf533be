"""Each command that relink prints, pasted into a shell as it stands, does what it is printed for."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cc import shared
from tests.support.command import Run
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.wheels import make_wheel
from tests.support.works import TAG
from tests.unit.indexes.install.conftest import USES, VENDOR, put, python_of

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

DIES = USES + "void abort(void); __attribute__((constructor)) static void d(void){abort();}"


def printed(out: str) -> list[list[str]]:
    """Return the commands of an output: what stands on a line of its own, four columns in, and is no finding's remedy."""
    lines = [line[4:] for line in out.splitlines() if line.startswith("    ") and line[4:5].strip()]
    words = [shlex.split(line) for line in lines if not line.startswith("→")]
    return [line for line in words if Path(line[0]).name in ("relink", "pip", "uv", "apt", "python")]


@pytest.fixture
def paste(run: Run, rocm: Path) -> Callable[[list[str]], tuple[int, str]]:
    """Run a printed command; apt's package is looked up in the lists instead."""

    def go(words: list[str]) -> tuple[int, str]:
        if words[0] == "relink":
            code, out, err = run(*words[1:])
            return code, out + err
        if words[0] == "apt":
            known = subprocess.run(["apt-cache", "show", words[-1]], capture_output=True, check=False)
            return known.returncode, ""
        command = [sys.executable, "-m", *words] if words[0] == "pip" else words
        if words[0] == "pip":
            command = [*command, "--no-deps", f"--target={rocm.parent / 'target'}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return go


@pytest.fixture
def environment(make_environment: Callable[..., Path]) -> Path:
    return make_environment()


def library(tmp_path: Path, *needed: Path, code: str = USES) -> Path:
    return shared(tmp_path / "made.so", code, needed=[*needed], flags=[VENDOR, "-Wl,--no-as-needed"])


@pytest.mark.slow(reason="installations; test_check_and_repair pastes one command")
def test_after_a_run(run: Run, paste: Callable[[list[str]], tuple[int, str]], gpu: Path, rocm: Path) -> None:
    """Of a dry run the run, of the run pip."""
    out = run(gpu, "--prefix", rocm, "-o", rocm.parent / "out dir", "--dry-run")[1]
    (again,) = printed(out)
    code, out = paste(again)
    (pip,) = printed(out)
    assert (code, pip[:2], Path(pip[2]).parent.name) == (0, ["pip", "install"], "out dir")
    assert paste(pip)[0] == 0


@pytest.mark.slow(reason="installations; test_check_and_repair pastes one command")
def test_a_library_that_is_missing(
    run: Run, paste: Callable[[list[str]], tuple[int, str]], rocm: Path, index: Path, tmp_path: Path
) -> None:
    rccl = shared(tmp_path / "vendor/librccl.so.1", "int ncclGetVersion(int *v){return 0;}")
    code = USES + "extern int ncclGetVersion(int*); int more(void){return ncclGetVersion(0);}"
    member = library(tmp_path, rocm / "lib/librocblas.so.5", rccl, code=code)
    wheel = make_wheel(index, {"needy/a.so": member}, name="needy", tag=TAG)
    code_, out, _ = run(wheel, "--prefix", rocm, "-o", tmp_path / "out")
    commands = printed(out)
    assert (code_, [words[0] for words in commands if words[0] != "apt"]) == (1, ["relink"])
    assert paste(commands[-1])[0] == 0


def test_check_and_repair(
    run: Run,
    paste: Callable[[list[str]], tuple[int, str]],
    make_environment: Callable[..., Path],
    gpu: Path,
    rocm: Path,
) -> None:
    environment = make_environment(with_pip=False)
    put(environment, gpu)
    code, out, _ = run("check", environment, "--prefix", rocm)
    (repair,) = printed(out)
    assert (code, paste(repair)[0], run("check", environment)[0]) == (1, 0, 0)


@pytest.mark.slow(reason="installations; test_check_and_repair pastes one command")
def test_what_was_installed_and_fails(
    run: Run,
    paste: Callable[[list[str]], tuple[int, str]],
    environment: Path,
    rocm: Path,
    index: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A module that is missing is installed; a GPU part that ends the process is taken back."""
    make_wheel(index, {"helper.py": b""}, name="helper", tag="py3-none-any")
    files: dict[str, bytes | Path] = {
        "top/__init__.py": b"import helper",
        "top/a.so": library(tmp_path, rocm / "lib/librocblas.so.5", code=DIES),
    }
    wheel = make_wheel(index, files, name="top", tag=TAG, requires=("helper",))
    monkeypatch.setattr("relink.indexes.install.installing.find_local_gpus", lambda: ["gfx1100"])
    words = ("install", wheel, "--prefix", rocm, "--python", python_of(environment))
    code, out, _ = run(*words, "--no-deps")
    (install,) = printed(out)
    assert (code, paste(install)[0]) == (1, 0)
    code, out, _ = run(*words)
    (undo,) = printed(out)
    assert (code, undo[:4], paste(undo)[0]) == (1, ["relink", "repair", "top", "--undo"], 0)
