"""Rows of reference/logical-api.md 2.14: each situation raises the builtin class that stands there.

One row is not taken over: a bad index in `a[...]` raised UnboundLocalError, which the table itself
calls a bug.
"""

import mithril as ml
import pytest
from mithril import IOKey, Tensor


def frozen():
    model = ml.Model.create(out=IOKey("x") + 1)
    model |= ml.Relu()(input="out", output="y")


def child_extended():
    inner, model = ml.Model(), ml.Model()
    inner |= ml.Relu()(input="x", output="y")
    model |= inner(x="x")
    inner |= ml.Relu()(input="y", output="z")


def train_model_as_child():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    outer = ml.Model()
    outer |= ml.TrainModel(model)


def with_itself():
    model = ml.Model()
    model |= model


def submodel_name_twice():
    model = ml.Model()
    model |= ml.Relu(name="a")(input="x", output="y")
    model |= ml.Relu(name="a")(input="y", output="z")


def unknown_key():
    inner = ml.Model()
    inner |= ml.Relu()(input="x", output="y")
    inner.connect(nope="a")


def foreign():
    other, model = ml.Model(), ml.Model()
    other |= ml.Relu()(input="x", output="h")
    model |= ml.Relu()(input=other["h"], output="y")


def value_for_an_output():
    model = ml.Model()
    model |= ml.Relu()(input="x", output=3.0)


def empty_name_for_an_output():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="")


def two_writers():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model |= ml.Tanh()(input="x", output="y")


def valued_wire_written():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model.set_values(x=Tensor([1.0]))
    model |= ml.Tanh()(input="y", output="x")


def valued_key_on_a_computed_wire():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model |= ml.Relu(input=Tensor([1.0]))(input="y", output="z")


def cycle():
    model = ml.Model()
    model |= ml.Relu()(input="a", output="b")
    model |= ml.Tanh()(input="b", output="a")


def output_called_input():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="input")


def plus_equals_without_one_output():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="a")
    model |= ml.Relu()(input="x", output="b")
    model += ml.Relu()


def plus_equals_with_two_inputs():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="a")
    model += ml.Add()


def cin_of_two():
    _ = ml.Add().cin


def cout_of_none():
    _ = ml.Model().cout


def set_cin_of_an_output():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model.set_cin("y")


def set_cout_of_an_input():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model.set_cout("x")


def value_of_an_output():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model.set_values(y=Tensor([1.0]))


def value_reset():
    model = ml.Model()
    model |= ml.Power()(base="x", exponent="e", output="y")
    model.set_values(e=1.0)
    model.set_values(e=2.0)


def tensor_reused():
    tensor, model = Tensor([1.0]), ml.Model()
    model |= ml.Relu()(input=tensor, output="a")
    model |= ml.Relu()(input=tensor, output="b")


def shape_conflict():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model.set_shapes(x=[2, 3])
    model.set_shapes(y=[2, 4])


def rank_conflict():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model.set_shapes(x=[2, 3])
    model.set_shapes(y=[2])


def minimum_rank():
    model = ml.Model()
    model |= ml.Linear(3)(input="x", output="y")
    model.set_shapes(x=[])


def incompatible_broadcast():
    model = ml.Model()
    model |= ml.Add()(left="x", right="y", output="z")
    model.set_shapes(x=[2], y=[3])


def type_conflict():
    model = ml.Model()
    model |= ml.Embedding(3, 2)(input="x", output="y")
    model.set_types(x=Tensor[float])


def differentiability():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model.set_differentiability(x=True)
    model.set_differentiability(x=False)


def expose_on_a_child():
    inner, model = ml.Model(), ml.Model()
    inner |= ml.Relu()(input="x", output="y")
    inner |= ml.Relu()(input="y", output="z")
    model |= inner(x="x")
    inner.expose_keys("y")


def primitive_extended():
    relu = ml.Relu()
    relu |= ml.Tanh()(input="output", output="y")


def train_model_extended():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    train = ml.TrainModel(model)
    train += ml.Relu()


def string_operand():
    _ = IOKey("x") + "y"


def two_active_models():
    a, b = ml.Model(), ml.Model()
    a |= ml.Relu()(input="x", output="y")
    b |= ml.Relu()(input="x", output="y")
    _ = a["y"] + b["y"]


def bad_operand_of_eq():
    IOKey("x").eq("y")


def tbd_as_connection():
    model = ml.Model()
    model |= ml.Relu()(input=ml.TBD)


def object_as_connection():
    model = ml.Model()
    model |= ml.Relu()(input=object())


def bad_shape_item():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model.set_shapes(x=[2.5])


def malformed_variadic():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model.set_shapes(x=[("V", 3)])


ROWS = [
    (frozen, AttributeError),
    (child_extended, AttributeError),
    (train_model_as_child, AttributeError),
    (with_itself, KeyError),
    (submodel_name_twice, KeyError),
    (unknown_key, KeyError),
    (foreign, KeyError),
    (value_for_an_output, KeyError),
    (empty_name_for_an_output, KeyError),
    (two_writers, Exception),
    (valued_wire_written, ValueError),
    (valued_key_on_a_computed_wire, ValueError),
    (cycle, KeyError),
    (output_called_input, KeyError),
    (plus_equals_without_one_output, KeyError),
    (plus_equals_with_two_inputs, KeyError),
    (cin_of_two, KeyError),
    (cout_of_none, KeyError),
    (set_cin_of_an_output, ValueError),
    (set_cout_of_an_input, ValueError),
    (value_of_an_output, ValueError),
    (value_reset, ValueError),
    (tensor_reused, ValueError),
    (shape_conflict, ValueError),
    (rank_conflict, ValueError),
    (minimum_rank, ValueError),
    (incompatible_broadcast, ValueError),
    (type_conflict, TypeError),
    (differentiability, ValueError),
    (expose_on_a_child, Exception),
    (primitive_extended, RuntimeError),
    (primitive_extended, NotImplementedError),
    (train_model_extended, NotImplementedError),
    (string_operand, ValueError),
    (two_active_models, ValueError),
    (bad_operand_of_eq, ValueError),
    (tbd_as_connection, AssertionError),
    (object_as_connection, AssertionError),
    (bad_shape_item, TypeError),
    (malformed_variadic, KeyError),
]


@pytest.mark.parametrize(
    ("situation", "builtin"), ROWS, ids=lambda value: getattr(value, "__name__", "")
)
def test_the_class_of_a_situation(situation, builtin):
    with pytest.raises(ml.MithrilError) as raised:
        situation()
    assert isinstance(raised.value, builtin), type(raised.value).__mro__
