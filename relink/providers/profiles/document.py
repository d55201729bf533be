"""Read a TOML file and check it against its JSON schema; all problems are reported at once, each with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from relink.providers.profiles.schema import KeyPath, Problem, problems
from relink.system.errors import UsageError
from relink.system.safe_open import read_text
from relink.system.shipped_files import load_schema
from relink.system.system_errors import raise_if_machine_fault

__all__ = [
    "DOCUMENT_LIMIT",
    "check_document",
    "line_of",
    "lines_of",
    "parse_document",
    "read_document",
    "read_named_text",
]

DOCUMENT_LIMIT = 256 << 10
"""Bytes of a TOML file. The largest that is shipped has 10 KiB."""
_MAX_ISSUES = 100  # the list is cut after so many problems

# tomllib takes time and memory quadratic in the parts of a dotted key; text in strings has no such chains of words.
_MOST_PARTS = 64
_DEEP = re.compile(
    rf"(?:(?:[\w-]{{1,80}}+|\"[^\"\n]{{0,80}}+\"|'[^'\n]{{0,80}}+')[ \t]*+\.[ \t]*+){{{_MOST_PARTS}}}"
)
_HEADER = re.compile(r"\s*\[(\[?)([\w.\s-]+)\]")
_KEY = re.compile(r"([\w.\s-]+)=")
_AT = re.compile(r" \(at (?:line (?P<line>\d+), column \d+|end of document)\)$")


def read_document(path: Path, schema: str, what: str) -> dict[str, Any]:
    """Read a TOML file of the kind that `schema` describes.

    :param what: what it should be, for messages: ``profile``.
    :raises UsageError: it cannot be read, is not TOML, or is not what the schema asks for; names FILE:LINE of each problem.
    """
    text = read_named_text(path, DOCUMENT_LIMIT, what)
    data = parse_document(text, path, what)
    check_document(problems(data, load_schema(schema)), text, path, what)
    return data


def read_named_text(path: Path, limit: int, what: str) -> str:
    """Return the text of a file that a user names.

    :param limit: bytes; a larger file is refused.
    :param what: what it should be, for messages.
    :raises UsageError: it cannot be read, or is not UTF-8.
    """
    try:
        return read_text(path, limit)
    except OSError as error:
        raise_if_machine_fault(error, f"{path}: the {what} cannot be read")
        raise UsageError(f"{path}: the {what} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: the {what} cannot be read ({error})") from error


def parse_document(text: str, path: Path, what: str) -> dict[str, Any]:
    """Parse TOML that others wrote.

    :raises UsageError: it is not TOML, or is nested too deep; names FILE:LINE.
    """
    if deep := _DEEP.search(text):
        start = text.count("\n", 0, deep.start()) + 1
        raise UsageError(
            f"{path}:{start}: the {what} is nested too deep: more than {_MOST_PARTS} parts of one key"
        )
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise UsageError(
            f"{path}: the {what} is nested too deep: too many brackets in one another"
        ) from error
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        at = _AT.search(message)
        line = (at and at["line"]) or text.rstrip("\n").count("\n") + 1
        raise UsageError(f"{path}:{line}: not TOML: {_AT.sub('', message)}") from error
    except ValueError as error:  # an integer of more digits than Python makes a number of
        raise UsageError(f"{path}: the {what} cannot be read ({error}); write a smaller number") from error


def check_document(wrong: Iterable[Problem], text: str, path: Path, what: str) -> None:
    """Raise an error that has each problem of a document with its line.

    :param text: the document, in which the problems' places are.
    :raises UsageError: there is a problem.
    """
    found = list(islice(wrong, _MAX_ISSUES))
    if found:
        lines = lines_of(text)
        numbered = sorted((line_of(lines, item.path), item.where, item.message) for item in found)
        issues = [
            f"{path}:{line}: {where}: {text}" if where else f"{path}:{line}: {text}"
            for line, where, text in numbered
        ]
        raise UsageError(f"{path}: not a {what} that this relink understands", issues)


def lines_of(text: str) -> dict[KeyPath, int]:
    """Return the line, from 1, that tables and keys begin on, as far as each line by itself says it.

    Items of lists and of tables in braces have no line of their own, nor has a key in quotation marks.
    """
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}  # of arrays of tables
    table: KeyPath = ()
    for number, written in enumerate(text.split("\n"), 1):
        if header := _HEADER.match(written):
            path: KeyPath = ()
            for part in _parts(header[2]):
                path = (*path, counts[path], part) if path in counts else (*path, part)
            if header[1]:
                counts[path] = counts.get(path, -1) + 1
                path = (*path, counts[path])
            lines.setdefault(table := path, number)
        elif key := _KEY.match(written):
            lines.setdefault((*table, *_parts(key[1])), number)
    return lines


def _parts(key: str) -> list[str]:
    return [part.strip() for part in key.split(".")]


def line_of(lines: Mapping[KeyPath, int], path: KeyPath) -> int:
    """Return the line of a value, or of the nearest thing around it that has one."""
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 1)
