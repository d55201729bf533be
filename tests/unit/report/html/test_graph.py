"""The graph of a report: what stands as one node, what changed, and which edges say nothing new."""

from __future__ import annotations

import random
from dataclasses import replace

from relink.plans.model import Load
from relink.report.html import html_page
from relink.report.html.drawing import drawing
from relink.report.html.graph import Graph, Node, graph_of
from relink.report.html.libraries import anchors_of
from relink.report.html.words import node_words
from tests.support.reports import Page, sample_report

REPORT = sample_report()
ROOT = "$WHEEL/pkg/root.so"


def named(graph: Graph, name: str) -> Node:
    (node,) = [node for node in graph.nodes if node.name == name]
    return node


def edges(graph: Graph) -> dict[tuple[str, str], tuple[str, bool]]:
    return {
        (graph.nodes[edge.start].name, graph.nodes[edge.end].name): (edge.change, edge.implied)
        for edge in graph.edges
    }


def test_nodes_and_what_is_said_of_them() -> None:
    words = {node.name: " ".join(node_words(node)) for node in graph_of(REPORT).nodes}
    assert words == {
        "root.so": "wheel changed",
        "own.so": "wheel unchanged",
        "variant.so": "wheel not served",
        "libkept.so.1": "provider",
        "libnew.so.2": "provider ~ replaced",
        "libadded.so.3": "provider + added",
        "liblost.so.1": "missing",
        "liblater.so.1": "assumed",
        "C library": "platform 3 files",
        "libdropped.so.1": "dropped",
    }


def test_edges_and_what_others_imply() -> None:
    found = edges(graph_of(REPORT))
    assert found["root.so", "libnew.so.2"] == ("replaced", False)
    assert found["root.so", "libdropped.so.1"] == ("dropped", False)
    assert found["root.so", "liblost.so.1"] == ("kept", False)
    assert found["root.so", "libadded.so.3"] == ("added", True), "libkept.so.1 asks for it already"
    assert found["root.so", "C library"] == ("kept", True)
    assert found["libkept.so.1", "C library"] == ("kept", False)


def test_the_c_library_is_one_node_with_no_edge_to_itself() -> None:
    node = named(graph_of(REPORT), "C library")
    assert node.parts == ["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"]
    assert node.needs == []


def test_one_file_by_two_paths_is_one_node() -> None:
    more = Load("/p/lib/libadded.so.3", "libnew.so.2", "/p/lib/../lib/libnew.so.2", "RPATH", "provider")
    graph = graph_of(replace(REPORT, loads=(*REPORT.loads, more)))
    assert [node.name for node in graph.nodes].count("libnew.so.2") == 1
    assert named(graph, "libnew.so.2").needed_by == [0, graph.nodes.index(named(graph, "libadded.so.3"))]


def test_a_rule_that_says_more_than_already_loaded() -> None:
    loads = (
        Load(ROOT, "libx.so.1", "/p/libx.so.1", "already loaded", "provider"),
        Load("$WHEEL/pkg/own.so", "libx.so.1", "/p/libx.so.1", "RUNPATH entry /p", "provider"),
    )
    assert named(graph_of(replace(REPORT, loads=loads)), "libx.so.1").found_by == "RUNPATH entry /p"


def test_a_report_without_loads_shows_what_the_files_need() -> None:
    found = edges(graph_of(replace(REPORT, loads=())))
    assert found["root.so", "libadded.so.3"] == ("added", False)
    assert ("libkept.so.1", "libadded.so.3") not in found


def test_a_member_that_is_installed_elsewhere_is_found_again() -> None:
    file = replace(REPORT.files[0], path="demo-1.0.data/purelib/pkg/root.so")
    graph = graph_of(replace(REPORT, files=(file, *REPORT.files[1:])))
    assert [node.name for node in graph.nodes].count("root.so") == 1


def test_the_drawing_has_each_node_and_edge_once() -> None:
    graph = graph_of(REPORT)
    picture = Page(drawing(graph, anchors_of(graph)) or "").root
    assert [box.attributes["data-node"] for box in picture.all("a")] == [
        str(n) for n in range(len(graph.nodes))
    ]
    ways = {(way.attributes["data-from"], way.attributes["data-to"]) for way in picture.all("path")}
    assert ways == {(str(edge.start), str(edge.end)) for edge in graph.edges}
    assert len(picture.one("g", "implied").all("path")) == sum(edge.implied for edge in graph.edges)
    texts = picture.all("text", "name")
    assert [text.text for text in texts] == [node.name for node in graph.nodes]


def test_what_is_too_large_is_not_drawn() -> None:
    loads = tuple(
        Load(ROOT, f"lib{number}.so", f"/p/lib{number}.so", None, "provider") for number in range(400)
    )
    graph = graph_of(replace(REPORT, loads=loads))
    assert drawing(graph, anchors_of(graph)) is None


def test_a_report_that_is_far_too_large_still_gets_its_table() -> None:
    names = [f"/p/lib{number}.so" for number in range(8000)]
    chain = [
        Load(before, name.rsplit("/", 1)[1], name, None, "provider")
        for before, name in zip([ROOT, *names], names, strict=False)
    ]
    fan = [Load(ROOT, name.rsplit("/", 1)[1], name, None, "provider") for name in names]
    page = html_page(replace(REPORT, loads=(*chain, *fan)))
    assert "too many to be drawn" in page
    assert page.count('class="origin provider"') >= len(names)


def test_a_tangle_is_not_drawn() -> None:
    chosen = random.Random(1)
    names = [f"/p/lib{number}.so" for number in range(120)]
    pairs = [(chosen.choice(names), chosen.choice(names)) for _ in range(600)]
    loads = tuple(Load(a, b.rsplit("/", 1)[1], b, None, "provider") for a, b in pairs)
    graph = graph_of(replace(REPORT, loads=loads))
    assert graph.drawable
    assert drawing(graph, anchors_of(graph)) is None
