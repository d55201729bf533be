"""JSON from an untrusted source: parsed only if the memory that it takes is bounded, to values that any code can work with."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any, NoReturn

__all__ = ["JSON_LIMIT", "parse_json"]

JSON_LIMIT = 32 << 20
"""Bytes of a report or plan. The largest wheels that vendors publish have reports of some MiB."""
_CONTAINERS = 1_000_000  # in so many bytes: an empty list or object is two bytes of text, and sixty of memory
_DEPTH = 100  # what relink and others write has less than twenty; Python's stack, which ends such a walk, has about a thousand
_DIGITS = 20  # with a sign, of what 64 bits hold


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
    if len(digits) > _DIGITS or not -1 << 63 <= (number := int(digits)) < 1 << 63:
        _refused(f"{digits[:_DIGITS]}…")
    return number


def _float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refused(text[:_DIGITS])


def _refused(text: str) -> NoReturn:
    raise ValueError(f"{text} is a number that nothing holds")
