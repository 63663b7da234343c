# Covers: backends/cpu/structured/lapack.cc backends/cpu/structured/lapack_kernels.cc
# Covers: backends/cpu/structured/openblas_slot.cc backends/cpu/structured/eigen_kernels.cc
"""Linear algebra of large matrices, which is LAPACK's, and of small ones, some of which is Eigen's:
values against NumPy's in float64, the canonical kernels beside them, matrices without a result,
interrupts, the end of the process.
"""

import os
import subprocess
import sys

import mithril as ml
import numpy as np
import pytest
from formats.loading import SANITIZED
from mithril.errors import ArgumentError, UnsupportedError

pytestmark = pytest.mark.device


def matrix(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def positive(n, batch=()):
    a = matrix(*batch, n, n)
    return a @ np.swapaxes(a, -1, -2) / n + np.eye(n)


def with_positive_diagonal(q, r):
    signs = np.sign(np.diagonal(r, axis1=-2, axis2=-1))
    return q * signs[..., None, :], r * signs[..., :, None]


def with_positive_largest(vectors, *others):
    """Columns whose component of the largest magnitude is positive, and what else turns."""
    at = np.argmax(np.abs(vectors), axis=-2)[..., None, :]
    signs = np.sign(np.take_along_axis(vectors, at, axis=-2))
    return (vectors * signs, *(other * np.swapaxes(signs, -1, -2) for other in others))


def svd(a):
    u, s, vt = np.linalg.svd(a, full_matrices=False)
    u, vt = with_positive_largest(u, vt)
    return {"u": u, "s": s, "vt": vt}


def eigh(a):
    values, vectors = np.linalg.eigh(a)
    return {"values": values, "vectors": with_positive_largest(vectors)[0]}


def slogdet(a):
    sign, value = np.linalg.slogdet(a)
    return {"sign": sign, "logabsdet": value}


# Layer, arrays, wanted by key in the order of the layer's outputs, and the kernel's name.
CASES = {
    "cholesky": (ml.Cholesky, [positive(150, (2,))], lambda a: [np.linalg.cholesky(a)]),
    "solve": (ml.Solve, [matrix(300, 300), matrix(300, 7, seed=1)],
              lambda a, b: [np.linalg.solve(a, b)]),
    "solve_triangular": (ml.SolveTriangular, [np.tril(positive(300)), matrix(300, 4)],
                         lambda a, b: [np.linalg.solve(a, b)]),
    "det": (ml.Determinant, [matrix(2, 130, 130) / 9], lambda a: [np.linalg.det(a)]),
    "scaled_det": (ml.SlogDet, [matrix(2, 300, 300)], lambda a: [*np.linalg.slogdet(a)]),
    "eigh": (ml.Eigh, [positive(60, (3,))], lambda a: [*eigh(a).values()]),
    "eigh small": (ml.Eigh, [positive(20, (2, 3))], lambda a: [*eigh(a).values()]),
    "eigh least": (ml.Eigh, [positive(6, (5,))], lambda a: [*eigh(a).values()]),
    "column": (ml.SolveTriangular, [np.tril(positive(40, (3,))), matrix(3, 40, 1)],
               lambda a, b: [np.linalg.solve(a, b)]),
    "column, upper": (lambda: ml.SolveTriangular(lower=False),
                      [np.triu(positive(16)), matrix(16, 1)],
                      lambda a, b: [np.linalg.solve(a, b)]),
    "qr": (ml.QR, [matrix(2, 90, 40)], lambda a: [*with_positive_diagonal(*np.linalg.qr(a))]),
    "qr wide": (ml.QR, [matrix(40, 90)], lambda a: [*with_positive_diagonal(*np.linalg.qr(a))]),
    "svd": (ml.SVD, [matrix(2, 70, 30)], lambda a: [*svd(a).values()]),
    "svd wide": (ml.SVD, [matrix(30, 70)], lambda a: [*svd(a).values()]),
}  # fmt: skip

LIBRARIES = (".lapack", ".eigen")


def compiled(layer, arrays, dtype="float64", **options):
    layer = layer()
    keys = [*layer.input_keys][: len(arrays)]
    outer = ml.Model()
    outer |= layer.connect(**{key: key for key in (*keys, *layer._node.output_keys)})
    backend = ml.CpuBackend(dtype=dtype, threads=options.pop("threads", None))
    data = dict(zip(keys, (np.asarray(a, dtype) for a in arrays), strict=True))
    return ml.compile(outer, backend, data_keys=set(keys), inference=True, **options), data


def kernels(pm, data):
    shapes = {key: x.shape for key, x in data.items()}
    return [step.kernel for step in pm.explain(shapes=shapes).steps]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_numpy(name, dtype):
    layer, arrays, wanted = CASES[name]
    pm, data = compiled(layer, arrays, dtype)
    exact = wanted(*(x.astype(np.float64) for x in data.values()))
    bound = 2e-3 if dtype == "float32" else 2e-10
    for got, want in zip(pm.evaluate({}, data).values(), exact, strict=True):
        assert got.dtype == np.dtype(dtype)
        np.testing.assert_allclose(got, want, rtol=bound, atol=bound * np.abs(want).max())


@pytest.mark.parametrize("name", CASES)
def test_canonical_kernels_take_its_place_where_they_are_wanted(name):
    layer, arrays, _ = CASES[name]
    pm, data = compiled(layer, arrays)
    portable, _ = compiled(layer, arrays, deterministic="portable")
    assert any(kernel.endswith(LIBRARIES) for kernel in kernels(pm, data))
    assert not any(kernel.endswith(LIBRARIES) for kernel in kernels(portable, data))
    results = zip(pm.evaluate({}, data).values(), portable.evaluate({}, data).values(), strict=True)
    for got, want in results:
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * np.abs(want).max())


