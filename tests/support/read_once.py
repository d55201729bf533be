"""What the system says in the same way in every test is read once in a process: its loader's answer, its libraries' symbols.

The tests of both ask anew: :func:`anew`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from relink.loader import tables, target

__all__ = ["anew", "read_once"]

_SYSTEM = ("/usr/lib", "/lib")
_ask, _read_table = target._ask, tables.read_table


def _identity(path: str) -> tuple[object, ...] | None:
    """What tells a file of the system from another, and from itself after a change; None for a file of a test."""
    real = os.path.realpath(path)
    if not real.startswith(_SYSTEM):
        return None
    known = os.stat(real)
    return real, known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns


def _once(key: tuple[object, ...], known: dict[tuple[object, ...], Any], function: Callable[[], Any]) -> Any:
    if key not in known:
        known[key] = function()
    return known[key]


def read_once() -> None:
    """Ask the system's loader once, and read the symbols of each of its libraries once, as long as this process runs."""
    targets: dict[tuple[object, ...], Any] = {}
    symbols: dict[tuple[object, ...], Any] = {}

    def ask(interpreter: str, host: str, root: str, header: Any, python: str | None) -> target.Target:
        known = _identity(host) if root == "/" else None
        if known is None:
            return _ask(interpreter, host, root, header, python)
        key = (*known, interpreter, header)
        return replace(_once(key, targets, lambda: _ask(interpreter, host, root, header, python)), python=python)

    def read_table(files: Any, path: str) -> Any:
        known = _identity(path) if files.root == "/" else None
        return _once(known, symbols, lambda: _read_table(files, path)) if known else _read_table(files, path)

    target._ask, tables.read_table = ask, read_table


def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask and read anew in a test."""
    monkeypatch.setattr(target, "_ask", _ask)
    monkeypatch.setattr(tables, "read_table", _read_table)
