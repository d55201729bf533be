"""The graph of a report: what stands as one node, what changed, and who needs it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from relink.planning.model import FilePlan, InterpreterChange, Load, RpathChange
from relink.report.html import html_page
from relink.report.html.graph import Node, graph_of, rule_phrase
from relink.report.html.markup import fold_items, shortened, tag
from relink.report.model import Report
from tests.support.plans import replanned
from tests.support.reports import Page, sample_report


def test_names_in_boxes() -> None:
    assert shortened("cufft.cpython-312-x86_64-linux-gnu.so", 28) == "cufft….so"
    assert shortened("lib" + "x" * 40, 10) == "libxx…xxxx"


REPORT = sample_report()
ROOT = "$WHEEL/pkg/root.so"


def named(report: Report, name: str) -> Node:
    (node,) = [node for node in graph_of(report) if node.name == name]
    return node


def needing(report: Report, name: str) -> list[str]:
    return [node.name for node in named(report, name).needed_by]


def test_nodes_and_what_is_said_of_them() -> None:
    found = {
        node.name: (node.origin, node.added_to, tuple(node.replaces), node.dropped_from)
        for node in graph_of(REPORT)
    }
    assert found == {
        "root.so": ("wheel", 0, (), 0),
        "own.so": ("wheel", 0, (), 0),
        "variant.so": ("wheel", 0, (), 0),
        "libkept.so.1": ("provider", 0, (), 0),
        "libnew.so.2": ("provider", 0, ("libold.so.1",), 0),
        "libadded.so.3": ("provider", 1, (), 0),
        "liblost.so.1": ("missing", 0, (), 0),
        "liblater.so.1": ("assumed", 0, (), 0),
        "C library": ("platform", 0, (), 0),
        "libdropped.so.1": ("missing", 0, (), 1),
    }


def test_who_needs_what() -> None:
    for name in ("libnew.so.2", "libdropped.so.1", "liblost.so.1", "libadded.so.3"):
        assert "root.so" in needing(REPORT, name)
    assert "libkept.so.1" in needing(REPORT, "C library")


def test_the_c_library_is_one_node_that_does_not_need_itself() -> None:
    assert named(REPORT, "C library").parts == ["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"]
    assert "C library" not in needing(REPORT, "C library")


def test_one_file_by_two_paths_is_one_node() -> None:
    more = Load("/p/lib/libadded.so.3", "libnew.so.2", "/p/lib/../lib/libnew.so.2", "RPATH", "provider")
    assert needing(replanned(REPORT, loads=(*REPORT.loads, more)), "libnew.so.2") == [
        "root.so",
        "libadded.so.3",
    ]


def test_a_rule_that_says_more_than_already_loaded() -> None:
    loads = (
        Load(ROOT, "libx.so.1", "/p/libx.so.1", "already loaded", "provider"),
        Load("$WHEEL/pkg/own.so", "libx.so.1", "/p/libx.so.1", "RUNPATH entry /p", "provider"),
    )
    assert named(replanned(REPORT, loads=loads), "libx.so.1").found_by == "RUNPATH entry /p"


def test_a_report_without_loads_shows_what_the_files_need() -> None:
    report = replanned(REPORT, loads=())
    assert needing(report, "libadded.so.3") == ["root.so"]
    assert named(report, "libadded.so.3").added_to == 1


def test_a_member_that_is_installed_elsewhere_is_found_again() -> None:
    file = replace(REPORT.files[0], path="demo-1.0.data/purelib/pkg/root.so")
    assert named(replanned(REPORT, files=(file, *REPORT.files[1:])), "root.so").is_member


def wheel_report(*paths: str) -> Report:
    """Files that each need liba.so.1."""
    unchanged = (RpathChange(None, None, None, None), InterpreterChange(None, None))
    return replanned(
        REPORT,
        files=tuple(FilePlan(path, "nothing", (), *unchanged) for path in paths),
        loads=tuple(
            Load(f"$WHEEL/{path}", "liba.so.1", "/p/lib/liba.so.1", None, "provider") for path in paths
        ),
    )


def test_links_lead_to_the_file_of_a_member_and_to_the_row_of_a_library() -> None:
    nodes = graph_of(wheel_report("a.so", "b.so"))
    assert [node.anchor for node in nodes] == ["file-0", "file-1", "library-2"]


def test_members_that_are_called_alike_have_their_paths() -> None:
    assert needing(wheel_report("pkg/x/same.so", "pkg/y/same.so", "pkg/other.so"), "liba.so.1") == [
        "pkg/x/same.so",
        "pkg/y/same.so",
        "other.so",
    ]


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
