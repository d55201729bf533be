"""relink check --import: what happens in a process is the verdict, and where the prediction was wrong is told."""

from __future__ import annotations

import codecs
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from relink.indexes.install import environment
from relink.indexes.install.environment import identify, import_all, import_really
from relink.system.programs import finish_steps
from tests.support.cc import shared, shared_without
from tests.support.command import Run
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.wheels import make_wheel
from tests.support.works import TAG
from tests.unit.indexes.install.conftest import put, site_of

SLOW = pytest.mark.slow(reason="an environment whose Python starts; test_a_missing_library has one")

HERE = "import ctypes, os, sys, time\nHERE = os.path.dirname(__file__)\nctypes.CDLL(os.path.join(HERE, 'own.so'))\n"
Put = Callable[..., Path]


@pytest.fixture
def package(make_environment: Callable[..., Path], index: Path, tmp_path: Path) -> Put:
    """Install a package with a library, which its source opens first; gives the environment."""
    environment = make_environment(with_pip=False)

    def made(source: str = "", name: str = "pack", **libraries: Path) -> Path:
        files: dict[str, bytes | Path] = {
            f"{name}/__init__.py": (HERE + source).encode(),
            f"{name}/own.so": shared(tmp_path / "own.so", "int own;"),
            **{f"{name}/{one}.so": path for one, path in libraries.items()},
        }
        put(environment, make_wheel(index, files, name=name, tag=TAG))
        return environment

    return made


def checked(run: Run, environment: Path) -> tuple[int, str]:
    code, out, err = run("check", environment, "--import")
    assert err == ""
    return code, out


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("ctypes.string_at(0)", "the process died of SIGSEGV"),
        ("os._exit(0)", "the process ended with exit code 0"),
        ("os.closerange(3, 100)", "the process ended with exit code 1"),
        ("raise ValueError('not\\n here')", "ValueError: not here"),
        ("sys.exit()", "SystemExit"),
        ("import absent", "ModuleNotFoundError: No module named 'absent'"),
    ],
)
def test_an_import_that_fails(run: Run, package: Put, source: str, told: str) -> None:
    code, out = checked(run, package(source))
    assert code == 1
    assert f"pack 1.0: does not work: import pack: {told}" in out


@SLOW
@pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
def test_one_that_hangs(run: Run, package: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended with what it has started, and the others have their answer."""
    monkeypatch.setattr(environment, "IMPORT_LIMIT", 5.0)
    seconds = f"4{os.getpid()}.5"
    package(f"import subprocess\nsubprocess.Popen(['sleep', '{seconds}'])\ntime.sleep(60)", "hangs")
    begun = time.monotonic()
    code, out = checked(run, package())
    assert (code, "hangs 1.0: does not work: import hangs: did not end in 5 s" in out) == (1, True)
    assert "pack 1.0" not in out
    assert "  2 packages imported, 1 of them as predicted" in out.splitlines()
    assert time.monotonic() - begun < 30
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            commands.append(path.read_bytes())
    assert f"sleep\0{seconds}\0".encode() not in commands


@SLOW
@pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
def test_what_it_prints_is_not_read(run: Run, package: Put) -> None:
    environment = package("print('x' * (1 << 20), flush=True)\nos.write(2, b'y' * (1 << 20))")
    code, out = checked(run, environment)
    verdict = f"Works: 1 package with native code in {environment}, and none of them needs ROCm."
    assert (code, out.splitlines()) == (0, [verdict, "  1 package imported, 1 of them as predicted", verdict])
    assert not [*site_of(environment).glob("pack/__pycache__")]


@pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
def test_a_missing_library(run: Run, package: Put, tmp_path: Path) -> None:
    """It was predicted, so no difference is told."""
    code, out = checked(
        run, package(opens("lost.so"), lost=shared_without(tmp_path / "lost.so", "libgone.so.1"))
    )
    assert (
        code,
        "does not work: import pack: OSError: libgone.so.1: cannot open shared object file" in out,
    ) == (1, True)
    assert "1 of them as predicted" in out


def hide(source: str) -> str:
    """Return a statement that executes a source which nobody reads."""
    return f"exec(__import__('codecs').decode({codecs.encode(source, 'rot13')!r}, 'rot13'))\n"


def opens(name: str) -> str:
    return f"ctypes.CDLL(os.path.join(HERE, {name!r}))\n"


@SLOW
@pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
def test_a_wrong_prediction(run: Run, package: Put, tmp_path: Path) -> None:
    """What is not read of the sources: the verdict is what happens, and the file is named."""
    environment = package(
        hide(opens("hidden.so")),
        hidden=shared(tmp_path / "hidden.so", "int hidden;"),
    )
    code, out = checked(run, environment)
    assert code == 0
    assert f"    mapped, not predicted: {site_of(environment)}/pack/hidden.so" in out.splitlines()


@SLOW
@pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
def test_a_failure_that_does_not_happen(run: Run, package: Put, tmp_path: Path) -> None:
    source = f"{hide('ctypes.CDLL = lambda *_: None')}{opens('lost.so')}"
    environment = package(source, lost=shared_without(tmp_path / "lost.so", "libgone.so.1"))
    assert run("check", environment)[0] == 1
    code, out = checked(run, environment)
    assert code == 0
    assert "    predicted: libgone.so.1 not found; it was imported" in out.splitlines()
    document = json.loads(run("check", environment, "--import", "--output-format", "json")[1])
    (one,) = document["distributions"]
    expected: dict[str, object] = {
        "error": None,
        "predicted": "libgone.so.1 not found",
        "missed": [],
        "invented": [],
    }
    assert (one["imported"], document["ok"]) == (expected, True)
    (plain,) = json.loads(run("check", environment, "--output-format", "json")[1])["distributions"]
    assert plain["imported"] is None


@pytest.mark.parametrize("words", [("--import",), ("--why", "demo"), ("--only-gpu", "gfx1100")])
def test_what_is_for_an_environment_alone(run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    code, _, err = run("check", tmp_path, *words)
    assert (code, f"{words[0]} is for an environment" in err) == (2, True)


def test_a_python_that_cannot_be_run(tmp_path: Path) -> None:
    found = finish_steps(import_really(str(tmp_path / "python"), ["sys"]))
    assert (found.mapped, found.error) == ({}, f"{tmp_path}/python cannot be run (No such file or directory)")


def test_an_answer_of_the_packages_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no answer is none, whoever has written it."""
    (tmp_path / "forged.py").write_text("import os, sys\nos.write(int(sys.argv[1]), b'[1')\n")
    (tmp_path / "forks.py").write_text("import os\nos.fork()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = import_all(sys.executable, {"a": ["forged"], "b": ["forks"], "c": ["json", "absent"]})
    assert found["a"].error == "import forged: the process ended with exit code 0"
    assert found["b"].error is None
    assert found["c"].error == "import absent: ModuleNotFoundError: No module named 'absent'"
    assert found["c"].mapped


def test_what_differs() -> None:
    """By device and inode: a file under two names is one."""
    real, before = (finish_steps(import_really(sys.executable, [name])) for name in ("_ctypes", "sys"))
    assert real.error is None
    extra = [path for path in real.mapped.values() if "_ctypes" in path]
    program = os.path.realpath(sys.executable)
    missed, invented = real.differs(
        [f"/proc/self/root{path}" for path in extra] + [program, "/bin/ls"], before
    )
    assert (set(missed) & set(extra), invented) == (set(), ("/bin/ls",))
    assert identify(["/absent", "/bin/ls\0"]) == {}
