"""The layout of graphs: nothing overlaps, every edge goes to the right, the same graph gives the same drawing."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relink.report.html.layered import GraphLayout, crossings, lay_out, levels, passing, reduced, rising
from tests.support.amount import amount

Edges = list[tuple[int, int]]

EDGES = st.integers(1, 14).flatmap(
    lambda count: st.tuples(
        st.just(count),
        st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=40),
    )
)


def rocm_like(count: int, seed: int = 7) -> Edges:
    """A graph as wheels have it: few roots, and libraries that need some of those behind them."""
    chosen = random.Random(seed)
    return [
        (node, other)
        for node in range(count - 1)
        for other in chosen.sample(range(node + 1, min(count, node + 12)), k=min(3, count - node - 1))
    ]


def sizes_of(count: int) -> list[tuple[float, float]]:
    return [(60.0 + 13 * (node % 9), 30.0 + node % 4) for node in range(count)]


def reach(count: int, edges: Edges) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(count)]
    for start in range(count):
        waiting = [start]
        while waiting:
            node = waiting.pop()
            for a, b in edges:
                if a == node and b not in found[start]:
                    found[start].add(b)
                    waiting.append(b)
    return found


def overlapping(layout: GraphLayout) -> list[tuple[int, int]]:
    return [
        (a, b)
        for (a, first), (b, second) in itertools.combinations(layout.boxes.items(), 2)
        if first.x < second.x + second.width
        and second.x < first.x + first.width
        and first.y < second.y + second.height
        and second.y < first.y + first.height
    ]


def backward(layout: GraphLayout) -> Edges:
    return [(a, b) for a, b in layout.routes if layout.boxes[a].layer > layout.boxes[b].layer]


def check(layout: GraphLayout, edges: Edges) -> None:
    assert not overlapping(layout)
    for box in layout.boxes.values():
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.width <= layout.width
        assert box.y + box.height <= layout.height
    for edge in dict.fromkeys(edges):
        if edge[0] == edge[1]:
            continue
        route = layout.routes[edge]
        start, end = sorted((layout.boxes[node] for node in edge), key=lambda box: box.layer)
        assert start.layer < end.layer
        xs = [x for x, _ in route]
        assert xs == sorted(xs)
        middles = [start.x + start.width, start.y + start.height / 2, end.x, end.y + end.height / 2]
        assert [*route[0], *route[-1]] == pytest.approx(middles, abs=0.11)
        assert all(0 <= y <= layout.height for _, y in route)


@given(EDGES)
@settings(max_examples=amount(150), deadline=None)
def test_any_graph(graph: tuple[int, Edges]) -> None:
    count, edges = graph
    check(lay_out(sizes_of(count), edges), edges)


@pytest.mark.parametrize("count", [1, 2, 40, 200])
def test_a_graph_as_wheels_have_it(count: int) -> None:
    edges = reduced(count, rocm_like(count))
    layout = lay_out(sizes_of(count), edges)
    check(layout, edges)
    assert backward(layout) == []


def test_no_graph() -> None:
    layout = lay_out([], [])
    assert (layout.boxes, layout.routes) == ({}, {})


def test_a_way_over_several_layers_crosses_no_box() -> None:
    edges = rocm_like(60)
    layout = lay_out(sizes_of(60), edges)
    for (start, end), route in layout.routes.items():
        for (left, y), (right, other) in zip(route[1:-1:2], route[2:-1:2], strict=True):
            assert y == other, "across a layer the way is straight"
            for node, box in layout.boxes.items():
                beside = y <= box.y or y >= box.y + box.height
                assert node in (start, end) or beside or right <= box.x or left >= box.x + box.width


def test_the_longest_way_gives_the_layer() -> None:
    layout = lay_out([(10, 10)] * 5, [(0, 1), (1, 2), (0, 2), (3, 2), (2, 4)])
    assert [layout.boxes[node].layer for node in range(5)] == [0, 1, 2, 0, 3]


def test_levels() -> None:
    assert levels(5, [(0, 1), (1, 2), (0, 2), (3, 2), (2, 4), (2, 1), (3, 3)]) == [0, 1, 2, 0, 3]


@pytest.mark.parametrize("alone", [0, 1, 4])
def test_a_node_without_edges_stands_beside_the_others(alone: int) -> None:
    edges = [(node, 5) for node in range(5) if node != alone] + [(5, 6 + node) for node in range(20)]
    layout = lay_out([(10, 10)] * 26, edges)
    check(layout, edges)
    tops = sorted(layout.boxes[node].y for node in range(5))
    assert [round(b - a, 1) for a, b in itertools.pairwise(tops)] == [20.0] * 4


def test_the_same_graph_gives_the_same_drawing() -> None:
    edges = rocm_like(80)
    assert lay_out(sizes_of(80), edges) == lay_out(sizes_of(80), list(edges))


def test_ordering_takes_crossings_away() -> None:
    layout = lay_out([(10, 10)] * 6, [(0, 5), (1, 4), (2, 3)])
    assert [layout.boxes[a].y < layout.boxes[b].y for a, b in ((5, 4), (4, 3))] == [True, True]


def test_circles_are_drawn_too() -> None:
    edges = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 3)]
    layout = lay_out([(10, 10)] * 4, edges)
    check(layout, edges)
    assert backward(layout) == [(2, 0)]


@given(EDGES)
@settings(max_examples=amount(150), deadline=None)
def test_reduction_keeps_who_reaches_whom(graph: tuple[int, Edges]) -> None:
    count, edges = graph
    kept = reduced(count, edges)
    assert set(kept) <= set(edges)
    for node, (before, after) in enumerate(zip(reach(count, edges), reach(count, kept), strict=True)):
        assert before - {node} == after - {node}


def test_reduction_leaves_nothing_that_others_imply() -> None:
    edges = rocm_like(25)
    kept = reduced(25, edges)
    assert len(kept) < len(edges)
    for edge in kept:
        others = [other for other in kept if other != edge]
        assert edge[1] not in reach(25, others)[edge[0]]


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=6, unique=True), min_size=1, max_size=6),
)
def test_crossings_are_counted(ends: list[list[int]]) -> None:
    after = [*([6 + end for end in each] for each in ends), *([[]] * (12 - len(ends)))]
    edges = [(start, end) for start, each in enumerate(ends) for end in each]
    expected = sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in itertools.combinations(edges, 2))
    assert crossings([list(range(len(ends))), list(range(6, 12))], after) == expected


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=12))
def test_rising(wanted: list[float]) -> None:
    found = rising(wanted, [1.0] * len(wanted))
    assert found == sorted(found)
    assert sum(found) == pytest.approx(sum(wanted), abs=1e-6)
    if wanted == sorted(wanted):
        assert found == pytest.approx(wanted)


def test_passing() -> None:
    assert passing(5, [(0, 1), (1, 2), (0, 2), (3, 2), (2, 4)]) == 1 + 1 + 2 + 2 + 1
    assert passing(200, reduced(200, rocm_like(200))) < 4000, "such a graph is drawn"
