"""The words for events: their order is from the strictest on."""

from __future__ import annotations

from typing import get_args

from relink.python.events import STRICTNESS, When


def test_the_order_has_every_word() -> None:
    assert get_args(When) == STRICTNESS
    assert STRICTNESS[0] == "certain"
