# Covers: mithril/eager/traced.py mithril/eager/recording.py
"""Derivatives and maps of Python functions, and compiled models as functions, on every backend.

What is right is computed by hand, in float64.
"""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, KeyNotFound, TraceError, UnsupportedError

A = np.array([0.5, -1.0, 2.0])
B = np.array([1.5, 0.25, -0.5])


@pytest.fixture
def backend(backend_name):
    return ml.get_backend(backend_name, dtype="float32" if backend_name == "mlx" else "float64")


def near(backend, got, want):
    bound = 1e-5 if backend.default_dtype == "float32" else 1e-12
    got = np.asarray(backend.to_numpy(got))
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=bound, atol=bound)


def test_gradients_of_an_array(backend):
    def function(x):
        return backend.sum(backend.power(x, 3))

    x = backend.array(A)
    near(backend, backend.grad(function)(x), 3 * A**2)
    value, gradient = backend.value_and_grad(function)(x)
    near(backend, value, np.sum(A**3))
    near(backend, gradient, 3 * A**2)


def test_gradients_by_the_first_of_several_arguments(backend):
    slope = backend.grad(lambda a, b: backend.sum(a * a * b))
    near(backend, slope(backend.array(A), backend.array(B)), 2 * A * B)


def test_gradients_of_a_nest(backend):
    params = {"w": backend.array(A), "rest": [backend.array(B), backend.array(2.0)]}

    def function(p):
        return backend.sum(backend.sin(p["w"]) * p["rest"][0]) * p["rest"][1]

    value, gradient = backend.value_and_grad(function)(params)
    near(backend, value, 2 * np.sum(np.sin(A) * B))
    assert set(gradient) == {"w", "rest"} and isinstance(gradient["rest"], list)
    near(backend, gradient["w"], 2 * np.cos(A) * B)
    near(backend, gradient["rest"][0], 2 * np.sin(A))
    near(backend, gradient["rest"][1], np.sum(np.sin(A) * B))


def test_pull_backs(backend):
    a, b, g = (backend.array(v) for v in (A, B, A + B))
    output, gradients, aux = backend.vjp(lambda x, y: x * y, [a, b], cotangents=g)
    near(backend, output, A * B)
    near(backend, gradients[0], B * (A + B))
    near(backend, gradients[1], A * (A + B))
    assert aux == []
    output, gradients, aux = backend.vjp(
        lambda d: {"p": d["a"] * d["b"]}, {"a": a, "b": b}, cotangents={"p": g}
    )
    near(backend, output["p"], A * B)
    near(backend, gradients["b"], A * (A + B))
    assert aux == {}
    output, pull_back, aux = backend.vjp(lambda x: (x * x, backend.sum(x)), a, has_aux=True)
    near(backend, pull_back(g), 2 * A * (A + B))
    near(backend, aux, A.sum())


def test_derivatives_along_a_direction(backend):
    a, b, t = (backend.array(v) for v in (A, B, A - B))
    output, moved = backend.jvp(lambda x: backend.sin(x) * x, a, t)
    near(backend, output, np.sin(A) * A)
    near(backend, moved, (np.cos(A) * A + np.sin(A)) * (A - B))
    output, moved = backend.jvp(lambda x, y: x * y, [a, b], [t, a])
    near(backend, moved, B * (A - B) + A * A)


def test_maps_over_rows(backend):
    rows = np.stack([A, B])
    mapped = backend.vmap(lambda x: backend.sum(x * x))
    near(backend, mapped(backend.array(rows)), np.sum(rows**2, 1))
    mapped = backend.vmap(lambda x, y: x * y)
    near(backend, mapped(backend.array(rows), backend.array(rows[::-1].copy())), rows * rows[::-1])


def test_jacobians(backend):
    x = backend.array(A)
    want = [[A[2], 0.0, A[0]], [0.0, A[2], A[1]]]
    for jacobian in (backend.jacrev, backend.jacfwd, backend.jacobian):
        near(backend, jacobian(lambda v: v[:2] * v[2])(x), want)


@pytest.mark.device
@pytest.mark.parametrize("backend_class", [ml.NumpyBackend, ml.CpuBackend])
def test_what_cannot_be_recorded_is_told(backend_class):
    backend = backend_class()
    x = backend.array(A)
    with pytest.raises(TraceError, match="cannot be recorded"):
        backend.grad(lambda v: float(v[0]))(x)
    with pytest.raises(ArgumentError, match="must return one scalar"):
        backend.grad(lambda v: v * 2)(x)
    with pytest.raises(ArgumentError, match="must return one scalar"):
        backend.grad(lambda v: 3.0)(x)
    with pytest.raises(ArgumentError, match="one size in their first axis"):
        backend.vmap(lambda v, w: v)(x, backend.zeros(2))
    with pytest.raises(ArgumentError, match="a cotangent for each result: 1, .* got 2"):
        backend.vjp(lambda v: v * 2, x, cotangents=[x, x])
    with pytest.raises(ArgumentError, match="a tangent for each primal: 2, .* got 1"):
        backend.jvp(lambda v, w: v * w, [x, x], [x])


