# Covers: reference/linalg.c reference/factors.c backends/cpu/structured/linalg.cc ops/linalg.cc
"""Linear algebra beyond the op matrix, on every backend: larger matrices against NumPy, what
defines each result, and matrices without one.
"""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError

SILENT = ("jax",)  # its programs cannot raise


def run(model, backend, **arrays):
    pm = compiled(model, backend, arrays)
    given = {key: backend.array(x) for key, x in arrays.items()}
    return {key: np.asarray(backend.to_numpy(x)) for key, x in pm.evaluate({}, given).items()}


def compiled(model, backend, arrays, **options):
    outer = ml.Model()
    node = model._node
    wires = {key: key for key in arrays} | {key: key for key in node.output_keys}
    outer |= model.connect(**wires)
    return ml.compile(outer, backend, data_keys=set(arrays), **options)


def gradients(model, backend, cotangents, autodiff, **arrays):
    shapes = {key: x.shape for key, x in arrays.items()}
    pm = compiled(model, backend, arrays, shapes=shapes, autodiff=autodiff)
    given = {key: backend.array(x) for key, x in arrays.items()}
    at = {key: backend.array(x) for key, x in cotangents.items()}
    found = pm.evaluate({}, given, output_gradients=at, wrt=list(arrays)).gradients
    return {key: np.asarray(backend.to_numpy(x)) for key, x in found.items()}


def matrices(n, dtype, batch=(3,), seed=0):
    random = np.random.default_rng(seed)
    return (random.standard_normal((*batch, n, n)) + 2 * np.sqrt(n) * np.eye(n)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 33, 100])
def test_results_have_their_defining_property(n, dtype, backend_name):
    bound = n * (3e-5 if dtype == "float32" else 1e-13)
    a = matrices(n, dtype)
    spd = a @ np.swapaxes(a, -1, -2) / n + np.eye(n, dtype=dtype)
    right = np.random.default_rng(1).standard_normal((3, n, 5)).astype(dtype)
    backend = ml.get_backend(backend_name, dtype=dtype)
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


@pytest.mark.parametrize("n", [0, 1, 2, 5, 40])
def test_determinants_are_those_of_numpy(n, backend_name):
    backend = ml.get_backend(backend_name, dtype="float64")
    a = matrices(n, "float64")
    a[0, : n // 2] = a[0, : n // 2][::-1].copy()  # rows change places
    got = run(ml.Determinant(), backend, input=a)["output"]
    np.testing.assert_allclose(got, np.linalg.det(a), rtol=1e-10)
    assert run(ml.Determinant(), backend, input=np.ones((2, 2)))["output"] == 0.0


def test_a_matrix_that_needs_exchanges_of_rows(backend_name):
    backend = ml.get_backend(backend_name, dtype="float64")
    a = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 3.0], [4.0, 0.0, 0.0]])
    y = run(ml.Solve(), backend, matrix=a, right=np.array([[2.0], [6.0], [4.0]]))["output"]
    np.testing.assert_array_equal(y, [[1.0], [1.0], [2.0]])
    assert run(ml.Determinant(), backend, input=a)["output"] == pytest.approx(24.0)


