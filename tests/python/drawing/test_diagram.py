"""What a picture of a model shows, whatever it is printed as."""

import mithril as ml
from mithril.drawing.diagram import MOST_CHARACTERS, clean, diagram_of


def edges(diagram):
    """(title of the source, title of a target, label) of every wire."""
    title = [box.lines[0] for box in diagram.boxes]
    return {(title[w.source], title[t], w.label) for w in diagram.wires for t in w.targets}


def nested():
    inner = ml.Model(name="inner")
    inner |= ml.Linear(4, name="lin")(input="a", output="b")
    inner |= ml.Relu(name="act")(input="b", output="c")
    inner.expose_keys("c")
    model = ml.Model(name="outer")
    model |= inner(a="x", c="h")
    model |= ml.Add(name="sum")(left="h", right="x", output="y")
    model.expose_keys("y")
    model.set_shapes(x=["N", 4])
    return model


def test_nested_models_are_clusters():
    found = diagram_of(nested())
    assert [(c.title, c.kind, c.parent) for c in found.clusters] == [
        ("outer", "Model", -1),
        ("inner", "Model", 0),
    ]
    assert {b.lines[0]: b.cluster for b in found.boxes} == {
        "lin": 1, "act": 1, "sum": 0, "x": 0, "y": 0,
    }  # fmt: skip
    assert edges(found) == {
        ("x", "lin", "[N, 4]"),
        ("x", "sum", "[N, 4]"),
        ("lin", "act", "[N, 4]"),
        ("act", "sum", "[N, 4]"),
        ("sum", "y", "[N, 4]"),
    }
    assert next(b.lines for b in found.boxes if b.lines[0] == "lin") == [
        "lin", "Linear", "weight [4, 4]", "bias [4]",
    ]  # fmt: skip


def test_closed_models_tell_how_many_parameters_they_have():
    found = diagram_of(nested(), depth=0)
    assert len(found.clusters) == 1
    box = next(b for b in found.boxes if b.lines[0] == "inner")
    assert box.kind == "model" and box.lines[-1] == "20 parameters"
    assert ("inner", "sum", "[N, 4]") in edges(found)


def test_shared_parameters_are_named_where_they_are_read():
    model = ml.Model()
    model |= ml.Linear(4, name="a", use_bias=False)(input="x", weight="tied", output="h")
    model |= ml.Linear(4, name="b", use_bias=False)(input="h", weight="tied", output="y")
    found = {b.lines[0]: b.lines for b in diagram_of(model).boxes}
    assert found["a"][-1].startswith("weight = tied [4, ")
    assert found["b"][-1].startswith("weight = tied [4, ")


def test_an_op_alone_and_an_empty_model():
    assert edges(diagram_of(ml.Relu())) == {("input", "Relu", "[...]"), ("Relu", "output", "[...]")}
    assert diagram_of(ml.Model()).boxes == []


def test_a_wire_that_is_read_inside_and_is_an_output():
    model = ml.Model()
    model |= ml.Relu(name="a")(input="x", output="h")
    model |= ml.Relu(name="b")(input="h", output="y")
    model.expose_keys("h", "y")
    targets = {(a, b) for a, b, _ in edges(diagram_of(model))}
    assert targets == {("x", "a"), ("a", "b"), ("a", "h"), ("b", "y")}


def test_deep_nests_need_no_stack():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model.expose_keys("y")
    for _ in range(3000):
        outer = ml.Model()
        outer |= model(x="x", y="y")
        outer.expose_keys("y")
        model = outer
    assert len(diagram_of(model).clusters) == 3001


def test_names_are_cut_and_freed_of_what_no_file_may_hold():
    assert clean("a" * 100) == "a" * (MOST_CHARACTERS - 1) + "…"
    assert clean("a\0b\x1b\ud800\uffff\u202ec\n") == "a�b����c�"
    assert clean("größe 形") == "größe 形"