def test_small_matrices_have_canonical_kernels():
    pm, data = compiled(ml.Cholesky, [positive(20)])
    assert kernels(pm, data) == ["cholesky"]


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("spoilt", ["zero pivot", "infinite element", "NaN aside", "NaN column"])
def test_columns_of_triangles_follow_ieee_rules(lower, spoilt):
    """Eigen leaves out products with zeros: 0 / 0 and 0 * inf would be 0."""
    a, b = positive(20, (2,)), matrix(2, 20, 1)
    a = np.tril(a) if lower else np.triu(a)
    first, last = (0, 19) if lower else (19, 0)
    b[0, first] = 0
    if spoilt == "zero pivot":
        a[0, first, first] = 0
    if spoilt == "infinite element":
        a[0, last, first] = np.inf
    if spoilt == "NaN aside":
        a[0, first, last] = np.nan
    if spoilt == "NaN column":
        b[0, 7] = np.nan
    layer = lambda: ml.SolveTriangular(lower=lower)  # noqa: E731
    pm, data = compiled(layer, [a, b])
    assert kernels(pm, data) == ["solve_triangular.eigen"]
    portable, _ = compiled(layer, [a, b], deterministic="portable")
    (got,), (want,) = pm.evaluate({}, data).values(), portable.evaluate({}, data).values()
    np.testing.assert_array_equal(got[0], want[0])
    assert np.isnan(got[0]).any() == (spoilt != "NaN aside")
    np.testing.assert_allclose(got[1], np.linalg.solve(a[1], b[1]), rtol=1e-12)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("columns", [0, 256, 257, 600])
