"""Check data against a JSON schema that is shipped with relink; editors complete keys by the same file.

Of JSON Schema (draft 2020-12) it knows what the shipped schemas use, and refuses a schema that uses more.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["KeyPath", "Problem", "problems"]

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the top of a document: ``("releases", 0, "gpus")``."""

Schema: TypeAlias = Mapping[str, Any]

_KEY = 60  # characters of a key or value that are looked at, and shown
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


@dataclass(frozen=True, slots=True)
class Problem:
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


def problems(value: Any, schema: Schema) -> Iterator[Problem]:
    """Yield everything about `value` that a schema does not allow.

    :raises ValueError: the schema uses a keyword that is not known here.
    """
    yield from _check(value, schema, schema, ())


def _check(value: Any, schema: Schema, root: Schema, path: KeyPath) -> Iterator[Problem]:
    if unknown := set(schema) - _KNOWN:
        raise ValueError(f"the schema uses {sorted(unknown)}, which are not understood here")
    if "$ref" in schema:
        yield from _check(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, path)
    expected = schema.get("title")  # what a value is, as a noun
    if "const" in schema and value != schema["const"]:
        yield Problem(path, f'"{schema["const"]}" was expected')
    if "type" in schema:
        kind, noun = _TYPES[schema["type"]]
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
            text = repr(item)  # of a table, too; and true is not 1, though Python has it so
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
    """A value as TOML would have it, as far as that is short."""
    if isinstance(value, str):
        return f'"{value[:_KEY]}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, int) and abs(value) >> 64:  # Python writes no integer of more than 4,300 digits
        return "a large number"
    return "a list" if isinstance(value, list) else str(value)
