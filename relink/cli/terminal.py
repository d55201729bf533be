"""Printing on standard output and standard error. It loads rich, so commands import it inside of their functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from rich.console import Console

from relink.cli.system import drop, output_failed
from relink.report import text
from relink.report.lines import Line, Part
from relink.report.lines import show as show_on
from relink.report.summary import verdict
from relink.system.errors import RelinkError
from relink.system.findings.model import RULES
from relink.system.text import json_text

if TYPE_CHECKING:
    from relink.report.model import Report

_STAGES = ("target", "read", "plan", "edit", "write", "verify", "publish")


class _Console(Console):
    """A console whose reader may close the pipe (EPIPE): the rest is dropped, and the exit code is that of the work."""

    def on_broken_pipe(self) -> None:
        drop(sys.stderr if self.stderr else sys.stdout)


@contextmanager
def _output() -> Iterator[None]:
    """Write to standard output; where its reader has left, what it would have read is dropped.

    :raises OutputError: it cannot be written, because a disk is full for example.
    """
    try:
        yield
    except OSError as error:
        if (failed := output_failed(error)) is not None:
            raise failed from error


def console(*, stderr: bool = False) -> Console:
    """Return a console on standard output or standard error."""
    return _Console(stderr=stderr, highlight=False)


@contextmanager
def progress(quiet: bool) -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
    """Show the stage, and how far it is and the remaining time where they are known; the bar disappears at the end.

    On a terminal only: standard error that goes to a file or a pipe gets nothing.

    :return: two callbacks: the name of a stage as it begins, and the bytes done and to do in it.
    """
    if quiet or not sys.stderr.isatty():
        yield (lambda _: None), (lambda _done, _total: None)
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:10}", markup=False),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("start", total=None)
        # on_bytes is called on other threads, also while a stage begins.
        lock = Lock()

        def on_stage(name: str) -> None:
            nonlocal task
            with lock:
                # rich cannot unset a task's total, so each stage is a task of its own.
                bar.remove_task(task)
                task = bar.add_task(f"{name} {_STAGES.index(name) + 1}/{len(_STAGES)}", total=None)

        def on_bytes(done: int, total: int) -> None:
            with lock:
                bar.update(task, completed=done, total=total)

        yield on_stage, on_bytes


def show(*parts: Part) -> None:
    """Print `parts` below each other on standard output; a str is one line as it stands, without markup.

    :raises OutputError: it cannot be written.
    """
    with _output():
        show_on(console(), *parts)


def print_report(
    report: Report, *, verbose: bool, quiet: bool = False, dry_run: bool = False, installed: bool = False
) -> None:
    """Print what changes, the findings and the verdict; the errors and the verdict alone if it is to be `quiet`.

    Where nothing is written, what would change is printed in a dry run, or if it is to be `verbose`. Of a wheel that is
    `installed` already no next command is printed.
    """
    found = verdict(report)
    ending = text.verdict_text(replace(found, step=None) if installed else found)
    if quiet:
        errors = [found for found in report.findings if found.level == "error"]
        # Of several wheels each says whose errors follow.
        answer = () if report.ok else text.header_text(report, found)[:1]
        show(*answer, *text.findings_text(errors, verbose=False), *(() if report.ok else ending))
        return
    if verbose:
        show(
            *text.header_text(report, found, verbose=True),
            *text.plan_text(report),
            *text.findings_text(report.findings, verbose=True),
            *ending,
        )
        return
    changes: list[Line] = []
    if report.output is not None or dry_run:
        changes = [*text.change_text(report), *text.repaired_text(report.findings)]
    findings = text.findings_text(
        report.findings, verbose=False, shown=text.shortened(report), next_follows=True
    )
    roots = [found for found in report.findings if found.code == "RLK702"]
    notes = [f"garbage collector roots: {found.message}. {RULES[found.code].meaning}" for found in roots]
    show(*text.header_text(report, found), *changes, *findings, *notes, *ending)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one document."""
    write(json_text(document))


def write(text: str) -> None:
    """Write text for programs on standard output as it stands; what it is made of has been escaped already.

    :raises OutputError: it cannot be written.
    """
    with _output():
        sys.stdout.write(text)
        sys.stdout.flush()


def say(message: str | RelinkError) -> None:
    """Print a message on standard error, if it can be written: one line, and one more for each issue of an error."""
    lines = (message.message, *message.issues) if isinstance(message, RelinkError) else (message,)
    try:
        errors = console(stderr=True)
        for number, line in enumerate(lines):
            errors.print(Line(f"  - {line}" if number else f"relink: {line}"), soft_wrap=True)
    except OSError:
        drop(sys.stderr)
