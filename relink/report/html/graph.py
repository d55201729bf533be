"""The section about the dependency graph: tables of what changed, and of who loads whom."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from relink.loader.target import GLIBC_SONAMES
from relink.planning.model import FilePlan, Load, Origin
from relink.planning.resolve.context import Layout
from relink.providers.prefix import TREE
from relink.report.html.markup import Html, joined, name_of, path_of, region, shortened, tag
from relink.report.model import Report
from relink.system.text import pluralize

# A rule of the loader, as relink.loader.search writes it.
_SEARCH_PATH = re.compile(r"(RUNPATH|RPATH) entry .* of (.+)", re.DOTALL)
_DIRECTORY = re.compile(r"(LD_LIBRARY_PATH) entry .|(default directory) .", re.DOTALL)


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


class Node(msgspec.Struct, eq=False):
    """A file of the wheel, a library, a soname that nothing serves, or the C library as one.

    :ivar name: its soname in the NEEDED entries; of a member, the file name, or the path where several have that name.
    :ivar path: None where nothing serves it.
    :ivar anchor: the id of the place with its details: its row in the table, or the section of its file.
    :ivar found_by: the rule that found it first.
    :ivar needed_by: what needs it, in order.
    :ivar parts: of the C library, the sonames of its files.
    :ivar added_to: in how many files it was added to NEEDED; `replaces` the sonames that it stands for now;
        `dropped_from` in how many files it is not NEEDED any more.
    """

    name: str
    path: str | None
    origin: Origin
    anchor: str
    is_member: bool = False
    found_by: str | None = None
    needed_by: dict[Node, None] = msgspec.field(default_factory=dict)
    parts: list[str] = msgspec.field(default_factory=list)
    added_to: int = 0
    replaces: list[str] = msgspec.field(default_factory=list)
    dropped_from: int = 0


def graph_of(report: Report) -> tuple[Node, ...]:
    """Return the nodes, members first; of a report without `loads`, what the files' own NEEDED show."""
    nodes: dict[str, Node] = {}

    def enter(key: str, name: str, path: str | None, origin: Origin) -> Node:
        return nodes.setdefault(key, Node(name, path, origin, f"library-{len(nodes)}"))

    def enter_library(soname: str, path: str | None, origin: Origin, found_by: str | None = None) -> Node:
        if path is None:
            return enter(f"nothing {soname}", soname, None, origin)
        if soname in GLIBC_SONAMES:
            node = enter("C library", "C library", posixpath.dirname(path), "platform")
            node.parts += [soname] if soname not in node.parts else []
            return node
        node = enter(posixpath.normpath(path), soname, path, origin)
        # The rule by which another object had the library loaded says more.
        if found_by != "already loaded":
            node.found_by = node.found_by or found_by
        return node

    tree = next((provider.path for provider in report.providers if provider.kind == TREE), None)
    layout = Layout() if tree is None else Layout(tree, tree=True)
    called = Counter(posixpath.basename(file.path) for file in report.files)
    members: dict[str, FilePlan] = {}
    for place, file in enumerate(report.files):
        path, name = layout.shown(layout.path_of(file.path)), posixpath.basename(file.path)
        members[path] = file
        node = Node(name if called[name] == 1 else file.path, path, "wheel", f"file-{place}", is_member=True)
        nodes.setdefault(posixpath.normpath(path), node)
    entries = [(path, entry) for path, file in members.items() for entry in file.needed]
    kept = {
        (path, entry.soname_after or entry.soname): entry for path, entry in entries if entry.action != "drop"
    }
    for load in report.loads or [
        Load(path, soname, entry.resolved, entry.found_by, entry.origin)
        for (path, soname), entry in kept.items()
    ]:
        start = enter_library(posixpath.basename(load.requester), load.requester, "provider")
        end = enter_library(load.soname, load.resolved, load.origin, load.found_by)
        change = kept.get((load.requester, load.soname))
        if change is not None and change.action == "add":
            end.added_to += 1
        elif change is not None and change.action == "substitute" and change.soname not in end.replaces:
            end.replaces.append(change.soname)
        if start is not end:
            end.needed_by[start] = None
    for path, entry in entries:
        if entry.action == "drop":
            end = enter(f"dropped {entry.soname}", entry.soname, None, entry.origin)
            end.dropped_from += 1
            end.needed_by[nodes[posixpath.normpath(path)]] = None
    return tuple(nodes.values())


