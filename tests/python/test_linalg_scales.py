# Covers: reference/factors.c reference/linalg.c ops/matrix_functions.cc
"""Linear algebra where squares, sums or determinants are beyond the numbers, where singular values
repeat and where elements are not finite, on every backend, against NumPy in float64 at scale 1.
"""

import mithril as ml
import numpy as np
import pytest
import scipy.linalg
import torch
from mithril.errors import ArgumentError

from .test_linalg import gradients, matrices, run
from .test_matrix_functions import skip_without_autodiff, slopes, wide

SQUARE = np.array([[3.0, 1], [1, 2]])
SCALES = [("float32", 1e-25), ("float32", 1e25), ("float64", 1e-200), ("float64", 1e200)]


def tolerance(dtype):
    return 1e-5 if dtype == "float32" else 1e-13


@pytest.mark.parametrize(("dtype", "scale"), SCALES)
@pytest.mark.parametrize("shape", [(2, 2), (7, 4), (3, 6), (40, 40)])
def test_factors_at_any_scale(shape, dtype, scale, backend_name):
    a = np.random.default_rng(0).standard_normal((2, *shape))
    x = (a * scale).astype(dtype)
    near = {"rtol": 20 * tolerance(dtype), "atol": 20 * tolerance(dtype)}
    backend = ml.get_backend(backend_name, dtype=dtype)
    got = run(ml.QR(), backend, input=x)
    np.testing.assert_allclose(got["q"] @ (got["r"].astype(float) / scale), a, **near)
    values = run(ml.SVD(), backend, input=x)["values"].astype(float)
    np.testing.assert_allclose(values / scale, np.linalg.svd(a)[1], **near)
    inverse = run(ml.Pinv(), backend, input=x)["output"].astype(float)
    np.testing.assert_allclose(a @ (inverse * scale) @ a, a, **near)
    y = run(ml.Lstsq(), backend, matrix=x, right=x[..., :1].copy())["output"]
    np.testing.assert_allclose(a @ y, a[..., :1], **near)


@pytest.mark.parametrize("scale", [1e-170, 1e-30, 1e30, 1e170])
def test_a_column_of_another_scale_keeps_its_digits(scale, backend_name):
    x = np.array([[scale, 1, 3], [2 * scale, 5, 1], [scale, 1, 1]])
    got = run(ml.QR(), wide(backend_name), input=x)
    q, r = np.linalg.qr(x)
    signs = np.sign(np.diagonal(r))
    np.testing.assert_allclose(got["q"], q * signs, atol=1e-14)
    np.testing.assert_allclose(got["r"], r * signs[:, None], rtol=1e-14, atol=0)


@pytest.mark.parametrize("autodiff", ["engine", "framework"])
@pytest.mark.parametrize(("n", "size"), [(2, 1e18), (3, 1e-16), (3, 1e14), (5, 1e-8), (5, 1e8)])
def test_cofactors_of_determinants_that_no_number_holds(n, size, autodiff, backend_name):
    skip_without_autodiff(autodiff, backend_name)
    a = matrices(n, "float64", (2,))
    dy = np.ones(2, "float32")
    x = (a * size).astype("float32")
    backend = ml.get_backend(backend_name, dtype="float32")
    got = gradients(ml.Determinant(), backend, {"output": dy}, autodiff, input=x)["input"]
    want = np.linalg.det(a)[:, None, None] * np.swapaxes(np.linalg.inv(a), -1, -2)
    found = got.astype(float) / size ** (n - 1)
    np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("name", ["cpu", "c"])
def test_cofactors_of_diagonals(name):
    """No scale fits all elements; other backends take singular values, which lose the least."""
    x = np.diag([1e30, 1e-30]).astype("float32")
    backend = ml.get_backend(name, dtype="float32")
    dy = np.ones((), "float32")
    got = gradients(ml.Determinant(), backend, {"output": dy}, "engine", input=x)["input"]
    np.testing.assert_allclose(np.diagonal(got), [1e-30, 1e30], rtol=1e-5)


@pytest.mark.parametrize("value", [1e-25, 1e25])
def test_logarithms_of_determinants_of_two_rows(value, backend_name):
    backend = ml.get_backend(backend_name, dtype="float32")
    got = run(ml.SlogDet(), backend, input=(SQUARE * value).astype("float32"))
    assert got["sign"] == 1
    want = np.log(5) + 2 * np.log(value)
    np.testing.assert_allclose(got["logabsdet"], want, rtol=1e-6)


