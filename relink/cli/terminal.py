"""Printing on standard output and standard error, and progress: what every command needs, and `--help` loads as well."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from rich.console import Console

from relink.cli.system import drop_output, drop_stream
from relink.report.lines import Line, Part
from relink.report.lines import show as show_on
from relink.system.errors import RelinkError, UsageError, describe_failure
from relink.system.progress import unwatched
from relink.system.text import escape_untrusted, format_json

if TYPE_CHECKING:
    from relink.indexes.build.running import Say
    from relink.report.model import Report


@contextmanager
def watch_build(log: Path | None, *, quiet: bool) -> Iterator[Say]:
    """Give the function that is told each event.

    :param log: a file that each event is appended to, as a line of JSON.
    :raises UsageError: it cannot be written.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with ExitStack() as stack:
        file = None
        if log:
            with describe_failure(UsageError, f"{log}: the log cannot be written"):
                file = stack.enter_context(log.open("a", encoding="utf-8"))
        errors = make_console(stderr=True)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        shown = not quiet and sys.stderr.isatty()
        bar = stack.enter_context(Progress(*columns, console=errors, transient=True)) if shown else None
        task = bar.add_task("sources", total=None) if bar else None

        def say(event: str, facts: Mapping[str, Any]) -> None:
            if file is not None:
                file.write(json.dumps({"time": round(time.time(), 3), "event": event, **facts}) + "\n")
                # Whoever follows the log sees each event at once.
                file.flush()
            if line := _line(event, facts, quiet=quiet):
                errors.print(line, soft_wrap=True)
            if bar is not None and task is not None:
                if event == "budget":
                    bar.update(task, total=facts["tasks"], completed=facts["done"], description="tasks")
                elif event in ("result", "failure"):
                    bar.update(
                        task, advance=1, description=escape_untrusted(facts["wheel"].partition("-")[0])
                    )

        yield say


def _line(event: str, facts: Mapping[str, Any], *, quiet: bool) -> Line | None:
    if event in ("failure", "source"):
        where = f"{facts['wheel']} for {facts['target']}: " if "wheel" in facts else ""
        return Line(f"{where}{facts.get('error') or facts['text']}", style="red")
    if quiet:
        return None
    if event == "budget":
        from rich.filesize import decimal

        unknown = f" and {facts['unknown']} of unknown size" if facts["unknown"] else ""
        return Line(
            f"{facts['wheels']} wheels, {facts['tasks']} tasks, {facts['done']} of them done; "
            f"to fetch: {facts['fetches']} wheels, {decimal(facts['download'])}{unknown}"
        )
    if event == "result" and facts["status"] == "refused":
        return Line(f"{facts['wheel']} for {facts['target']}: refused: {facts['text']}", style="yellow")
    if event == "note":
        return Line(facts["text"], style="dim")
    return None


_STAGES = ("target", "read", "plan", "edit", "write", "verify", "publish")


class _Console(Console):
    """A console whose reader may close the pipe (EPIPE): the rest is dropped, and the exit code is that of the work."""

    def on_broken_pipe(self) -> None:
        drop_stream(sys.stderr if self.stderr else sys.stdout)


@contextmanager
def _output() -> Iterator[None]:
    """Write to standard output; where its reader has left, what it would have read is dropped.

    :raises OutputError: it cannot be written, because a disk is full for example.
    """
    try:
        yield
    except OSError as error:
        if (failed := drop_output(error)) is not None:
            raise failed from error


def make_console(*, stderr: bool = False) -> Console:
    """Return a console on standard output or standard error."""
    return _Console(stderr=stderr, highlight=False)


@contextmanager
def show_progress(quiet: bool) -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
    """Show the stage, and how far it is and the remaining time where they are known; the bar disappears at the end.

    On a terminal only: standard error that goes to a file or a pipe gets nothing.

    :return: two callbacks: the name of a stage as it begins, and the bytes done and to do in it.
    """
    if quiet or not sys.stderr.isatty():
        with unwatched() as callbacks:
            yield callbacks
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
    with Progress(*columns, console=make_console(stderr=True), transient=True) as bar:
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
        show_on(make_console(), *parts)


def print_report(
    report: Report, *, verbose: bool, quiet: bool = False, dry_run: bool = False, installed: bool = False
) -> None:
    """Print what changes, the findings and the verdict; the errors and the verdict alone if it is to be `quiet`.

    Where nothing is written, what would change is printed in a dry run, or if it is to be `verbose`. Of a wheel that is
    `installed` already no next command is printed.
    """
    from relink.report import text
    from relink.report.summary import verdict
    from relink.system.findings.model import RULES

    found = verdict(report)
    ending = text.verdict_text(replace(found, step=None) if installed else found)
    if quiet:
        errors = [found for found in report.findings if found.level == "error"]
        # With several wheels, the first line says whose errors follow.
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
        report.findings, verbose=False, shown=text.text_shortener(report), said=found.step or ""
    )
    roots = [found for found in report.findings if found.code == "RLK702"]
    notes = [f"garbage collector roots: {found.message}. {RULES[found.code].meaning}" for found in roots]
    show(*text.header_text(report, found), *changes, *findings, *notes, *ending)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one document."""
    write(format_json(document))


def write(text: str) -> None:
    """Write text for programs on standard output as it stands; what it is made of has been escaped already.

    :raises OutputError: it cannot be written.
    """
    with _output():
        sys.stdout.write(text)
        sys.stdout.flush()


def _command_of(error: RelinkError) -> str | None:
    """The command that helps after an error; None where it is this one with another word, and this one has not the word."""
    if not isinstance(error.step, tuple):
        return error.step
    wrong, right = error.step
    words = [
        f"{word.removesuffix(wrong)}{right}" if f"={word}".endswith(f"={wrong}") else word
        for word in sys.argv[1:]
    ]
    return None if words == sys.argv[1:] else shlex.join(["relink", *words])


def say(message: str | RelinkError) -> None:
    """Print a message on standard error, if it can be written: one line, one more for each issue of an error, and its step."""
    lines = (message.message, *message.issues) if isinstance(message, RelinkError) else (message,)
    try:
        errors = make_console(stderr=True)
        for number, line in enumerate(lines):
            start = ("" if line.startswith("Next") else "  - ") if number else "relink: "
            errors.print(Line(f"{start}{line}"), soft_wrap=True)
        if isinstance(message, RelinkError) and (command := _command_of(message)):
            from relink.report.summary import why_untried
            from relink.report.text import command_line

            errors.print(Line(f"Next (not tried: {why_untried(command) or 'this run ended before it'}):"))
            errors.print(command_line(command), soft_wrap=True)
    except OSError:
        drop_stream(sys.stderr)
