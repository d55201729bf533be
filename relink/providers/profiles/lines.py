"""On which line of a TOML file each value stands: tomllib says what a file holds, and not where.

Only for text that tomllib has parsed: errors of syntax are not looked for here.
"""

from __future__ import annotations

import bisect
import re
import tomllib
from collections.abc import Mapping
from typing import TypeAlias

__all__ = ["Path", "line_of", "lines_of"]

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the top of a document: ``("releases", 0, "gpus")``."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]+")  # numbers, booleans and dates, the one thing with a blank inside
_STRINGS = {
    '"""': re.compile(
        r'"""(?:\\[\s\S]|(?!""")[\s\S])*"""(?:"{1,2})?'
    ),  # two more quotes may belong to the content
    "'''": re.compile(r"'''(?:(?!''')[\s\S])*'''(?:'{1,2})?"),
    '"': re.compile(r'"(?:\\.|[^"\\])*"'),
    "'": re.compile(r"'[^']*'"),
}


def lines_of(text: str) -> dict[Path, int]:
    """Return the line, from 1, that each table, key and item of a valid TOML document begins on."""
    return _Reader(text).read()


def line_of(lines: Mapping[Path, int], path: Path) -> int:
    """Return the line of a value, or of the nearest thing around it that has one."""
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 1)


class _Reader:
    """Goes through the text once. Places are offsets into it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.breaks = [match.start() for match in re.finditer("\n", text)]
        self.lines: dict[Path, int] = {}
        self.counts: dict[Path, int] = {}  # of arrays of tables

    def read(self) -> dict[Path, int]:
        table: Path = ()
        self.skip_blank()
        while self.at < len(self.text):
            start = self.at
            if self.accept("[["):
                *above, last = self.key()
                array = (*self.inside(above), last)
                number = self.counts[array] = self.counts.get(array, -1) + 1
                table = (*array, number)
                self.record(table, start)
                self.accept("]]")
            elif self.accept("["):
                *above, last = self.key()
                table = (*self.inside(above), last)
                self.record(table, start)
                self.accept("]")
            else:
                self.pair(table)
            self.skip_blank()
        return self.lines

    def inside(self, parts: list[str]) -> Path:
        """The table that `parts` of a header name: of an array of tables the last one so far."""
        path: Path = ()
        for part in parts:
            path = (*path, part)
            if path in self.counts:
                path = (*path, self.counts[path])
        return path

    def record(self, path: Path, start: int) -> None:
        """Remember where a value begins, and so do the tables around it that are not written out."""
        line = bisect.bisect_left(self.breaks, start) + 1
        for end in range(1, len(path) + 1):
            self.lines.setdefault(path[:end], line)

    def pair(self, table: Path) -> None:
        start = self.at
        path = (*table, *self.key())
        self.record(path, start)
        self.accept("=")
        self.skip_blank()
        self.value(path)

    def key(self) -> list[str]:
        parts = []
        while True:
            self.skip_blank()
            if self.text[self.at] in "\"'":
                parts.append(str(tomllib.loads(f"key = {self.string()}")["key"]))
            else:
                parts.append(self.match(_BARE_KEY))
            self.skip_blank()
            if not self.accept("."):
                return parts

    def value(self, path: Path) -> None:
        if self.accept("["):
            number = 0
            self.skip_blank()
            while not self.accept("]"):
                self.record((*path, number), self.at)
                self.value((*path, number))
                number += 1
                self.skip_blank()
                self.accept(",")
                self.skip_blank()
        elif self.accept("{"):
            self.skip_blank()
            while not self.accept("}"):
                self.pair(path)
                self.skip_blank()
                self.accept(",")
                self.skip_blank()
        elif self.text[self.at] in "\"'":
            self.string()
        else:
            self.match(_SCALAR)

    def string(self) -> str:
        quote = next(quote for quote in _STRINGS if self.text.startswith(quote, self.at))
        return self.match(_STRINGS[quote])

    def skip_blank(self) -> None:
        self.match(_BLANK)

    def accept(self, sign: str) -> bool:
        if self.text.startswith(sign, self.at):
            self.at += len(sign)
            return True
        return False

    def match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise AssertionError(f"tomllib took what is not understood at {self.at}")
        self.at = found.end()
        return found[0]
