"""Nix's syntax for what comes out of wheels; tests/nix has it evaluated by Nix."""

from __future__ import annotations

import pytest

from relink.report.nix.text import nix_attribute, nix_comment, nix_list, nix_string
from relink.system.errors import UsageError


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("a", '"a"'),
        ('a"b\\c', r'"a\"b\\c"'),
        ("${builtins.abort 1}", r'"\${builtins.abort 1}"'),
        ("$$", r'"\$\$"'),
        ("a\n\r\t", r'"a\n\r\t"'),
    ],
)
def test_strings(text: str, literal: str) -> None:
    assert nix_string(text) == literal


@pytest.mark.parametrize("text", ["a\0b", "\udcff"])
def test_strings_that_nix_does_not_have(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be said in Nix"):
        nix_string(text)


@pytest.mark.parametrize(
    ("name", "written"),
    [("_a-b'1", "_a-b'1"), ("rec", '"rec"'), ("1a", '"1a"'), ("a.b", '"a.b"'), ("a\n", r'"a\n"'), ("", '""')],
)
def test_attributes(name: str, written: str) -> None:
    assert nix_attribute(name) == written


def test_comments_are_one_line() -> None:
    assert nix_comment("a\nb\x1bé") == "a?b?é"


def test_lists() -> None:
    assert nix_list([], "  ") == "[ ]"
    assert nix_list(["a"], "  ") == "[ a ]"
    assert nix_list(["a", "b"], "  ") == "[\n    a\n    b\n  ]"
