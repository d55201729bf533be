"""Where things stand in a TOML file: the same keys as tomllib finds, each on the line that it is written on."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relink.providers.profiles.lines import Path, line_of, lines_of
from relink.system.shipped_files import shipped_directory

TRICKY = '''\
# [not.a.table]
a = 1 # [[no]]
"quoted.key" = "a # b ] } = \\" \\\\"
'literal.key'.'b c' = 'C:\\' # '
d = [1, # one ]
  [2, "]"],
  {x = "}", y.z = [3]}, 1979-05-27 07:32:00, -inf]

[t . u]
multi = """
k = 1
[fake]
\\""" still"""
lit = \'\'\'
"""x = 1
\'\'\'
four = """a\\\\""""
after = true

[[list]]
[list.inner]
v = 1
[[list.deep]]
w = 2
[[list.deep]]
w = 3
[[list]]
[[list.deep]]
w = 4
[last]
empty = []
none = {}
'''


def paths_of(value: Any, path: Path = ()) -> Iterator[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from paths_of(item, (*path, key))


def test_the_tricky_one() -> None:
    lines = lines_of(TRICKY)
    assert set(lines) == set(paths_of(tomllib.loads(TRICKY)))
    assert lines[("quoted.key",)] == 3
    assert lines[("literal.key", "b c")] == 4
    assert [lines[("d", number)] for number in range(5)] == [5, 6, 7, 7, 7]
    assert lines[("d", 2, "y", "z", 0)] == 7
    assert lines[("t", "u")] == 9
    assert lines[("t", "u", "lit")] == 14
    assert lines[("t", "u", "four")] == 17
    assert lines[("t", "u", "after")] == 18
    assert lines[("list", 0, "inner", "v")] == 22
    assert [lines[("list", 0, "deep", number, "w")] for number in (0, 1)] == [24, 26]
    assert lines[("list", 1, "deep", 0, "w")] == 29
    assert lines[("last", "none")] == 32


def test_what_has_no_line_has_that_of_what_is_around_it() -> None:
    lines = lines_of("a = 1\n[b]\nc = [\n 1]\n")
    assert line_of(lines, ("b", "c", 0, "deeper")) == 4
    assert line_of(lines, ("b", "missing")) == 2
    assert line_of(lines, ()) == 1
    assert line_of(lines, ("missing",)) == 1


@pytest.mark.parametrize(
    "path", sorted(shipped_directory("profiles").rglob("*.toml")), ids=lambda path: path.name
)
def test_the_shipped_files(path: Any) -> None:
    text = path.read_text()
    lines = lines_of(text)
    assert set(lines) == set(paths_of(tomllib.loads(text)))
    written = text.split("\n")
    for place, line in lines.items():
        if isinstance(place[-1], str):
            assert place[-1] in written[line - 1]


KEY = st.sampled_from(["a", "b-1", '"c d"', "'e.f'", '"\\u0067"', "h . i", 'j."k".l', "3"])
COMMENT = st.sampled_from(["", " # x", " # [[y]] = '", "\t#"])
BREAK = st.sampled_from(["", " ", "\n", " # c ]\n", "\r\n"])
STRING = st.sampled_from(
    [
        '"x"',
        '"\\""',
        "'y#'",
        '"""\n[z]\n"""',
        "'''a\nb = 1'''",
        '"""\\\n  """',
        '""""q""""',
        "''''''",
        '""',
        "''",
    ]
)
SCALAR = st.one_of(
    STRING, st.sampled_from(["1", "-1.5e3", "true", "1979-05-27 07:32:00Z", "07:32:00", "nan"])
)


@st.composite
def array(draw: st.DrawFn, items: st.SearchStrategy[str]) -> str:
    inside = draw(st.lists(items, max_size=3))
    gaps = [draw(BREAK) for _ in range(2 * len(inside) + 1)]
    text = gaps[0]
    for number, item in enumerate(inside):
        comma = "," if number + 1 < len(inside) or draw(st.booleans()) else ""
        text += f"{gaps[2 * number]}{item}{gaps[2 * number + 1]}{comma}"
    return f"[{text}{gaps[-1]}]"


@st.composite
def inline(draw: st.DrawFn, items: st.SearchStrategy[str]) -> str:
    pairs = draw(st.lists(st.tuples(KEY, items), max_size=3, unique_by=lambda pair: pair[0]))
    return "{ " + ", ".join(f"{key} = {item}" for key, item in pairs) + " }"


VALUE = st.recursive(SCALAR, lambda items: st.one_of(array(items), inline(items)), max_leaves=6)
LINE = st.one_of(
    st.builds("{} ={} {}{}".format, KEY, st.sampled_from(["", " "]), VALUE, COMMENT),
    st.builds("[{}]{}".format, KEY, COMMENT),
    st.builds("[[{}]]{}".format, KEY, COMMENT),
    COMMENT,
)


@given(st.lists(LINE, max_size=12).map("\n".join))
def test_any_document_that_tomllib_takes(text: str) -> None:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    lines = lines_of(text)
    assert set(lines) == set(paths_of(data))
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())
