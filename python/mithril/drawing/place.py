"""Computes the layout of a diagram. Each cluster is laid out alone, innermost first, and is one
node of the cluster around it; wires enter and leave it at ports on its borders, so nothing of one
cluster can lie on anything of another."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

from mithril.drawing.diagram import Box, Cluster, Diagram
from mithril.drawing.layers import Edge, Layout, lay_out

FONT = 12.0
SMALL = 10.0  # details and labels
LINE = 16.0
HEADER = 24.0  # of a cluster, for its title
PADDING = 14.0
_PORT = (10.0, 0.0)

Point = tuple[float, float]


@dataclass
class Rectangle:
    x: float
    y: float
    width: float
    height: float


@dataclass
class Line:
    """A wire's piece within one cluster: upright in layers, which is every second segment from the
    first on, and curved between them."""

    wire: int
    points: list[Point]
    ends_at_box: bool = True


@dataclass
class Placement:
    """Rectangles by box and by cluster; wires as lines; a place for each wire's label."""

    width: float = 0.0
    height: float = 0.0
    boxes: list[Rectangle] = field(default_factory=list)
    clusters: list[Rectangle] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    labels: dict[int, Point] = field(default_factory=dict)


def text_width(text: str, size: float = FONT) -> float:
    """Returns an upper bound of the width of a text in common sans-serif fonts."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return size * (0.6 * (len(text) - wide) + 1.05 * wide)


def place(diagram: Diagram) -> Placement:
    """Returns the positions of everything in a diagram, from (0, 0) on."""
    return _Placer(diagram).run()


@dataclass
class _Level:
    """One cluster's own layout. Members are ("box", i), ("cluster", i), ("in", wire) …"""

    members: list[tuple[str, int]] = field(default_factory=list)
    index: dict[tuple[str, int], int] = field(default_factory=dict)
    edges: dict[int, tuple[int, list[int]]] = field(default_factory=dict)  # by wire
    layout: Layout | None = None

    def add(self, member: tuple[str, int]) -> int:
        if member not in self.index:
            self.index[member] = len(self.members)
            self.members.append(member)
        return self.index[member]


