"""How lists are put into sentences."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["several", "some"]

_SHOWN = 4


def several(number: int, thing: str, things: str | None = None) -> str:
    """Return ``1 symbol`` or ``3 symbols``."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"


def some(names: Sequence[str], shown: int = _SHOWN) -> str:
    """Return the first names, and how many more there are: ``a, b and 3 more``."""
    text = ", ".join(names[:shown])
    return f"{text} and {len(names) - shown} more" if len(names) > shown else text
