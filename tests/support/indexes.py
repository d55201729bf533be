"""A recipe over a directory of small wheels and the small ROCm of :mod:`tests.support.works`, and a run without processes."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from relink.indexes.build.building import build
from relink.indexes.build.recipe import Recipe, read_recipe
from relink.indexes.build.running import BuildOptions, Summary
from tests.support.works import Works

__all__ = ["InlineEngine", "built", "contents", "copied", "recipe_of"]

PYTHON = ".".join(map(str, sys.version_info[:2]))


class InlineEngine:
    """Does each task where it is submitted: the same task functions without processes.

    :ivar ran: the tasks that were run.
    """

    window = tries = 1

    def __init__(self, ran: list[Any]) -> None:
        self.ran = ran

    def submit(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Future[Any]]:
        for task in tasks:
            self.ran.append(task)
            future: Future[Any] = Future()
            try:
                future.set_result(function(task))
            except Exception as error:  # noqa: BLE001 (as an executor does)
                future.set_exception(error)
            yield future

    def error_of(self, future: Any, error: BaseException) -> BaseException:
        del future
        return error

    def check_workers(self) -> None:
        raise AssertionError("every task has ended")


def recipe_of(
    directory: Path, works: Works, *targets: str, head: str = "", prefix: Path | None = None, more: str = ""
) -> Recipe:
    """Write a recipe of DIRECTORY/wheels for targets of one prefix."""
    tables = "".join(
        f'[targets.{name}]\nprefixes = ["{prefix or works.prefix}"]\n{more}\n' for name in targets or ("one",)
    )
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "index.toml"
    path.write_text(f'pythons = ["{PYTHON}"]\n{head}\n[[sources]]\ndirectory = "wheels"\n{tables}')
    return read_recipe(path)


@dataclass
class Built:
    """:ivar ran: the tasks of the run."""

    summary: Summary
    ran: list[Any] = field(default_factory=list)
    events: list[tuple[str, Any]] = field(default_factory=list)


def built(
    recipe: Recipe, site: Path, monkeypatch: pytest.MonkeyPatch, options: BuildOptions | None = None
) -> Built:
    """Build in this process."""
    ran: list[Any] = []
    events: list[tuple[str, Any]] = []

    @contextmanager
    def local(*_: Any) -> Any:
        yield InlineEngine(ran)

    monkeypatch.setattr("relink.indexes.build.building.LocalEngine", local)

    def say(event: str, facts: Any) -> None:
        events.append((event, facts))

    return Built(build(recipe, site, options or BuildOptions(), say), ran, events)


def copied(site: Path, other: Path) -> Path:
    """Copy a site with what it remembers, so that both can go on from the same."""
    for suffix in ("", ".relink"):
        target = other.with_name(f"{other.name}{suffix}")
        if target.is_symlink():
            target.unlink()
        shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(f"{site}.relink", f"{other}.relink", symlinks=True)
    other.symlink_to(os.readlink(site).replace(f"{site.name}.relink/", f"{other.name}.relink/"))
    return other


def contents(site: Path) -> dict[str, str]:
    """The SHA-256 of each file of a site."""
    found = {}
    for directory in (site.resolve(), (site / "files").resolve()):
        for path in directory.rglob("*"):
            name = str(path.relative_to(directory))
            if path.is_file() and not name.startswith(".relink-"):
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found
