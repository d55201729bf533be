"""A program that is asked: its answer, or why there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relink.system.programs import NoAnswerError, Steps, ask_program, finish_steps, run_side_by_side


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
