"""What is told of a TOML document that is wrong: where it is wrong, and that it goes too deep before tomllib takes long."""

from __future__ import annotations

import copy
import functools
import time
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relink.providers.profiles.document import (
    KeyPath,
    find_problems,
    line_of,
    lines_of,
    parse_document,
    too_deep,
)
from relink.system.errors import UsageError
from relink.system.shipped_files import load_schema, shipped_directory
from tests.support.amount import amount

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
        "a" + ".a" * 64,
        "\n".join(["a.b = 1"] * 1000),
        "x = " + "[" * 32 + "]" * 32,
        "x = [[],[]]\n" * 100,
        "x = '" + "." * 100 + "'",
        'x = "' + "[" * 100 + '"',
        'x = """\n' + "." * 100 + '\\"""" # [[[',
        "# " + "[" * 100,
    ],
)
def test_what_is_not_too_deep(text: str) -> None:
    assert too_deep(text) is None


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("a = 1\nb" + ".a" * 65, 2, "more than 64 dots"),
        ("x = '''\n\n'''\n" + "[" * 33, 4, "brackets more than 32 deep"),
        ("x = [\n" * 33, 33, "brackets more than 32 deep"),
        ("x = 'it' # '\n" + "{" * 33, 2, "brackets more than 32 deep"),
        ('x = "\\"" ' + "." * 65, 1, "more than 64 dots"),
    ],
)
def test_what_is(text: str, line: int, what: str) -> None:
    found = too_deep(text)
    assert found is not None
    assert found[0] == line
    assert what in found[1]


@pytest.mark.parametrize("part", ['"\\"".', "a" * 100 + ".", "[", "{a="])
def test_what_goes_too_deep_takes_no_time(part: str) -> None:
    """250 kB of it: 32 s and 9.6 GiB where it got to tomllib."""
    text = "a = 1\nb." + part * (250_000 // len(part))
    started = time.process_time()
    with pytest.raises(UsageError, match=r"x\.toml:2: the profile is nested too deep \("):
        parse_document(text, Path("x.toml"), "profile")
    assert time.process_time() - started < 1


DOCUMENTS = [
    ("profile", tomllib.loads(path.read_text()))
    for path in sorted(shipped_directory("profiles").glob("packages/*.toml"))
] + [
    (name, tomllib.loads((shipped_directory("profiles") / f"{name}.toml").read_text()))
    for name in ("rocm/rocm", "rocm/rocm-names")
]
FULL: dict[str, Any] = {
    "schema": "relink.profile/1",
    "name": "x",
    "source": "s",
    "distributions": ["a-b"],
    "imports": ["a.b"],
    "nixpkgs": "a-b",
    "variants": ["a/*.so"],
    "preload": ["a/b.so"],
    "rpath": {"drop": ["$ORIGIN/../x"]},
    "dlopen": [{"member": "a*", "sonames": ["libx.so.*"], "why": "w"}],
    "same_abi": [{"sonames": ["libx.so.1", "libx.so.2"], "why": "w"}],
    "hints": [{"code": "RLK101", "subject": "x[ab]", "text": "t"}],
    "releases": [{"distribution": "a", "version": "1", "gpus": ["gfx90a:xnack+"], "source": "s"}],
}
DOCUMENTS.append(("profile", FULL))


@functools.cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = load_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def places(name: str, data: Any) -> tuple[set[KeyPath], set[KeyPath]]:
    """Where relink and jsonschema see something wrong. A key that does not exist is laid at its table's door."""
    ours = {
        item.path[:-1] if item.message.startswith("no such key") else item.path
        for item in find_problems(data, load_schema(name))
    }
    theirs = {tuple(error.absolute_path) for error in validator(name).iter_errors(data)}
    return ours, theirs


@pytest.mark.parametrize(("name", "data"), DOCUMENTS)
def test_what_is_shipped_is_right(name: str, data: Any) -> None:
    assert places(name, data) == (set(), set())


def test_a_keyword_that_is_not_understood_is_refused() -> None:
    with pytest.raises(ValueError, match="maxLength"):
        list(find_problems("x", {"type": "string", "maxLength": 3}))


@pytest.mark.parametrize("name", ["profile", "rocm/rocm", "rocm/rocm-names"])
def test_every_key_has_its_words(name: str) -> None:
    """What is not a list or a table of known keys says by its title what it is, since messages are made of it."""

    def walk(schema: Any) -> None:
        if isinstance(schema, dict):
            if "pattern" in schema:
                assert schema["title"]
                assert schema["type"] == "string"
            for item in schema.values():
                walk(item)

    walk({key: value for key, value in load_schema(name).items() if key in ("properties", "$defs")})


WORDS = [
    "", " ", "x", "a\n", "../a", "a/../b", "a/..", "..", "/a", "a[b", "a[b]", "a[!b]", "a[]", "a]", "a\\b", "*", "?", "$ORIGIN",
    "$ORIGIN/x", "${ORIGIN}/*", "ORIGIN/x", "$ORIGIN/[", "libx.so", "libx.so.1", "libx.so.1\n", "libx.so.*", "lib/x.so", "RLK101",
    "RLK*", "RLK1000", "rlk101", "gfx90a", "gfx9-generic", "GFX", "a.b", "a..b", "1a", "a-b", "-a", "relink.profile/1", "é.so",
]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(WORDS),
    st.text(max_size=4),
    st.sampled_from(
        [True, 3, 1.5, [], {}, ["x", "x"], [1], [1, True], {"x": 1}, [[]], [{}], {"drop": ["x"]}]
    ),
)
KEYS = [
    *load_schema("profile")["properties"],
    *load_schema("rocm/rocm")["properties"],
    "drop",
    "why",
    "text",
    "sonames",
    "6",
    "8",
    "zzz",
]


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, Any]:
    """A document with one to three changes, each at a random place: another value, another key, one more, one less."""
    name, original = draw(st.sampled_from(DOCUMENTS))
    data = copy.deepcopy(original)
    for _ in range(draw(st.integers(1, 3))):
        node: Any = data
        while True:
            inner = [
                item
                for item in (node.values() if isinstance(node, dict) else node)
                if isinstance(item, dict | list) and item
            ]
            if not inner or not draw(st.integers(0, 3)):
                break
            node = draw(st.sampled_from(inner[:8]))
        value = copy.deepcopy(draw(VALUES))  # or a list may end up inside of itself
        if isinstance(node, dict):
            key = draw(st.sampled_from([*node, *KEYS]))
            change = draw(st.sampled_from(["pop", "set", "set", "clear"]))
            if change == "pop":
                node.pop(key, None)
            elif change == "set":
                node[key] = value
            else:
                node.clear()
        elif (change := draw(st.sampled_from(["clear", "repeat", "append", "set"]))) == "clear":
            node.clear()
        elif change == "repeat" and node:
            node.append(copy.deepcopy(node[0]))
        elif change == "append":
            node.append(value)
        elif node:
            node[draw(st.integers(0, len(node) - 1))] = value
    return name, data


@settings(max_examples=amount(500))
@given(damaged())
@example(("profile", {"schema": "relink.profile/1", "variants": [1, True]}))
def test_relink_and_jsonschema_never_disagree(found: tuple[str, Any]) -> None:
    ours, theirs = places(*found)
    assert ours == theirs
