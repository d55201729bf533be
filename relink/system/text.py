"""Untrusted strings and lists, made fit for a sentence and for JSON that is printed: escaped, joined, grouped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")
_SHOWN = 4
# Runners of continuous integration read commands out of what a step prints: GitHub's at "##[" anywhere in a line, and where a
# line begins with blanks and "::" (ActionCommand.cs of actions/runner); Azure's at "##vso[" and "##[". A line
# may be folded before any word, so every word counts as a beginning.
_NUMBER_SIGN = re.compile("#(?=#)")
# Printable by Python's definition, but invisible (Unicode, Default_Ignorable_Code_Point); .NET ignores them when comparing.
_UNSEEN = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
_PRINTABLE = re.compile(rf"[{_UNSEEN}]|{_NUMBER_SIGN.pattern}|(?<!\S):(?=:)")


def escape_untrusted(text: str) -> str:
    r"""Return `text` with every character spelled out that cannot be seen or that steers how the rest is read.

    Names out of wheels, ELF files, prefixes and profiles reach people through this function alone: on a terminal, in a pipe and
    in the HTML page. Spelled out is what :meth:`str.isprintable` calls not printable: the Unicode categories Cc (controls, with
    line feeds and the escape of a terminal's sequences), Cf (bidirectional overrides and isolates, zero widths), Cs (lone
    surrogates, which stand for bytes that are no UTF-8), Co (private use), Cn (unassigned: a newer terminal may take it for a
    format character), Zl and Zp (line and paragraph separators), and Zs except for the space, as they look like one. So are
    printable characters that take no room, as variation selectors, and where a runner of continuous integration would begin to
    read a command: ``##[`` becomes ``\x23#[``, and a word that begins with ``::`` begins with ``\x3a:``. A line feed becomes
    ``\n``, others ``\x1b``, ``\u202e`` or ``\U000e0001``. A backslash stays as it is: the result is for people to read.
    """
    if not text.isprintable():
        text = "".join(sign if sign.isprintable() else _spelled(sign) for sign in text)
    return _PRINTABLE.sub(lambda match: _spelled(match[0]), text)


def format_json(document: Mapping[str, Any]) -> str:
    r"""Return a JSON document to be printed: ASCII, and ``##`` is ``\u0023#``, so that no runner reads a command in it."""
    return _NUMBER_SIGN.sub(r"\\u0023", json.dumps(document, indent=2)) + "\n"


def _spelled(character: str) -> str:
    code = ord(character)
    if character == "\n":
        return "\\n"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def pluralize(number: int, thing: str, things: str | None = None) -> str:
    """Return ``1 symbol`` or ``3 symbols``."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"


def join_truncated(names: Sequence[str], shown: int = _SHOWN) -> str:
    """Return the first names, and how many more there are: ``a, b and 3 more``."""
    text = ", ".join(names[:shown])
    return f"{text} and {len(names) - shown} more" if len(names) > shown else text


def join_with_and(names: Sequence[str]) -> str:
    """Join names with commas and a last "and": ``a, b and c``."""
    return "".join(names) if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"


def join_some(names: Sequence[str], shown: int = 6) -> str:
    """Join names with commas and a last "and", or with how many more there are."""
    return join_truncated(names, shown) if len(names) > shown else join_with_and(names)


def group_pairs(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, in the order in which they come."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
