"""Assertions that users' tests make fail where they must."""

import types

import mithril as ml
import numpy as np
import pytest
from mithril.backends.with_manualgrad.numpy_backend import ops as numpy_ops
from mithril.errors import ShapeNotKnown, UnsupportedError
from mithril.testing import assert_gradients, assert_same_on_all_backends
from mithril.testing.assertions import along

SHAPES = {"x": [3, 4]}


def with_ops(**changed):
    table = types.SimpleNamespace(**{**vars(numpy_ops), **changed})
    return type("Changed", (ml.NumpyBackend,), {"ops": table})()


def net():
    model = ml.Model(name="net")
    model |= ml.Linear(2, name="first")(input="x", output="h")
    model |= ml.Tanh(name="act")(input="h", output="y")
    return model


def wrong_transpose(input, **axes):
    """Called by the gradient of the linear layer only."""
    return numpy_ops.swapaxes(input, **axes) * 2


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_right_gradients_are_slopes(dtype):
    assert_gradients(net(), [ml.NumpyBackend(dtype=dtype)], shapes=SHAPES)


def test_wrong_gradients_are_not():
    wrong = with_ops(swapaxes=wrong_transpose)
    with pytest.raises(AssertionError, match="Changed.*: gradient of 'weight': slope .*, not .*"):
        assert_gradients(net(), ["numpy", wrong], shapes=SHAPES)
    assert_gradients(net(), [wrong], shapes=SHAPES, tolerance=10.0)


def test_a_rule_that_is_wrong_for_all_backends(monkeypatch):
    """`verify` compares backends of one engine; slopes have no rule in common with it."""
    monkeypatch.setattr(numpy_ops, "swapaxes", wrong_transpose_of(numpy_ops.swapaxes))
    assert assert_same_on_all_backends(net(), ["numpy"], shapes=SHAPES)
    with pytest.raises(AssertionError, match="gradient of 'weight'"):
        assert_gradients(net(), ["numpy"], shapes=SHAPES)


def wrong_transpose_of(swapaxes):
    return lambda input, **axes: swapaxes(input, **axes) * 2


def test_gradients_of_data_count_too():
    model = ml.Model()
    model |= ml.Multiply()(left="a", right="b", output="y")
    shapes = {"a": [3], "b": [3]}
    assert_gradients(model, ["numpy"], shapes=shapes)
    swapped = with_ops(multiply=lambda left, right: left * right + 0.5 * left)
    with pytest.raises(AssertionError, match="gradient of '[ab]'"):
        assert_gradients(model, [swapped], shapes=shapes)


def test_what_has_no_gradient_is_said():
    model = ml.Model()
    model |= ml.ArgMax(axis=-1)(input="x", output="y")
    with pytest.raises(UnsupportedError, match="no output with a gradient"):
        assert_gradients(model, ["numpy"], shapes=SHAPES)
    with pytest.raises(ShapeNotKnown, match="'x'"):
        assert_gradients(net(), ["numpy"])


def test_a_difference_is_told_with_its_node():
    wrong = with_ops(tanh=lambda input: input)
    with pytest.raises(AssertionError, match="forward diverges first at net.act: tanh"):
        assert_same_on_all_backends(net(), [wrong], shapes=SHAPES)


def test_slopes_along_a_direction():
    direction = np.array([1.0, -1.0])
    assert along(np.array([3.0, 1.0]), direction, 2.0, 1e-9) is None
    assert along(np.array([3.0, 1.0]), direction, 2.1, 1e-3) == "slope 2.0, not 2.1"
    assert along(np.array([3.0, np.nan]), direction, 2.0, 1.0) == "slope nan, not 2.0"
    assert along(np.array([3, 1]), direction, 2.0, 1.0).startswith("dtype int64")
    assert along(None, direction, 2.0, 1.0) == "shape (), not (2,)"
    assert along(np.float32([3, 1]), np.zeros(2), float("nan"), 1.0) == "slope 0.0, not nan"
