"""HTML from untrusted text: all escaping of the page is in this module; and the parts that several sections of it have.

Each state has one word, the same on all of the page, so that no colour carries a meaning alone.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from relink.planning.model import Action
from relink.system.text import escape_untrusted

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
    """Return `text` escaped (:func:`relink.system.text.escape_untrusted`), and its middle cut if it is too long."""
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        text = f"{text[:half]} … {len(text) - 2 * half} characters … {text[-half:]}"
    return escape_untrusted(text)


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


def inline_source(text: str) -> str:
    """Return the source expression of Content Security Policy Level 3, section 2.3.1, that allows this inline text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def breakable(text: str) -> Html:
    """Return text out of a file, escaped, that may be broken behind the slashes, semicolons and underscores of long words."""
    # split() gives the text and, at odd places, what the group of the pattern matched.
    parts = (html.escape(part, quote=False) for part in _BREAK.split(escape_text(text)))
    broken = "".join(f"{part}<wbr>" if number % 2 else part for number, part in enumerate(parts))
    return Html(_OPTION.sub(r'<span class="option">\g<0></span>', broken))


FEW = 5
"""How many of a list are shown before the rest is asked for."""

Change: TypeAlias = Literal["kept", "added", "replaced", "dropped"]
CHANGES: dict[Action, Change] = {"keep": "kept", "add": "added", "substitute": "replaced", "drop": "dropped"}
"""What the page calls what is done to a NEEDED."""
_SIGNS: dict[Change, str] = {"kept": "", "added": "+", "replaced": "~", "dropped": "-"}


def change_mark(change: Change) -> Html:
    """Return the sign and the word of a change, as the first cell of a row shows it."""
    sign = tag("span", _SIGNS[change], aria_hidden="true", class_="sign")
    return tag("span", sign, change, class_=f"change {change}")


def fold_rest(parts: Sequence[Html], what: str) -> list[Html]:
    """Return the first parts as they are, and the others in a closed element that says how many there are.

    :param what: what the others are, in the plural; a single one is shown, too.
    """
    if len(parts) <= FEW + 1:
        return list(parts)
    return [*parts[:FEW], fold(f"{len(parts) - FEW} more {what}", *parts[FEW:])]


def fold_items(items: Sequence[Html], what: str, class_: str | None = None) -> list[Html]:
    """Return a list of the first items, and one of the others in a closed element; see :func:`fold_rest`."""
    if len(items) <= FEW + 1:
        return [tag("ul", *items, class_=class_)]
    rest = tag("ul", *items[FEW:], class_=class_)
    return [tag("ul", *items[:FEW], class_=class_), fold(f"{len(items) - FEW} more {what}", rest)]


def fold(summary: str, *parts: Html, class_: str = "more", id: str | None = None) -> Html:  # noqa: A002
    """Return a closed element."""
    return tag("details", tag("summary", summary), *parts, class_=class_, id=id)


def head_row(*words: str) -> Html:
    """Return the head of a table."""
    return tag("thead", tag("tr", *(tag("th", word, scope="col") for word in words)))


def fact_row(word: str, value: str) -> Html:
    """Return a row of a table that says one thing."""
    return tag("tr", tag("th", word, scope="row"), tag("td", value))


def name_of(text: str) -> Html:
    """Return a name out of a file, apart from the text around it."""
    return tag("code", breakable(text))


def path_of(text: str) -> Html:
    """Return a path with its directory in the background."""
    directory, slash, name = text.rpartition("/")
    if not slash:
        return name_of(text)
    return tag("code", tag("span", breakable(f"{directory}/"), class_="directory"), breakable(name))


def region(title: str, *parts: Html, class_: str | None = None, about: str | None = None) -> Html:
    """Return a table with its title, in a frame of its own that scrolls where the table is too wide, by keyboard too.

    :param about: what the table is about, where there are several of that title; such a frame is no landmark of the page.
    """
    label = f"{title}, {about}" if about else title
    table = tag("table", *parts, class_=class_, aria_label=None if about else label)
    role = "group" if about else "region"
    frame = tag("div", table, class_="scroll", tabindex="0", role=role, aria_label=label)
    return joined([tag("p", title, class_="caption"), frame])
