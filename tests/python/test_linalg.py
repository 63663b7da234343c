# Covers: reference/linalg.c reference/factors.c backends/cpu/linalg.cc ops/linalg.cc
"""Linear algebra beyond the op matrix: larger matrices against NumPy, what defines each result, and
matrices without one.
"""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError


def run(model, backend, **arrays):
    outer = ml.Model()
    node = model._node
    wires = {key: key for key in arrays} | {key: key for key in node.output_keys}
    outer |= model.connect(**wires)
    pm = ml.compile(outer, backend, data_keys=set(arrays), inference=True)
    return pm.evaluate({}, arrays)


def backends(dtype):
    return [ml.CpuBackend(dtype=dtype), ml.NumpyBackend(dtype=dtype)]


def matrices(n, dtype, batch=(3,), seed=0):
    random = np.random.default_rng(seed)
    return (random.standard_normal((*batch, n, n)) + 2 * np.sqrt(n) * np.eye(n)).astype(dtype)


@pytest.mark.device
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 33, 100])
def test_results_have_their_defining_property(n, dtype):
    bound = n * (3e-5 if dtype == "float32" else 1e-13)
    a = matrices(n, dtype)
    spd = a @ np.swapaxes(a, -1, -2) / n + np.eye(n, dtype=dtype)
    right = np.random.default_rng(1).standard_normal((3, n, 5)).astype(dtype)
    for backend in backends(dtype):
        lower = run(ml.Cholesky(), backend, input=spd)["output"]
        np.testing.assert_array_equal(lower, np.tril(lower))
        np.testing.assert_allclose(lower @ np.swapaxes(lower, -1, -2), spd, atol=bound)
        y = run(ml.Solve(), backend, matrix=a, right=right)["output"]
        np.testing.assert_allclose(a @ y, right, atol=bound)
        for is_lower in (True, False):
            half = np.tril(a) if is_lower else np.triu(a)
            half += 5 * np.eye(n, dtype=dtype)
            for turned in (False, True):
                op = ml.SolveTriangular(lower=is_lower, transposed=turned)
                y = run(op, backend, matrix=half, right=right)["output"]
                used = np.swapaxes(half, -1, -2) if turned else half
                np.testing.assert_allclose(used @ y, right, atol=bound)
        inverse = run(ml.Inverse(), backend, input=a)["output"]
        np.testing.assert_allclose(a @ inverse, np.broadcast_to(np.eye(n), a.shape), atol=bound)
        got = run(ml.Eigh(), backend, input=spd)
        w, v = got["values"], got["vectors"]
        assert (np.diff(w, axis=-1) >= 0).all()
        np.testing.assert_allclose((v * w[:, None]) @ np.swapaxes(v, -1, -2), spd, atol=2 * bound)
        np.testing.assert_allclose(
            np.swapaxes(v, -1, -2) @ v, np.broadcast_to(np.eye(n), v.shape), atol=bound
        )


@pytest.mark.device
@pytest.mark.parametrize("n", [0, 1, 2, 5, 40])
def test_determinants_are_those_of_numpy(n):
    a = matrices(n, "float64")
    a[0, : n // 2] = a[0, : n // 2][::-1].copy()  # rows change places
    for backend in backends("float64"):
        got = run(ml.Determinant(), backend, input=a)["output"]
        np.testing.assert_allclose(got, np.linalg.det(a), rtol=1e-10)
    singular = np.ones((2, 2))
    for backend in backends("float64"):
        assert run(ml.Determinant(), backend, input=singular)["output"] == 0.0


@pytest.mark.device
def test_a_matrix_that_needs_exchanges_of_rows():
    a = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 3.0], [4.0, 0.0, 0.0]])
    for backend in backends("float64"):
        y = run(ml.Solve(), backend, matrix=a, right=np.array([[2.0], [6.0], [4.0]]))["output"]
        np.testing.assert_array_equal(y, [[1.0], [1.0], [2.0]])
        assert run(ml.Determinant(), backend, input=a)["output"] == pytest.approx(24.0)


@pytest.mark.device
def test_diagonal_and_equal_eigenvalues():
    for backend in backends("float64"):
        got = run(ml.Eigh(), backend, input=np.diag([3.0, 1.0, 2.0]))
        np.testing.assert_array_equal(got["values"], [1.0, 2.0, 3.0])
        np.testing.assert_array_equal(got["vectors"], np.eye(3)[:, [1, 2, 0]])
        same = run(ml.Eigh(), backend, input=2 * np.eye(4))
        np.testing.assert_array_equal(same["values"], [2.0] * 4)


SINGULAR = np.stack([np.eye(2), np.ones((2, 2))])
INDEFINITE = np.stack([np.eye(2), np.array([[1.0, 2.0], [2.0, 1.0]])])


@pytest.mark.device
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_matrices_without_a_result_are_named(dtype):
    for backend in backends(dtype):
        with pytest.raises(ArgumentError, match="cholesky.*not positive definite"):
            run(ml.Cholesky(), backend, input=INDEFINITE.astype(dtype))
        with pytest.raises(ArgumentError, match="solve.*singular"):
            run(ml.Solve(), backend, matrix=SINGULAR.astype(dtype), right=SINGULAR.astype(dtype))
        with pytest.raises(ArgumentError, match="singular"):
            run(ml.Inverse(), backend, input=SINGULAR.astype(dtype))
        good = run(ml.Cholesky(), backend, input=INDEFINITE[:1].astype(dtype))["output"]
        np.testing.assert_array_equal(good, INDEFINITE[:1])


@pytest.mark.device
def test_nan_stays_where_it_is():
    a = matrices(3, "float64")
    a[1, 0, 0] = np.nan
    got = run(ml.Determinant(), ml.CpuBackend(dtype="float64"), input=a)["output"]
    assert np.isnan(got).tolist() == [False, True, False]


@pytest.mark.frameworks
def test_matrices_without_a_result_on_frameworks():
    pytest.importorskip("torch")
    backend = ml.TorchBackend(dtype="float64")
    bad = {name: backend.array(x) for name, x in (("matrix", SINGULAR), ("right", SINGULAR))}
    with pytest.raises(ArgumentError, match="solve.*singular"):
        run(ml.Solve(), backend, **bad)
    with pytest.raises(ArgumentError, match="cholesky.*not positive definite"):
        run(ml.Cholesky(), backend, input=backend.array(INDEFINITE))
    pytest.importorskip("jax")
    backend = ml.JaxBackend(dtype="float64")
    got = run(ml.Cholesky(), backend, input=backend.array(INDEFINITE))["output"]
    assert np.isnan(backend.to_numpy(got)[1]).any()
