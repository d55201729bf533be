"""Words of sentences; which characters are spelled out is in hostile/test_output.py."""

from __future__ import annotations

import json

import pytest

from relink.system.text import escape_untrusted, format_json, join_truncated, join_with_and, pluralize


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("libé.so", "libé.so"),
        ("a\nb", r"a\nb"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\u202eb", r"a\u202eb"),
        ("\U000e0001", r"\U000e0001"),
        ("\udcff", r"\udcff"),
        (r"a\n", r"a\n"),
        ("a##[x", r"a\x23#[x"),
        ("###vso[x", r"\x23\x23#vso[x"),
        ("#\ufe0f#", r"#\ufe0f#"),
        ("\U000e0100a", r"\U000e0100a"),
        ("::x a ::y", r"\x3a:x a \x3a:y"),
        ("std::a #1", "std::a #1"),
    ],
)
def test_escaped(text: str, spelled: str) -> None:
    assert escape_untrusted(text) == spelled


def test_json_text() -> None:
    document = {"##[x": ["###", "\\##[", "é::"]}
    text = format_json(document)
    assert json.loads(text) == document
    assert text.isascii()
    assert "##" not in text


def test_pluralize() -> None:
    assert [pluralize(number, "symbol") for number in (0, 1, 2)] == ["0 symbols", "1 symbol", "2 symbols"]
    assert pluralize(2, "library", "libraries") == "2 libraries"
    assert pluralize(1, "library", "libraries") == "1 library"


def test_join_truncated() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    assert join_truncated(names[:4]) == "a, b, c, d"
    assert join_truncated(names) == "a, b, c, d and 2 more"
    assert join_truncated(names, 1) == "a and 5 more"


def test_join_with_and() -> None:
    assert [join_with_and(["a", "b", "c"][:count]) for count in range(4)] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
