"""A layered drawing of a directed graph: a node stands left of those that it needs. The same graph always gives the same drawing.

The steps are those of Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures" (IEEE
Transactions on Systems, Man, and Cybernetics, 1981): break cycles, put nodes into layers, order each layer so that few edges
cross, give coordinates. An edge over several layers runs through a place of its own in each, so that it crosses no node.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TypeAlias

__all__ = [
    "Box",
    "GraphLayout",
    "Route",
    "crossings",
    "lay_out",
    "levels",
    "passing",
    "reduced",
    "rising",
]

_SWEEPS = 12  # of ordering and of alignment; more changes nothing that can be seen on graphs of 200 nodes
_BETWEEN_LAYERS, _BETWEEN_NODES, _MARGIN = 28.0, 10.0, 8.0
_THIN = 8.0  # height of the place that a passing edge takes


@dataclass(frozen=True, slots=True)
class Box:
    """Where a node stands: its upper left corner, and its size."""

    x: float
    y: float
    width: float
    height: float
    layer: int


Route: TypeAlias = tuple[tuple[float, float], ...]
"""The way of an edge from left to right: pairs of points between which it swings, and straight lines between the pairs.

Of an edge that closes a cycle it begins where the edge ends.
"""


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """The drawing: boxes by node, routes by edge, and the size of it all."""

    boxes: Mapping[int, Box]
    routes: Mapping[tuple[int, int], Route]
    width: float
    height: float


def reduced(count: int, edges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the edges that no other way through the graph implies (its transitive reduction); edges of cycles all stay.

    :param count: the nodes are the numbers below it.
    """
    edges = list(dict.fromkeys((a, b) for a, b in edges if a != b))
    forward = _forward(count, edges)
    order = _order(count, forward)
    rank = {node: number for number, node in enumerate(order)}
    below: list[set[int]] = [set() for _ in range(count)]
    after = _adjacent(count, forward)
    kept: set[tuple[int, int]] = set(edges) - set(forward)
    for node in reversed(order):
        for other in sorted(after[node], key=rank.__getitem__):
            if other not in below[node]:
                kept.add((node, other))
                below[node] |= {other} | below[other]
    return [edge for edge in edges if edge in kept]


def passing(count: int, edges: Sequence[tuple[int, int]]) -> int:
    """Return how many layers all edges pass together: what :func:`lay_out` takes its time for."""
    forward = _forward(count, edges)
    layers = _layers(count, forward)
    return sum(abs(layers[a] - layers[b]) for a, b in edges)


