"""The dependency graph as an inline SVG: one name a line in the order of loading levels, and an arc for each edge beside them.

That is an arc diagram (Wattenberg, "Arc diagrams: visualizing structure in strings", 2002): it needs the width of one name and of
the arcs, however many nodes there are, so its text is as large as that of the page, on a phone, too.
"""

from __future__ import annotations

import re

from relink.report.html.graph import Arrow, Graph, Node
from relink.report.html.markup import Html, tag
from relink.report.html.words import node_words
from relink.system.text import join_truncated

_ABI_TAG = re.compile(r"\.(?:cpython-\w+-[\w-]+|abi3)\.so(?=$| and \d)")
# Pixels of all, of the arcs beside the boxes, of a line and of the box in it; characters of 7.3 px in a box.
_WIDTH, _ARCS, _STEP, _HEIGHT, _LONGEST = 340.0, 96.0, 30.0, 24.0, 29
# Of files in one tooltip.
_MOST_PATHS = 12


def drawing(graph: Graph, anchors: list[str]) -> Html:
    """Return the graph as an SVG of :data:`_WIDTH` pixels.

    :param anchors: for each node, the id of what its box links to.
    """
    line = {number: position for position, number in enumerate(graph.order)}
    height = _STEP * len(line)
    groups = (
        tag("g", *(_arc(edge, line) for edge in graph.edges if edge.implied == implied), class_=name)
        for implied, name in ((True, "implied"), (False, "edges"))
    )
    return tag(
        "svg",
        *groups,
        tag("g", *(_box(graph, n, anchors[n], line[n]) for n in graph.order), class_="nodes"),
        width=round(_WIDTH),
        height=round(height),
        viewBox=f"0 0 {round(_WIDTH)} {round(height)}",
        role="group",
        aria_label="Dependency graph",
    )


def _middle(line: int) -> float:
    return _STEP * line + _STEP / 2


def _box(graph: Graph, number: int, anchor: str, line: int) -> Html:
    node = graph.nodes[number]
    top = _middle(line) - _HEIGHT / 2
    return tag(
        "a",
        _tooltip(node),
        tag(
            "rect",
            x="1",
            y=f"{top:g}",
            width=f"{_WIDTH - _ARCS:g}",
            height=f"{_HEIGHT:g}",
            rx="2" if node.file else "8",
        ),
        tag("text", shortened(node.name, _LONGEST), x="9", y=f"{_middle(line) + 4:g}", class_="name"),
        href=f"#{anchor}",
        class_=" ".join(_marks(node)),
        data_node=number,
    )


def _arc(edge: Arrow, line: dict[int, int]) -> Html:
    """Return an edge: a curve to the right, the wider the more lines it passes, with a point where it ends."""
    start, end = _middle(line[edge.start]), _middle(line[edge.end])
    left = _WIDTH - _ARCS + 1
    many = abs(line[edge.end] - line[edge.start])
    # A cubic curve reaches three quarters of the way to its control points.
    reach = left + (_ARCS - 8) * 4 / 3 * min(1.0, (many / 24) ** 0.5)
    way = f"M{left:g} {start:g}C{reach:.0f} {start:g} {reach:.0f} {end - 4:g} {left + 5:g} {end:g}l0 -3l-5 3l5 3l0 -3"
    return tag("path", d=way, class_=f"edge {edge.change}", data_from=edge.start, data_to=edge.end)


def shortened(name: str, longest: int) -> str:
    """Return a name without the ABI tag of an extension module, and its middle left out where it has more than `longest`."""
    name = _ABI_TAG.sub("….so", name)
    if len(name) <= longest:
        return name
    half = longest // 2
    return f"{name[:half]}…{name[1 - half :]}"


def _marks(node: Node) -> list[str]:
    """Return the classes of a node's box: what it is first."""
    marks = ["node", node_words(node)[0]]
    if node.file is not None and node.file.changed:
        marks.append("changed")
    if node.file is not None and not node.file.served:
        marks.append("unserved")
    return marks


def _tooltip(node: Node) -> Html:
    """Return what is shown when a pointer rests on a node: its whole name, its path, and of several files the first."""
    paths = [file.path for file in (node.file, *node.alike) if file] if node.alike else []
    where = join_truncated(paths, _MOST_PATHS) if paths else node.path or node.name
    return tag("title", f"{where}: {' · '.join(node_words(node))}")
