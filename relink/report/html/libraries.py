"""The section about the dependency graph: the drawing, what its signs mean, and the same as a table."""

from __future__ import annotations

from relink.report.html.drawing import drawing, shortened
from relink.report.html.graph import Graph, Node
from relink.report.html.markup import Html, joined, tag
from relink.report.html.words import name_of, node_words, path_of, region, rule_phrase
from relink.system.text import pluralize

# Names in a cell of the table.
_MANY = 5
# Characters of one of them.
_LONGEST = 60
# Rows of the table of changes; more are in a closed part.
_SHOWN = 8

_ORIGINS = {
    "wheel": "a file of the wheel",
    "provider": "a library of the prefix, or what lies there",
    "platform": "a library of the system",
    "missing": "found nowhere",
    "assumed": "found nowhere, and taken to be there at run time",
    "dropped": "not needed any more",
}


def anchors_of(graph: Graph) -> list[str]:
    """Return the id of the place with the details of each node: its file's section, or its row in the table."""
    return [
        f"file-{node.place}" if node.file is not None else f"library-{number}"
        for number, node in enumerate(graph.nodes)
    ]


def graph_section(graph: Graph, glibc: str) -> Html:
    """Return the section."""
    anchors = anchors_of(graph)
    parts: list[Html] = []
    if graph.order:
        text = (
            "Who asks for whom, after the edit. Files of the wheel that ask for the same are one box, as are those of the C "
            "library. An edge that follows from others is pale."
        )
        parts += [tag("p", text, class_="lead"), _legend(graph)]
        parts.append(tag("a", "Skip the graph", href="#libraries", class_="skip"))
    elif graph.nodes:
        size = f"{pluralize(len(graph.nodes), 'object')} and {pluralize(len(graph.edges), 'edge')}"
        parts.append(tag("p", f"The graph has {size}: too many to be drawn. The table has them all."))
    rows = [
        (node, _row(graph, node, anchors[number], anchors, glibc)) for number, node in enumerate(graph.nodes)
    ]
    rows = sorted((row for row in rows if row[0].file is None), key=lambda row: bool(row[0].parts))
    notable = [row for node, row in sorted(rows, key=lambda row: _urgency(row[0])) if _notable(node)]
    others = [row for node, row in rows if not _notable(node)]
    tables: list[Html] = []
    if notable:
        title = (
            f"Added, replaced, dropped or found nowhere: {pluralize(len(notable), 'library', 'libraries')}"
        )
        tables.append(_table(title, notable[:_SHOWN]))
        if rest := notable[_SHOWN:]:
            more = f"{len(rest)} more of them"
            tables.append(tag("details", tag("summary", more), _table(more, rest), class_="more"))
    if others:
        title = f"{'Unchanged' if notable else 'Who loads whom'}: {pluralize(len(others), 'library', 'libraries')}"
        tables.append(tag("details", tag("summary", title), _table(title, others), class_="more"))
    picture = tag("div", drawing(graph, anchors), class_="graph") if graph.order else None
    parts.append(tag("div", picture, tag("div", *tables, id="libraries"), class_="beside"))
    if not graph.nodes:
        parts = [tag("p", "The wheel has no ELF file that this loader can meet: nothing is loaded.")]
    return tag(
        "section", tag("h2", "Dependencies", id="dependencies"), *parts, aria_labelledby="dependencies"
    )


def _legend(graph: Graph) -> Html:
    kinds = {node_words(node)[0] for node in graph.nodes}
    items = [
        tag("li", tag("span", class_=f"swatch {kind}", aria_hidden="true"), tag("b", kind), f" {text}")
        for kind, text in _ORIGINS.items()
        if kind in kinds
    ]
    return tag("ul", *items, class_="legend", aria_label="What the boxes mean")


def _notable(node: Node) -> bool:
    """Whether something became of it, or has to."""
    return bool(node.added_to or node.replaces or node.dropped_from) or node.origin in ("missing", "assumed")


def _urgency(node: Node) -> int:
    lost = node.origin == "missing" and not node.dropped_from
    return (lost, node.origin == "assumed", bool(node.replaces), True).index(True)


def _table(title: str, rows: list[Html]) -> Html:
    heads = ("Library", "From", "Where it is found", "Asked for by")
    head = tag("tr", *(tag("th", word, scope="col") for word in heads))
    return region(title, tag("thead", head), tag("tbody", *rows), class_="libraries")


def _where(graph: Graph, node: Node, glibc: str) -> Html:
    if node.path is None:
        return joined(["nowhere"])
    if node.parts:
        return joined([path_of(f"{node.path}/"), f" glibc {glibc}: {', '.join(node.parts)}"])
    directory, _, name = node.path.rpartition("/")
    # The name is in the first column.
    place = name_of(directory or "/") if name == node.name else path_of(node.path)
    requesters = {path for number in node.needed_by for path in graph.nodes[number].paths}
    rule = rule_phrase(node.found_by, requesters) if node.found_by else ""
    return joined([place, tag("span", f" {rule}", class_="rule") if rule else None])


def _row(graph: Graph, node: Node, anchor: str, anchors: list[str], glibc: str) -> Html:
    replaced = joined([name_of(item) for item in node.replaces], ", ")
    told = (
        (node.added_to, f"+ added to NEEDED of {pluralize(node.added_to, 'file')}", "added"),
        (node.replaces, joined(["~ replaces ", replaced]), "replaced"),
        (node.dropped_from, f"- dropped from NEEDED of {pluralize(node.dropped_from, 'file')}", "dropped"),
    )
    changes = [tag("div", text, class_=f"change {word}") for happened, text, word in told if happened]
    links = [
        tag("a", shortened(graph.nodes[other].name, _LONGEST), href=f"#{anchors[other]}")
        for other in node.needed_by
    ]
    who = joined(links, ", ")
    if len(links) > _MANY:
        who = tag("details", tag("summary", f"{len(links)} objects"), who)
    word = node_words(node)[0]
    return tag(
        "tr",
        tag("th", name_of(node.name), *changes, scope="row"),
        tag("td", tag("span", word, class_=f"origin {word}")),
        tag("td", _where(graph, node, glibc), class_="nowhere" if node.path is None else None),
        tag("td", who, class_="who"),
        id=anchor,
    )