@pytest.mark.device
def test_what_is_not_read_has_zeros():
    backend = ml.NumpyBackend()
    x = backend.array(A)
    gradient = backend.grad(lambda p: backend.sum(p["a"]))({"a": x, "b": x, "n": 3})
    assert gradient["b"].tolist() == [0, 0, 0] and gradient["n"] is None
    _, moved = backend.jvp(lambda v: backend.ones(2), x, x)
    assert moved.tolist() == [0, 0]


def test_sums_over_what_was_broadcast(backend):
    g = backend.array(np.arange(24.0).reshape(2, 3, 4))
    got = backend.accumulate_grads(g, backend.zeros(3, 1))
    near(backend, got, np.arange(24.0).reshape(2, 3, 4).sum((0, 2))[:, None])


def test_dtypes_of_other_libraries(backend):
    for given in (
        "float32",
        np.float32,
        np.dtype("float32"),
        backend.ones(1, dtype="float32").dtype,
    ):
        assert backend.convert_to_logical(given) is ml.float32
    assert backend.convert_to_logical("no dtype") == "no dtype"
    with pytest.raises(TypeError):
        backend.convert_to_logical("no dtype", force=True)


# --- compiled models as functions ----------------------------------------------------------------

W, C = np.array([[1.0, -2.0], [0.5, 1.0]]), np.array([0.1, -0.2])
X = np.array([[1.0, 2.0], [-0.5, 0.25], [0.0, 1.0]])
Y = np.tanh(X @ W.T + C)
SLOPE = 2 * Y * (1 - Y**2)  # of the sum of squares by the layer's result


def layer(backend, batch=3):
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="c", output="h")
    model |= ml.Tanh()(input="h", output="y")
    model.expose_keys("y")
    shapes = {"x": [batch, 2] if batch else [2]}
    pm = ml.compile(model, backend, data_keys={"x"}, shapes=shapes)
    params = {"w": backend.array(W), "c": backend.array(C)}
    return pm.as_function(), params


def squares(run, params, x):
    return (run(params, {"x": x})["y"] ** 2).sum()


@pytest.mark.frameworks
def test_models_are_functions_to_jax():
    jax = pytest.importorskip("jax")
    backend = ml.JaxBackend(dtype="float32")
    run, params = layer(backend)
    x = backend.array(X)
    np.testing.assert_allclose(jax.jit(run)(params, {"x": x})["y"], Y, atol=1e-6)
    gradients = jax.jit(jax.grad(lambda p: squares(run, p, x)))(params)
    np.testing.assert_allclose(gradients["w"], SLOPE.T @ X, atol=1e-5)
    one, _ = layer(backend, batch=0)
    rows = jax.vmap(lambda row: one(params, {"x": row})["y"])(x)
    np.testing.assert_allclose(rows, Y, atol=1e-6)
    by_row = jax.vmap(jax.grad(lambda p, row: squares(one, p, row)), (None, 0))(params, x)
    np.testing.assert_allclose(by_row["c"], SLOPE, atol=1e-5)
    tangent = jax.jvp(lambda p: squares(run, p, x), (params,), (params,))[1]
    want = np.sum((SLOPE.T @ X) * W) + np.sum(SLOPE.sum(0) * C)
    np.testing.assert_allclose(tangent, want, rtol=1e-4)


@pytest.mark.frameworks
def test_models_are_functions_to_torch():
    torch = pytest.importorskip("torch")
    backend = ml.TorchBackend(dtype="float64")
    run, params = layer(backend)
    x = backend.array(X)
    gradients = torch.func.grad(lambda p: squares(run, p, x))(params)
    np.testing.assert_allclose(gradients["w"], SLOPE.T @ X, rtol=1e-12)
    one, _ = layer(backend, batch=0)
    rows = torch.func.vmap(lambda row: one(params, {"x": row})["y"])(x)
    np.testing.assert_allclose(rows, Y, rtol=1e-12)
    by_row = torch.func.vmap(torch.func.grad(lambda p, row: squares(one, p, row)), (None, 0))
    np.testing.assert_allclose(by_row(params, x)["c"], SLOPE, rtol=1e-12)
    hessian = torch.func.hessian(lambda c: squares(run, {**params, "c": c}, x))(params["c"])
    second = (2 * (1 - Y**2) ** 2 - 4 * Y**2 * (1 - Y**2)).sum(0)
    np.testing.assert_allclose(hessian, np.diag(second), rtol=1e-10, atol=1e-12)
    leaf = params["w"].clone().requires_grad_(True)
    squares(run, {**params, "w": leaf}, x).backward()
    np.testing.assert_allclose(leaf.grad, SLOPE.T @ X, rtol=1e-12)


