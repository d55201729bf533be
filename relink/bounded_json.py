"""JSON from an untrusted source: parsed only if the memory that it takes is bounded."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["JSON_LIMIT", "parse_json"]

JSON_LIMIT = 32 << 20
"""Bytes of a report or plan. The largest wheels that vendors publish have reports of some MiB."""
_CONTAINERS = 1_000_000  # an empty list or object is two bytes of text, and sixty of memory


def parse_json(text: str) -> Any:
    """Parse a JSON document.

    :raises ValueError: it is none, is larger than :data:`JSON_LIMIT`, is nested deeper than Python's stack allows, has
        more than a million lists and objects, or an integer of more than 4,300 digits.
    """
    if len(text) > JSON_LIMIT:
        raise ValueError(f"larger than {JSON_LIMIT >> 20} MiB")
    if text.count("[") + text.count("{") > _CONTAINERS:
        raise ValueError(f"more than {_CONTAINERS} lists and objects")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
