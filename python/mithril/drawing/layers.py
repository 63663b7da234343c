"""Places the nodes of an acyclic graph in layers: edges go down, neighbours stay near.

The steps are Sugiyama's: layers by longest paths, stand-ins where an edge passes a layer, orders
by barycenters, then positions. A layer's positions minimise squared distances to the neighbours'
under the distances that its nodes must keep, which is an isotonic regression
(Best and Chakravarti, Mathematical Programming 47, 1990).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

MOST_STAND_INS = 20_000  # longer edges than these allow run straight
_SWEEPS = 6


@dataclass
class Node:
    """`x` is the left border, `y` the top one."""

    width: float
    height: float
    x: float = 0.0
    y: float = 0.0
    layer: int = 0


@dataclass
class Edge:
    """From one node to several; `bends` has the places where it passes a layer in between."""

    source: int
    targets: list[int]
    bends: list[int] = field(default_factory=list)  # nodes (stand-ins), by layer


@dataclass
class Layout:
    """The positions of nodes; nodes beyond the given ones are stand-ins (see `Edge`)."""

    nodes: list[Node]
    edges: list[Edge]
    width: float
    height: float
    tops: list[float]  # of layers
    bottoms: list[float]


def lay_out(
    sizes: Sequence[tuple[float, float]],
    edges: Sequence[tuple[int, Iterable[int]]],
    *,
    first: Iterable[int] = (),
    last: Iterable[int] = (),
    gap: tuple[float, float] = (24.0, 48.0),
) -> Layout:
    """`first` stand in the first layer, `last` in the last one (ports of a cluster)."""
    nodes = [Node(*size) for size in sizes]
    made = [Edge(source, list(dict.fromkeys(targets))) for source, targets in edges]
    _assign_layers(nodes, made, set(first), set(last))
    _add_stand_ins(nodes, made)
    layers = _ordered(nodes, made)
    _set_x(nodes, made, layers, gap[0])
    return _set_y(nodes, made, layers, gap[1])


# --- layers ---------------------------------------------------------------------------------------


def _assign_layers(nodes: list[Node], edges: list[Edge], first: set[int], last: set[int]) -> None:
    reads: list[list[int]] = [[] for _ in nodes]
    waiting = [0] * len(nodes)
    for edge in edges:
        for target in edge.targets:
            reads[edge.source].append(target)
            waiting[target] += 1
    sources = [at for at, count in enumerate(waiting) if count == 0]
    lowest = 1 if first else 0
    for at in sources:
        nodes[at].layer = 0 if at in first else lowest
    order = _order(reads, waiting)
    place = {at: i for i, at in enumerate(order)}
    for at in order:
        nodes[at].layer = max(nodes[at].layer, 0 if at in first else lowest)
        for target in reads[at]:
            if place[target] > place[at]:
                nodes[target].layer = max(nodes[target].layer, nodes[at].layer + 1)
    for at in sources:  # next to what reads them first
        if at not in first and reads[at]:
            nodes[at].layer = min(nodes[target].layer for target in reads[at]) - 1
    bottom = max((node.layer for node in nodes), default=0)
    deepest = max((n.layer for at, n in enumerate(nodes) if at not in last), default=bottom)
    for at in last:
        nodes[at].layer = max(bottom, deepest + 1)


def _order(reads: list[list[int]], waiting: list[int]) -> list[int]:
    """Each node behind those that it waits for; of parts that feed each other the first one does
    not wait."""
    order = [at for at, count in enumerate(waiting) if count == 0]
    placed = set(order)
    left = iter(range(len(reads)))
    done = 0
    while done < len(reads):
        if done == len(order):
            order.append(next(at for at in left if at not in placed))
            placed.add(order[-1])
        for target in reads[order[done]]:
            waiting[target] -= 1
            if waiting[target] == 0 and target not in placed:
                order.append(target)
                placed.add(target)
        done += 1
    return order


def _add_stand_ins(nodes: list[Node], edges: list[Edge]) -> None:
    """One chain for an edge to several nodes, as long as the furthest needs it."""
    count = 0
    for edge in edges:
        start = nodes[edge.source].layer
        length = max((nodes[target].layer for target in edge.targets), default=start) - start - 1
        if length <= 0 or count + length > MOST_STAND_INS:
            continue
        count += length
        for layer in range(start + 1, start + 1 + length):
            edge.bends.append(len(nodes))
            nodes.append(Node(6.0, 0.0, layer=layer))


def _links(nodes: list[Node], edges: list[Edge]) -> list[tuple[int, int]]:
    """Pairs of nodes in neighbouring layers."""
    pairs: list[tuple[int, int]] = []
    for edge in edges:
        path = [edge.source, *edge.bends]
        pairs += zip(path, path[1:], strict=False)
        for target in edge.targets:
            place = nodes[target].layer - nodes[edge.source].layer - 1
            if 0 <= place < len(path):
                pairs.append((path[place], target))
    return pairs


# --- order ----------------------------------------------------------------------------------------


def _neighbours(nodes: list[Node], edges: list[Edge]) -> tuple[list[list[int]], list[list[int]]]:
    above: list[list[int]] = [[] for _ in nodes]
    below: list[list[int]] = [[] for _ in nodes]
    for upper, lower in _links(nodes, edges):
        above[lower].append(upper)
        below[upper].append(lower)
    return above, below


def _ordered(nodes: list[Node], edges: list[Edge]) -> list[list[int]]:
    layers: list[list[int]] = [[] for _ in range(max((n.layer for n in nodes), default=0) + 1)]
    above, below = _neighbours(nodes, edges)
    for at in _depth_first(above, below):
        layers[nodes[at].layer].append(at)
    place = [0.0] * len(nodes)
    for layer in layers:
        _note(layer, place)
    best, fewest = [list(layer) for layer in layers], _crossings(layers, below, place)
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        near, order = (above, layers) if sweep % 2 == 0 else (below, layers[::-1])
        for layer in order:
            layer.sort(key=lambda at: _mean([place[n] for n in near[at]], place[at]))
            _note(layer, place)
        count = _crossings(layers, below, place)
        if count < fewest:
            best, fewest = [list(layer) for layer in layers], count
    return best


def _depth_first(above: list[list[int]], below: list[list[int]]) -> list[int]:
    """Returns the nodes in depth-first order, so that connected nodes stand together."""
    seen = [False] * len(above)
    out = []
    pending = [at for at in range(len(above)) if not above[at]][::-1]
    while pending:
        at = pending.pop()
        if seen[at]:
            continue
        seen[at] = True
        out.append(at)
        pending += below[at][::-1]
    return out


def _note(layer: list[int], place: list[float]) -> None:
    for i, at in enumerate(layer):
        place[at] = float(i)


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _crossings(layers: list[list[int]], below: list[list[int]], place: list[float]) -> int:
    """Pairs of links that cross: inversions, counted by a tree of sums."""
    count = 0
    for layer in layers:
        ends = [int(place[n]) for at in layer for n in sorted(below[at], key=place.__getitem__)]
        size = max(ends, default=0) + 1
        sums = [0] * (size + 1)
        for seen, end in enumerate(ends):
            smaller, i = 0, end + 1
            while i > 0:
                smaller += sums[i]
                i -= i & -i
            count += seen - smaller
            i = end + 1
            while i <= size:
                sums[i] += 1
                i += i & -i
    return count


# --- positions ------------------------------------------------------------------------------------


def _set_x(nodes: list[Node], edges: list[Edge], layers: list[list[int]], gap: float) -> None:
    above, below = _neighbours(nodes, edges)
    given = {at for at, node in enumerate(nodes) if node.height > 0}
    # An input that one node reads follows it, not the other way round.
    strength = [0.1 if not above[at] and len(below[at]) == 1 else 1.0 for at in range(len(nodes))]
    center = [0.0] * len(nodes)
    for layer in layers:
        _settle(layer, [0.0] * len(layer), [1.0] * len(layer), center, nodes, gap)
    for sweep in range(2 * _SWEEPS):
        near, order = (above, layers) if sweep % 2 == 0 else (below, layers[::-1])
        for layer in order:
            wanted = [_pull(near[at], center, strength, center[at]) for at in layer]
            # Straight lines matter most where they are long.
            weights = [
                strength[at] * (1.0 if at in given else 8.0) * (len(near[at]) or 0.05)
                for at in layer
            ]
            _settle(layer, wanted, weights, center, nodes, gap)
    left = min((center[at] - nodes[at].width / 2 for at in range(len(nodes))), default=0.0)
    for at, node in enumerate(nodes):
        node.x = center[at] - node.width / 2 - left


def _pull(near: list[int], center: list[float], strength: list[float], otherwise: float) -> float:
    total = sum(strength[n] for n in near)
    return sum(strength[n] * center[n] for n in near) / total if total else otherwise


def _settle(
    layer: list[int], wanted: list[float], weights: list[float], center: list[float],
    nodes: list[Node], gap: float,
) -> None:  # fmt: skip
    """Centers as near to `wanted` as the order and the distances allow."""
    offset = 0.0
    blocks: list[list[float]] = []  # [mean, weight, count]
    offsets = []
    for i, at in enumerate(layer):
        if i > 0:
            offset += (nodes[layer[i - 1]].width + nodes[at].width) / 2 + gap
        offsets.append(offset)
        blocks.append([wanted[i] - offset, weights[i], 1])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            mean, weight, count = blocks.pop()
            before = blocks[-1]
            total = before[1] + weight
            before[0] = (before[0] * before[1] + mean * weight) / total
            before[1], before[2] = total, before[2] + count
    i = 0
    for mean, _, count in blocks:
        for _ in range(int(count)):
            center[layer[i]] = mean + offsets[i]
            i += 1


def _set_y(nodes: list[Node], edges: list[Edge], layers: list[list[int]], gap: float) -> Layout:
    tops, bottoms, y = [], [], 0.0
    for layer in layers:
        height = max((nodes[at].height for at in layer), default=0.0)
        for at in layer:
            nodes[at].y = y + (height - nodes[at].height) / 2
        tops.append(y)
        bottoms.append(y + height)
        y += height + gap
    width = max((node.x + node.width for node in nodes), default=0.0)
    return Layout(nodes, edges, width, max(y - gap, 0.0), tops, bottoms)


__all__ = ["Edge", "Layout", "Node", "lay_out"]