@pytest.mark.frameworks
def test_models_are_functions_to_mlx():
    mx = pytest.importorskip("mlx.core")
    backend = ml.MlxBackend()
    run, params = layer(backend)
    x = backend.array(X)
    np.testing.assert_allclose(mx.compile(run)(params, {"x": x})["y"], Y, atol=1e-5)
    gradients = mx.compile(mx.grad(lambda p: squares(run, p, x)))(params)
    np.testing.assert_allclose(gradients["w"], SLOPE.T @ X, atol=1e-4)


@pytest.mark.frameworks
@pytest.mark.parametrize("name", ["torch", "jax", "mlx"])
def test_functions_with_state(name):
    pytest.importorskip(name)
    backend = ml.get_backend(name)
    model = ml.Model()
    model |= ml.BatchNorm2d(momentum=0.5)(input="x", output="y")
    model.expose_keys("y")
    shape = (2, 3, 2, 2)
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": shape}, mode="train", jit=False)
    x = backend.array(np.random.default_rng(0).normal(size=shape).astype(np.float32))
    params, state = pm.get_parameters(), pm.initial_state()
    want = pm.evaluate(params, {"x": x}, state=state)
    got = pm.as_function()(params, {"x": x}, state)
    assert set(got.state) == set(want.state) == set(pm.state_keys)
    for name_, value in want.state.items():
        np.testing.assert_allclose(
            backend.to_numpy(got.state[name_]), backend.to_numpy(value), rtol=1e-6
        )
    np.testing.assert_allclose(
        backend.to_numpy(got.outputs["y"]), backend.to_numpy(want.outputs["y"]), rtol=1e-6
    )


@pytest.mark.frameworks
@pytest.mark.parametrize("name", ["torch", "jax", "mlx"])
def test_functions_tell_what_is_missing(name):
    pytest.importorskip(name)
    run, params = layer(ml.get_backend(name))
    with pytest.raises(KeyNotFound, match="'x'"):
        run(params)
    with pytest.raises(KeyNotFound, match="'w'"):
        run({"c": params["c"]}, {"x": params["w"]})


@pytest.mark.device
def test_functions_need_a_framework():
    with pytest.raises(UnsupportedError, match="framework backend"):
        layer(ml.CpuBackend())


# --- arrays of other frameworks ------------------------------------------------------------------


def pointer(array):
    module = type(array).__module__.partition(".")[0]
    if module == "torch":
        return array.data_ptr()
    if module in ("jax", "jaxlib"):
        return array.unsafe_buffer_pointer()
    return np.asarray(array).__array_interface__["data"][0]


def aligned(count=64):
    """An array that starts where XLA wants it to."""
    raw = np.zeros(count * 4 + 128, np.uint8)
    start = -pointer(raw) % 64
    values = raw[start : start + count * 4].view(np.float32)
    values[:] = np.arange(count)
    return values


SHARED = [("numpy", "torch"), ("torch", "numpy"), ("torch", "jax"), ("jax", "torch"),
          ("jax", "numpy"), ("mlx", "numpy"), ("mlx", "torch")]  # fmt: skip
NAMES = ("numpy", "cpu", "torch", "jax", "mlx")


@pytest.mark.frameworks
@pytest.mark.parametrize("source", NAMES)
@pytest.mark.parametrize("target", NAMES)
def test_arrays_go_from_each_backend_to_each(source, target):
    for name in {source, target} - {"numpy", "cpu"}:
        pytest.importorskip(name)
    one, other = ml.get_backend(source), ml.get_backend(target)
    array = one.from_numpy(aligned())
    one.block_until_ready(array)
    if target in ("torch", "jax", "mlx"):
        got = getattr(one, f"to_{target}")(array)
        assert isinstance(got, other.get_backend_array_type())
    elif source in ("torch", "jax", "mlx"):
        got = getattr(other, f"from_{source}")(array)
    else:
        got = other.from_numpy(one.to_numpy(array))
    assert other.dtype(got) == "float32"
    np.testing.assert_array_equal(other.to_numpy(got), np.arange(64))
    if (source, target) in SHARED or source == target:
        assert pointer(got) == pointer(array)


@pytest.mark.frameworks
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "int64", "bool"])
def test_dtypes_survive_conversion(dtype):
    torch = pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    tensor = torch.tensor([0, 1, 3]).to(getattr(torch, dtype))
    with jax.enable_x64(True):
        array = ml.JaxBackend().from_torch(tensor)
        assert str(array.dtype) == dtype
        back = ml.TorchBackend().from_jax(array)
    assert back.dtype == tensor.dtype and torch.equal(back, tensor)
