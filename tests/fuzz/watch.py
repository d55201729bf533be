"""What makes a hunt see and run fast: a hook that sees every file that is written, and a memory of what never changes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from relink.elf.symbols import SymbolTable
from relink.loader.closure import LoadedObject, file_of
from relink.loader.seen_files import Files, OpenedFile
from relink.loader.tables import Tables
from relink.planning.resolve.proof import DlopenKnowledge

__all__ = ["remember", "watched"]

_WRITES = frozenset({"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.chmod",
                     "os.chown", "os.truncate", "os.utime"})  # fmt: skip


@contextmanager
def watched(allowed: Path) -> Iterator[list[str]]:
    """Collect every path outside of `allowed` that is opened for writing, made, renamed or removed in this process."""
    outside: list[str] = []
    inside = os.path.realpath(allowed)
    active = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not active or (event != "open" and event not in _WRITES):
            return
        if event == "open":
            flags = arguments[2]
            if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
                return
        paths = {"os.rename": arguments[:2], "os.link": arguments[1:2], "os.symlink": arguments[1:2]}
        for path in paths.get(event, arguments[:1]):
            if not isinstance(path, str | bytes | os.PathLike):
                continue
            absolute = os.path.abspath(os.fsdecode(path))
            # rmtree works with names relative to a directory that is open.
            relative = event in _WRITES and not os.path.isabs(os.fsdecode(path))
            if absolute != os.devnull and not relative and f"{absolute}/".find(f"{inside}/") != 0:
                outside.append(f"{event} {absolute}")

    keeps = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # a module that is imported now is no output
    sys.addaudithook(hook)
    try:
        yield outside
    finally:
        active = False
        sys.dont_write_bytecode = keeps


@contextmanager
def remember(scratch: Path) -> Iterator[None]:
    """Read Python, the C library and the prefix once and not for every input, which would take most of the time."""
    seen: dict[str, OpenedFile] = {}
    tables: dict[tuple[object, ...], SymbolTable] = {}
    dlopened: dict[tuple[object, ...], tuple[str, ...]] = {}
    open_anew, table_anew, strings_anew = Files.open_new, Tables.of, DlopenKnowledge.strings_of

    def known(path: str) -> bool:
        return path.startswith("/") and not path.startswith(f"{scratch}/")

    def open_once(self: Files, path: str) -> OpenedFile:
        if not known(path) or self.root != "/":
            return open_anew(self, path)
        if path not in seen:
            seen[path] = open_anew(self, path)
        return seen[path]

    def table_once(self: Tables, loaded: LoadedObject) -> SymbolTable:
        key = file_of(loaded)
        if not known(loaded.path) or key[0] == "member":
            return table_anew(self, loaded)
        if key not in tables:
            tables[key] = table_anew(self, loaded)
        return self.index.add(tables[key])

    def strings_once(self: DlopenKnowledge, caller: LoadedObject) -> tuple[str, ...]:
        key = file_of(caller)
        if not known(caller.path) or key[0] == "member":
            return strings_anew(self, caller)
        if key not in dlopened:
            dlopened[key] = strings_anew(self, caller)
        return dlopened[key]

    Files.open_new, Tables.of, DlopenKnowledge.strings_of = open_once, table_once, strings_once  # type: ignore[method-assign]
    try:
        yield
    finally:
        Files.open_new, Tables.of, DlopenKnowledge.strings_of = open_anew, table_anew, strings_anew  # type: ignore[method-assign]
