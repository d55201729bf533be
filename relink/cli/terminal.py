"""What is said on standard output and standard error, and how."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from relink.plan.findings import RULES
from relink.report import text

if TYPE_CHECKING:
    from relink.report.model import Report

__all__ = ["console", "print_json", "print_report", "progress", "say"]

_STAGES = ("target", "read", "plan", "edit", "write", "verify")


class _Console(Console):
    """One whose reader may leave: what it would have read is dropped, and the work goes on to its true exit code."""

    def on_broken_pipe(self) -> None:
        _drop_output()


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console(*, stderr: bool = False) -> Console:
    """Return a console on standard output or standard error."""
    return _Console(stderr=stderr, highlight=False)


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A bar over the stages, on a terminal only; it is gone when they are done."""
    errors = console(stderr=True)
    if quiet or not errors.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("start", total=len(_STAGES))

        def on_stage(name: str) -> None:
            done = _STAGES.index(name) if name in _STAGES else len(_STAGES)
            bar.update(task, description=name, completed=done)

        yield on_stage


def print_report(report: Report, *, verbose: bool, quiet: bool = False) -> None:
    """Print the plan, the findings, and what came of it; the errors alone if it is to be `quiet`."""
    if quiet:
        errors = [found for found in report.findings if found.level == "error"]
        ending = () if report.ok else (text.summary_text(report),)
        text.show(console(), *text.findings_text(errors, verbose=False), *ending)
        return
    parts = [*text.plan_text(report, verbose=verbose), *text.findings_text(report.findings, verbose=verbose)]
    roots = [] if verbose else [found for found in report.findings if found.code == "RLK702"]
    told = [
        Text(text.safe(f"garbage collector roots: {found.message}. {RULES[found.code].meaning}"))
        for found in roots
    ]
    text.show(console(), *parts, *told, text.summary_text(report))


def print_json(documents: list[dict[str, Any]], *, several: bool = False) -> None:
    """Print one document for one wheel, a list for several; nothing for one that could not be read."""
    if not several and not documents:
        return
    try:
        sys.stdout.write(json.dumps(documents if several else documents[0], indent=2) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()


def say(message: str) -> None:
    """Say something on standard error."""
    console(stderr=True).print(Text(text.safe(f"relink: {message}")), soft_wrap=True)
