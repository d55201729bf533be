"""HTML from untrusted text: all escaping of the page is in this module."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from relink.system.text import escaped

_VOID = frozenset({"input", "meta"})
_BREAK = re.compile(r"([/;=@_]+)(?=[^\s/;=@_])")
# Options get an element of their own: a browser would break lines behind each hyphen.
_OPTION = re.compile(r"(?<![^\s(])--[a-z][a-z-]{0,30}(?![\w-])")
# Characters of one name or sentence; the longest real one, a list of GPU targets, has 700.
_LONGEST = 2000


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


EMPTY = Html("")


def escape_text(text: str) -> str:
    """Return `text` escaped (:func:`relink.system.text.escaped`), and its middle cut if it is too long."""
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        text = f"{text[:half]} … {len(text) - 2 * half} characters … {text[-half:]}"
    return escaped(text)


def tag(name: str, /, *children: str | None, **attributes: str | float | None) -> Html:
    """Return an element; children that are not :class:`Html` are escaped, None is nothing.

    Attributes are called as in HTML, with ``_`` for ``-`` and a trailing ``_`` dropped; True is an attribute without value, None
    and False are no attribute.
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        parts.append(f" {key.rstrip('_').replace('_', '-')}")
        if value is not True:
            # Quotes are escaped as well, since one would end the attribute.
            text = value if isinstance(value, Html) else html.escape(escape_text(str(value)))
            parts.append(f'="{text}"')
    parts.append(">")
    if name in _VOID:
        return Html("".join(parts))
    parts += [_html(child) for child in children if child is not None]
    parts.append(f"</{name}>")
    return Html("".join(parts))


def _html(child: str) -> str:
    return child if isinstance(child, Html) else html.escape(escape_text(child), quote=False)


def joined(parts: Iterable[str | None], between: str = "") -> Html:
    """Return `parts` one after the other; those that are not :class:`Html` are escaped."""
    return Html(_html(between).join(_html(part) for part in parts if part is not None))


def breakable(text: str) -> Html:
    """Return text out of a file, escaped, that may be broken behind the slashes, semicolons and underscores of long words."""
    # split() gives the text and, at odd places, what the group of the pattern matched.
    escaped = (html.escape(part, quote=False) for part in _BREAK.split(escape_text(text)))
    broken = "".join(f"{part}<wbr>" if number % 2 else part for number, part in enumerate(escaped))
    return Html(_OPTION.sub(r'<span class="option">\g<0></span>', broken))
