"""The dependency graph of a report: its nodes, its edges, and which of them are worth a line."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from relink.loader.target import GLIBC_SONAMES
from relink.planning.model.files import Action, FilePlan, Origin
from relink.planning.model.model import Load
from relink.planning.resolve.layout import Layout
from relink.providers.prefix import TREE
from relink.report.model import Report

_MOST_NODES, _MOST_EDGES = 400, 4000
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
    """One edge, from the requesting node to the library, by number; `implied` where a longer path has the same ends."""

    start: int
    end: int
    change: Change
    implied: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """The nodes, members first, and the edges, each once.

    Roots that need the same, with the same result, are one node.

    :ivar order: the nodes, each behind those that need it, but in cycles; empty where the graph is too large to be drawn: the
        time of reduction grows with the square of its size, and a larger drawing cannot be read.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Arrow, ...]
    order: tuple[int, ...]


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
        # Another's rule says more.
        if found_by != "already loaded":
            self.nodes[number].found_by = self.nodes[number].found_by or found_by
        return number

    def connect(self, start: int, end: int, change: Change) -> None:
        if start == end:
            return
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
    drawable = len(built.nodes) <= _MOST_NODES and len(built.changes) <= _MOST_EDGES
    order = _ordered(built.nodes) if drawable else []
    implied = _implied(built.nodes, order)
    edges = tuple(Arrow(*ends, change, ends in implied) for ends, change in built.changes.items())
    return Graph(tuple(built.nodes), edges, tuple(order))


def _ordered(nodes: list[Node]) -> list[int]:
    """Return the nodes by the longest way that leads to each, edges that close a cycle left aside."""
    met: set[int] = set()
    # A node behind all that it needs.
    walked: list[int] = []

    def walk(number: int) -> None:
        met.add(number)
        for end in nodes[number].needs:
            if end not in met:
                walk(end)
        walked.append(number)

    for number in sorted(range(len(nodes)), key=lambda number: bool(nodes[number].needed_by)):
        if number not in met:
            walk(number)
    level = dict.fromkeys(range(len(nodes)), 0)
    done: set[int] = set()
    for number in reversed(walked):
        done.add(number)
        for end in nodes[number].needs:
            if end not in done:
                level[end] = max(level[end], level[number] + 1)
    return sorted(level, key=level.__getitem__)


def _implied(nodes: list[Node], order: list[int]) -> set[tuple[int, int]]:
    """Return the edges for which there is a longer way; none that closes a cycle."""
    rank = {number: place for place, number in enumerate(order)}
    below: dict[int, set[int]] = {}
    implied = set()
    for number in reversed(order):
        below[number] = set()
        for end in sorted(nodes[number].needs, key=rank.__getitem__):
            if end in below[number]:
                implied.add((number, end))
            elif rank[end] > rank[number]:
                below[number] |= {end} | below[end]
    return implied


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
