"""Graphviz text: read back by a small tokenizer, so that no name can end its string."""

import re

import mithril as ml
import pytest
from mithril.drawing.diagram import Box, Cluster, Diagram, Wire, clean
from mithril.drawing.dot import dot

from tests.python.drawing.test_svg import HOSTILE

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|->|[{}\[\];=,]|\w+|\s+')


def tokens(text):
    found, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        assert match, text[at : at + 40]
        at = match.end()
        if not match[0].isspace():
            found.append('"…"' if match[0].startswith('"') else match[0])
    return found


def named(name):
    name = clean(name)
    boxes = [Box("op", [name, name], 1), Box("input", [name], 0)]
    clusters = [Cluster(name, "Model", -1), Cluster(name, "Model", 0)]
    return Diagram(boxes, [Wire(1, [0], name)], clusters)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_in_their_strings(name):
    assert tokens(dot(named(name))) == tokens(dot(named("plain")))


def test_a_small_model():
    model = ml.Model(name="net")
    model |= ml.Relu(name="act")(input="x", output="y")
    model.expose_keys("y")
    model.set_shapes(x=["N"])
    assert model.plot("dot") == (
        "digraph {\n"
        '  label="net (Model)";\n'
        '  node [fontname="sans-serif"];\n'
        '  edge [fontname="sans-serif", fontsize=10];\n'
        '  n0 [label="act\\nRelu", shape=box];\n'
        '  n1 [label="x", shape=ellipse];\n'
        '  n2 [label="y", shape=ellipse];\n'
        '  n1 -> n0 [label="[N]"];\n'
        '  n0 -> n2 [label="[N]"];\n'
        "}\n"
    )
