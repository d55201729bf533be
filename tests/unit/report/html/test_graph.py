"""The graph of a report: what stands as one node, what changed, and which edges say nothing new."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relink.planning.model import FilePlan, InterpreterChange, Load, RpathChange
from relink.report.html import html_page
from relink.report.html.graph import (
    Graph,
    Node,
    fold_items,
    graph_of,
    node_words,
    rule_phrase,
    shortened,
)
from relink.report.html.markup import tag
from relink.report.html.page import anchors_of
from relink.report.model import Report
from tests.support.plans import replanned
from tests.support.reports import Page, sample_report


def test_names_in_boxes() -> None:
    assert shortened("cufft.cpython-312-x86_64-linux-gnu.so", 28) == "cufft….so"
    assert shortened("lib" + "x" * 40, 10) == "libxx…xxxx"


REPORT = sample_report()
ROOT = "$WHEEL/pkg/root.so"


def named(graph: Graph, name: str) -> Node:
    (node,) = [node for node in graph.nodes if node.name == name]
    return node


def edges(graph: Graph) -> dict[tuple[str, str], str]:
    return {(graph.nodes[edge.start].name, graph.nodes[edge.end].name): edge.change for edge in graph.edges}


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


def test_edges() -> None:
    found = edges(graph_of(REPORT))
    assert found["root.so", "libnew.so.2"] == "replaced"
    assert found["root.so", "libdropped.so.1"] == "dropped"
    assert found["root.so", "liblost.so.1"] == "kept"
    assert found["root.so", "libadded.so.3"] == "added"
    assert found["libkept.so.1", "C library"] == "kept"


def test_the_c_library_is_one_node_with_no_edge_to_itself() -> None:
    node = named(graph_of(REPORT), "C library")
    assert node.parts == ["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"]
    assert node.needs == []


def test_one_file_by_two_paths_is_one_node() -> None:
    more = Load("/p/lib/libadded.so.3", "libnew.so.2", "/p/lib/../lib/libnew.so.2", "RPATH", "provider")
    graph = graph_of(replanned(REPORT, loads=(*REPORT.loads, more)))
    assert [node.name for node in graph.nodes].count("libnew.so.2") == 1
    assert named(graph, "libnew.so.2").needed_by == [0, graph.nodes.index(named(graph, "libadded.so.3"))]


def test_a_rule_that_says_more_than_already_loaded() -> None:
    loads = (
        Load(ROOT, "libx.so.1", "/p/libx.so.1", "already loaded", "provider"),
        Load("$WHEEL/pkg/own.so", "libx.so.1", "/p/libx.so.1", "RUNPATH entry /p", "provider"),
    )
    assert named(graph_of(replanned(REPORT, loads=loads)), "libx.so.1").found_by == "RUNPATH entry /p"


def test_a_report_without_loads_shows_what_the_files_need() -> None:
    found = edges(graph_of(replanned(REPORT, loads=())))
    assert found["root.so", "libadded.so.3"] == "added"
    assert ("libkept.so.1", "libadded.so.3") not in found


def test_a_member_that_is_installed_elsewhere_is_found_again() -> None:
    file = replace(REPORT.files[0], path="demo-1.0.data/purelib/pkg/root.so")
    graph = graph_of(replanned(REPORT, files=(file, *REPORT.files[1:])))
    assert [node.name for node in graph.nodes].count("root.so") == 1


def wheel_file(path: str, *, changed: bool = True) -> FilePlan:
    change = RpathChange(None, "/p/lib" if changed else None, None, "runpath" if changed else None)
    return FilePlan(path, "runpath" if changed else "nothing", (), change, InterpreterChange(None, None))


def alike_report(*paths: str, needs: dict[str, str] | None = None, same: str = "") -> Report:
    """Files that each need liba.so.1, or what `needs` says; `same` is the one that does not change."""
    needs = needs or {}
    sonames = {path: needs.get(path, "liba.so.1") for path in paths}
    return replanned(
        REPORT,
        files=tuple(wheel_file(path, changed=path != same) for path in paths),
        loads=tuple(
            Load(
                f"$WHEEL/{path}", name, f"/p/lib/{name}", f"RUNPATH entry /p/lib of $WHEEL/{path}", "provider"
            )
            for path, name in sonames.items()
        ),
    )


def test_roots_that_need_the_same_are_one_box() -> None:
    graph = graph_of(alike_report("pkg/a.so", "pkg/b.so", "pkg/c.so"))
    assert [node.name for node in graph.nodes] == ["3 extension modules", "liba.so.1"]
    assert edges(graph) == {("3 extension modules", "liba.so.1"): "kept"}
    assert graph.nodes[1].needed_by == [0]


def test_roots_with_another_need_result_or_change_stay_apart() -> None:
    other = graph_of(alike_report("a.so", "b.so", "c.so", needs={"c.so": "libb.so.1"}))
    assert [node.name for node in other.nodes] == ["2 extension modules", "c.so", "liba.so.1", "libb.so.1"]
    same = graph_of(alike_report("a.so", "b.so", "c.so", same="b.so"))
    assert [node.name for node in same.nodes] == ["2 extension modules", "b.so", "liba.so.1"]
    libraries = graph_of(alike_report("a.so", "liba.so"))
    assert libraries.nodes[0].name == "2 files of the wheel"


def test_boxes_that_would_be_called_alike_have_their_paths() -> None:
    needs = {"pkg/d.so": "libb.so.1", "pkg/e.abi3.so": "libb.so.1"}
    equal = graph_of(alike_report("pkg/a.abi3.so", "pkg/b.so", *needs, needs=needs))
    names = [node.name for node in equal.nodes if node.file]
    assert names == ["pkg/a.abi3.so and 1 more", "pkg/d.so and 1 more"]
    assert shortened(names[0], 28) == "pkg/a….so and 1 more"
    paths = ("pkg/x/same.so", "pkg/y/same.so", "other.so")
    sonames = {path: f"lib{number}.so" for number, path in enumerate(paths)}
    apart = graph_of(alike_report(*paths, needs=sonames))
    assert [node.name for node in apart.nodes if node.file] == ["pkg/x/same.so", "pkg/y/same.so", "other.so"]


def test_a_file_that_another_needs_is_no_root() -> None:
    report = alike_report("a.so", "b.so", "c.so")
    own = Load("$WHEEL/a.so", "b.so", "$WHEEL/b.so", None, "wheel")
    graph = graph_of(replanned(report, loads=(*report.loads, own)))
    assert [node.name for node in graph.nodes] == ["a.so", "b.so", "c.so", "liba.so.1"]


def test_links_lead_to_the_first_file_of_a_box() -> None:
    graph = graph_of(
        alike_report("a.so", "b.so", "c.so", "d.so", needs={"b.so": "libb.so.1", "d.so": "libb.so.1"})
    )
    assert anchors_of(graph) == ["file-0", "file-1", "library-2", "library-3"]


@pytest.mark.parametrize(
    ("found_by", "phrase"),
    [
        ("RUNPATH entry /p/lib of $WHEEL/a.so", "by RUNPATH"),
        ("RPATH entry $ORIGIN of $WHEEL/pkg/other.so", "by RPATH of other.so"),
        ("LD_LIBRARY_PATH entry /p/lib", "by LD_LIBRARY_PATH"),
        ("default directory /lib", "by default directory"),
        ("ld.so.cache", "by ld.so.cache"),
        ("already loaded", "already loaded"),
    ],
)
def test_the_rule_in_a_few_words(found_by: str, phrase: str) -> None:
    assert rule_phrase(found_by, ["$WHEEL/a.so"]) == phrase


@pytest.mark.parametrize(("count", "seen", "closed"), [(5, 5, 0), (6, 6, 0), (7, 5, 2)])
def test_a_list_shows_its_first_items(count: int, seen: int, closed: int) -> None:
    root = Page("".join(fold_items([tag("li", str(number)) for number in range(count)], "files"))).root
    rest = root.all("details")
    assert sum(len(part.all("li")) for part in root.children if part.name == "ul") == seen
    assert sum(len(part.all("li")) for part in rest) == closed
    assert [part.one("summary").text for part in rest] == ["2 more files"] * (closed > 0)


@pytest.mark.slow(reason="16,000 edges take a second")
def test_a_large_report_gets_its_table() -> None:
    names = [f"/p/lib{number}.so" for number in range(8000)]
    chain = [
        Load(before, name.rsplit("/", 1)[1], name, None, "provider")
        for before, name in zip([ROOT, *names], names, strict=False)
    ]
    fan = [Load(ROOT, name.rsplit("/", 1)[1], name, None, "provider") for name in names]
    page = html_page(replanned(REPORT, loads=(*chain, *fan)))
    assert page.count('class="origin provider"') >= len(names)
