"""Read a TOML file and check it against its JSON schema; all problems are reported at once, each with its line.

Of JSON Schema (draft 2020-12) it knows what the shipped schemas use, and refuses a schema that uses more. Editors complete keys
by the same files.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from relink.system.errors import UsageError, raise_if_machine_fault
from relink.system.safe_open import read_text
from relink.system.shipped_files import load_schema

DOCUMENT_LIMIT = 256 << 10
"""Bytes of a TOML file. The largest that is shipped has 10 KiB."""
# The most problems of one document that are listed.
_MAX_ISSUES = 100

# tomllib takes time and memory quadratic in the number of parts of a dotted key, and recurses for each bracket.
# The most dots of one line outside of strings: in keys, and in numbers, of which profiles have none.
_PARTS = 64
_BRACKETS = 32
# A string that is not closed ends with the text: tomllib says so, and looking for its end again and again would take time with
# the square of the text.
# Groups are not possessive: Python before 3.11.5 leaves such groups too early.
_SIGN = re.compile(
    r'"""(?:\\[\s\S]|(?!""")[^\\])*(?:"{3,5}|\\?\Z)'
    r"|'''(?:(?!''')[\s\S])*(?:'{3,5}|\Z)"
    r'|"(?:\\.|[^"\\\n])*"?'
    r"|'[^'\n]*+'?"
    r"|\#[^\n]*+"
    r"|[.\[\]{}\n]"
)
_HEADER = re.compile(r"\s*\[(\[?)([\w.\s-]+)\]")
_KEY_LINE = re.compile(r"([\w.\s-]+)=")
_AT = re.compile(r" \(at (?:line (?P<line>\d+), column \d+|end of document)\)$")


def read_document(path: Path, schema: str, what: str) -> dict[str, Any]:
    """Read a TOML file of the kind that `schema` describes.

    :param what: what it should be, for messages: ``profile``.
    :raises UsageError: it cannot be read, is not TOML, or is not what the schema asks for; names FILE:LINE of each problem.
    """
    text = read_named_text(path, DOCUMENT_LIMIT, what)
    data = parse_document(text, path, what)
    check_document(find_problems(data, load_schema(schema)), text, path, what)
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
    if deep := too_deep(text):
        raise UsageError(f"{path}:{deep[0]}: the {what} is nested too deep ({deep[1]})")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise UsageError(f"{path}: the {what} is nested too deep") from error
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        at = _AT.search(message)
        line = (at and at["line"]) or text.rstrip("\n").count("\n") + 1
        raise UsageError(f"{path}:{line}: not TOML: {_AT.sub('', message)}") from error
    except ValueError as error:  # an integer of more digits than Python makes a number of
        raise UsageError(f"{path}: the {what} cannot be read ({error}); write a smaller number") from error


def too_deep(text: str) -> tuple[int, str] | None:
    """Return the line, from 1, on which a document goes too deep, and what goes too deep there; None where nothing does.

    Takes time in proportion to the text, whatever is in it.
    """
    line, dots, depth = 1, 0, 0
    for found in _SIGN.finditer(text):
        sign = found[0]
        if sign == ".":
            dots += 1
            if dots > _PARTS:
                return line, f"more than {_PARTS} dots in one line outside of strings"
        elif sign in "[{":
            depth += 1
            if depth > _BRACKETS:
                return line, f"brackets more than {_BRACKETS} deep"
        elif sign in "]}":
            depth -= 1
        elif sign == "\n":
            line, dots = line + 1, 0
        else:
            line += sign.count("\n")
    return None


def check_document(wrong: Iterable[Problem], text: str, path: Path, what: str) -> None:
    """Raise an error that has each problem of a document with its line.

    :param text: the document, in which the problems' places are.
    :raises UsageError: there is a problem.
    """
    if found := list(islice(wrong, _MAX_ISSUES)):
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
        path: KeyPath = ()
        if header := _HEADER.match(written):
            for part in _parts(header[2]):
                path = (*path, counts[path], part) if path in counts else (*path, part)
            if header[1]:
                counts[path] = counts.get(path, -1) + 1
                path = (*path, counts[path])
            table = path
        elif key := _KEY_LINE.match(written):
            path = (*table, *_parts(key[1]))
        else:
            continue
        # A table begins with its first key, also where no header names it.
        for end in range(1, len(path) + 1):
            lines.setdefault(path[:end], number)
    return lines


def _parts(key: str) -> list[str]:
    return [part.strip() for part in key.split(".")]


def line_of(lines: Mapping[KeyPath, int], path: KeyPath) -> int:
    """Return the line of a value, or of the nearest thing around it that has one."""
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 1)


KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the top of a document: ``("releases", 0, "gpus")``."""

Schema: TypeAlias = Mapping[str, Any]

# Characters of a key or value that are looked at, and shown.
_KEY = 60
_TYPES: Mapping[str, tuple[type, str]] = {
    "object": (dict, "a table"),
    "array": (list, "a list"),
    "string": (str, "a string"),
    "boolean": (bool, "true or false"),
    "integer": (int, "a whole number"),
}
_KNOWN = frozenset(
    {"$schema", "$id", "$defs", "$ref", "title", "description", "type", "const", "pattern", "required"}
    | {"properties", "additionalProperties", "items", "minItems", "minProperties", "minimum", "uniqueItems"}
)


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong: with the value at `path`, or with the key itself where that does not exist."""

    path: KeyPath
    message: str

    @property
    def where(self) -> str:
        """The place in words: ``releases[0].gpus``; empty for the document."""
        text = ""
        for part in self.path:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text


def find_problems(value: Any, schema: Schema) -> Iterator[Problem]:
    """Yield everything about `value` that a schema does not allow.

    :raises ValueError: the schema uses a keyword that is not known here.
    """
    yield from _check(value, schema, schema, ())


def _check(value: Any, schema: Schema, root: Schema, path: KeyPath) -> Iterator[Problem]:
    if unknown := set(schema) - _KNOWN:
        raise ValueError(f"the schema uses {sorted(unknown)}, which are not understood here")
    if "$ref" in schema:
        yield from _check(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, path)
    # The title of a schema is a noun for the value.
    expected = schema.get("title")
    if "const" in schema and value != schema["const"]:
        yield Problem(path, f'"{schema["const"]}" was expected')
    if "type" in schema:
        kind, noun = _TYPES[schema["type"]]
        # bool is a subclass of int.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            yield Problem(path, f"{expected or noun} was expected, not {_shown(value)}")
            return
    if isinstance(value, int) and "minimum" in schema and value < schema["minimum"]:
        yield Problem(path, f"{expected} from {schema['minimum']} on was expected, not {_shown(value)}")
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield Problem(path, f"{expected} was expected, not {_shown(value)}")
    if isinstance(value, list):
        yield from _check_list(value, schema, root, path)
    if isinstance(value, dict):
        yield from _check_table(value, schema, root, path)


def _check_list(value: list[Any], schema: Schema, root: Schema, path: KeyPath) -> Iterator[Problem]:
    if len(value) < schema.get("minItems", 0):
        yield Problem(path, f"{schema['minItems']} or more were expected, not {len(value)}")
    if schema.get("uniqueItems"):
        seen = set[str]()
        for item in value:
            # repr() serves for tables too, which have no hash. It tells true from 1, which Python takes for equal.
            try:
                text = repr(item)
            # An integer of thousands of digits: it is no item of any list, which is told below.
            except ValueError:
                continue
            if text in seen:
                yield Problem(path, f"{_shown(item)} stands there twice")
            seen.add(text)
    for number, item in enumerate(value):
        yield from _check(item, schema.get("items", {}), root, (*path, number))


def _check_table(value: dict[str, Any], schema: Schema, root: Schema, path: KeyPath) -> Iterator[Problem]:
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", {})
    if len(value) < schema.get("minProperties", 0):
        yield Problem(path, "it is empty")
    for key in schema.get("required", ()):
        if key not in value:
            yield Problem(path, f"the key {key} is missing")
    for key, item in value.items():
        if key in known:
            yield from _check(item, known[key], root, (*path, key))
        elif others is False:
            near = difflib.get_close_matches(key[:_KEY], known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
            yield Problem((*path, key), f"no such key; {hint}")
        else:
            yield from _check(item, others, root, (*path, key))


def _shown(value: Any) -> str:
    """Format a value as TOML, truncated."""
    if isinstance(value, str):
        return f'"{value[:_KEY]}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    # Python refuses to write an integer of more than 4,300 digits, which TOML can have as 0x….
    if isinstance(value, int) and abs(value) >> 64:
        return "a large number"
    return "a list" if isinstance(value, list) else str(value)