class _Placer:
    def __init__(self, diagram: Diagram):
        self.diagram = diagram
        self.levels = [_Level() for _ in diagram.clusters]
        self.sizes = [(0.0, 0.0)] * len(diagram.clusters)
        self.shifts = [0.0] * len(diagram.clusters)
        self.leaving: dict[int, list[int]] = {}  # box -> its wires
        for at, wire in enumerate(diagram.wires):
            self.leaving.setdefault(wire.source, []).append(at)

    def run(self) -> Placement:
        for at, box in enumerate(self.diagram.boxes):
            self.levels[box.cluster].add(("box", at))
        for at, cluster in enumerate(self.diagram.clusters):
            if cluster.parent >= 0:
                self.levels[cluster.parent].add(("cluster", at))
        for at in range(len(self.diagram.wires)):
            self._split(at)
        for at in reversed(range(len(self.levels))):  # children come after their parents
            self._lay_out(at)
        return self._collect()

    # --- wires, cut at the borders of clusters
    def _split(self, at: int) -> None:
        wire = self.diagram.wires[at]
        start = self._chain(wire.source)
        for target in wire.targets:
            end = self._chain(target)
            shared = 0
            while shared < min(len(start), len(end)) and start[shared] == end[shared]:
                shared += 1
            out = start[shared - 1 :]
            into = end[shared - 1 :]
            source = self._leave(at, wire.source, out)
            self._enter(at, source, target, into)

    def _chain(self, box: int) -> list[int]:
        """Returns the clusters around a box, the outermost first."""
        found = []
        at = self.diagram.boxes[box].cluster
        while at >= 0:
            found.append(at)
            at = self.diagram.clusters[at].parent
        return found[::-1]

    def _leave(self, wire: int, box: int, out: Sequence[int]) -> tuple[str, int]:
        member = ("box", box)
        for cluster in reversed(out[1:]):
            self._link(cluster, wire, member, ("out", wire))
            member = ("cluster", cluster)
        return member

    def _enter(self, wire: int, member: tuple[str, int], box: int, into: Sequence[int]) -> None:
        for depth, cluster in enumerate(into):
            deeper = into[depth + 1] if depth + 1 < len(into) else None
            target = ("box", box) if deeper is None else ("cluster", deeper)
            self._link(cluster, wire, member, target)
            member = ("in", wire)

    def _link(
        self, cluster: int, wire: int, source: tuple[str, int], target: tuple[str, int]
    ) -> None:
        level = self.levels[cluster]
        start, end = level.add(source), level.add(target)
        _, targets = level.edges.setdefault(wire, (start, []))
        if end not in targets:
            targets.append(end)

    # --- one cluster
    def _lay_out(self, at: int) -> None:
        level = self.levels[at]
        kinds = [member[0] for member in level.members]
        level.layout = lay_out(
            [self._size(member) for member in level.members],
            list(level.edges.values()),
            first=[i for i, kind in enumerate(kinds) if kind == "in"],
            last=[i for i, kind in enumerate(kinds) if kind == "out"],
        )
        title = text_width(cluster_title(self.diagram.clusters[at]))
        width = level.layout.width if at == 0 else max(level.layout.width, title)
        self.shifts[at] = (width - level.layout.width) / 2
        height = level.layout.height + PADDING + (HEADER if at > 0 else PADDING)
        self.sizes[at] = (width + 2 * PADDING, height)

    def _size(self, member: tuple[str, int]) -> tuple[float, float]:
        kind, at = member
        if kind == "cluster":
            return self.sizes[at]
        if kind != "box":
            return _PORT
        width, height = box_size(self.diagram.boxes[at])
        return max(width, self._label_room(at)), height

    def _label_room(self, box: int) -> float:
        """Labels hang to the right of the wires that leave a box."""
        wires = self.leaving.get(box, [])
        widest = max((text_width(self.diagram.wires[w].label, SMALL) for w in wires), default=0.0)
        return len(wires) * 2 * (widest + 6)

    # --- everything together
    def _collect(self) -> Placement:
        out = Placement(*self.sizes[0])
        out.boxes = [Rectangle(0, 0, 0, 0)] * len(self.diagram.boxes)
        out.clusters = [Rectangle(0, 0, 0, 0)] * len(self.diagram.clusters)
        out.clusters[0] = Rectangle(0, 0, out.width, out.height)
        for at, level in enumerate(self.levels):  # parents come before their children
            self._put_members(at, level, out)
        for at, level in enumerate(self.levels):
            self._put_lines(at, level, out)
        return out

    def _put_members(self, at: int, level: _Level, out: Placement) -> None:
        assert level.layout is not None
        frame = out.clusters[at]
        left = frame.x + PADDING + self.shifts[at]
        top = frame.y + (HEADER if at > 0 else PADDING)
        for node in level.layout.nodes:
            node.x += left
            node.y += top
        level.layout.tops = [y + top for y in level.layout.tops]
        level.layout.bottoms = [y + top for y in level.layout.bottoms]
        for (kind, number), node in zip(level.members, level.layout.nodes, strict=False):
            if kind == "cluster":
                out.clusters[number] = Rectangle(node.x, node.y, node.width, node.height)
            elif kind == "box":
                width, height = box_size(self.diagram.boxes[number])
                if len(self.leaving.get(number, ())) > 1:
                    width = node.width  # each wire begins at the box, with room for its label
                x = node.x + (node.width - width) / 2
                out.boxes[number] = Rectangle(x, node.y, width, height)

    def _put_lines(self, at: int, level: _Level, out: Placement) -> None:
        assert level.layout is not None
        arriving: dict[int, list[Line]] = {}
        for (wire, (source, targets)), edge in zip(
            level.edges.items(), level.layout.edges, strict=True
        ):
            start = self._start(at, wire, level.members[source], out)
            bottom = level.layout.bottoms[level.layout.nodes[source].layer]
            bottom += SMALL + 4  # the label's place
            for target in targets:
                points = [start, (start[0], bottom), *self._bends(level.layout, edge, target)]
                line = Line(wire, points, level.members[target][0] == "box")
                arriving.setdefault(target, []).append(line)
                out.lines.append(line)
            if level.members[source][0] == "box" and self.diagram.wires[wire].label:
                out.labels[wire] = (start[0] + 4, start[1] + SMALL + 1)
        for target, lines in arriving.items():
            top = level.layout.tops[level.layout.nodes[target].layer]
            self._end(at, level.members[target], lines, top, out)

    def _bends(self, layout: Layout, edge: Edge, target: int) -> list[Point]:
        """Down through the layers that lie between, at the places kept free there."""
        points: list[Point] = []
        for at in edge.bends:
            node = layout.nodes[at]
            if node.layer >= layout.nodes[target].layer:
                break
            x = node.x + node.width / 2
            points += [(x, layout.tops[node.layer]), (x, layout.bottoms[node.layer])]
        return points

    def _start(self, at: int, wire: int, source: tuple[str, int], out: Placement) -> Point:
        kind, number = source
        if kind == "in":
            return self._port(at, source), out.clusters[at].y
        if kind == "cluster":
            frame = out.clusters[number]
            return self._port(number, ("out", wire)), frame.y + frame.height
        rectangle, wires = out.boxes[number], self.leaving[number]
        share = (wires.index(wire) + 0.5) / len(wires)
        return rectangle.x + share * rectangle.width, rectangle.y + rectangle.height

    def _port(self, cluster: int, member: tuple[str, int]) -> float:
        level = self.levels[cluster]
        assert level.layout is not None
        node = level.layout.nodes[level.index[member]]
        return node.x + node.width / 2

    def _end(
        self, at: int, target: tuple[str, int], lines: list[Line], top: float, out: Placement
    ) -> None:
        kind, number = target
        if kind == "box":  # spread over the top, in the order in which they come
            end, lines = out.boxes[number], sorted(lines, key=lambda line: line.points[-1][0])
            places = [end.x + end.width * (i + 1) / (len(lines) + 1) for i in range(len(lines))]
            bottom = end.y
        elif kind == "cluster":
            places = [self._port(number, ("in", line.wire)) for line in lines]
            bottom = out.clusters[number].y
        else:
            places = [self._port(at, target)] * len(lines)
            bottom = out.clusters[at].y + out.clusters[at].height
        for line, x in zip(lines, places, strict=True):
            line.points += [(x, top), (x, bottom)]


def cluster_title(cluster: Cluster) -> str:
    return cluster.title if cluster.title == cluster.kind else f"{cluster.title} ({cluster.kind})"


def box_size(box: Box) -> tuple[float, float]:
    widest = max(text_width(line, FONT if i == 0 else SMALL) for i, line in enumerate(box.lines))
    return widest + 2 * 10, LINE * len(box.lines) + 8
