"""JSON of others: what would take all memory or the whole stack is refused before or while it is parsed."""

from __future__ import annotations

import ast
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

import relink
from relink.system.bounded_json import JSON_LIMIT, parse_json, read_typed
from relink.system.errors import UsageError


def test_a_document() -> None:
    assert parse_json('{"a": [1, 2.5, null, "\\u00e9"]}') == {"a": [1, 2.5, None, "é"]}


def test_the_largest_document() -> None:
    text = '"' + "x" * (JSON_LIMIT - 2) + '"'
    assert len(parse_json(text)) == JSON_LIMIT - 2
    with pytest.raises(ValueError, match="larger than 32 MiB"):
        parse_json(text + " ")


@pytest.mark.slow(reason="a million values")
def test_lists_and_objects_are_counted() -> None:
    assert len(parse_json("[" + "[]," * 999_998 + "[]]")) == 999_999
    with pytest.raises(ValueError, match="more than 1000000 lists and objects"):
        parse_json("[" + "{}," * 999_999 + "[]]")


@pytest.mark.slow(reason="as many values as twice the length allows")
def test_a_larger_limit_allows_more() -> None:
    text = "[" + "[]," * 1_999_998 + "[]]"
    with pytest.raises(ValueError, match="more than 1000000 lists and objects"):
        parse_json(text)
    assert len(parse_json(text, 2 * JSON_LIMIT)) == 1_999_999


@pytest.mark.parametrize("depth", [101, 900, 500_000])
@pytest.mark.parametrize("pair", ["[]", '{"a":}'])
def test_json_recursion(pair: str, depth: int) -> None:
    """What the parser could take is refused, too, where code that walks through it later could not."""
    begin, end = pair[:-1], pair[-1]
    assert repr(parse_json(begin * 99 + "[1]" + end * 99)).count("1") == 1
    with pytest.raises(ValueError, match="nested too deep"):
        parse_json(begin * (depth - 1) + "[1]" + end * (depth - 1))


@pytest.mark.parametrize(
    "text", ["1e400", "-1e400", "NaN", "Infinity", "-Infinity", str(1 << 63), str(-(1 << 63) - 1), "9" * 4000]
)
def test_json_recursion_numbers(text: str) -> None:
    """int() of infinity, and most of what the system takes as a number of 64 bits, raise OverflowError."""
    with pytest.raises(ValueError, match="a number that nothing holds"):
        parse_json(f'{{"copy": [{text}]}}')


def test_numbers() -> None:
    largest = (1 << 63) - 1
    assert parse_json(f"[{largest}, {-largest - 1}, 1e300, -0, 1E-400]") == [
        largest,
        -largest - 1,
        1e300,
        0,
        0.0,
    ]


TRUSTED = {
    "system/bounded_json.py",
    "system/findings/model.py",
    "indexes/build/store.py",
    "providers/distribution.py",
    "system/shipped_files.py",
    "python/syntax.py",
}
"""What parses its own data: schemas and tables that are shipped, the database of an index, and the user's own cache of facts."""


def test_json_recursion_everywhere() -> None:
    """Nothing else in relink parses JSON by itself."""
    package = Path(relink.__file__).parent
    parsing = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "json.load" in (source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr in ("load", "loads")
        and isinstance(node.value, ast.Name)
        and node.value.id == "json"
    }
    assert parsing <= TRUSTED


@pytest.mark.parametrize("text", ["", "{", "[1,]"])
def test_what_is_no_document(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expect|[Ii]llegal"):
        parse_json(text)


class Small(msgspec.Struct, frozen=True):
    word: str
    kind: Literal["a", "b"] = "a"
    parts: tuple[str, ...] = ()


def test_values_and_their_places() -> None:
    assert read_typed(tuple[Small, ...], [{"word": "x", "parts": ["y"]}], "it") == (Small("x", parts=("y",)),)
    assert read_typed(Mapping[str, float], {"a": 1}, "it") == {"a": 1.0}
    assert read_typed(Small | None, None, "it") is None
    assert read_typed(Any, [1], "it") == [1]
    with pytest.raises(UsageError, match=r"^it\[0\].kind: Invalid enum value 'c'$"):
        read_typed(tuple[Small, ...], [{"word": "x", "kind": "c"}], "it")
    with pytest.raises(UsageError, match=r"^it: Expected `int`, got `bool`$"):
        read_typed(int, True, "it")


@pytest.mark.parametrize("value", [{"a": [{"word": "x", "new": 1}]}, {"a": [{"word": "x", "parts": [1]}]}])
def test_each_part_is_looked_at(value: object) -> None:
    with pytest.raises(
        UsageError, match=r"^it\.?\S*a\S*: (unknown keys \['new'\]|Expected `str`, got `int`)$"
    ):
        read_typed(Mapping[str, tuple[Small, ...]], value, "it")


def test_plan_size_many_facts_are_read_soon() -> None:
    """440,000 findings once took 71 s, as the types of their fields were computed for each."""
    begun = time.process_time()
    assert len(read_typed(tuple[Small, ...], [{"word": "x"}] * 200_000, "it")) == 200_000
    assert time.process_time() - begun < 5


def test_plan_size_a_list_is_bounded() -> None:
    with pytest.raises(UsageError, match=r"^it: a list of 200001; at most 200000 are read$"):
        read_typed(tuple[str, ...], ["x"] * 200_001, "it")
    assert len(read_typed(tuple[str, ...], ["x"] * 200_000, "it")) == 200_000
    with pytest.raises(UsageError, match="a list of 200001"):
        read_typed(Mapping[str, Any], {"deep": {"in": ["x"] * 200_001}}, "it")


def test_plan_size_long_keys_are_not_repeated() -> None:
    """The name of a place is made anew for each value below it; a message names few keys."""
    long = "k" * 1_000_000
    with pytest.raises(UsageError) as caught:
        read_typed(Mapping[str, tuple[str, ...]], {long: ["x", 1]}, "it")
    assert len(caught.value.message) < 200
    with pytest.raises(UsageError) as caught:
        read_typed(Small, {long + str(number): 1 for number in range(20)}, "it")
    assert len(caught.value.message) < 2000
