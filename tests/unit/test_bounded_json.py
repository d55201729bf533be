"""JSON of others: what would take all memory or the whole stack is refused before or while it is parsed."""

from __future__ import annotations

import pytest

from relink.bounded_json import JSON_LIMIT, parse_json


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


def test_depth() -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        parse_json("[" * 500_000)


@pytest.mark.parametrize("text", ["", "{", "[1,]", "1" * 5000])
def test_what_is_no_document(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expect|Exceeds|[Ii]llegal"):
        parse_json(text)
