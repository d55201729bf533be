"""The words of the page: one for each state, the same everywhere, so that no colour carries a meaning alone."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Sequence

from relink.report.html.graph import Change, Node
from relink.report.html.markup import Html, breakable, joined, tag
from relink.system.findings.model import Level
from relink.system.text import pluralize

FEW = 5
"""How many of a list are shown before the rest is asked for."""

_SIGNS: dict[Change, str] = {"kept": "", "added": "+", "replaced": "~", "dropped": "-"}
LEVELS: dict[Level, tuple[str, str]] = {
    "error": ("Errors", "✕"),
    "warning": ("Warnings", "!"),
    "info": ("Notes", "i"),
}


# As relink.loader.search writes it.
_SEARCH_PATH = re.compile(r"(RUNPATH|RPATH) entry .* of (.+)", re.DOTALL)
_DIRECTORY = re.compile(r"(LD_LIBRARY_PATH) entry .|(default directory) .", re.DOTALL)


def change_mark(change: Change) -> Html:
    """Return the sign and the word of a change, as the first cell of a row shows it."""
    sign = tag("span", _SIGNS[change], aria_hidden="true", class_="sign")
    return tag("span", sign, change, class_=f"change {change}")


def rule_phrase(found_by: str, requesters: Collection[str]) -> str:
    """Return the loader's rule in a few words: the directory is seen from the path that was found.

    :param requesters: the objects whose NEEDED it is; one of them need not be named as the owner of a search path.
    """
    if match := _SEARCH_PATH.fullmatch(found_by):
        kind, owner = match.groups()
        return f"by {kind}" if owner in requesters else f"by {kind} of {posixpath.basename(owner)}"
    if match := _DIRECTORY.match(found_by):
        return f"by {match[1] or match[2]}"
    return f"by {found_by}" if found_by == "ld.so.cache" else found_by


def few(parts: Sequence[Html], what: str) -> list[Html]:
    """Return the first parts as they are, and the others in a closed element that says how many there are.

    :param what: what the others are, in the plural; a single one is shown, too.
    """
    if len(parts) <= FEW + 1:
        return list(parts)
    return [*parts[:FEW], _closed(len(parts) - FEW, what, *parts[FEW:])]


def few_items(items: Sequence[Html], what: str, class_: str | None = None) -> list[Html]:
    """Return a list of the first items, and one of the others in a closed element; see :func:`few`."""
    if len(items) <= FEW + 1:
        return [tag("ul", *items, class_=class_)]
    rest = tag("ul", *items[FEW:], class_=class_)
    return [tag("ul", *items[:FEW], class_=class_), _closed(len(items) - FEW, what, rest)]


def _closed(number: int, what: str, *parts: Html) -> Html:
    return tag("details", tag("summary", f"{number} more {what}"), *parts, class_="more")


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


def node_words(node: Node) -> list[str]:
    """Return what is to be said of a node in the graph: where it comes from, and what changed."""
    if node.file is not None:
        state = "changed" if node.file.changed else "unchanged" if node.file.served else "not served"
        return ["wheel", state]
    if node.path is None and node.dropped_from and not any(node.needs):
        return ["dropped", *([node.origin] if node.origin == "assumed" else [])]
    words: list[str] = [node.origin]
    if node.parts:
        words.append(pluralize(len(node.parts), "file"))
    if node.replaces:
        words.append("~ replaced")
    if node.added_to:
        words.append("+ added")
    return words
