"""The drawing of the graph: every node a line, every edge an arc beside them, nothing wider than a phone."""

from __future__ import annotations

import itertools
import re

from relink.report.html.drawing import drawing, shortened
from relink.report.html.graph import graph_of
from relink.report.html.libraries import anchors_of
from tests.support.reports import Page, sample_report

GRAPH = graph_of(sample_report())
PICTURE = Page(drawing(GRAPH, anchors_of(GRAPH))).root.one("svg")


def test_each_node_and_edge_once() -> None:
    boxes = PICTURE.all("a")
    assert sorted(int(box.attributes["data-node"] or "") for box in boxes) == list(range(len(GRAPH.nodes)))
    ways = {
        (int(way.attributes["data-from"] or ""), int(way.attributes["data-to"] or ""))
        for way in PICTURE.all("path")
    }
    assert ways == {(edge.start, edge.end) for edge in GRAPH.edges}
    assert len(PICTURE.one("g", "implied").all("path")) == sum(edge.implied for edge in GRAPH.edges)


def test_who_asks_stands_above_whom_it_asks_for() -> None:
    line = {int(box.attributes["data-node"] or ""): number for number, box in enumerate(PICTURE.all("a"))}
    names = {node.name: line[number] for number, node in enumerate(GRAPH.nodes)}
    assert names["root.so"] < names["libnew.so.2"] < names["C library"]
    assert names["C library"] == len(line) - 1


def test_names_are_as_large_as_text_and_arcs_stay_inside() -> None:
    assert int(PICTURE.attributes["width"] or "") <= 340
    tops = [float(box.one("rect").attributes["y"] or "") for box in PICTURE.all("a")]
    assert all(b - a >= 30 for a, b in itertools.pairwise(tops))
    for way in PICTURE.all("path"):
        curve = (way.attributes["d"] or "").partition("l")[0]
        start, _, first, _, second, _, end, _ = map(float, re.findall(r"-?[\d.]+", curve))
        widest = max((start + 3 * first + 3 * second + end) / 8, start, end)  # the middle of a cubic curve
        assert start <= widest <= 340


def test_names_in_boxes() -> None:
    assert shortened("cufft.cpython-312-x86_64-linux-gnu.so", 28) == "cufft….so"
    assert shortened("lib" + "x" * 40, 10) == "libxx…xxxx"
