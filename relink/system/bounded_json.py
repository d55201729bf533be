"""JSON from an untrusted source: parsed within bounds of memory, and read as facts with every step checked."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

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
    :raises UsageError: the data does not fit, or has a list of more than 200,000 items.
    """
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, list) and len(part) > _MOST:
            raise UsageError(f"{where}: a list of {len(part)}; at most {_MOST} are read")
        parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        pending += [inner for inner in parts if isinstance(inner, dict | list)]
    try:
        found = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise UsageError(f"{where}{place.removesuffix('`')}: {message}") from error
    if strict:
        _refuse_unknown_keys(found, value, where)
    return found


def _refuse_unknown_keys(found: Any, value: Any, where: str) -> None:
    if isinstance(found, msgspec.Struct) and isinstance(value, dict):
        if unknown := value.keys() - {*found.__struct_fields__}:
            shown = [key[:_KEY] for key in sorted(unknown)[:_SHOWN]]
            raise UsageError(f"{where}: unknown keys {shown}")
        for name, inner in value.items():
            _refuse_unknown_keys(getattr(found, name), inner, f"{where}.{name}")
    elif isinstance(found, Mapping):
        for key, inner in value.items():
            _refuse_unknown_keys(found[key], inner, f"{where}.{key[:_KEY]}")
    elif isinstance(found, tuple):
        for number, (one, inner) in enumerate(zip(found, value, strict=True)):
            _refuse_unknown_keys(one, inner, f"{where}[{number}]")