# The most names in a cell of the table that are open.
_MANY_LINKS = 5
# Characters of one such name.
_LONGEST = 60
# Rows of the table of changes; more are in a closed part.
_SHOWN = 8


def graph_section(nodes: Sequence[Node], glibc: str) -> Html:
    """Return the section."""
    # Files of the wheel have a section of their own. The C library, the one node with parts, comes last.
    libraries = sorted((node for node in nodes if not node.is_member), key=lambda node: bool(node.parts))
    notable = sorted(filter(_is_notable, libraries), key=_urgency)
    others = [node for node in libraries if not _is_notable(node)]
    tables: list[Html] = []
    if notable:
        title = (
            f"Added, replaced, dropped or found nowhere: {pluralize(len(notable), 'library', 'libraries')}"
        )
        tables.append(_library_table(title, notable[:_SHOWN], glibc))
        if rest := notable[_SHOWN:]:
            more = f"{len(rest)} more of them"
            tables.append(
                tag("details", tag("summary", more), _library_table(more, rest, glibc), class_="more")
            )
    if others:
        title = f"{'Unchanged' if notable else 'Who loads whom'}: {pluralize(len(others), 'library', 'libraries')}"
        tables.append(
            tag("details", tag("summary", title), _library_table(title, others, glibc), class_="more")
        )
    content = tag("div", *tables, id="libraries")
    if not nodes:
        content = tag("p", "The wheel has no ELF file that this loader can meet: nothing is loaded.")
    return tag(
        "section", tag("h2", "Dependencies", id="dependencies"), content, aria_labelledby="dependencies"
    )


def _is_notable(node: Node) -> bool:
    """Whether something became of it, or has to."""
    return bool(node.added_to or node.replaces or node.dropped_from) or node.origin in ("missing", "assumed")


def _urgency(node: Node) -> int:
    lost = node.origin == "missing" and not node.dropped_from
    # The place of the first one that is true; the last one always is.
    return (lost, node.origin == "assumed", bool(node.replaces), True).index(True)


def _library_table(title: str, nodes: Sequence[Node], glibc: str) -> Html:
    heads = ("Library", "From", "Where it is found", "Asked for by")
    head = tag("tr", *(tag("th", word, scope="col") for word in heads))
    return region(
        title, tag("thead", head), tag("tbody", *(_row(node, glibc) for node in nodes)), class_="libraries"
    )


def _where(node: Node, glibc: str) -> Html:
    if node.path is None:
        return joined(["nowhere"])
    if node.parts:
        return joined([path_of(f"{node.path}/"), f" glibc {glibc}: {', '.join(node.parts)}"])
    directory, _, name = node.path.rpartition("/")
    # The file's name is in the first column, if it is the soname: then the directory says where it is.
    place = name_of(directory or "/") if name == node.name else path_of(node.path)
    requesters = {requester.path or "" for requester in node.needed_by}
    rule = rule_phrase(node.found_by, requesters) if node.found_by else ""
    return joined([place, tag("span", f" {rule}", class_="rule") if rule else None])


def _row(node: Node, glibc: str) -> Html:
    replaced = joined([name_of(item) for item in node.replaces], ", ")
    told = (
        (node.added_to, f"+ added to NEEDED of {pluralize(node.added_to, 'file')}", "added"),
        (node.replaces, joined(["~ replaces ", replaced]), "replaced"),
        (node.dropped_from, f"- dropped from NEEDED of {pluralize(node.dropped_from, 'file')}", "dropped"),
    )
    changes = [tag("div", text, class_=f"change {word}") for happened, text, word in told if happened]
    links = [
        tag("a", shortened(requester.name, _LONGEST), href=f"#{requester.anchor}")
        for requester in node.needed_by
    ]
    who = joined(links, ", ")
    if len(links) > _MANY_LINKS:
        who = tag("details", tag("summary", f"{len(links)} objects"), who)
    word = "dropped" if node.dropped_from else node.origin
    return tag(
        "tr",
        tag("th", name_of(node.name), *changes, scope="row"),
        tag("td", tag("span", word, class_=f"origin {word}")),
        tag("td", _where(node, glibc), class_="nowhere" if node.path is None else None),
        tag("td", who, class_="who"),
        id=node.anchor,
    )
