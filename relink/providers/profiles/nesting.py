"""How deep a TOML document is nested, checked before it is parsed.

tomllib takes time and memory quadratic in the number of parts of a dotted key, and recurses for each bracket. A profile
has a few of either, so a document with more is refused without being parsed.
"""

from __future__ import annotations

import re

__all__ = ["too_deep"]

_PARTS = 64  # dots of one line outside of strings: in keys, and in numbers, of which profiles have none
_BRACKETS = 32

# A string that is not closed ends with the text: tomllib says so, and to look for its end again and again would take the square.
_SIGN = re.compile(
    r'"""(?:\\[\s\S]|(?!""")[^\\])*+(?:"{3,5}|\\?\Z)'
    r"|'''(?:(?!''')[\s\S])*+(?:'{3,5}|\Z)"
    r'|"(?:\\.|[^"\\\n])*+"?'
    r"|'[^'\n]*+'?"
    r"|\#[^\n]*+"
    r"|[.\[\]{}\n]"
)


def too_deep(text: str) -> tuple[int, str] | None:
    """Return the line, from 1, on which a document goes too deep, and what goes too deep there; None where nothing does.

    Takes time in proportion to the text, whatever is in it.
    """
    line, dots, depth = 1, 0, 0
    for found in _SIGN.finditer(text):
        sign = found[0]
        if sign == ".":
            dots += 1
            if dots > _PARTS:
                return line, f"more than {_PARTS} dots in one line outside of strings"
        elif sign in "[{":
            depth += 1
            if depth > _BRACKETS:
                return line, f"brackets more than {_BRACKETS} deep"
        elif sign in "]}":
            depth -= 1
        elif sign == "\n":
            line, dots = line + 1, 0
        else:
            line += sign.count("\n")
    return None