def test_triangular_solutions_by_columns(lower, columns, capfd):
    """Parts of the right-hand side, which threads share, give the bits of one thread."""
    triangle = np.tril(positive(300, (2,)))
    a = triangle if lower else np.swapaxes(triangle, -1, -2)
    b = matrix(2, 300, columns)
    layer = lambda: ml.SolveTriangular(lower=lower)  # noqa: E731
    got = []
    for threads in (1, 2):
        pm, data = compiled(layer, [a, b], threads=threads)
        assert kernels(pm, data) == ["solve_triangular.lapack"]
        got += pm.evaluate({}, data).values()
    np.testing.assert_array_equal(got[0], got[1])
    np.testing.assert_allclose(got[0], np.linalg.solve(a, b), rtol=1e-9, atol=1e-12)
    assert capfd.readouterr() == ("", "")  # LAPACK would print what it does not take


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-40, 1e30])
def test_small_eigenvalues_of_any_scale(scale):
    a = (positive(9, (2,)) * scale).astype(np.float32)
    a[1] = np.eye(9) * scale
    pm, data = compiled(ml.Eigh, [a], "float32")
    assert kernels(pm, data) == ["eigh.eigen"]
    values, vectors = pm.evaluate({}, data).values()
    want = np.linalg.eigvalsh(a.astype(np.float64))
    np.testing.assert_allclose(values, want, rtol=1e-5, atol=1e-6 * np.abs(want).max())
    product = np.swapaxes(vectors, -1, -2) @ vectors
    np.testing.assert_allclose(product, np.broadcast_to(np.eye(9), (2, 9, 9)), atol=1e-5)
    a[0, 3, 5] = np.nan
    values, vectors = pm.evaluate({}, {next(iter(data)): a}).values()
    assert np.isnan(values[0]).all() and np.isnan(vectors[0]).all()
    assert np.isfinite(values[1]).all()


def test_which_determinism_there_is():
    with pytest.raises(ArgumentError, match='deterministic: requires "portable" or None, got True'):
        ml.compile(ml.Relu(), ml.CpuBackend(), deterministic=True)
    with pytest.raises(UnsupportedError, match="deterministic: NumpyBackend computes in orders"):
        ml.compile(ml.Relu(), ml.NumpyBackend(), deterministic="portable")


def test_any_number_of_threads_has_the_same_bits():
    results = []
    for threads in (1, 2):
        pm, data = compiled(ml.SVD, [matrix(9, 50, 40)], threads=threads)
        results.append([x.tobytes() for x in pm.evaluate({}, data).values()])
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("layer", "told"),
    [(ml.Cholesky, "^cholesky: a matrix is not positive"), (ml.Solve, "^solve: a matrix is sing")],
)
def test_matrices_without_a_result_are_errors(layer, told):
    arrays = [positive(300, (3,))] + ([matrix(3, 300, 2)] if layer is ml.Solve else [])
    pm, data = compiled(layer, arrays)
    first = next(iter(data))
    data[first] = data[first].copy()
    data[first][1, 5] = data[first][1, :, 5] = 0
    with pytest.raises(ArgumentError, match=told):
        pm.evaluate({}, data)
    data[first] = positive(300, (3,))
    assert all(np.isfinite(x).all() for x in pm.evaluate({}, data).values())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("deterministic", [None, "portable"])
@pytest.mark.parametrize("name", ["eigh", "svd", "svd wide"])
def test_results_of_what_is_not_finite_are_nan(name, deterministic, bad):
    layer, arrays, _ = CASES[name]
    x = np.stack([arrays[0].reshape(-1, *arrays[0].shape[-2:])[0]] * 2)
    x[0, 3, 3] = bad
    pm, data = compiled(layer, [x], deterministic=deterministic)
    for got in pm.evaluate({}, data).values():
        assert np.isnan(got[0]).all() and np.isfinite(got[1]).all()


@pytest.mark.parametrize("scale", [0.0, 1e-37, 1e-20, 1e20, 1e36])
def test_scales_and_ranks_of_singular_values(scale):
    """In float32, near the ends of its range, and of rank 3."""
    a = (matrix(60, 3) @ matrix(3, 40, seed=1) * scale).astype(np.float32)
    pm, data = compiled(ml.SVD, [a], "float32")
    got = pm.evaluate({}, data)
    wanted = np.linalg.svd(a.astype(np.float64), compute_uv=False)
    np.testing.assert_allclose(got["values"], wanted, rtol=1e-4, atol=1e-5 * max(wanted[0], 1e-44))
    np.testing.assert_allclose(got["u"].T @ got["u"], np.eye(40), atol=1e-4)
    np.testing.assert_allclose(got["vt"] @ got["vt"].T, np.eye(40), atol=1e-4)


