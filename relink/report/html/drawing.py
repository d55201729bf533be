"""The dependency graph as an inline SVG: drawn here once and for all, scrolled by the browser, zoomed by the page's script.

For a narrow screen there is a column: one name a line in the order of loading levels, and an arc for each edge beside them. That
is an arc diagram (Wattenberg, "Arc diagrams: visualizing structure in strings", 2002): it needs the width of one name and of the
arcs, however many nodes there are, so its text is as large as that of the page.
"""

from __future__ import annotations

import re

from relink.report.html.graph import Arrow, Graph, Node
from relink.report.html.layered import Box, GraphLayout, Route, lay_out, levels, passing
from relink.report.html.markup import Html, tag
from relink.report.html.words import node_words
from relink.system.text import join_truncated

__all__ = ["column", "drawing", "shortened"]

_MOST_PASSING = (
    4000  # layers that edges pass in all; the largest real graph seen has 163, and 4000 take half a second
)
_CHARACTER = 7.0  # pixels: the widest common monospace fonts have 0.602 em, and names are set at 11.5 px
_LONGEST = 28  # characters of a name in a box; the rest is in the tooltip and in the table
_HEIGHT = 40.0
_ABI_TAG = re.compile(r"\.(?:cpython-\w+-[\w-]+|abi3)\.so(?=$| and \d)")
# Of the column: pixels of all, of the arcs beside the boxes, of a line and of the box in it; characters of 7.3 px in a box.
_WIDTH, _ARCS, _STEP, _LINE_HEIGHT, _LINE_LONGEST = 340.0, 96.0, 30.0, 24.0, 29
_MOST_PATHS = 12  # of files in one tooltip


def drawing(graph: Graph, anchors: list[str]) -> Html | None:
    """Return the graph as an SVG, or None where it is too large to be drawn.

    :param anchors: for each node, the id of what its box links to.
    """
    drawn = [(edge.start, edge.end) for edge in graph.edges if not edge.implied]
    if not graph.nodes or not graph.drawable or passing(len(graph.nodes), drawn) > _MOST_PASSING:
        return None
    labels = [shortened(node.name, _LONGEST) for node in graph.nodes]
    sizes = [
        (max(len(label) * _CHARACTER, len(_second(node)) * 6.2) + 22, _HEIGHT)
        for label, node in zip(labels, graph.nodes, strict=True)
    ]
    layout = lay_out(sizes, drawn)
    implied = [_edge(layout, edge) for edge in graph.edges if edge.implied]
    plain = [_edge(layout, edge) for edge in graph.edges if not edge.implied]
    boxes = [
        _node(number, node, labels[number], layout.boxes[number], anchors[number])
        for number, node in enumerate(graph.nodes)
    ]
    width, height = round(layout.width), round(layout.height)
    return tag(
        "svg",
        tag("g", *implied, class_="implied"),
        tag("g", *plain, class_="edges"),
        tag("g", *boxes, class_="nodes"),
        width=width,
        height=height,
        viewBox=f"0 0 {width} {height}",
        role="group",
        aria_label="Dependency graph",
    )


def shortened(name: str, longest: int) -> str:
    """Return a name without the ABI tag of an extension module, and its middle left out where it has more than `longest`."""
    name = _ABI_TAG.sub("….so", name)
    if len(name) <= longest:
        return name
    half = longest // 2
    return f"{name[:half]}…{name[1 - half :]}"


def _second(node: Node) -> str:
    return " · ".join(node_words(node))


def _marks(node: Node) -> list[str]:
    """Return the classes of a node's box: what it is first."""
    kind = "wheel" if node.file else "dropped" if node_words(node)[0] == "dropped" else node.origin
    marks = ["node", kind]
    if node.file is not None and node.file.changed:
        marks.append("changed")
    if node.file is not None and not node.file.served:
        marks.append("unserved")
    return marks


def _tooltip(node: Node) -> Html:
    """Return what is shown when a pointer rests on a node: its whole name, its path, and of several files the first."""
    paths = [file.path for file in (node.file, *node.alike) if file] if node.alike else []
    where = join_truncated(paths, _MOST_PATHS) if paths else node.path or node.name
    return tag("title", f"{where}: {_second(node)}")


def _node(number: int, node: Node, label: str, box: Box, anchor: str) -> Html:
    middle = box.y + box.height / 2
    return tag(
        "a",
        _tooltip(node),
        tag(
            "rect",
            x=_number(box.x),
            y=_number(box.y),
            width=_number(box.width),
            height=_number(box.height),
            rx="2" if node.file else "8",
        ),
        tag("text", label, x=_number(box.x + 11), y=_number(middle - 3.5), class_="name"),
        tag("text", _second(node), x=_number(box.x + 11), y=_number(middle + 11.5), class_="second"),
        href=f"#{anchor}",
        class_=" ".join(_marks(node)),
        data_node=number,
    )


def _edge(layout: GraphLayout, edge: Arrow) -> Html:
    start, end = layout.boxes[edge.start], layout.boxes[edge.end]
    route = layout.routes.get((edge.start, edge.end))
    if route is None:  # implied: no way was kept free for it
        route = (
            (start.x + start.width, start.y + start.height / 2),
            (end.x, end.y + end.height / 2),
        )
        route = route if start.layer < end.layer else route[::-1]
    return tag(
        "path",
        d=_way(route),
        class_=f"edge {edge.change}",
        data_from=edge.start,
        data_to=edge.end,
    )


def _way(points: Route) -> Html:
    """Return the path data: curves between the layers, straight across them."""
    parts: list[str] = []
    for number in range(0, len(points), 2):
        (x, y), (end_x, end_y) = points[number], points[number + 1]
        middle = _number((x + end_x) / 2)
        parts.append(f"{'L' if parts else 'M'}{_number(x)} {_number(y)}")
        parts.append(f"C{middle} {_number(y)} {middle} {_number(end_y)} {_number(end_x)} {_number(end_y)}")
    return Html(" ".join(parts))


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def column(graph: Graph, anchors: list[str]) -> Html:
    """Return the graph as an SVG of :data:`_WIDTH` pixels.

    :param anchors: for each node, the id of what its box links to.
    """
    level = levels(len(graph.nodes), [(edge.start, edge.end) for edge in graph.edges])
    order = sorted(range(len(graph.nodes)), key=lambda number: (level[number], number))
    line = {number: position for position, number in enumerate(order)}
    height = _STEP * len(order)
    groups = (
        tag("g", *(_arc(edge, line) for edge in graph.edges if edge.implied == implied), class_=name)
        for implied, name in ((True, "implied"), (False, "edges"))
    )
    boxes = [_box(graph, number, anchors[number], line[number]) for number in order]
    return tag(
        "svg",
        *groups,
        tag("g", *boxes, class_="nodes"),
        width=round(_WIDTH),
        height=round(height),
        viewBox=f"0 0 {round(_WIDTH)} {round(height)}",
        role="group",
        aria_label="Dependency graph as a column",
    )


def _middle(line: int) -> float:
    return _STEP * line + _STEP / 2


def _box(graph: Graph, number: int, anchor: str, line: int) -> Html:
    node = graph.nodes[number]
    top = _middle(line) - _LINE_HEIGHT / 2
    return tag(
        "a",
        _tooltip(node),
        tag(
            "rect",
            x="1",
            y=f"{top:g}",
            width=f"{_WIDTH - _ARCS:g}",
            height=f"{_LINE_HEIGHT:g}",
            rx="2" if node.file else "8",
        ),
        tag("text", shortened(node.name, _LINE_LONGEST), x="9", y=f"{_middle(line) + 4:g}", class_="name"),
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
