"""How deep a TOML document goes, before tomllib sees it."""

from __future__ import annotations

import pytest

from relink.providers.profiles.nesting import too_deep


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
