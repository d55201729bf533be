"""What the programs that relink starts get of its environment: by the source, and by a real run of each kind."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import relink
from relink.loader.target import find_target
from relink.providers.nix_store import closure_of
from relink.system.errors import ProviderError
from relink.system.sandbox.environment import DEMO, NIX, make_child_environment, make_named_environment

SOURCE = Path(relink.__file__).parent
STARTS = {"run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}
SECRET = {
    "LD_PRELOAD": "/nowhere/libevil.so",
    "LD_AUDIT": "/nowhere/libevil.so",
    "GLIBC_TUNABLES": "glibc.rtld.nns=1",
    "PYTHONSTARTUP": "/nowhere/evil.py",
    "AWS_SECRET_ACCESS_KEY": "secret",
}


def starts(text: str) -> Iterator[tuple[int, str | None]]:
    """Line and ``env=`` of every call that starts a program."""
    for node in ast.walk(ast.parse(text)) if "subprocess." in text or "os." in text else ():
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        module = ast.unparse(called.value) if isinstance(called, ast.Attribute) else ""
        name = called.attr if isinstance(called, ast.Attribute) else ""
        if (module == "subprocess" and name in STARTS) or (
            module == "os" and name.startswith(("exec", "spawn", "posix_spawn", "system", "popen"))
        ):
            passed = next((word.value for word in node.keywords if word.arg == "env"), None)
            yield node.lineno, ast.unparse(passed) if passed is not None else None


def test_every_program_gets_a_named_environment() -> None:
    found = {
        f"{path.relative_to(SOURCE)}:{line}": passed
        for path in sorted(SOURCE.rglob("*.py"))
        for line, passed in starts(path.read_text(encoding="utf-8"))
    }
    assert len(found) >= 6, "the calls are not found any more"
    assert {
        place for place, passed in found.items() if passed is None or passed.split(".")[-1] == "environ"
    } == set()
    assert {*found.values()} <= {
        "environment",  # a parameter: what the caller has put together
        "make_child_environment()",
        "make_named_environment(NIX)",
        # `check --import`: an import that a person asks for, with what `python -c 'import NAME'` has.
        "{**os.environ, 'PYTHONDONTWRITEBYTECODE': '1'}",
        "make_named_environment((*DEMO, *variables))",
    }


def test_the_search_sees_a_program_that_inherits() -> None:
    text = "subprocess.run(['x'])\nsubprocess.Popen('x', env=os.environ)\nos.execv('x', [])\nother.run()"
    assert [*starts(text)] == [(1, None), (2, "os.environ"), (3, None)]


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRET.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("secrets")
def test_what_the_lists_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIX_STORE_DIR", "/nix/store")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/python/lib")
    for patterns in (NIX, DEMO):
        found = make_named_environment(patterns)
        assert not found.keys() & SECRET.keys()
        assert found["PATH"] == os.environ["PATH"]
        assert found["NIX_STORE_DIR"] == "/nix/store"
    assert "LD_LIBRARY_PATH" not in make_named_environment(NIX)
    assert make_child_environment().keys() & SECRET.keys() == {"AWS_SECRET_ACCESS_KEY"}


@pytest.mark.usefixtures("secrets")
def test_nix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "nix-store"
    script.write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\necho no such path >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("NIX_CONF_DIR", "/nowhere/nix")
    monkeypatch.delenv("LD_PRELOAD")  # of this process's own children, which report it
    with pytest.raises(ProviderError, match="no such path"):
        closure_of("/nix/store/x")
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines() if "=" in line)
    assert seen["NIX_CONF_DIR"] == "/nowhere/nix"
    assert not seen.keys() & SECRET.keys()


@pytest.mark.usefixtures("secrets")
def test_the_targets_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it prints of itself stands among what it prints of its environment, so it gets none."""
    monkeypatch.delenv("LD_PRELOAD")
    passed: list[set[str]] = []
    real = subprocess.run

    loader = find_target().interpreter

    def run(command: list[str], **options: Any) -> Any:
        if command[0] == loader:
            passed.append({*options["env"]})
        return real(command, **options)

    monkeypatch.setattr(subprocess, "run", run)
    assert find_target(interpreter=loader).glibc
    assert passed
    assert set().union(*passed) == {"LD_DEBUG", "LD_LIBRARY_PATH", "LD_PRELOAD"}, (
        "what the search trace asks by"
    )


@pytest.mark.slow(reason="runs the demo")
def test_the_demo_finds_relink_by_pythonpath_alone(tmp_path: Path) -> None:
    """Not installed: the interpreter sees what it needs by PYTHONPATH and nothing else of relink's environment."""
    places = [str(SOURCE.parent), *(place for place in sys.path if place.endswith("site-packages"))]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(places),
    } | SECRET
    del environment["LD_PRELOAD"], environment["LD_AUDIT"]  # this test's own Python would complain of them
    base = sys._base_executable  # type: ignore[attr-defined]  # one that has no site-packages of its own with relink
    ended = subprocess.run(
        [base, "-S", "-m", "relink", "demo", "--wheel", "nowhere.whl"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert "nowhere.whl" in ended.stdout + ended.stderr
    assert "No module named" not in ended.stderr
