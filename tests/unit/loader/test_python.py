"""What a Python says of itself, asked of the one that runs the tests, and programs that are none."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from pathlib import Path

import msgspec
import pytest

from relink.loader.python import PythonFacts, active_python, ask_python
from relink.system.errors import TargetError


def test_the_python_of_the_tests() -> None:
    found = ask_python(sys.executable)
    assert found.file == os.path.realpath("/proc/self/exe")
    assert (found.implementation, found.version) == (sys.implementation.name, tuple(sys.version_info[:2]))
    assert found.soabi == (sysconfig.get_config_var("SOABI") or "")


@pytest.mark.parametrize("system", [False, True])
def test_where_a_virtual_environment_has_its_packages(tmp_path: Path, system: bool) -> None:
    base = os.path.realpath(sys.executable)
    directory = tmp_path / f"lib/python3.{sys.version_info[1]}/site-packages"
    directory.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(base)
    text = f"home = {os.path.dirname(base)}\ninclude-system-site-packages = {str(system).lower()}\n"
    (tmp_path / "pyvenv.cfg").write_text(text)
    of_base = ask_python(base).site_packages if system else ()
    assert ask_python(str(tmp_path / "bin" / "python")).site_packages == (str(directory), *of_base)


def test_how_it_is_called() -> None:
    assert PythonFacts("/p", "cpython", (3, 12)).shown == "Python 3.12"
    assert PythonFacts("/p", "cpython", (3, 13), free_threaded=True).shown == "Python 3.13t"
    assert PythonFacts("/p", "pypy", (3, 10)).shown == "pypy 3.10"


def test_the_active_one() -> None:
    assert active_python({"VIRTUAL_ENV": "/venv"}) == "/venv/bin/python"
    assert active_python({"VIRTUAL_ENV": ""}) is None
    assert active_python({}) is None


def test_a_python_of_uv_on_nixos(tmp_path: Path) -> None:
    """What nixpkgs' stub-ld prints in the place of a loader; the exit code is its own, too."""
    python = tmp_path / "python"
    text = "NixOS cannot run dynamically linked executables\\nhttps://nix.dev/permalink/stub-ld"
    python.write_text(
        f"#!/bin/sh\nprintf 'Could not start dynamically linked executable: %s\\n{text}\\n' \"$0\" >&2\nexit 127\n"
    )
    python.chmod(0o755)
    with pytest.raises(
        TargetError, match=r"its loader is the stub that NixOS has .* take a Python of nixpkgs"
    ):
        ask_python(str(python))


@pytest.mark.parametrize("script", ["exit 1", "echo no JSON", "echo '{}'", "echo '[1]'"])
def test_a_program_that_is_no_python(tmp_path: Path, script: str) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(TargetError, match="python"):
        ask_python(str(program))


@pytest.mark.parametrize("name", ["gone", "gone\0", "gone\ud800"])
def test_a_program_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(TargetError, match="gone"):
        ask_python(str(tmp_path / name))


def test_one_python_is_asked_once(tmp_path: Path) -> None:
    """Until the file is another one; what cannot be run is tried each time."""
    program, runs = tmp_path / "python", tmp_path / "runs"
    own = ask_python(sys.executable)

    def written(version: int) -> None:
        said = {**msgspec.structs.asdict(own), "version": [3, version]}
        program.write_text(f"#!/bin/sh\necho >> {runs}\necho '{json.dumps(said)}'\n")
        program.chmod(0o755)

    with pytest.raises(TargetError):
        ask_python(str(program))
    written(9)
    assert [ask_python(str(program)).version, ask_python(str(program)).version] == [(3, 9), (3, 9)]
    assert runs.read_text() == "\n"
    written(10)
    assert ask_python(str(program)).version == (3, 10)
    assert runs.read_text() == "\n\n"
