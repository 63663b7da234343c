"""Graph text from Python, and what the registry tells."""

import mithril as ml
import pytest
from mithril.errors import ParseError, SignatureError

TEXT = """\
graph m(%x: f32[b, 4]) {
  %0 = relu(%x) : f32[b, 4]
  return y=%0
}
"""


def test_text_survives_a_round_trip():
    graph = ml.inspect.parse(TEXT)
    assert graph.inputs == [("x", "data", "float32", ["b", 4])]
    assert graph.outputs == ["y"]
    assert str(ml.inspect.parse(str(graph))) == str(graph)


@pytest.mark.parametrize("bad", ["", "graph", TEXT[:-3], TEXT.replace("relu", "rellu"), "\0" * 10])
def test_bad_text_is_a_typed_error(bad):
    with pytest.raises((ParseError, KeyError)):
        ml.inspect.parse(bad)


def test_the_registry_has_what_classes_are_made_of():
    ops = {op["name"]: op for op in ml.inspect.ops()}
    assert ops["relu"]["python_name"] == "Relu"
    assert ops["mean"]["connect_order"] == ["input", "axis", "keepdim", "output"]
    for op in ops.values():
        if op["python_name"]:
            assert getattr(ml.models, op["python_name"])._op == op["name"]
            assert op["doc"].splitlines()[0] in getattr(ml.models, op["python_name"]).__doc__


def test_dump():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    assert "x" in ml.inspect.dump(model)
    with pytest.raises(SignatureError):
        ml.inspect.dump(3)


@pytest.mark.device
def test_stages():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), shapes={"x": ["b", 4]}, data_keys={"x"})
    stages = ml.inspect.stages(pm)
    assert list(stages) == ["flatten", "assign_dtypes", "optimize"]
    assert "relu" in stages["optimize"]
    assert ml.inspect.dump(pm) == stages["flatten"]
