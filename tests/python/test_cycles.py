"""Submodels may feed each other's disjoint parts: only ops must not read what they make."""

# Covers: model/tree/cycles.cc

import mithril as ml
import numpy as np
import pytest
from mithril.errors import CycleError
from mithril.utils.dict_conversions import dict_to_model, model_to_dict


def two_layers(first, second):
    """Two parts that have nothing to do with each other: y1 of x1, y2 of x2."""
    model = ml.Model()
    model |= first(input="x1", output="y1")
    model |= second(input="x2", output="y2")
    model.expose_keys("y1", "y2")
    return model


def crossing():
    """x → a.1 → b.1 → a.2 → b.2 → out."""
    model = ml.Model()
    model |= two_layers(ml.Relu(), ml.Tanh())(x1="x", x2="w", y1="h", y2="v")
    model |= two_layers(ml.Sigmoid(), ml.models.Sine())(x1="h", x2="v", y1="w", y2="out")
    model.expose_keys("out")
    return model


def by_hand(x):
    return np.sin(np.tanh(1 / (1 + np.exp(-np.maximum(x, 0)))))


def slope_by_hand(x):
    s = 1 / (1 + np.exp(-np.maximum(x, 0)))
    return np.cos(np.tanh(s)) * (1 - np.tanh(s) ** 2) * s * (1 - s) * (x > 0)


@pytest.mark.parametrize("from_file", [False, True])
def test_submodels_that_feed_each_other_run(backend_name, from_file):
    model = dict_to_model(model_to_dict(crossing())) if from_file else crossing()
    x = np.array([-1.0, 0.5, 2.0], np.float32)
    backend = ml.get_backend(backend_name)
    pm = ml.compile(model, backend, trainable_keys={"x"}, shapes={"x": [3]})
    params = {"x": backend.array(x)}
    outputs, gradients = pm.evaluate(params, output_gradients={"out": backend.array(x * 0 + 1)})
    np.testing.assert_allclose(backend.to_numpy(outputs["out"]), by_hand(x), rtol=1e-5)
    np.testing.assert_allclose(
        backend.to_numpy(gradients["x"]), slope_by_hand(x), rtol=1e-4, atol=1e-6
    )


def test_they_are_named_summed_up_and_drawn(capsys):
    model = crossing()
    assert len(model.dag) == 2
    model.summary()
    assert "'out'" in capsys.readouterr().out
    drawn = str(model.plot())
    assert drawn.count("<svg") == 1


def test_merging_may_cross_too():
    model = ml.Model()
    model |= two_layers(ml.Relu(), ml.Tanh())(x1="x", x2="w", y1="h", y2="out")
    model |= two_layers(ml.Sigmoid(), ml.Relu())(x1="h", x2="z", y1="v")
    model.merge_connections("w", "v", name="w")
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x", "z"}, inference=True)
    x = np.array([0.5, -1.0], np.float32)
    found = pm.evaluate({}, {"x": x, "z": x})["out"]
    np.testing.assert_allclose(found, np.tanh(1 / (1 + np.exp(-np.maximum(x, 0)))), rtol=1e-6)


def test_ops_that_feed_each_other_are_refused():
    model = ml.Model()
    model |= two_layers(ml.Relu(), ml.Tanh())(x1="x", x2="w", y1="h", y2="v")
    before = str(model.shapes)
    with pytest.raises(CycleError, match="closes a cycle: it writes 'x'"):
        model |= two_layers(ml.Sigmoid(), ml.Relu())(x1="h", y1="x", x2="z")
    assert str(model.shapes) == before
    model |= two_layers(ml.Sigmoid(), ml.Relu())(x1="h", y1="w", x2="z")
    with pytest.raises(CycleError, match="merging"):
        model.merge_connections("v", "x", name="v")


def test_a_loop_is_computed_as_a_whole():
    """The step does not read `c` for `total`, but all results of a loop come at its end."""
    step = ml.Model()
    step |= ml.Add()(left="total", right="x", output="sum")
    step |= ml.Multiply()(left="x", right="c", output="scaled")
    step.expose_keys("sum", "scaled")
    model = ml.Model()
    loop = ml.Scan(step, carry={"total": "sum"}, xs=["x"], ys=["scaled"])
    model |= loop(x="xs", total="start", sum="end", c="factor", scaled="ys")
    with pytest.raises(CycleError):
        model |= ml.Relu()(input="end", output="factor")
