"""JSON data as dataclasses: what does not fit is named, and a hostile number of objects costs little."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, Literal

import pytest

from relink.system.errors import UsageError
from relink.system.typed import typed


@dataclasses.dataclass(frozen=True)
class Small:
    word: str
    kind: Literal["a", "b"] = "a"
    parts: tuple[str, ...] = ()


def test_values_and_their_places() -> None:
    assert typed(tuple[Small, ...], [{"word": "x", "parts": ["y"]}], "it") == (Small("x", parts=("y",)),)
    assert typed(Mapping[str, float], {"a": 1}, "it") == {"a": 1.0}
    assert typed(Small | None, None, "it") is None
    assert typed(Any, [1], "it") == [1]
    with pytest.raises(UsageError, match=r"^it\[0\].kind: 'c' is none of \('a', 'b'\)$"):
        typed(tuple[Small, ...], [{"word": "x", "kind": "c"}], "it")
    with pytest.raises(UsageError, match="int was expected"):
        typed(int, True, "it")


def test_plan_size_types_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The types of a dataclass's fields were computed for each object: 440,000 findings took 71 s."""
    asked = []
    real = typing.get_type_hints

    def hints(kind: type) -> dict[str, Any]:
        asked.append(kind)
        return real(kind)

    monkeypatch.setattr(typing, "get_type_hints", hints)

    @dataclasses.dataclass(frozen=True)
    class Other:
        number: int

    assert len(typed(tuple[Other, ...], [{"number": 1}] * 1000, "it")) == 1000
    assert asked == [Other]


def test_plan_size_a_list_is_bounded() -> None:
    with pytest.raises(UsageError, match=r"^it: a list of 200001; at most 200000 are read$"):
        typed(tuple[str, ...], ["x"] * 200_001, "it")
    assert len(typed(tuple[str, ...], ["x"] * 200_000, "it")) == 200_000


def test_plan_size_long_keys_are_not_repeated() -> None:
    """The name of a place is made anew for each value below it; a message names few keys."""
    long = "k" * 1_000_000
    with pytest.raises(UsageError) as caught:
        typed(Mapping[str, tuple[str, ...]], {long: ["x", 1]}, "it")
    assert len(caught.value.message) < 200
    with pytest.raises(UsageError) as caught:
        typed(Small, {long + str(number): 1 for number in range(20)}, "it")
    assert len(caught.value.message) < 2000
