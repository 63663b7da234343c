"""Places of nested models: clusters hold what is theirs, and nothing else."""

import itertools
import random

import mithril as ml
import pytest
from mithril.drawing.diagram import Box, Cluster, Diagram, Wire, diagram_of
from mithril.drawing.place import Rectangle, place, text_width


def random_diagram(seed):
    draw = random.Random(seed)
    clusters = [Cluster("root", "Model", -1)]
    clusters += [
        Cluster(f"c{i}", "Model", draw.randrange(i)) for i in range(1, draw.randrange(2, 8))
    ]
    boxes = [Box("op", [f"box {i}", "Op"], draw.randrange(len(clusters))) for i in range(30)]
    # Wires between clusters must leave the clusters themselves without a cycle.
    boxes.sort(key=lambda box: path(clusters, box.cluster))
    wires = []
    for source in range(29):
        drawn = draw.sample(range(source + 1, 30), min(3, 29 - source))
        targets = [t for t in drawn if is_ordered(clusters, boxes, source, t)]
        if targets:
            wires.append(Wire(source, targets, "[N, 4]"))
    return Diagram(boxes, wires, clusters)


def path(clusters, at):
    found = []
    while at >= 0:
        found.append(at)
        at = clusters[at].parent
    return found[::-1]


def is_ordered(clusters, boxes, source, target):
    """Into a deeper cluster or along siblings of growing number: no cycle of clusters."""
    a, b = path(clusters, boxes[source].cluster), path(clusters, boxes[target].cluster)
    return a == b[: len(a)] or (a[: len(b)] != b and a < b)


def holds(outer: Rectangle, inner: Rectangle) -> bool:
    return (
        outer.x <= inner.x
        and outer.y <= inner.y
        and inner.x + inner.width <= outer.x + outer.width + 1e-6
        and inner.y + inner.height <= outer.y + outer.height + 1e-6
    )


def touch(a: Rectangle, b: Rectangle) -> bool:
    return (
        a.x < b.x + b.width and b.x < a.x + a.width
        and a.y < b.y + b.height and b.y < a.y + a.height
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(25))
def test_clusters_hold_their_own_and_nothing_overlaps(seed):
    diagram = random_diagram(seed)
    found = place(diagram)
    for at, cluster in enumerate(diagram.clusters[1:], 1):
        assert holds(found.clusters[cluster.parent], found.clusters[at])
    for at, box in enumerate(diagram.boxes):
        inside = path(diagram.clusters, box.cluster)
        for number, frame in enumerate(found.clusters):
            if number in inside:
                assert holds(frame, found.boxes[at])
            elif number > 0:
                assert not touch(frame, found.boxes[at])
    assert not [p for p in itertools.combinations(found.boxes, 2) if touch(*p)]


@pytest.mark.parametrize("seed", range(25))
def test_wires_go_down_and_pass_no_box(seed):
    diagram = random_diagram(seed)
    found = place(diagram)
    for line in found.lines:
        assert all(a[1] <= b[1] + 1e-6 for a, b in itertools.pairwise(line.points))
        for i, ((x, top), (end, bottom)) in enumerate(itertools.pairwise(line.points)):
            assert i % 2 == 1 or x == end
            if bottom - top < 0.1:
                continue
            # A curve stays within this rectangle.
            width = max(abs(x - end), 0.001)
            piece = Rectangle(min(x, end), top + 0.01, width, bottom - top - 0.02)
            assert not [b for b in found.boxes if touch(b, piece)]


@pytest.mark.parametrize("seed", range(10))
def test_labels_lie_on_no_box_and_on_no_other_label(seed):
    diagram = random_diagram(seed)
    for wire in list(diagram.wires):
        wire.label = "[batch, 32*floor(u3/2)*floor(u4/2)]"
        if len(wire.targets) > 1:  # an op with two outputs
            diagram.wires.append(Wire(wire.source, [wire.targets.pop()], wire.label))
    found = place(diagram)
    labels = [
        Rectangle(x, y - 8, text_width(diagram.wires[at].label, 10), 10)
        for at, (x, y) in found.labels.items()
    ]
    assert not [p for p in itertools.combinations(labels, 2) if touch(*p)]
    assert not [p for p in itertools.product(labels, found.boxes) if touch(*p)]


def test_a_wire_ends_where_the_next_piece_begins():
    inner = ml.Model(name="inner")
    inner |= ml.Relu()(input="a", output="b")
    inner.expose_keys("b")
    model = ml.Model()
    model |= inner(a="x", b="h")
    model |= ml.Relu()(input="h", output="y")
    model.expose_keys("y")
    found = place(diagram_of(model))
    starts = {line.points[0] for line in found.lines}
    cut = [line for line in found.lines if not line.ends_at_box]
    assert len(cut) == 2 and all(line.points[-1] in starts for line in cut)