def test_diagonal_and_equal_eigenvalues(backend_name):
    backend = ml.get_backend(backend_name, dtype="float64")
    got = run(ml.Eigh(), backend, input=np.diag([3.0, 1.0, 2.0]))
    np.testing.assert_array_equal(got["values"], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(got["vectors"], np.eye(3)[:, [1, 2, 0]])
    same = run(ml.Eigh(), backend, input=2 * np.eye(4))
    np.testing.assert_array_equal(same["values"], [2.0] * 4)


@pytest.mark.parametrize("autodiff", ["engine", "framework"])
def test_equal_values_have_gradients_without_vectors(autodiff, backend_name):
    """The sum of eigenvalues is the trace; that of singular values has the slope u vt."""
    if autodiff == "framework" and backend_name in ("numpy", "cpu", "c"):
        pytest.skip(f"{backend_name} has no gradients of its own")
    backend, ones = ml.get_backend(backend_name, dtype="float64"), {"values": np.ones(3)}
    for op, x, slope in (
        (ml.Eigh, 2 * np.eye(3), np.eye(3)),
        (ml.SVD, np.diag([2.0, 2.0, -2.0]), np.diag([1.0, 1.0, -1.0])),
        (ml.SVD, np.eye(5, 3), np.eye(5, 3)),
    ):
        got = gradients(op(), backend, ones, autodiff, input=x)["input"]
        np.testing.assert_allclose(got, slope, atol=1e-15)


SINGULAR = np.stack([np.eye(2), np.ones((2, 2))])
INDEFINITE = np.stack([np.eye(2), np.array([[1.0, 2.0], [2.0, 1.0]])])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_matrices_without_a_result_are_named(dtype, backend_name):
    backend = ml.get_backend(backend_name, dtype=dtype)
    bad, right = SINGULAR.astype(dtype), np.ones((2, 2, 1), dtype)
    good = INDEFINITE.astype(dtype)[:1]
    np.testing.assert_array_equal(run(ml.Cholesky(), backend, input=good)["output"], good)
    if backend_name in SILENT:
        y = run(ml.Solve(), backend, matrix=bad, right=right)["output"]
        lower = run(ml.Cholesky(), backend, input=INDEFINITE.astype(dtype))["output"]
        assert np.isfinite(y).all((1, 2)).tolist() == [True, False]
        assert np.isfinite(lower).all((1, 2)).tolist() == [True, False]
        return
    with pytest.raises(ArgumentError, match="cholesky.*not positive definite"):
        run(ml.Cholesky(), backend, input=INDEFINITE.astype(dtype))
    with pytest.raises(ArgumentError, match="solve.*singular"):
        run(ml.Solve(), backend, matrix=bad, right=right)
    with pytest.raises(ArgumentError, match="singular"):
        run(ml.Inverse(), backend, input=bad)


def test_nan_stays_where_it_is(backend_name):
    a = matrices(3, "float64")
    a[1, 0, 0] = np.nan
    got = run(ml.Determinant(), ml.get_backend(backend_name, dtype="float64"), input=a)["output"]
    assert np.isnan(got).tolist() == [False, True, False]


def test_singular_values_and_vectors_of_nan_are_nan(backend_name):
    a = matrices(4, "float64", batch=(2,))
    a[1, 2, 1] = np.nan
    for found in run(ml.SVD(), ml.get_backend(backend_name, dtype="float64"), input=a).values():
        assert np.isfinite(found[0]).all() and np.isnan(found[1]).all()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("lower", [True, False])
def test_a_zero_on_the_diagonal_spoils_what_is_solved_after_it(lower, turned, backend_name):
    backend = ml.get_backend(backend_name, dtype="float64")
    half = np.tril(matrices(4, "float64", ())) if lower else np.triu(matrices(4, "float64", ()))
    half[2, 2] = 0.0
    op = ml.SolveTriangular(lower=lower, transposed=turned)
    y = run(op, backend, matrix=half, right=np.ones((4, 2)))["output"]
    expected = [True, True, False, False] if lower != turned else [False, False, False, True]
    assert np.isfinite(y).all(-1).tolist() == expected


RANKS = {
    "rank 2": np.array([[1.0, 2, 3], [2, 4, 6], [1, 0, 1]]),
    "rank 1": np.outer([1.0, 2, 3], [4.0, 5, 6]),
    "zeros": np.zeros((3, 3)),
    "regular": np.array([[2.0, -1, 0], [1, 3, 1], [0, 4, -2]]),
    "reflection": np.diag([1.0, -1, 1]),
    "zeros first": np.array([[0.0, 0, 0], [0, 0, 1], [5, 0, 0]]),
}


def minors(x):
    """Cofactors of 3 x 3 matrices, by the definition."""
    out = np.empty_like(x)
    for i in range(3):
        for j in range(3):
            (a, b), (c, d) = np.delete(np.delete(x, i, 0), j, 1)
            out[i, j] = (-1) ** (i + j) * (a * d - b * c)
    return out


def modes(backend_name):
    return ["engine"] if backend_name in ("numpy", "cpu", "c") else ["engine", "framework"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_of_determinants_are_cofactors(dtype, backend_name):
    backend = ml.get_backend(backend_name, dtype=dtype)
    x = np.stack(list(RANKS.values())).astype(dtype)
    slope = np.arange(1.0, 1 + len(x)).astype(dtype)
    want = np.stack([g * minors(a.astype("f8")) for g, a in zip(slope, x, strict=True)])
    bound = 1e-4 if dtype == "float32" else 1e-12
    for autodiff in modes(backend_name):
        got = gradients(ml.Determinant(), backend, {"output": slope}, autodiff, input=x)["input"]
        np.testing.assert_allclose(got, want, atol=bound, err_msg=autodiff)


@pytest.mark.frameworks
@pytest.mark.parametrize("which", [which for which in RANKS if which != "zeros"])  # NaN there
def test_pytorchs_own_second_derivatives_of_determinants(which):
    torch = pytest.importorskip("torch")
    from mithril.backends.with_autograd.torch_backend.linalg import det

    x, direction = RANKS[which], np.random.default_rng(0).standard_normal((3, 3))
    leaf = torch.tensor(x, requires_grad=True)
    (slope,) = torch.autograd.grad(det(leaf), leaf, create_graph=True)
    (got,) = torch.autograd.grad((slope * torch.tensor(direction)).sum(), leaf)
    step = 1e-3
    want = (minors(x + step * direction) - minors(x - step * direction)) / (2 * step)
    np.testing.assert_allclose(got, want, atol=1e-8)


@pytest.mark.frameworks
def test_determinants_under_pytorchs_transforms():
    torch = pytest.importorskip("torch")
    from mithril.backends.with_autograd.torch_backend.linalg import det

    x = torch.tensor(matrices(3, "float64", (4,)))
    func, want = torch.func, torch.linalg.det(x)[:, None, None] * torch.linalg.inv(x).mT
    leaf = x.clone().requires_grad_()
    for slope in (
        func.grad(lambda a: det(a).sum())(x),
        func.vmap(func.grad(det))(x),
        torch.stack([func.jacfwd(det)(one) for one in x]),
        func.vmap(func.jacrev(det))(leaf).detach(),
        torch.autograd.grad(torch.compile(det, backend="eager")(leaf).sum(), leaf)[0],
    ):
        torch.testing.assert_close(slope, want)
    assert func.hessian(det)(x[0]).shape == (3, 3, 3, 3)


@pytest.mark.parametrize("n", [1, 2, 4, 30])
def test_cofactors_of_larger_matrices(n, backend_name):
    """Of rank n - 1 they are one number times the outer product of the two null vectors."""
    backend = ml.get_backend(backend_name, dtype="float64")
    a = matrices(n, "float64", ()) / np.sqrt(n)
    regular = gradients(ml.Determinant(), backend, {"output": np.ones(())}, "engine", input=a)
    want = np.linalg.det(a) * np.linalg.inv(a).T
    np.testing.assert_allclose(regular["input"], want, rtol=1e-9, atol=1e-12 * abs(want).max())
    if n == 1:
        return
    a[-1] = a[:-1].sum(0)  # its left null vector is (1, ..., 1, -1)
    got = gradients(ml.Determinant(), backend, {"output": np.ones(())}, "engine", input=a)["input"]
    scale = abs(got).max()
    assert scale > 1e-6
    np.testing.assert_allclose(got @ a.T, 0, atol=1e-10 * scale)
    np.testing.assert_allclose(got[:-1], np.broadcast_to(-got[-1], (n - 1, n)), atol=1e-10 * scale)
    last = np.linalg.det(np.delete(np.delete(a, 0, 0), 0, 1))  # of the first place
    np.testing.assert_allclose(got[0, 0], last, rtol=1e-8, atol=1e-12 * scale)


@pytest.mark.parametrize("which", RANKS)
def test_second_derivatives_of_determinants(which, backend_name):
    """The derivative along a direction, of cofactors along another: a determinant is linear in
    each row, so a difference of cofactors is exact up to rounding."""
    backend = ml.get_backend(backend_name, dtype="float64")
    x, rng = RANKS[which], np.random.default_rng(0)
    direction = rng.standard_normal((3, 3))
    model = ml.Model()
    model |= ml.Determinant()(input="x", output="det")
    model |= ml.Gradient()(of="det", wrt="x", output="slope")
    model |= ml.Multiply()(left="slope", right="v", output="along")
    model |= ml.Sum()(input="along", output="y")
    shapes = {"x": [3, 3], "v": [3, 3]}
    pm = ml.compile(model, backend, data_keys={"x", "v"}, shapes=shapes, autodiff="engine")
    data = {"x": backend.array(x), "v": backend.array(direction)}
    one = {"y": backend.array(np.ones(()))}
    found = pm.evaluate({}, data, output_gradients=one, wrt=["x"]).gradients["x"]
    got = np.asarray(backend.to_numpy(found))
    step = 1e-3
    want = (minors(x + step * direction) - minors(x - step * direction)) / (2 * step)
    np.testing.assert_allclose(got, want, atol=1e-9)


def test_upper_factors(backend_name):
    backend = ml.get_backend(backend_name, dtype="float64")
    a = matrices(4, "float64")
    spd = a @ np.swapaxes(a, -1, -2) + np.eye(4)
    lower = run(ml.Cholesky(), backend, input=spd)["output"]
    upper = run(ml.Cholesky(upper=True), backend, input=spd)["output"]
    np.testing.assert_allclose(upper, np.swapaxes(np.linalg.cholesky(spd), -1, -2), atol=1e-12)
    slope = np.random.default_rng(3).standard_normal(lower.shape)
    plain = gradients(ml.Cholesky(), backend, {"output": slope}, "engine", input=spd)["input"]
    turned = {"output": np.swapaxes(slope, -1, -2)}
    for autodiff in modes(backend_name):
        got = gradients(ml.Cholesky(upper=True), backend, turned, autodiff, input=spd)["input"]
        np.testing.assert_allclose(got, plain, atol=1e-10)
