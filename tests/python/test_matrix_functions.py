# Covers: ops/matrix_functions.cc
"""Functions of matrices beyond the op matrix, on every backend, against NumPy and PyTorch."""

import mithril as ml
import numpy as np
import pytest
import torch
from mithril.errors import ArgumentError

from .test_linalg import SILENT, gradients, matrices, run


def wide(backend_name):
    return ml.get_backend(backend_name, dtype="float64")


def slopes(function, cotangent, **arrays):
    """PyTorch's gradients in float64."""
    tensors = {key: torch.tensor(x, requires_grad=True) for key, x in arrays.items()}
    function(**tensors).backward(torch.tensor(cotangent))
    return {key: x.grad.numpy() for key, x in tensors.items()}


def skip_without_autodiff(autodiff, backend_name):
    if autodiff == "framework" and backend_name in ("numpy", "cpu", "c"):
        pytest.skip("no autodiff of its own")


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 1e3])
def test_exponentials_of_small_and_large_matrices(size, backend_name):
    a = np.random.default_rng(0).standard_normal((4, 6, 6))
    a = size * (a - np.swapaxes(a, -1, -2)) / 4  # a rotation: its exponential is bounded
    got = run(ml.MatrixExp(), wide(backend_name), input=a)["output"]
    want = torch.linalg.matrix_exp(torch.tensor(a)).numpy()
    np.testing.assert_allclose(got, want, atol=1e-13 * max(size, 1))


def test_exponentials_of_a_batch_are_scaled_one_by_one(backend_name):
    a = np.stack([np.diag([1e-8, 0.0]), np.diag([300.0, -1e4])])
    got = run(ml.MatrixExp(), wide(backend_name), input=a)["output"]
    want = np.zeros((2, 2, 2))
    want[:, [0, 1], [0, 1]] = np.exp([[1e-8, 0], [300, -1e4]])
    np.testing.assert_allclose(got, want, rtol=1e-11)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_exponentials_of_what_is_not_finite_end(bad, backend_name):
    a = np.zeros((2, 3, 3))
    a[0, 0, 1] = bad
    try:
        got = run(ml.MatrixExp(), wide(backend_name), input=a)["output"]
    except ArgumentError:  # of the equations that are solved on the way
        return
    assert np.isnan(got[0]).any()


@pytest.mark.parametrize("autodiff", ["engine", "framework"])
def test_gradients_of_exponentials(autodiff, backend_name):
    skip_without_autodiff(autodiff, backend_name)
    backend = wide(backend_name)
    a, dy = np.random.default_rng(1).standard_normal((2, 2, 5, 5))
    got = gradients(ml.MatrixExp(), backend, {"output": dy}, autodiff, input=a)["input"]
    want = slopes(lambda input: torch.linalg.matrix_exp(input), dy, input=a)["input"]
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("n", [0, 1, 7, 64])
def test_logarithms_of_determinants_that_no_number_holds(n, backend_name):
    a = matrices(n, "float64", (2,))
    a[0] *= 1e30
    a[1] *= -1e-30
    got = run(ml.SlogDet(), wide(backend_name), input=a)
    sign, logarithm = np.linalg.slogdet(a)
    np.testing.assert_array_equal(got["sign"], sign)
    np.testing.assert_allclose(got["logabsdet"], logarithm, rtol=1e-12)


def test_the_determinant_of_a_singular_matrix_has_no_logarithm(backend_name):
    got = run(ml.SlogDet(), wide(backend_name), input=np.ones((2, 3, 3)))
    np.testing.assert_array_equal(got["sign"], [0, 0])
    np.testing.assert_array_equal(got["logabsdet"], [-np.inf, -np.inf])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_small_pivots_are_pivots(dtype, backend_name):
    """Their product is no number that is not 0, the matrix is regular."""
    a = 1e-9 * matrices(60, dtype, (1,))
    right = np.ones((1, 60, 1), dtype)
    y = run(ml.Solve(), ml.get_backend(backend_name, dtype=dtype), matrix=a, right=right)["output"]
    np.testing.assert_allclose(a @ y, right, atol=2e-3 if dtype == "float32" else 1e-11)


@pytest.mark.parametrize("power", [-3, -1, 0, 1, 2, 11])
def test_powers(power, backend_name):
    a = matrices(5, "float64") / 5
    got = run(ml.MatrixPower(n=power), wide(backend_name), input=a)["output"]
    np.testing.assert_allclose(got, np.linalg.matrix_power(a, power), rtol=1e-10, atol=1e-11)


def test_a_singular_matrix_has_no_negative_power(backend_name):
    if backend_name in SILENT:
        pytest.skip("its programs cannot raise")
    with pytest.raises(ArgumentError, match="singular"):
        run(ml.MatrixPower(n=-1), wide(backend_name), input=np.ones((1, 2, 2)))


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
@pytest.mark.parametrize("rank", [None, 2])
def test_least_squares_and_their_gradients(shape, rank, backend_name):
    """Of full rank and of less, where many solutions have the least residual."""
    random = np.random.default_rng(2)
    a = random.standard_normal((2, *shape))
    if rank is not None:
        a[..., rank:] = a[..., :1]
        a = a if shape[0] >= shape[1] else a[..., : shape[1]]
    right = random.standard_normal((2, shape[0], 2))
    backend = wide(backend_name)
    want = np.stack([np.linalg.lstsq(m, b, rcond=None)[0] for m, b in zip(a, right, strict=True)])
    got = run(ml.Lstsq(), backend, matrix=a, right=right)["output"]
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10)
    inverse = run(ml.Pinv(), backend, input=a)["output"]
    np.testing.assert_allclose(inverse, np.linalg.pinv(a), rtol=1e-9, atol=1e-10)

    dy = random.standard_normal(want.shape)
    found = gradients(ml.Lstsq(), backend, {"output": dy}, "engine", matrix=a, right=right)
    wanted = slopes(
        lambda matrix, right: torch.linalg.pinv(matrix) @ right, dy, matrix=a, right=right
    )
    for key, want in wanted.items():
        np.testing.assert_allclose(found[key], want, rtol=1e-8, atol=1e-8)


def test_singular_values_up_to_a_bound_count_as_zero(backend_name):
    a = np.diag([1.0, 1e-3])[None]
    backend = wide(backend_name)
    got = run(ml.Pinv(rtol=1e-2), backend, input=a)["output"]
    np.testing.assert_allclose(got[0], np.diag([1.0, 0.0]), atol=1e-15)
    got = run(ml.Lstsq(rtol=1e-4), backend, matrix=a, right=np.ones((1, 2, 1)))["output"]
    np.testing.assert_allclose(got[0, :, 0], [1, 1000], rtol=1e-12)


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2)])
def test_traces(shape, backend_name):
    a = np.random.default_rng(3).integers(-9, 9, (4, *shape)).astype("float32")
    got = run(ml.Trace(), ml.get_backend(backend_name, dtype="float32"), input=a)["output"]
    np.testing.assert_array_equal(got, np.trace(a, axis1=1, axis2=2))
