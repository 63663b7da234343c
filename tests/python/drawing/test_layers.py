"""Layers of graphs, drawn at random and by hand: edges go down, nothing lies on anything."""

import itertools
import random

import pytest
from mithril.drawing.layers import lay_out


def random_graph(seed, count=60):
    draw = random.Random(seed)
    sizes = [(draw.uniform(10, 120), draw.uniform(10, 60)) for _ in range(count)]
    edges = []
    for source in range(count - 1):
        targets = draw.sample(range(source + 1, count), min(draw.randrange(4), count - source - 1))
        if targets:
            edges.append((source, targets))
    return sizes, edges


@pytest.mark.parametrize("seed", range(30))
def test_nodes_of_a_layer_keep_their_distance_and_edges_go_down(seed):
    sizes, edges = random_graph(seed)
    found = lay_out(sizes, edges, gap=(24.0, 40.0))
    for source, targets in edges:
        for target in targets:
            above, below = found.nodes[source], found.nodes[target]
            assert above.y + above.height + 39.9 <= below.y
    for a, b in itertools.combinations(found.nodes, 2):
        if a.layer == b.layer:
            left, right = sorted((a, b), key=lambda node: node.x)
            assert left.x + left.width + 23.9 <= right.x
        else:
            upper, lower = sorted((a, b), key=lambda node: node.layer)
            assert upper.y + upper.height < lower.y
    assert min(node.x for node in found.nodes) == pytest.approx(0)
    assert max(n.x + n.width for n in found.nodes) == pytest.approx(found.width)


def test_long_edges_get_a_stand_in_in_every_layer_between():
    found = lay_out([(10, 10)] * 4, [(0, [1, 3]), (1, [2]), (2, [3])])
    assert [found.nodes[at].layer for at in found.edges[0].bends] == [1, 2]


def test_a_chain_is_straight_and_a_ladder_has_no_crossings():
    chain = lay_out([(40, 10)] * 9, [(i, [i + 1]) for i in range(8)])
    assert len({round(n.x, 6) for n in chain.nodes}) == 1
    # Given crosswise: 0 -> 3, 1 -> 2.
    found = lay_out([(10, 10)] * 4, [(0, [3]), (1, [2])])
    x = [node.x for node in found.nodes]
    assert (x[0] < x[1]) == (x[3] < x[2])


def test_sources_stand_next_to_their_reader():
    found = lay_out([(10, 10)] * 5, [(0, [1]), (1, [2]), (2, [3]), (4, [3])])
    assert found.nodes[4].layer == 2


def test_ports_stand_first_and_last():
    found = lay_out([(9, 0), (10, 10), (9, 0), (10, 10)], [(0, [1]), (1, [2, 3])],
                    first=[0], last=[2])  # fmt: skip
    assert [n.layer for n in found.nodes[:4]] == [0, 1, 3, 2]


def test_of_nodes_that_feed_each_other_the_first_is_above():
    nodes = lay_out([(1.0, 1.0)] * 3, [(0, [1]), (1, [0, 2])]).nodes
    assert [node.layer for node in nodes[:3]] == [0, 1, 2]


def test_nothing_to_lay_out():
    assert lay_out([], []).width == 0
