"""The words of the page: one for each state, the same everywhere, so that no colour carries a meaning alone."""

from __future__ import annotations

from relink.report.html.graph import Change, Node
from relink.report.html.markup import Html, breakable, joined, tag
from relink.text import pluralize

__all__ = ["LEVELS", "MARKS", "change_mark", "name_of", "node_words", "path_of", "region"]

MARKS: dict[Change, tuple[str, str]] = {
    "kept": ("", "kept"),
    "added": ("+", "added"),
    "replaced": ("~", "replaced"),
    "dropped": ("-", "dropped"),
}
LEVELS = {"error": ("Errors", "✕"), "warning": ("Warnings", "!"), "info": ("Notes", "i")}


def change_mark(change: Change) -> Html:
    """Return the sign and the word of a change, as the first cell of a row shows it."""
    sign, word = MARKS[change]
    return tag("span", tag("span", sign, aria_hidden="true", class_="sign"), word, class_=f"change {change}")


def name_of(text: str) -> Html:
    """Return a name out of a file, apart from the text around it."""
    return tag("code", breakable(text))


def path_of(text: str) -> Html:
    """Return a path with its directory in the background."""
    directory, slash, name = text.rpartition("/")
    if not slash:
        return name_of(text)
    return tag("code", tag("span", breakable(f"{directory}/"), class_="directory"), breakable(name))


def region(
    title: str, *parts: Html, class_: str | None = None, id_: str | None = None, about: str | None = None
) -> Html:
    """Return a table with its title, in a frame of its own that scrolls where the table is too wide, by keyboard too.

    :param about: what the table is about, where there are several of that title; such a frame is no landmark of the page.
    """
    label = f"{title}, {about}" if about else title
    table = tag("table", *parts, class_=class_, aria_label=label)
    role = "group" if about else "region"
    frame = tag("div", table, class_="scroll", tabindex="0", role=role, aria_label=label, id=id_)
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
