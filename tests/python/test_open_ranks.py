"""Ranks that only the arrays of a call show, parameters as well as data."""

import mithril as ml
import numpy as np
import pytest
from mithril.models import Add, Linear, MatrixMultiply, Multiply, Relu

RNG = np.random.default_rng(3)
BACKENDS = [ml.NumpyBackend, ml.CpuBackend]


def compiled(model, backend, **options):
    return ml.compile(model, backend(dtype=ml.float64), jit=False, **options)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_rank_of_a_trained_input_is_that_of_its_array(backend):
    pm = compiled(Relu(), backend, trainable_keys={"input"})
    for shape in [(3,), (2, 3), (), (2, 1, 3), (3,)]:
        x = RNG.standard_normal(shape)
        given = RNG.standard_normal(shape)
        outputs, gradients = pm.evaluate({"input": x}, output_gradients={"output": given})
        np.testing.assert_array_equal(outputs["output"], np.maximum(x, 0.0))
        np.testing.assert_array_equal(gradients["input"], np.where(x > 0, given, 0.0))


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_trained_inputs_broadcast(backend):
    pm = compiled(Add(), backend, trainable_keys={"left", "right"})
    left, right = RNG.standard_normal((2, 3)), RNG.standard_normal((4, 1, 3))
    for a, b in [(left, right), (right, left), (left, left)]:
        sums = a + b
        outputs, gradients = pm.evaluate(
            {"left": a, "right": b}, output_gradients={"output": np.ones_like(sums)}
        )
        np.testing.assert_array_equal(outputs["output"], sums)
        for name, array in [("left", a), ("right", b)]:
            assert gradients[name].shape == array.shape
            np.testing.assert_array_equal(
                gradients[name], np.full(array.shape, sums.size / array.size)
            )


@pytest.mark.parametrize("backend", BACKENDS)
def test_repeated_calls_keep_to_the_ranks_that_they_give(backend):
    pm = compiled(Relu(), backend, data_keys={"input"})
    for shape in [(3,), (3,), (2, 3), (3,), (2, 3), (2, 3), (2, 2), (1,)]:
        x = RNG.standard_normal(shape)
        np.testing.assert_array_equal(pm.evaluate({}, {"input": x})["output"], np.maximum(x, 0.0))


def test_what_other_arrays_imply_needs_no_array():
    model = ml.Model()
    model |= MatrixMultiply()(left="x", right="w", output="h")
    model |= Linear(2)(input="h", output="y")
    model.set_differentiability(x=True, w=True)
    pm = compiled(model, ml.NumpyBackend)
    x, w = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 5))
    params = {**pm.get_parameters(), "x": x, "w": w}
    y = pm.evaluate(params)["y"]
    wanted = x @ w @ np.asarray(params["weight"]).T + np.asarray(params["bias"])
    np.testing.assert_allclose(y, wanted, rtol=1e-14)


def test_parameters_have_the_shapes_of_the_first_call():
    pm = compiled(Linear(2), ml.NumpyBackend, data_keys={"input"})
    with pytest.raises(ml.errors.ShapeNotKnown):
        abs(pm.randomize_params(0)["weight"])
    weight, bias = RNG.standard_normal((2, 3)), RNG.standard_normal(2)
    pm.evaluate({"weight": weight, "bias": bias}, {"input": np.ones((4, 3))})
    assert {k: v.shape for k, v in pm.randomize_params(0).items()} == {
        "weight": (2, 3),
        "bias": (2,),
    }


def test_trained_inputs_have_parameters_after_the_first_call():
    pm = compiled(Add(), ml.NumpyBackend, trainable_keys={"left", "right"})
    pm.evaluate({"left": np.ones((2, 3)), "right": np.ones(3)})
    shapes = {k: v.shape for k, v in pm.randomize_params(0).items()}
    assert shapes == {"left": (2, 3), "right": (3,)}


def test_without_an_array_the_rank_is_not_known():
    pm = compiled(Add(), ml.NumpyBackend, trainable_keys={"left", "right"})
    with pytest.raises(ml.errors.ShapeNotKnown, match="the ranks of 'left', 'right'.*\n.*params"):
        pm.evaluate({})


def test_an_array_of_another_rank_is_told_with_its_sizes():
    model = ml.Model()
    model |= ml.Solve()(matrix="a", right="b", output="x")
    pm = ml.compile(model, ml.CpuBackend(), inference=True)
    with pytest.raises(ml.errors.ShapeError, match=r"'b' cannot be \[3\]") as caught:
        pm.evaluate({}, {"a": np.eye(3, dtype=np.float32), "b": np.ones(3, dtype=np.float32)})
    assert "one column is [3, 1]" in str(caught.value)
    assert caught.value.__context__ is None


def test_arrays_that_do_not_fit_each_other_are_refused():
    model = ml.Model()
    model |= MatrixMultiply()(left="x", right="w", output="y")
    model.set_differentiability(x=True, w=True)
    pm = compiled(model, ml.NumpyBackend)
    with pytest.raises(ml.errors.ShapeError):
        pm.evaluate({"x": np.ones((4, 3)), "w": np.ones((2, 5))})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_products_of_open_operands_with_the_same_operand(backend, count):
    """The sizes that the solver has for wires are those of the graph's table."""
    model, wire = ml.Model(), "left"
    for i in range(count):
        model |= Multiply()(left="right", right=wire, output=f"product_{i}")
        wire = f"product_{i}"
    model |= Add()(left=wire, right=wire, output="output")
    model.expose_keys("output")
    model.set_differentiability(left=True, right=True)
    pm = compiled(model, backend)
    for shapes in [((2, 3), (3,)), ((2, 1), (2, 3)), ((3,), (2, 1)), ((1,), (2, 3)), ((), ())]:
        left, right = (RNG.standard_normal(shape) for shape in shapes)
        output = pm.evaluate({"left": left, "right": right})["output"]
        np.testing.assert_allclose(output, 2 * left * right**count, rtol=1e-13)
