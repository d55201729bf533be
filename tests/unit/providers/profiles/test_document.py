"""What is told of a TOML document that is wrong: where it is wrong, and that it goes too deep before tomllib takes long."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.providers.profiles.document import line_of, lines_of, parse_document
from relink.system.errors import UsageError

DOCUMENT = """\
# [not.a.table]
a = 1 # [[no]]
d = [1,
  2]

[t . u]
b.c = 3
[[list]]
v = 1
[list.inner]
v = 1
[[list.deep]]
w = 2
[[list.deep]]
w = 3
[[list]]
[[list.deep]]
w = 4
"""


def test_the_line_of_each_key() -> None:
    lines = lines_of(DOCUMENT)
    assert lines["a",] == 2
    assert lines["t", "u"] == 6
    assert lines["t", "u", "b", "c"] == 7
    assert lines["list", 0, "v"] == 9
    assert lines["list", 0, "inner", "v"] == 11
    assert [lines["list", 0, "deep", number, "w"] for number in (0, 1)] == [13, 15]
    assert lines["list", 1, "deep", 0, "w"] == 18


def test_what_has_no_line_has_that_of_what_is_around_it() -> None:
    lines = lines_of(DOCUMENT)
    assert line_of(lines, ("d", 1, "deeper")) == 3
    assert line_of(lines, ("t", "u", "missing")) == 6
    assert line_of(lines, ()) == 1
    assert line_of(lines, ("missing",)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a" + ".a" * 63 + " = 1",
        "\n".join(f"a.b{number} = 1" for number in range(1000)),
        "x = '" + "." * 100 + "'",
    ],
)
def test_what_is_not_too_deep(text: str) -> None:
    parse_document(text, Path("x.toml"), "profile")


@pytest.mark.parametrize(
    "text",
    [
        "a = 1\nb" + ".a" * 65 + " = 1",
        "a = 1\nb" + " . 'a b'" * 65 + " = 1",
        "a = 1\nb" + ".a" * 100_000 + " = 1",
        "x = " + "[" * 100_000,
        "x = " + "{a=" * 50_000,
    ],
)
def test_what_is(text: str) -> None:
    with pytest.raises(UsageError, match=r"x\.toml(:2)?: the profile is nested too deep"):
        parse_document(text, Path("x.toml"), "profile")