def levels(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the level of each node: the longest way to it, edges that close a cycle left aside."""
    return _layers(count, _forward(count, list(dict.fromkeys((a, b) for a, b in edges if a != b))))


def lay_out(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> GraphLayout:
    """Place nodes of the given (width, height), numbered from 0, and the edges among them."""
    count = len(sizes)
    edges = list(dict.fromkeys((a, b) for a, b in edges if a != b))
    forward = _forward(count, edges)
    layers_of = _layers(count, forward)
    turned = set(edges) - set(forward)
    drawn = [(b, a) if (a, b) in turned else (a, b) for a, b in edges]
    # Places of passing edges are nodes, too; they are numbered on from `count`.
    chains: list[list[int]] = []
    layer_of = list(layers_of)
    for start, end in drawn:
        passing = range(layers_of[start] + 1, layers_of[end])
        chain = [start, *range(len(layer_of), len(layer_of) + len(passing)), end]
        layer_of += passing
        chains.append(chain)
    links = list(dict.fromkeys(link for chain in chains for link in itertools.pairwise(chain)))
    before, after = _adjacent(len(layer_of), [(b, a) for a, b in links]), _adjacent(len(layer_of), links)
    layers: list[list[int]] = [[] for _ in range(max(layer_of, default=-1) + 1)]
    for node, layer in enumerate(layer_of):
        layers[layer].append(node)
    layers = _ordered(layers, before, after)
    heights = [size[1] for size in sizes] + [_THIN] * (len(layer_of) - count)
    middles = _aligned(layers, before, after, heights, count)
    top = min((middles[node] - heights[node] / 2 for node in range(len(layer_of))), default=0.0)
    middles = [middle - top + _MARGIN for middle in middles]

    lefts, x = [], _MARGIN
    widths = [max((sizes[node][0] for node in layer if node < count), default=0.0) for layer in layers]
    for width in widths:
        lefts.append(x)
        x += width + _BETWEEN_LAYERS
    boxes = {
        node: Box(
            lefts[layer_of[node]],
            round(middles[node] - heights[node] / 2, 1),
            widths[layer_of[node]],
            heights[node],
            layer_of[node],
        )
        for node in range(count)
    }
    routes = {}
    for edge, chain in zip(edges, chains, strict=True):
        points = []
        for node, following in itertools.pairwise(chain):
            layer = layer_of[node]
            points.append((lefts[layer] + widths[layer], round(middles[node], 1)))
            points.append((lefts[layer + 1], round(middles[following], 1)))
        routes[edge] = tuple(points)
    height = max((box.y + box.height for box in boxes.values()), default=0.0)
    passing_height = max((middles[node] for node in range(count, len(layer_of))), default=0.0)
    return GraphLayout(boxes, routes, x - _BETWEEN_LAYERS + _MARGIN, max(height, passing_height) + _MARGIN)


def _adjacent(count: int, edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    ends: list[list[int]] = [[] for _ in range(count)]
    for start, end in edges:
        ends[start].append(end)
    return ends


def _forward(count: int, edges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the edges without those that close a cycle on a depth-first walk in the order given."""
    after = _adjacent(count, edges)
    state = [0] * count  # 1 while the walk is below the node, 2 afterwards
    closing: set[tuple[int, int]] = set()
    needed = {end for _, end in edges}
    for root in sorted(range(count), key=lambda node: (node in needed, node)):
        stack = [(root, iter(after[root]))] if not state[root] else []
        state[root] = state[root] or 1
        while stack:
            node, rest = stack[-1]
            for other in rest:
                if state[other] == 1:
                    closing.add((node, other))
                elif not state[other]:
                    state[other] = 1
                    stack.append((other, iter(after[other])))
                    break
            else:
                state[node] = 2
                stack.pop()
    return [edge for edge in edges if edge not in closing]


def _order(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the nodes, each before those that its edges lead to; the edges have no cycle."""
    before = _adjacent(count, [(end, start) for start, end in edges])
    return [*TopologicalSorter(dict(enumerate(before))).static_order()]


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layer of each node: the longest way to it."""
    layers = [0] * count
    after = _adjacent(count, edges)
    for node in _order(count, edges):
        for other in after[node]:
            layers[other] = max(layers[other], layers[node] + 1)
    return layers


def _ordered(
    layers: list[list[int]], before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Order each layer by the barycentres of its nodes' neighbours, to and fro, and keep the best order seen."""
    best, fewest = [list(layer) for layer in layers], crossings(layers, after)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        forth = sweep % 2 == 0
        numbers = range(1, len(layers)) if forth else range(len(layers) - 2, -1, -1)
        for number in numbers:
            fixed = layers[number - 1 if forth else number + 1]
            place = {node: position for position, node in enumerate(fixed)}
            beside = before if forth else after
            centre = {
                node: sum(place[other] for other in beside[node]) / len(beside[node])
                if beside[node]
                else float(position)
                for position, node in enumerate(layers[number])
            }
            layers[number] = sorted(layers[number], key=centre.__getitem__)
        found = crossings(layers, after)
        if found < fewest:
            best, fewest = [list(layer) for layer in layers], found
    return best


def crossings(layers: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> int:
    """Count the pairs of edges that cross: inversions, layer by layer."""
    total = 0
    for left, right in itertools.pairwise(layers):
        place = {node: position for position, node in enumerate(right)}
        passed: list[int] = []  # sorted: where the edges of the nodes above end
        for node in left:
            ends = [place[other] for other in after[node]]
            total += sum(len(passed) - bisect_right(passed, end) for end in ends)
            for end in ends:
                insort(passed, end)
    return total


def _aligned(
    layers: Sequence[Sequence[int]],
    before: Sequence[Sequence[int]],
    after: Sequence[Sequence[int]],
    heights: Sequence[float],
    count: int,
) -> list[float]:
    """Return the middle of each node: as near to its neighbours as the order and the distances allow.

    Places of passing edges weigh more than nodes, so that long edges are straight.
    """
    middles = [0.0] * len(heights)
    for layer in layers:
        y = 0.0
        for node in layer:
            middles[node] = y + heights[node] / 2
            y += heights[node] + _BETWEEN_NODES
    for sweep in range(_SWEEPS):
        forth = sweep % 2 == 0
        for layer in layers if forth else reversed(layers):
            wanted, weights, offsets = [], [], []
            offset = 0.0
            for position, node in enumerate(layer):
                if position:
                    offset += (heights[layer[position - 1]] + heights[node]) / 2 + _BETWEEN_NODES
                beside = (before[node] if forth else after[node]) or [node]
                wanted.append(sum(middles[other] for other in beside) / len(beside) - offset)
                weights.append(4.0 if node >= count else 1.0)  # a place of a passing edge
                offsets.append(offset)
            for node, place, distance in zip(layer, rising(wanted, weights), offsets, strict=True):
                middles[node] = place + distance
    for layer in layers:  # what no edge pulls to its place stands beside its neighbours in the layer
        steps = [*itertools.pairwise(reversed(layer)), *itertools.pairwise(layer[-2:])]
        for fixed, node in steps:
            if not before[node] and not after[node]:
                apart = (heights[fixed] + heights[node]) / 2 + _BETWEEN_NODES
                middles[node] = middles[fixed] + (apart if middles[node] > middles[fixed] else -apart)
    return middles


def rising(wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the numbers nearest to `wanted` (least squares) that never fall: pool adjacent violators."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(wanted, weights, strict=True):
        mean, heavy, length = value, weight, 1
        while pools and pools[-1][0] >= mean:
            other, other_weight, other_length = pools.pop()
            mean = (mean * heavy + other * other_weight) / (heavy + other_weight)
            heavy += other_weight
            length += other_length
        pools.append((mean, heavy, length))
    return [mean for mean, _, length in pools for _ in range(length)]
