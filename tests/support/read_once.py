"""What the system says in the same way in every test is read once in a process: its loader's answers, its libraries' symbols.

A test that puts something else in the place of :func:`subprocess.run` gets that.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Collection
from typing import Any

from relink.elf.symbols import SymbolTable
from relink.loader import tables, target
from relink.loader.seen_files import Files

__all__ = ["read_once"]

_SYSTEM = ("/usr/lib/", "/lib/", os.path.join(os.path.realpath(sys.base_prefix), ""))
_run, _read_table = subprocess.run, tables.read_table


def _identity(path: str) -> tuple[object, ...] | None:
    """What tells a file of the system from others, and from itself after a change; None for a file that a test has made."""
    real = os.path.realpath(path)
    if not real.startswith(_SYSTEM):
        return None
    known = os.stat(real)
    return real, known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns


class _Subprocess:
    """The module, for :mod:`relink.loader.target`: what the system's loader has answered it answers again."""

    def __init__(self) -> None:
        self._answers: dict[object, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def run(self, command: list[str], env: dict[str, str], **more: Any) -> Any:
        known = _identity(command[0]) if subprocess.run is _run else None
        if known is None:
            return subprocess.run(command, env=env, **more)  # noqa: PLW1510 - the caller says it
        key = (known, *command, *env.items())
        if key not in self._answers:
            self._answers[key] = subprocess.run(command, env=env, **more)  # noqa: PLW1510
        return self._answers[key]


def read_once() -> None:
    """Ask the system's loader once, and read its cache and the symbols of each library once, as long as this process runs."""
    known: dict[object, SymbolTable] = {}

    def read_table(files: Files, path: str, hashes: Collection[int] = ()) -> SymbolTable:
        identity = _identity(path) if files.root == "/" and not hashes else None
        if identity is None:
            return _read_table(files, path, hashes)
        if identity not in known:
            known[identity] = _read_table(files, path)
        return known[identity]

    tables.read_table = read_table
    target.subprocess = _Subprocess()  # type: ignore[attr-defined,assignment]
    target.parse_cache = functools.lru_cache(8)(target.parse_cache)
