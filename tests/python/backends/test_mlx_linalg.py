"""MLX ends the process where LAPACK refuses a matrix: no matrix may, tried in other processes.

What is expected is that of the other backends, counted by hand; slopes are central differences.
"""

import subprocess
import sys

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core")
pytestmark = pytest.mark.frameworks


def lines_of(script, *arguments):
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# One letter for each matrix: "+" a result without NaN or infinities, "-" one with, "e" an error.
PROBE = """
import sys
import mithril as ml
import numpy as np
from mithril.errors import ArgumentError

NAN, INF = np.nan, np.inf
MATRICES = np.array([
    [[2, 1], [1, 3]], [[1, 1], [1, 1]], [[0, 0], [0, 0]],
    [[2, NAN], [NAN, 3]], [[2, INF], [INF, 3]], [[1, 2], [2, 1]],
])
backend = ml.MlxBackend(dtype=sys.argv[1])

def outcome(op, x, jit):
    model = ml.Model()
    model |= op.connect(**{k: k for k in [*inputs_of(op), *op._node.output_keys]})
    data = {k: x for k in inputs_of(op)}
    pm = ml.compile(model, backend, data_keys=set(data), shapes={k: x.shape for k in data},
                    jit=jit, autodiff="framework")
    try:
        outputs = {k: backend.to_numpy(y) for k, y in pm.evaluate({}, data).items()}
    except ArgumentError:
        return "e"
    at = {k: np.ones(y.shape) for k, y in outputs.items()}
    try:
        gradients = pm.evaluate({}, data, output_gradients=at, wrt=list(data)).gradients
    except ArgumentError:
        assert type(op).__name__ == "Determinant"
        gradients = {}
    assert all(g.shape == x.shape for g in gradients.values())
    if not x.size:
        return ""
    finite = [np.isfinite(y).reshape(len(x), -1).all(-1) for y in outputs.values()]
    return "".join("-+"[int(all(f))] for f in zip(*finite))

def inputs_of(op):
    return [k for k in op._node.input_keys if k in ("input", "matrix", "right")]

for name in ("Cholesky", "Solve", "Inverse", "SolveTriangular", "Determinant", "Eigh", "QR", "SVD"):
    op = getattr(ml, name)
    line = "".join(outcome(op(), x[None], False) for x in MATRICES)
    jit = outcome(op(), MATRICES, True)
    for shape in ((0, 0), (0, 2, 2), (2, 0, 0)):
        outcome(op(), np.zeros(shape), False)
    print(name, line, jit)
"""

# Line by line and one at a time, then compiled and in one batch: a good matrix, singular, zero,
# NaN, infinity, indefinite.
OUTCOMES = {
    "Cholesky": ("+eeeee", "+-----"),
    "Solve": ("+ee--+", "+----+"),
    "Inverse": ("+ee--+", "+----+"),
    "SolveTriangular": ("++---+", "++---+"),
    "Determinant": ("+++--+", "+++--+"),
    "Eigh": ("+++--+", "+++--+"),
    "QR": ("+++--+", "+++--+"),
    "SVD": ("+++--+", "+++--+"),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_matrix_ends_the_process(dtype):
    found = {name: (eager, jit) for name, eager, jit in map(str.split, lines_of(PROBE, dtype))}
    assert found == OUTCOMES


# LAPACK's eigenvalues of the first do not converge without a scale, and of one matrix of one
# element MLX's factors have the wrong size.
EXTREMES = """
import mlx.core as mx
import numpy as np
from mithril.backends.with_autograd.mlx_backend import linalg

wide = np.array([
    [-5.61655294e-092, -4.12622850e+256, -5.17150675e-060, -5.32888148e+062],
    [-4.12622850e+256, 1.08940961e-060, -3.66622816e+058, 4.63341210e-189],
    [-5.17150675e-060, -3.66622816e+058, 5.92100208e-279, 1.98306673e-011],
    [-5.32888148e+062, 4.63341210e-189, 1.98306673e-011, -1.61081921e+071],
])
values = np.array(linalg.eigh(mx.array(wide, mx.float64))[0])
print(np.allclose(values / 4.12622850e256, [-1, 0, 0, 1], atol=1e-12))
for exponent in (-1070, -500, 1000):
    values = np.array(linalg.svd(mx.array(np.diag([3.0, 1.0]) * 2.0**exponent, mx.float64))[1])
    print(values.tolist() == [3 * 2.0**exponent, 2.0**exponent])
one = mx.array([[4.0]], mx.float64)
slopes = mx.grad(lambda x: linalg.det(x) + linalg.solve(x, one + x).sum())
results = [slopes(one).item() for _ in range(300)]
kept = [np.zeros(n) for n in range(300)]
print(set(results) == {1 - 4 / 16})
"""


def test_very_large_and_very_small_numbers():
    assert lines_of(EXTREMES) == ["True"] * 5


# ----------------------------------------------------------------- derivatives along a direction

RANDOM = np.random.default_rng(0)
SQUARE = RANDOM.standard_normal((3, 3)) * 0.3 + 2 * np.eye(3)
LONG = RANDOM.standard_normal((3, 2))
OPS = {
    "cholesky": [SQUARE],
    "solve": [SQUARE, LONG],
    "solve_triangular": [SQUARE, LONG],
    "det": [SQUARE],
    "eigh": [SQUARE],
    "qr": [SQUARE],
    "qr, long": [LONG],
    "qr, wide": [LONG.T],
    "svd": [SQUARE],
    "svd, long": [LONG],
    "svd, wide": [LONG.T],
}


def listed(x):
    return list(x) if isinstance(x, tuple) else [x]


def function(case):
    from mithril.backends.with_autograd.mlx_backend import linalg

    op = getattr(linalg, case.partition(",")[0])
    return lambda *arrays: listed(op(*arrays))


def on_mlx(arrays):
    return [mx.array(x, mx.float64) for x in arrays]


def drawn(arrays, seed):
    random = np.random.default_rng(seed)
    return [random.standard_normal(x.shape) for x in arrays]


def slopes(f, at, along, step=1e-6):
    """Of the results of f along a direction, by central differences."""
    above, below = (
        f(*on_mlx([x + s * d for x, d in zip(at, along, strict=True)])) for s in (step, -step)
    )
    pairs = zip(above, below, strict=True)
    return [(np.array(high) - np.array(low)) / (2 * step) for high, low in pairs]


@pytest.mark.parametrize("case", OPS)
def test_forward_and_second_derivatives_are_slopes(case):
    f, at = function(case), OPS[case]
    weights = on_mlx(drawn(f(*on_mlx(at)), 1))
    along = drawn(at, 2)

    def gradient(*arrays):
        return mx.vjp(f, arrays, weights)[1]

    _, moved = mx.jvp(f, on_mlx(at), on_mlx(along))
    _, twice = mx.vjp(gradient, on_mlx(at), on_mlx(along))  # the second derivative is symmetric
    for got, wanted in zip(moved, slopes(f, at, along), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-8)
    for got, wanted in zip(twice, slopes(gradient, at, along), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-6)


@pytest.mark.parametrize("case", ["cholesky", "solve_triangular", "eigh", "svd"])
def test_maps_are_batches(case):
    f, at = function(case), on_mlx(OPS[case])
    batch = mx.stack([at[0], 2 * at[0], at[0] + 0.5], -1)
    mapped = mx.vmap(f, in_axes=(2, *[None] * (len(at) - 1)))(batch, *at[1:])
    for i in range(3):
        for got, wanted in zip(mapped, f(batch[..., i], *at[1:]), strict=True):
            np.testing.assert_allclose(got[i], wanted, rtol=1e-12)
