"""The dependency graph of a report: its nodes, and its edges, as the tables of the page show them.

Each state has one word, the same on all of the page, so that no colour carries a meaning alone.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from relink.loader.target import GLIBC_SONAMES
from relink.planning.model import Action, FilePlan, Load, Origin
from relink.planning.resolve.context import Layout
from relink.providers.prefix import TREE
from relink.report.html.markup import Html, breakable, joined, tag
from relink.report.model import Report
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


# A rule of the loader, as relink.loader.search writes it.
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


def fold_rest(parts: Sequence[Html], what: str) -> list[Html]:
    """Return the first parts as they are, and the others in a closed element that says how many there are.

    :param what: what the others are, in the plural; a single one is shown, too.
    """
    if len(parts) <= FEW + 1:
        return list(parts)
    return [*parts[:FEW], _closed(len(parts) - FEW, what, *parts[FEW:])]


def fold_items(items: Sequence[Html], what: str, class_: str | None = None) -> list[Html]:
    """Return a list of the first items, and one of the others in a closed element; see :func:`fold_rest`."""
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


# How extension modules end (PEP 3149), as in .cpython-312-x86_64-linux-gnu.so.
_ABI_TAG = re.compile(r"\.(?:cpython-\w+-[\w-]+|abi3)\.so(?=$| and \d)")


def shortened(name: str, longest: int) -> str:
    """Return a name without the ABI tag of an extension module, and its middle left out where it has more than `longest`."""
    name = _ABI_TAG.sub("….so", name)
    if len(name) <= longest:
        return name
    half = longest // 2
    return f"{name[:half]}…{name[1 - half :]}"


Change: TypeAlias = Literal["kept", "added", "replaced", "dropped"]
CHANGES: dict[Action, Change] = {"keep": "kept", "add": "added", "substitute": "replaced", "drop": "dropped"}
"""What the page calls what is done to a NEEDED."""


@dataclass(slots=True)
class Node:
    """A file of the wheel, a library, a soname that nothing serves, or the C library as one.

    :ivar name: its soname in the NEEDED entries; of a member, the file name.
    :ivar path: None where nothing serves it.
    :ivar file: the plan of it where it is a member; `place` its number in the report.
    :ivar alike: of a box for several roots, the plans of the others than `file`.
    :ivar found_by: the rule that found it first.
    :ivar needed_by: numbers of the nodes that need it; `needs` of those that it needs.
    :ivar parts: of the C library, the sonames of its files.
    :ivar added_to: in how many files it was added to NEEDED; `replaces` the sonames that it stands for now;
        `dropped_from` in how many files it is not NEEDED any more.
    :ivar paths: of all its files, as requesters are called.
    """

    name: str
    path: str | None
    origin: Origin
    file: FilePlan | None = None
    place: int = 0
    alike: list[FilePlan] = field(default_factory=list)
    found_by: str | None = None
    needed_by: list[int] = field(default_factory=list)
    needs: list[int] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    added_to: int = 0
    replaces: list[str] = field(default_factory=list)
    dropped_from: int = 0
    paths: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Let `path` be the first of `paths`."""
        self.paths += [self.path] if self.path is not None else []


@dataclass(frozen=True, slots=True)
class Arrow:
    """One edge, from the requesting node to the library, by number."""

    start: int
    end: int
    change: Change


