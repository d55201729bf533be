"""The bar on a terminal: which stage, how far, how fast, how long still."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column

from relink.report.lines import Line

__all__ = ["stage_bar"]

_NARROW = 60  # columns, below which the rate is left out


class _Amount(ProgressColumn):
    """``1.2 GB of 3.4 GB  430 MB/s  0:00:05``; the time so far, where a stage has no bytes to count."""

    def __init__(self, *, narrow: bool) -> None:
        super().__init__(Column(no_wrap=True))
        self._narrow = narrow

    def render(self, task: Task) -> Line:
        if not task.total:
            return Line(f"{timedelta(seconds=int(task.elapsed or 0))}")
        left = "" if task.time_remaining is None else f"  {timedelta(seconds=int(task.time_remaining))}"
        if self._narrow:
            return Line(f"{task.percentage:.0f} %{left}")
        rate = f"  {decimal(int(task.speed))}/s" if task.speed else ""
        return Line(f"{decimal(int(task.completed))} of {decimal(int(task.total))}{rate}{left}")


@contextmanager
def stage_bar(
    console: Console, stages: Sequence[str]
) -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
    """Show the bar on `console`; yields callbacks for stages and bytes (see :func:`relink.cli.terminal.progress`)."""
    columns = (
        TextColumn("{task.description:10}", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=None),
        _Amount(narrow=console.width < _NARROW),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("start", total=None)
        lock = Lock()  # on_bytes is called on other threads, also while a stage begins

        def on_stage(name: str) -> None:
            number = f" {stages.index(name) + 1}/{len(stages)}" if name in stages else ""
            nonlocal task
            with lock:
                bar.remove_task(task)  # rich cannot unset a task's total, so each stage is a task of its own
                task = bar.add_task(f"{name}{number}", total=None)

        def on_bytes(done: int, total: int) -> None:
            with lock:
                bar.update(task, completed=done, total=total)

        yield on_stage, on_bytes
