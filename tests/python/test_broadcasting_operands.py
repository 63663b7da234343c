"""Operands that broadcast as those of NumPy and PyTorch do: bounds of Clamp, places of
TakeAlongAxis, the slope of PReLU. Values and gradients beside PyTorch in float64."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import DTypeError, MithrilError

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.frameworks

RNG = np.random.default_rng(7)


def check(formula, exact, arrays, backend_name, floats):
    """Values, and the gradients of `floats`, under cotangents that are all different."""
    dtype = "float32" if backend_name == "mlx" else "float64"
    backend = ml.get_backend(backend_name, dtype=dtype)
    kinds = {"f": float, "i": int}
    keys = {
        name: ml.IOKey(name, shape=list(x.shape), type=ml.Tensor[kinds[x.dtype.kind]])
        for name, x in arrays.items()
    }
    pm = ml.compile(ml.Model.create(y=formula(**keys)), backend, data_keys=set(arrays))
    given = {name: torch.tensor(x, requires_grad=name in floats) for name, x in arrays.items()}
    want = exact(**given)
    cotangent = np.linspace(1.0, 2.0, want.numel()).reshape(want.shape)
    want.backward(torch.tensor(cotangent))
    found = pm.evaluate(
        {},
        {name: backend.array(x) for name, x in arrays.items()},
        output_gradients={"y": backend.array(cotangent)},
        wrt=list(floats),
    )
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == "float32" else {"rtol": 1e-12}
    y = np.asarray(backend.to_numpy(found.outputs["y"]))
    np.testing.assert_allclose(y, want.detach().numpy(), **tolerance)
    for name in floats:
        slopes = np.asarray(backend.to_numpy(found.gradients[name]))
        np.testing.assert_allclose(slopes, given[name].grad.numpy(), err_msg=name, **tolerance)


LIMITS = {
    "both": {"low": RNG.normal(size=(4,)) - 0.5, "high": RNG.normal(size=(3, 1)) + 0.5},
    "crossing": {"low": RNG.normal(size=(3, 4)), "high": RNG.normal(size=(3, 4))},
    "larger than x": {"low": RNG.normal(size=(2, 3, 4)), "high": np.array(0.5)},
}


@pytest.mark.parametrize("what", LIMITS)
def test_clamp_between_tensors(what, backend_name):
    def formula(x, low, high):
        return ml.Clamp(min_val=ml.TBD, max_val=ml.TBD)(x, min_val=low, max_val=high)

    def exact(x, low, high):
        shape = torch.broadcast_shapes(x.shape, low.shape, high.shape)
        return torch.clamp(x.expand(shape), low, high)

    arrays = {"x": RNG.normal(size=(3, 4)), **LIMITS[what]}
    check(formula, exact, arrays, backend_name, ("x", "low", "high"))


def test_clamp_with_one_tensor(backend_name):
    def formula(x, low):
        return ml.Clamp(min_val=ml.TBD, max_val=0.75)(x, min_val=low)

    def exact(x, low):
        return torch.clamp(torch.clamp(x, min=low), max=0.75)

    arrays = {"x": RNG.normal(size=(3, 4)), "low": RNG.normal(size=(4,))}
    check(formula, exact, arrays, backend_name, ("x", "low"))


def test_nan_bounds_are_nan(backend_name):
    backend = ml.get_backend(backend_name)
    low = ml.IOKey("low", shape=[2])
    model = ml.Model.create(y=ml.Clamp(min_val=ml.TBD)(ml.IOKey("x", shape=[2]), min_val=low))
    pm = ml.compile(model, backend, data_keys={"x", "low"})
    data = {"x": np.array([1.0, 2.0], "f4"), "low": np.array([np.nan, 3.0], "f4")}
    found = pm.evaluate({}, {key: backend.array(value) for key, value in data.items()})["y"]
    np.testing.assert_array_equal(np.asarray(backend.to_numpy(found)), [np.nan, 3.0])


def test_limits_of_integers_are_integers():
    x, low = ml.IOKey("x", type=ml.Tensor[int]), ml.IOKey("low", type=ml.Tensor[float], shape=[2])
    with pytest.raises(DTypeError, match="limits of integers must be integers"):
        ml.Model.create(y=ml.Clamp(min_val=ml.TBD)(x, min_val=low))


PLACES = {
    "one row of places": ((3, 5), (1, 2), 1),
    "one row of elements": ((1, 5, 2), (4, 3, 1), 1),
    "both": ((3, 1, 2), (3, 4, 1), 0),
}


@pytest.mark.parametrize("what", PLACES)
def test_take_along_axis(what, backend_name):
    shape, places, axis = PLACES[what]
    size = shape[axis]
    arrays = {"x": RNG.normal(size=shape), "i": RNG.integers(-size, size, places)}

    def formula(x, i):
        return ml.TakeAlongAxis(axis=axis)(x, indices=i)

    def exact(x, i):
        return torch.take_along_dim(x, torch.where(i < 0, i + size, i), axis)

    check(formula, exact, arrays, backend_name, ("x",))


def test_take_along_axis_of_sizes_that_do_not_fit():
    i = ml.IOKey("i", shape=[2, 2], type=ml.Tensor[int])
    with pytest.raises(MithrilError, match="must broadcast"):
        ml.Model.create(y=ml.TakeAlongAxis(axis=1)(ml.IOKey("x", shape=[3, 5]), indices=i))


@pytest.mark.parametrize("slopes", [1, 4])
def test_one_number_is_every_slope_of_prelu(slopes, backend_name):
    def formula(x):
        return ml.PReLU(num_parameters=slopes)(x, weight=0.25)

    def exact(x):
        return torch.nn.functional.prelu(x, torch.full((slopes,), 0.25, dtype=x.dtype))

    check(formula, exact, {"x": RNG.normal(size=(3, 4))}, backend_name, ("x",))


def test_clamp_with_a_number_below_a_tensor(backend_name):
    def formula(x, high):
        return ml.Clamp(min_val=-0.25, max_val=ml.TBD)(x, max_val=high)

    def exact(x, high):
        return torch.clamp(torch.clamp(x, min=-0.25), max=high)

    arrays = {"x": RNG.normal(size=(3, 4)), "high": RNG.normal(size=(4,))}
    check(formula, exact, arrays, backend_name, ("x", "high"))
