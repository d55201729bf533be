"""The section about the dependency graph: the drawing, what its signs mean, and the same as a table."""

from __future__ import annotations

from relink.report.html.drawing import drawing
from relink.report.html.graph import Graph, Node
from relink.report.html.markup import Html, joined, tag
from relink.report.html.words import name_of, node_words, path_of, region
from relink.text import pluralize

__all__ = ["anchors_of", "graph_section"]

_MANY = 8  # names in a cell of the table

_ORIGINS = {
    "wheel": "a file of the wheel",
    "provider": "a library of the ROCm prefix, or what lies there",
    "platform": "a library of the system",
    "missing": "found nowhere",
    "assumed": "found nowhere, and taken to be there at run time",
    "dropped": "not needed any more",
}


def anchors_of(graph: Graph) -> list[str]:
    """Return the id of the place with the details of each node: its file's section, or its row in the table."""
    files = iter(range(len(graph.nodes)))
    return [
        f"file-{next(files)}" if node.file is not None else f"library-{number}"
        for number, node in enumerate(graph.nodes)
    ]


def graph_section(graph: Graph, glibc: str) -> Html:
    """Return the section."""
    anchors = anchors_of(graph)
    picture = drawing(graph, anchors)
    libraries = [node for node in graph.nodes if node.file is None]
    implied = sum(edge.implied for edge in graph.edges)
    parts: list[Html] = []
    if picture is None and graph.nodes:
        size = f"{pluralize(len(graph.nodes), 'object')} and {pluralize(len(graph.edges), 'edge')}"
        parts.append(tag("p", f"The graph has {size}: too many to be drawn. The table has them all."))
    elif picture is not None:
        text = (
            "From left to right: who asks for whom, after the edit. The files of the C library stand as one box. "
            f"{pluralize(implied, 'edge that follows from others is', 'edges that follow from others are')} not drawn at first."
        )
        toggle = tag(
            "label",
            tag("input", type="checkbox", id="every-edge"),
            " ",
            tag("span", "Every edge"),
            class_="toggle",
        )
        buttons = tag(
            "div",
            _button("zoom-out", "-", "Zoom out"),
            _button("zoom-in", "+", "Zoom in"),
            _button("zoom-fit", "Fit", "Fit the graph into its frame"),
            _button("zoom-full", "1:1", "Full size"),
            class_="buttons",
            role="group",
            aria_label="Zoom",
            hidden=True,
        )
        parts += [
            tag("p", text, class_="lead"),
            tag(
                "div",
                toggle,
                buttons,
                tag("a", "Skip the graph", href="#libraries", class_="skip"),
                class_="controls",
            ),
            tag(
                "div",
                picture,
                class_="scroll graph",
                tabindex="0",
                role="region",
                aria_label="Dependency graph; scroll with the arrow keys",
            ),
            _legend(graph),
        ]
    rows = [
        _row(graph, node, anchors[number], anchors, glibc)
        for number, node in sorted(enumerate(graph.nodes), key=lambda item: bool(item[1].parts))
        if node.file is None
    ]
    head = tag(
        "tr",
        *(tag("th", word, scope="col") for word in ("Library", "From", "Where it is found", "Asked for by")),
    )
    title = f"Who loads whom: {pluralize(len(libraries), 'library', 'libraries')}"
    parts.append(region(title, tag("thead", head), tag("tbody", *rows), class_="libraries", id_="libraries"))
    if not graph.nodes:
        parts = [tag("p", "The wheel has no ELF file that this loader can meet: nothing is loaded.")]
    return tag(
        "section", tag("h2", "Dependencies", id="dependencies"), *parts, aria_labelledby="dependencies"
    )


def _button(name: str, sign: str, label: str) -> Html:
    return tag("button", sign, type="button", id=name, aria_label=label, title=label)


def _legend(graph: Graph) -> Html:
    kinds = dict.fromkeys(
        "wheel" if node.file else "dropped" if node_words(node)[0] == "dropped" else node.origin
        for node in graph.nodes
    )
    items = [
        tag("li", tag("span", class_=f"swatch {kind}", aria_hidden="true"), tag("b", kind), f" {text}")
        for kind, text in _ORIGINS.items()
        if kind in kinds
    ]
    return tag("ul", *items, class_="legend", aria_label="What the boxes mean")


def _row(graph: Graph, node: Node, anchor: str, anchors: list[str], glibc: str) -> Html:
    where: list[str | None] = []
    if node.parts:
        where.append(joined([path_of(f"{node.path}/"), f" glibc {glibc}: {', '.join(node.parts)}"]))
    elif node.path is not None:
        where.append(path_of(node.path))
    else:
        where.append("nowhere")
    if node.found_by:
        where.append(tag("div", node.found_by, class_="rule"))
    changes = []
    if node.added_to:
        changes.append(
            tag("div", f"+ added to NEEDED of {pluralize(node.added_to, 'file')}", class_="change added")
        )
    if node.replaces:
        changes.append(
            tag(
                "div",
                "~ replaces ",
                joined([name_of(item) for item in node.replaces], ", "),
                class_="change replaced",
            )
        )
    if node.dropped_from:
        changes.append(
            tag(
                "div",
                f"- dropped from NEEDED of {pluralize(node.dropped_from, 'file')}",
                class_="change dropped",
            )
        )
    links = [tag("a", graph.nodes[other].name, href=f"#{anchors[other]}") for other in node.needed_by]
    who = joined(links, ", ")
    if len(links) > _MANY:
        who = tag("details", tag("summary", f"{len(links)} objects"), who)
    word = node_words(node)[0]
    return tag(
        "tr",
        tag("th", name_of(node.name), *changes, scope="row"),
        tag("td", tag("span", word, class_=f"origin {word}")),
        tag("td", *where),
        tag("td", who, class_="who"),
        id=anchor,
    )
