"""Statistics of fewer values than they need: one for each channel, or none but the correction."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ShapeError

MODELS = {
    "BatchNorm1D": (ml.BatchNorm1D, (1, 3)),
    "BatchNorm2D": (ml.BatchNorm2D, (1, 3, 1, 1)),
}


def test_one_value_for_each_channel_is_an_error(backend_name):
    for name, (layer, shape) in MODELS.items():
        backend = ml.get_backend(backend_name)
        with pytest.raises(ShapeError, match="more than one value for each channel, got one") as e:
            ml.compile(
                layer(use_scale=False, use_bias=False), backend, mode="train",
                data_keys={"input"}, shapes={"input": list(shape)},
            ).evaluate({}, {"input": np.ones(shape)}, state={})  # fmt: skip
        assert "mode='eval'" in str(e.value), name


@pytest.mark.parametrize("name", MODELS)
def test_eval_takes_one_value(name, backend_name):
    layer, shape = MODELS[name]
    backend = ml.get_backend(backend_name)
    model = layer(use_scale=False, use_bias=False)
    pm = ml.compile(model, backend, mode="eval", data_keys={"input"}, shapes={"input": list(shape)})
    x = np.arange(3.0).reshape(shape)
    result = pm.evaluate(pm.randomize_params(), {"input": backend.array(x)})
    (y,) = result.values()
    np.testing.assert_allclose(np.asarray(backend.to_numpy(y)), x, atol=1e-4)  # mean 0, variance 1


def variance_and_gradient(backend_name, x, **options):
    backend = ml.get_backend(backend_name)
    model = ml.Model()
    model |= ml.Variance(**options)(input="x", output="y")
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": list(x.shape)})
    ones = {"y": np.ones(pm.shapes["y"])}
    found = pm.evaluate({}, {"x": backend.array(x)}, output_gradients=ones, wrt=["x"])
    return (np.asarray(backend.to_numpy(v)) for v in (found.outputs["y"], found.gradients["x"]))


@pytest.mark.parametrize("correction", [1.0, 2.0])
def test_variance_of_as_many_values_as_the_correction(correction, backend_name):
    """As `torch.var`, which divides by max(0, n - correction): 0 / 0, or a number / 0."""
    y, dx = variance_and_gradient(backend_name, np.array([[3.0], [5.0]]), axis=1,
                                  correction=correction)  # fmt: skip
    assert np.isnan(y).all() and np.isnan(dx).all()
    y, _ = variance_and_gradient(backend_name, np.array([[3.0, 5.0]]), axis=1, correction=3.0)
    assert np.isposinf(y).all()
    y, dx = variance_and_gradient(backend_name, np.array([[3.0, 5.0]]), axis=1, correction=1.0)
    np.testing.assert_allclose(y, [2.0])
    np.testing.assert_allclose(dx, [[-2.0, 2.0]])