@pytest.mark.parametrize("autodiff", ["engine", "framework"])
@pytest.mark.parametrize("size", [1e-30, 1e4, 1e8, 1e37])
def test_gradients_of_exponentials_are_linear_in_the_cotangent(size, autodiff, backend_name):
    skip_without_autodiff(autodiff, backend_name)
    x, dy = np.array([[0.3, -0.2], [0.5, 0.1]]), np.array([[1, 2], [-1, 0.5]])
    backend = ml.get_backend(backend_name, dtype="float32")
    at = {"output": (dy * size).astype("float32")}
    got = gradients(ml.MatrixExp(), backend, at, autodiff, input=x.astype("float32"))["input"]
    want = scipy.linalg.expm_frechet(x.T, dy, compute_expm=False)
    np.testing.assert_allclose(got.astype(float) / size, want, rtol=2e-6, atol=1e-6)


def test_exponentials_of_the_largest_numbers(backend_name):
    """Their norm is no number."""
    v = 1.5e308
    x = np.array([[[v, v], [v, v]], [[-v, v], [0, -v]]])
    got = run(ml.MatrixExp(), wide(backend_name), input=x)["output"]
    np.testing.assert_array_equal(got, [np.full((2, 2), np.inf), np.zeros((2, 2))])
    backend = ml.get_backend(backend_name, dtype="float32")
    x = np.array([[[3e38]], [[-3e38]]], "float32")
    got = run(ml.MatrixExp(), backend, input=x)["output"]
    np.testing.assert_array_equal(got, [[[np.inf]], [[0]]])


REPEATED = {
    "identity": np.eye(2),
    "of one value": np.diag([1.0, 0]),
    "zeros": np.zeros((2, 2)),
    "orthonormal columns": np.linalg.qr(np.arange(12.0).reshape(4, 3) ** 2)[0],
    "ones": np.ones((3, 2)),
}


@pytest.mark.parametrize("autodiff", ["engine", "framework"])
@pytest.mark.parametrize("name", REPEATED)
def test_gradients_where_singular_values_repeat(name, autodiff, backend_name):
    """Of a matrix and right sides; by PyTorch's pseudo-inverse, a formula without differences of
    singular values."""
    skip_without_autodiff(autodiff, backend_name)
    x, backend = REPEATED[name], wide(backend_name)
    random = np.random.default_rng(4)
    dy, right = random.standard_normal(x.T.shape), random.standard_normal((len(x), 2))
    got = gradients(ml.Pinv(), backend, {"output": dy}, autodiff, input=x)
    want = slopes(lambda input: torch.linalg.pinv(input), dy, input=x)
    np.testing.assert_allclose(got["input"], want["input"], atol=1e-12)
    dy = random.standard_normal((x.shape[1], 2))
    got = gradients(ml.Lstsq(), backend, {"output": dy}, autodiff, matrix=x, right=right)
    want = slopes(
        lambda matrix, right: torch.linalg.pinv(matrix) @ right, dy, matrix=x, right=right
    )
    for key in ("matrix", "right"):
        np.testing.assert_allclose(got[key], want[key], atol=1e-12)


@pytest.mark.parametrize("autodiff", ["engine", "framework"])
def test_gradients_where_a_bound_drops_values(autodiff, backend_name):
    """They are those of the matrix without what is dropped, as PyTorch's."""
    skip_without_autodiff(autodiff, backend_name)
    x, dy = np.array([[1, 0.02], [0.05, 0.1]]), np.array([[1.0, 2], [3, 4]])
    got = gradients(ml.Pinv(rtol=0.3), wide(backend_name), {"output": dy}, autodiff, input=x)
    want = slopes(lambda input: torch.linalg.pinv(input, rtol=0.3), dy, input=x)
    np.testing.assert_allclose(got["input"], want["input"], rtol=1e-12)


@pytest.mark.parametrize("layer", [ml.Pinv, ml.SVD, ml.Eigh])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_what_is_not_finite_has_no_factors(layer, bad, backend_name):
    x = np.stack([np.diag([bad, 1.0]), SQUARE])
    got = run(layer(), wide(backend_name), input=x)
    for result in got.values():
        assert np.isnan(result[0]).all()
        assert np.isfinite(result[1]).all()


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (3, 2)])
def test_open_sizes_may_be_zero(shape, backend_name):
    backend = wide(backend_name)
    model = ml.Model()
    model |= ml.Pinv()(input="x", output="y")
    pm = ml.compile(model, backend, shapes={"x": [None, None]}, data_keys={"x"}, inference=True)
    x = np.ones(shape)
    got = backend.to_numpy(pm.evaluate({}, {"x": backend.array(x)})["y"])
    np.testing.assert_allclose(got, np.linalg.pinv(x) if x.size else x.T, atol=1e-15)


@pytest.mark.parametrize("rtol", [np.nan, np.inf, -1e-3])
@pytest.mark.parametrize("layer", [ml.Pinv, ml.Lstsq])
def test_a_bound_is_finite_and_not_negative(layer, rtol):
    model = ml.Model()
    wires = {key: key for key in layer()._node.input_keys if key != "rtol"}
    with pytest.raises(ArgumentError, match="rtol must be a finite number from 0 on, got"):
        model |= layer(rtol=float(rtol)).connect(**wires, output="y")
    assert not list(model.input_keys)
