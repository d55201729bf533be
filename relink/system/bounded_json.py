"""JSON from an untrusted source: parsed within bounds of memory, and read as facts with every step checked."""

from __future__ import annotations

import functools
import itertools
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, NoReturn

import msgspec

from relink.system.errors import UsageError

JSON_LIMIT = 32 << 20
"""Bytes of a report or plan. The largest wheels that vendors publish have reports of some MiB."""
# Lists and objects in JSON_LIMIT bytes: an empty one is two bytes of text, and sixty of memory.
_CONTAINERS = 1_000_000
# Levels: what relink and others write has less than twenty; Python's stack, which ends such a walk, has about a thousand.
_DEPTH = 100
# Characters of an integer of 64 bits, with its sign.
_DIGITS = 20


def parse_json(text: str, limit: int = JSON_LIMIT) -> Any:
    """Parse a JSON document.

    :param limit: its largest length. Of lists and objects it may have a million for :data:`JSON_LIMIT`, and as many more as this
        is larger.
    :raises ValueError: it is none, is larger, has more lists and objects or a depth of more than a hundred of them, or a number
        that neither a signed integer of 64 bits nor a finite float holds.
    """
    most = _CONTAINERS * max(limit // JSON_LIMIT, 1)
    if len(text) > limit:
        raise ValueError(f"larger than {limit >> 20} MiB")
    # Counted before parsing makes them. A bracket in a string counts, too, which makes the bound stricter only.
    if text.count("[") + text.count("{") > most:
        raise ValueError(f"more than {most} lists and objects")
    try:
        document = json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_refused)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    level = [document] if isinstance(document, dict | list) else []
    for _ in range(_DEPTH):
        values = [element.values() if isinstance(element, dict) else element for element in level]
        level = [value for value in itertools.chain.from_iterable(values) if isinstance(value, dict | list)]
        if not level:
            return document
    raise ValueError("nested too deep")


def _integer(digits: str) -> int:
    # The length first: the time of int() grows with the square of the number of digits.
    if len(digits) > _DIGITS or not -1 << 63 <= (number := int(digits)) < 1 << 63:
        _refused(f"{digits[:_DIGITS]}…")
    return number


def _float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refused(text[:_DIGITS])


def _refused(text: str) -> NoReturn:
    raise ValueError(f"{text} is a number that nothing holds")


# Items of one list: the findings or the edges of thousands of libraries.
_MOST = 200_000
_SHOWN = 8
_KEY = 80  # characters of one key


def read_typed(kind: Any, value: Any, where: str, *, strict: bool = True) -> Any:
    """Turn JSON data into `kind`, checking every step; `where` names the place in messages.

    :param strict: a key that `kind` does not know is an error; otherwise it is passed over.
    :raises UsageError: the data does not fit.
    """
    if kind is type(value) or kind is Any:
        return value
    origin, arguments, fields, required = _parts(kind)
    if (fields is not None or origin in (dict, Mapping)) and not isinstance(value, dict):
        raise UsageError(f"{where}: an object was expected")
    if fields is not None:
        if not required <= value.keys() or (strict and not value.keys() <= fields.keys()):
            unknown, missing = value.keys() - fields.keys(), required - value.keys()
            raise UsageError(f"{where}: unknown keys {_shown(unknown)}, missing keys {_shown(missing)}")
        return kind(
            **{
                name: read_typed(fields[name], item, f"{where}.{name}", strict=strict)
                for name, item in value.items()
                if name in fields
            }
        )
    if origin is tuple:
        if not isinstance(value, list):
            raise UsageError(f"{where}: a list was expected")
        if len(value) > _MOST:
            raise UsageError(f"{where}: a list of {len(value)}; at most {_MOST} are read")
        if arguments[1:] == (Ellipsis,):
            return tuple(
                read_typed(arguments[0], item, f"{where}[{number}]", strict=strict)
                for number, item in enumerate(value)
            )
        if len(value) != len(arguments):
            raise UsageError(f"{where}: {len(arguments)} items were expected")
        pairs = enumerate(zip(arguments, value, strict=True))
        return tuple(
            read_typed(part, item, f"{where}[{number}]", strict=strict) for number, (part, item) in pairs
        )
    if origin in (dict, Mapping):
        return {
            key: read_typed(arguments[1], item, f"{where}.{key[:_KEY]}", strict=strict)
            for key, item in value.items()
        }
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        kinds = [part for part in arguments if part is not type(None)]
        # Of the unions only those of plain values have several kinds.
        if len(kinds) > 1 and not isinstance(value, dict | list):
            return read_typed(next((part for part in kinds if type(value) is part), kinds[0]), value, where)
        return read_typed(kinds[0], value, where, strict=strict)
    if origin is Literal:
        if value not in arguments:
            raise UsageError(f"{where}: {value!r} is none of {arguments}")
        return value
    if kind is float and type(value) is int:
        return float(value)
    raise UsageError(f"{where}: {kind.__name__} was expected")


# Cached, since a plan has many objects of each kind.
@functools.cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any] | None, frozenset[str]]:
    """Return the origin and the arguments of a type; of a fact the types of its fields, and those without a default."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return typing.get_origin(kind), typing.get_args(kind), None, frozenset()
    fields = msgspec.structs.fields(kind)
    required = frozenset(field.name for field in fields if field.required)
    return None, (), {field.name: field.type for field in fields}, required


def _shown(keys: typing.AbstractSet[str]) -> list[str]:
    return [key[:_KEY] for key in sorted(keys)[:_SHOWN]]
