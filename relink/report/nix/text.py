"""Pieces of Nix expressions: strings, attribute names and comments that say exactly what they are given.

Source: Nix manual, "String literals", "Identifiers", "Keywords".
"""

from __future__ import annotations

import re

from relink.system.errors import UsageError

__all__ = ["nix_attribute", "nix_comment", "nix_list", "nix_string"]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_'-]*\Z")
_KEYWORDS = frozenset(
    [
        "if",
        "then",
        "else",
        "assert",
        "with",
        "let",
        "in",
        "rec",
        "inherit",
        "or",
        "true",
        "false",
        "null",
        "import",
    ]
)
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def nix_string(text: str) -> str:
    """Return a string literal that evaluates to `text`.

    :raises UsageError: Nix has no such string: it contains a NUL, or is not Unicode.
    """
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"{text[:80]!a} cannot be said in Nix, whose strings are UTF-8 without NUL")
    # ``${`` begins an interpolation; ``\\$`` is a dollar sign, whether a brace follows or not.
    return '"' + "".join(_ESCAPES.get(character, character) for character in text).replace("$", "\\$") + '"'


def nix_attribute(name: str) -> str:
    """Return `name` as it stands in an attribute set: as it is where Nix takes it for an identifier, else quoted."""
    return name if _IDENTIFIER.match(name) and name not in _KEYWORDS else nix_string(name)


def nix_comment(text: str) -> str:
    """Return `text` for a line comment: one line, nothing that is not printable."""
    return "".join(character if character.isprintable() else "?" for character in text)


def nix_list(items: list[str], indent: str) -> str:
    """Return a list of expressions in the style of RFC 166: one item on the line of the brackets, several below each other."""
    if not items:
        return "[ ]"
    if len(items) == 1:
        return f"[ {items[0]} ]"
    return "[\n" + "".join(f"{indent}  {item}\n" for item in items) + f"{indent}]"