def test_gradients_go_on_from_its_results():
    """Of the sum of the cubes of singular values, which is 3 u diag(s^2) vt."""
    a = matrix(40, 40)
    model = ml.Model()
    model |= ml.SVD()(input="x", values="s")
    model |= ml.Sum()(input=model.s**3, output="y")
    model.expose_keys("y")
    options = {"trainable_keys": {"x"}, "shapes": {"x": [40, 40]}}
    pm = ml.compile(model, ml.CpuBackend(dtype="float64"), **options)
    found = pm.evaluate({"x": a}, {}, output_gradients={"y": np.array(1.0)}).gradients["x"]
    u, s, vt = np.linalg.svd(a)
    np.testing.assert_allclose(found, 3 * (u * s**2) @ vt, atol=1e-9)


def run_apart(code, timeout=120):
    """What a process of its own prints."""
    start = """
import os, resource, signal, sys, threading, time
import numpy as np, mithril as ml
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell
def compiled(n):
    pm = ml.compile(ml.SVD(), ml.CpuBackend(), data_keys={"input"}, inference=True)
    return pm, {"input": np.random.default_rng(0).random((n, n), dtype=np.float32)}
def interrupted(wait, work):
    timer = threading.Timer(wait, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    try:
        work()
        time.sleep(1)
        return False
    except KeyboardInterrupt:
        return time.monotonic() - start - wait
"""
    done = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True,
                          timeout=timeout, env=dict(os.environ))  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout.split()


def test_an_interrupt_leaves_a_call_behind_and_the_process_ends_all_the_same():
    wait, right, took = run_apart("""
few, small = compiled(30)
pm, data = compiled(5000)
first = few.evaluate({}, small)
print(interrupted(0.3, lambda: pm.evaluate({}, data)))
start = time.monotonic()
again = few.evaluate({}, small)
print(all(np.array_equal(first[key], again[key]) for key in first))
print(time.monotonic() - start)
""")
    assert wait != "False" and float(wait) < 2
    assert right == "True"
    assert float(took) < 5


def test_calls_that_were_left_behind_are_few():
    assert run_apart("""
pm, data = compiled(3000)
def threads():
    return len(os.listdir("/proc/self/task"))
before = threads()
waits = [interrupted(0.1, lambda: pm.evaluate({}, data)) for _ in range(9)]
print(all(wait is not False and wait < 2 for wait in waits), threads() - before <= 6)
""") == ["True", "True"]


def test_a_child_of_a_fork_goes_on():
    assert run_apart("""
pm, data = compiled(400)
pm.evaluate({}, data)
child = os.fork()
if child == 0:
    pm, data = compiled(400)
    pm.evaluate({}, data)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""") == ["7"]


def test_a_child_has_none_of_the_calls_that_were_left_behind():
    assert run_apart("""
pm, data = compiled(3000)
print(interrupted(0.2, lambda: pm.evaluate({}, data)) is not False)
sys.stdout.flush()
child = os.fork()
if child == 0:
    for _ in range(5):  # they would be waited for
        interrupted(0.2, lambda: pm.evaluate({}, data))
    sys.exit(7)  # by the handlers of exit, unlike os._exit
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""") == ["True", "7"]


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer ends a process without memory of its own")
@pytest.mark.parametrize("free", [2, 20, 30])  # MiB; OpenBLAS ends the process without its buffer
def test_memory_that_is_short_is_an_error(free):
    (told,) = run_apart(f"""
pm, data = compiled(100)
pm.explain(shapes={{"input": (100, 100)}})  # opens OpenBLAS
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {free} * 2**20, resource.RLIM_INFINITY))
try:
    pm.evaluate({{}}, data)
    print("done")
except ml.errors.OutOfMemoryError:
    print("told")
""")
    assert told == "told"
