"""What is seen of a run of `relink index build`: a bar on a terminal, lines of what failed, a log of JSON lines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from relink.cli.terminal import console
from relink.indexes.build.running import Say
from relink.report.lines import Line
from relink.system.errors import UsageError
from relink.system.text import escaped


@contextmanager
def watched(log: Path | None, *, quiet: bool) -> Iterator[Say]:
    """Give the function that is told each event.

    :param log: a file that each event is appended to, as a line of JSON.
    :raises UsageError: it cannot be written.
    """
    with ExitStack() as stack:
        file = stack.enter_context(_opened(log)) if log else None
        errors = console(stderr=True)
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
                    bar.update(task, advance=1, description=escaped(facts["wheel"].partition("-")[0]))

        yield say


def _opened(log: Path) -> IO[str]:
    try:
        return log.open("a", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{log}: the log cannot be written ({error.strerror})") from error


def _line(event: str, facts: Mapping[str, Any], *, quiet: bool) -> Line | None:
    if event in ("failure", "source"):
        where = f"{facts['wheel']} for {facts['target']}: " if "wheel" in facts else ""
        return Line(f"{where}{facts.get('error') or facts['text']}", style="red")
    if quiet:
        return None
    if event == "budget":
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
