"""Values and what stands for them: `Tensor`s without a value, values that beat a default, arrays of
one element in the place of numbers."""

# Covers: mithril/logical/tensor.py mithril/logical/values.py
# Covers: mithril/physical/conversion.py mithril/physical/single_numbers.py

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, DTypeError, MithrilError, ShapeError

Tensor = ml.Tensor

# --- a Tensor without a value ---------------------------------------------------------------------


def test_a_tensor_without_value_says_what_it_knows():
    model = ml.Model()
    model |= ml.Add()(left="a", right="b", output="c")
    model.set_values(a=Tensor(type=float, shape=[2, "n"], differentiable=True), b=3.0)
    assert model.shapes["a"] == [2, "n"] and model.shapes["c"] == [2, "n"]
    assert model.conns.get_type("a") == "float tensor"
    pm = ml.compile(model, ml.NumpyBackend(), shapes={"a": [2, 1]})
    assert pm.trainable_keys == ("a",) and not pm.data_keys


def test_it_must_agree_with_the_rest_and_changes_nothing_where_it_does_not():
    model = ml.Model()
    model |= ml.Add()(left="a", right="b", output="c")
    model.set_shapes(a=[3])
    wrong = Tensor(shape=[2])
    with pytest.raises(ShapeError):
        model.set_values(b=Tensor(type=int), a=wrong)
    assert "float" in model.conns.get_type("b") and model.shapes["a"] == [3]
    with pytest.raises(DTypeError):
        model.set_values(a=Tensor(type=int, differentiable=True))
    with pytest.raises(ArgumentError, match="none"):
        model.set_values(c=Tensor(type=float))
    with pytest.raises(ArgumentError, match="initial"):
        model.set_values(a=Tensor(type=float), initial=True)
    with pytest.raises(ArgumentError, match="one place only"):
        shared = Tensor(type=float)
        model.set_values(a=shared, b=shared)


# --- values beat defaults -------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, (0, 1), ml.IOKey("ax", value=1)], ids=str)
def test_a_value_at_connect_beats_the_default(value):
    model = ml.Model()
    model |= ml.Mean().connect(input="x", axis=value, output="y")
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, inference=True)
    axis = 1 if isinstance(value, ml.Connection) else value
    np.testing.assert_allclose(pm.evaluate({}, {"x": x})["y"], x.mean(axis))


def test_a_value_in_a_call_beats_the_default():
    model = ml.Model.create(y=ml.Mean()(ml.IOKey("x"), axis=-1, keepdim=True))
    model.set_shapes(x=[2, 3])
    assert model.shapes["y"] == [2, 1]


def test_a_value_of_the_constructor_stays():
    model = ml.Model()
    layer = ml.Mean(axis=0)
    with pytest.raises(MithrilError, match="already"):
        model |= layer.connect(input="x", axis=1)
    model |= layer.connect(input="x", axis=0, output="y")


def test_a_default_is_back_after_a_failure():
    model = ml.Model()
    layer = ml.Mean()
    with pytest.raises(MithrilError):
        model |= layer.connect(axis=1, nonsense="x")
    with pytest.raises(MithrilError):
        model |= layer.connect(input="x", axis=1.5)
    model |= layer.connect(input="x", output="y")
    assert model.shapes["y"] == []


# --- arrays of one element ------------------------------------------------------------------------


def test_one_element_stands_for_a_number(backend_name):
    """The gradient has the shape of what was given."""
    backend = ml.get_backend(backend_name)
    model = ml.models.PolynomialKernel()
    keys = {"input1": True, "input2": True, "poly_coef": True, "degree": True}
    model.set_differentiability(**keys)
    pm = ml.compile(model, backend, jit=False)
    x = np.array([[1.0, 2.0], [2.0, 3.0]], np.float32)
    numbers = {"poly_coef": np.array([[1.0]], np.float32), "degree": np.array([2.0], np.float32)}
    params = {k: backend.array(v) for k, v in {"input1": x, "input2": x, **numbers}.items()}
    ones = {"output": backend.array(np.ones((2, 2), np.float32))}
    outputs, gradients = pm.evaluate(params, output_gradients=ones)
    inner = x @ x.T + 1.0
    np.testing.assert_allclose(backend.to_numpy(outputs["output"]), inner**2, rtol=1e-5)
    for name, slope in (("poly_coef", 2 * inner), ("degree", inner**2 * np.log(inner))):
        found = np.asarray(backend.to_numpy(gradients[name]))
        assert found.shape == numbers[name].shape
        np.testing.assert_allclose(found.item(), slope.sum(), rtol=1e-5)


def test_more_elements_do_not():
    model = ml.models.PolynomialKernel()
    model.set_differentiability(poly_coef=True)
    pm = ml.compile(model, ml.NumpyBackend(), jit=False)
    data = {"input1": np.ones((2, 2)), "input2": np.ones((2, 2)), "degree": np.array(2.0)}
    with pytest.raises(ShapeError, match=r"'poly_coef' must have shape \[\], got \[2\]"):
        pm.evaluate({"poly_coef": np.ones(2, np.float32)}, data)
