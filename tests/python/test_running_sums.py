"""Running sums and products of many elements, against NumPy's in float64: an error of rounding
does not grow with the number of elements.
"""

import mithril as ml
import numpy as np
import pytest

MANY = 200_000


def run(op, backend_name, x, dtype="float32"):
    backend = ml.get_backend(backend_name, dtype=dtype)
    model = ml.Model.create(y=op(ml.IOKey("x")))
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": list(x.shape)})
    given = {"x": backend.array(x)}
    slope = {"y": backend.ones(*x.shape)}
    found = pm.evaluate({}, given, output_gradients=slope, wrt=["x"])
    plain = lambda a: np.asarray(backend.to_numpy(a)).astype("f8")  # noqa: E731
    return plain(found.outputs["y"]), plain(found.gradients["x"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_equal_numbers(dtype, backend_name):
    bound = 2e-6 if dtype == "float32" else 1e-11  # the frameworks' own
    x = np.full(MANY, 0.1, dtype)
    y, dx = run(ml.CumSum(axis=0), backend_name, x, dtype)
    exact = np.cumsum(x.astype(np.longdouble)).astype("f8")
    np.testing.assert_allclose(y, exact, rtol=bound)
    np.testing.assert_allclose(dx, np.arange(MANY, 0, -1), rtol=bound)


@pytest.mark.parametrize("shape", [(1_000_000,), (2, 500_000), (700, 3, 500)])
def test_whole_sums_and_means(backend_name, shape):
    backend = ml.get_backend(backend_name, dtype="float32")
    x = np.full(shape, 0.1, "f4")
    for axis in (None, -1, tuple(range(len(shape)))[::2]):
        for keepdim in (False, True):
            model = ml.Model()
            model |= ml.Sum(axis=axis, keepdim=keepdim)(input="x", output="s")
            model |= ml.Mean(axis=axis, keepdim=keepdim)(input="x", output="m")
            model.expose_keys("s", "m")
            pm = ml.compile(model, backend, data_keys={"x"})
            exact = x.astype("f8").sum(axis, keepdims=keepdim)
            count = x.size / exact.size
            ones = np.ones(exact.shape, "f4")
            slopes = {"s": backend.array(ones), "m": backend.array(2 * ones)}
            given = {"x": backend.array(x)}
            found = pm.evaluate({}, given, wrt=["x"], output_gradients=slopes)
            got = {k: backend.to_numpy(v) for k, v in found.outputs.items()}
            np.testing.assert_allclose(got["s"], exact, rtol=5e-6)
            np.testing.assert_allclose(got["m"], exact / count, rtol=5e-6)
            dx = backend.to_numpy(found.gradients["x"])
            np.testing.assert_allclose(dx, np.full(shape, 1 + 2 / count), rtol=1e-6)


def test_sums_along_every_axis(backend_name):
    x = np.random.default_rng(0).random((300, 1, 700), "f4")
    for axis in (0, 1, 2, -1):
        y, dx = run(ml.CumSum(axis=axis), backend_name, x)
        np.testing.assert_allclose(y, np.cumsum(x.astype("f8"), axis), rtol=2e-6)
        ones = np.flip(np.cumsum(np.ones(x.shape), axis), axis)
        np.testing.assert_allclose(dx, ones, rtol=2e-6)


def test_sums_of_what_is_not_finite(backend_name):
    x = np.array([1.0, np.inf, 2.0, 3.0, -np.inf, 1.0], "f4")
    y, _ = run(ml.CumSum(axis=0), backend_name, x)
    np.testing.assert_array_equal(y, [1.0, np.inf, np.inf, np.inf, np.nan, np.nan])
    x = np.zeros(200, "f4")
    x[70], x[130] = np.nan, 1.0
    y, _ = run(ml.CumSum(axis=0), backend_name, x)
    assert (y[:70] == 0).all()
    assert np.isnan(y[70:]).all()


def test_products(backend_name):
    size = 500 if backend_name in ("torch", "mlx", "jax") else 20_000  # rows one by one
    x = np.random.default_rng(1).uniform(0.999, 1.001, size).astype("f4")
    y, dx = run(ml.CumProd(axis=0), backend_name, x)
    wide = np.cumprod(x.astype("f8"))
    np.testing.assert_allclose(y, wide, rtol=1e-6 if size > 500 else 4e-5)
    slope = np.cumsum(wide[::-1])[::-1] / x
    np.testing.assert_allclose(dx, slope, rtol=2e-6 if size > 500 else 4e-5)
