"""Mermaid text: every name is letters and numbered characters between quotes."""

import re

import mithril as ml
import pytest
from mithril.drawing.mermaid import mermaid

from tests.python.drawing.test_dot import named
from tests.python.drawing.test_svg import HOSTILE

LINE = re.compile(
    r"flowchart TD|\s*(?:"
    r"n\d+(?:\[\[Q\]\]|\[Q\]|\(\[Q\]\))|subgraph c\d+\[Q\]|end|n\d+ -->(?:\|Q\|)? n\d+)"
)


def shape(text):
    """The text with its strings as Q; they hold no quote, no tag, no entity of HTML."""
    for string in re.findall(r'"([^"]*)"', text):
        bare = string.replace("<br/>", "")
        assert not re.search(r'[<>"`&\\;]', re.sub(r"#\d+;", "", bare)), string
    return re.sub(r'"[^"]*"', "Q", text)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_in_their_strings(name):
    text = shape(mermaid(named(name)))
    assert text == shape(mermaid(named("plain")))
    assert all(LINE.fullmatch(line) for line in text.splitlines())


def test_a_small_model():
    model = ml.Model(name="net")
    model |= ml.Relu(name="act")(input="x", output="y")
    model.expose_keys("y")
    model.set_shapes(x=["N"])
    assert model.plot("mermaid") == (
        "flowchart TD\n"
        '  n0["act<br/>Relu"]\n'
        '  n1(["x"])\n'
        '  n2(["y"])\n'
        '  n1 -->|"[N]"| n0\n'
        '  n0 -->|"[N]"| n2\n'
    )
