"""Untrusted strings and lists, made fit for a sentence."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["escaped", "join_truncated", "join_with_and", "pluralize"]

_SHOWN = 4


def escaped(text: str) -> str:
    r"""Return `text` with every character spelled out that cannot be seen or that steers how the rest is read.

    Names out of wheels, ELF files, prefixes and profiles reach people through this function alone: on a terminal, in a pipe and
    in the HTML page. Spelled out is what :meth:`str.isprintable` calls not printable: the Unicode categories Cc (controls, with
    line feeds and the escape of a terminal's sequences), Cf (bidirectional overrides and isolates, zero widths), Cs (lone
    surrogates, which stand for bytes that are no UTF-8), Co (private use), Cn (unassigned: a newer terminal may take it for a
    format character), Zl and Zp (line and paragraph separators), and Zs except for the space, as they look like one. A line feed
    becomes ``\n``, others ``\x1b``, ``\u202e`` or ``\U000e0001``. A backslash stays as it is: the result is for people to read.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else _spelled(ord(character), character) for character in text
    )


def _spelled(code: int, character: str) -> str:
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
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
