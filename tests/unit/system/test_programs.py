"""A program that is asked: its answer, or why there is none.

What the programs that relink starts get of its environment: by the source, and by a real run of each kind.
"""

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
from relink.system.programs import (
    DEMO,
    NIX,
    NoAnswerError,
    Steps,
    ask_program,
    finish_steps,
    make_child_environment,
    make_named_environment,
    run_side_by_side,
)


class Log:
    """What was begun, went on, and was ended before its end."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.running = 0
        self.most = 0

    def work(self, name: str, pauses: int = 1) -> Steps[str]:
        self.running += 1
        self.most = max(self.most, self.running)
        self.lines.append(f"begin {name}")
        try:
            for _ in range(pauses):
                yield
            if name == "wrong":
                raise ValueError(name)
        except GeneratorExit:
            self.lines.append(f"stop {name}")
            raise
        finally:
            self.running -= 1
        return name


def test_all_steps_are_taken() -> None:
    assert finish_steps(Log().work("a", pauses=3)) == "a"
    assert finish_steps(Log().work("a", pauses=0)) == "a"


@pytest.mark.parametrize("jobs", [1, 2, 3, 9])
@pytest.mark.parametrize("pauses", [0, 1, 2])
def test_results_come_in_order_and_no_more_than_jobs_are_under_way(jobs: int, pauses: int) -> None:
    log = Log()
    names = list("abcdef")
    assert list(run_side_by_side([(1, log.work(name, pauses)) for name in names], jobs, 100)) == names
    assert log.most == (min(jobs, len(names)) if pauses else 1)
    assert log.lines == [f"begin {name}" for name in names]


def test_what_has_no_room_beside_others_is_alone() -> None:
    log = Log()

    def work() -> Iterator[tuple[int, Steps[str]]]:
        for cost in (50, 50, 1, 500, 1):
            yield cost, log.work(str(cost))

    under_way = [log.running for _ in run_side_by_side(work(), 9, 100)]
    assert under_way == [1, 1, 0, 0, 0]
    assert log.most == 2


def test_what_was_begun_is_ended_when_one_raises() -> None:
    log = Log()
    results = run_side_by_side([(1, log.work(name)) for name in ("a", "wrong", "b", "c")], 3, 100)
    assert next(results) == "a"
    with pytest.raises(ValueError, match="wrong"):
        next(results)
    assert log.lines == ["begin a", "begin wrong", "begin b", "begin c", "stop b", "stop c"]


def test_what_was_begun_is_ended_when_nobody_asks_on() -> None:
    log = Log()
    results = run_side_by_side([(1, log.work(name)) for name in "abc"], 2, 100)
    next(results)
    assert isinstance(results, Iterator)
    results.close()  # type: ignore[attr-defined]
    assert log.lines == ["begin a", "begin b", "stop b"]


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