@dataclass(frozen=True, slots=True)
class Graph:
    """The nodes, members first, and the edges, each once.

    Roots that need the same, with the same result, are one node.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Arrow, ...]


@dataclass(slots=True)
class _Building:
    nodes: list[Node] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    changes: dict[tuple[int, int], Change] = field(default_factory=dict)

    def enter(self, key: str, node: Node) -> int:
        number = self.numbers.setdefault(key, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
        return number

    def library(self, soname: str, path: str | None, origin: Origin, found_by: str | None) -> int:
        if soname in GLIBC_SONAMES and path is not None:
            number = self.enter("C library", Node("C library", posixpath.dirname(path), "platform"))
            if soname not in self.nodes[number].parts:
                self.nodes[number].parts.append(soname)
            return number
        if path is None:
            return self.enter(f"nothing {soname}", Node(soname, None, origin))
        number = self.enter(posixpath.normpath(path), Node(soname, path, origin))
        # The rule by which another object had the library loaded says more.
        if found_by != "already loaded":
            self.nodes[number].found_by = self.nodes[number].found_by or found_by
        return number

    def connect(self, start: int, end: int, change: Change) -> None:
        if start == end:
            return
        # Two NEEDED may be one edge. That one of them changed says more than that the other was kept.
        known = self.changes.get((start, end))
        if known is None or known == "kept":
            self.changes[start, end] = change
        if known is None:
            self.nodes[start].needs.append(end)
            self.nodes[end].needed_by.append(start)


def graph_of(report: Report) -> Graph:
    """Return the graph of a report; of one without `loads`, what the files' own NEEDED show."""
    built = _Building()
    tree = next((provider.path for provider in report.providers if provider.kind == TREE), None)
    layout = Layout() if tree is None else Layout(tree, tree=True)
    members: dict[str, FilePlan] = {}
    for place, file in enumerate(report.files):
        path = layout.shown(layout.path_of(file.path))
        members[path] = file
        node = Node(posixpath.basename(path), path, "wheel", file=file, place=place)
        built.enter(posixpath.normpath(path), node)
    changes = {
        (path, entry.soname_after or entry.soname): entry
        for path, file in members.items()
        for entry in file.needed
    }
    for load in _loads(report, members):
        start = built.library(posixpath.basename(load.requester), load.requester, "provider", None)
        end = built.library(load.soname, load.resolved, load.origin, load.found_by)
        entry = changes.get((load.requester, load.soname))
        change = CHANGES[entry.action] if entry is not None and entry.action != "drop" else "kept"
        if change == "added":
            built.nodes[end].added_to += 1
        elif entry is not None and change == "replaced" and entry.soname not in built.nodes[end].replaces:
            built.nodes[end].replaces.append(entry.soname)
        built.connect(start, end, change)
    for path, file in members.items():
        for entry in file.needed:
            if entry.action == "drop":
                end = built.enter(f"dropped {entry.soname}", Node(entry.soname, None, entry.origin))
                built.nodes[end].dropped_from += 1
                built.connect(built.numbers[posixpath.normpath(path)], end, "dropped")
    built = _merged(built)
    edges = tuple(Arrow(*ends, change) for ends, change in built.changes.items())
    return Graph(tuple(built.nodes), edges)


def _merged(built: _Building) -> _Building:
    """Return the graph with one node for all roots that have the same edges, changes and state."""
    ends: dict[int, set[tuple[int, Change]]] = {number: set() for number in range(len(built.nodes))}
    for (start, end), change in built.changes.items():
        ends[start].add((end, change))
    firsts: dict[tuple[frozenset[tuple[int, Change]], bool, bool], int] = {}
    merged = _Building()
    numbers: list[int] = []
    for number, node in enumerate(built.nodes):
        if node.file is not None and not node.needed_by:
            key = (frozenset(ends[number]), node.file.changed, node.file.served)
            first = firsts.setdefault(key, len(merged.nodes))
            if first < len(merged.nodes):
                merged.nodes[first].alike.append(node.file)
                merged.nodes[first].paths += node.paths
                numbers.append(first)
                continue
        numbers.append(len(merged.nodes))
        merged.nodes.append(node)
    for node in merged.nodes:
        node.needs, node.needed_by = [], []
        if node.alike and node.file is not None:
            names = [posixpath.basename(file.path) for file in (node.file, *node.alike)]
            modules = all(name.endswith(".so") and not name.startswith("lib") for name in names)
            node.name = f"{len(names)} {'extension modules' if modules else 'files of the wheel'}"
    _tell_apart([node for node in merged.nodes if node.file is not None])
    for (start, end), change in built.changes.items():
        merged.connect(numbers[start], numbers[end], change)
    return merged


def _tell_apart(members: list[Node]) -> None:
    """Give boxes of files that are called alike their paths as names."""
    called = Counter(node.name for node in members)
    for node in members:
        if called[node.name] > 1 and node.file is not None:
            node.name = f"{node.file.path}{f' and {len(node.alike)} more' if node.alike else ''}"


def _loads(report: Report, members: dict[str, FilePlan]) -> Iterable[Load]:
    if report.loads:
        return report.loads
    return [
        Load(path, entry.soname_after or entry.soname, entry.resolved, entry.found_by, entry.origin)
        for path, file in members.items()
        for entry in file.needed
        if entry.action != "drop"
    ]
