"""The dependency graph for a narrow screen: one name a line in the order of loading levels, and an arc for each edge beside them.

The form is that of an arc diagram (Wattenberg, "Arc diagrams: visualizing structure in strings", 2002): it needs the width of one
name and of the arcs, however many nodes there are, so its text is as large as that of the page.
"""

from __future__ import annotations

from relink.report.html.drawing import marks_of, shortened, tooltip
from relink.report.html.graph import Arrow, Graph
from relink.report.html.layered import levels
from relink.report.html.markup import Html, tag

__all__ = ["column"]

_WIDTH, _ARCS = 340.0, 96.0  # pixels: of all, and of the arcs beside the boxes
_STEP, _HEIGHT = 30.0, 24.0
_LONGEST = 29  # characters of 7.3 px in a box, between its edges


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
    top = _middle(line) - _HEIGHT / 2
    return tag(
        "a",
        tooltip(node),
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
        class_=" ".join(marks_of(node)),
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
