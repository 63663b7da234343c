"""What is particular to MLX: its compiler, its threads, and where its own functions fall short.

Expected values are NumPy's, Python's, PyTorch's, or written down by hand.
"""

import itertools
import math
import os
import subprocess
import sys
import textwrap
import threading

import mithril as ml
import numpy as np
import pytest
from mithril.execution.emitted import EmittedExecutable

mx = pytest.importorskip("mlx.core")
pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module")
def backend():
    return ml.MlxBackend()


@pytest.fixture(scope="module")
def wide():
    return ml.MlxBackend(dtype="float64")


def network():
    model = ml.Model()
    model |= ml.Linear(4)(input="x", weight="w", bias="b", output="h")
    model |= ml.Tanh()(input="h", output="y")
    return model


def compiled(backend, **options):
    return ml.compile(network(), backend, data_keys={"x"}, shapes={"x": [None, 3]}, **options)


X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)
B = np.random.default_rng(2).standard_normal(4).astype(np.float32)
PARAMS = {"w": W, "b": B}
Y = np.tanh(X @ W.T + B)
SLOPES = {"w": (1 - Y**2).T @ X, "b": (1 - Y**2).sum(0)}  # of the sum of y


def check(result):
    np.testing.assert_allclose(result.outputs["y"], Y, atol=2e-6)
    for key, slope in SLOPES.items():
        np.testing.assert_allclose(result.gradients[key], slope, atol=1e-5)


# --------------------------------------------------------------------------------- the compiler


@pytest.mark.parametrize("autodiff", ["framework", "engine"])
@pytest.mark.parametrize("jit", [False, True])
def test_compiled_and_line_by_line(backend, jit, autodiff):
    pm = compiled(backend, jit=jit, autodiff=autodiff)
    check(pm.evaluate(PARAMS, {"x": X}, output_gradients={"y": np.ones((5, 4), np.float32)}))


def test_line_by_line_is_the_default(backend):
    assert not compiled(backend)._compilation.program.forward.jit
    assert compiled(ml.MlxBackend(use_graph=True))._compilation.program.forward.jit


def test_results_that_are_no_arrays_follow_the_sizes(backend):
    text = "def evaluate(v0, v1):\n    return (ops.multiply(v0, 2.0), (v0.shape[0], v1), 'n',)\n"
    executable = EmittedExecutable(backend, text, jit=True)
    for size, number in ((3, 1), (5, 1), (3, 2), (3, 1)):
        array, sizes, name = executable.run([backend.ones(size), number])
        assert (sizes, name) == ((size, number), "n")
        np.testing.assert_array_equal(array, np.full(size, 2.0))


def test_without_a_compiler_programs_run_line_by_line():
    script = """
        import logging
        logging.basicConfig(level=logging.INFO)
        import mithril as ml, numpy as np
        model = ml.Model()
        model |= ml.Relu()(input="x", output="y")
        pm = ml.compile(model, ml.MlxBackend(), data_keys={"x"}, jit=True)
        print(np.asarray(pm.evaluate({}, {"x": np.array([-1.0, 2.0])})["y"]).tolist())
        print(float(ml.MlxBackend().jit(lambda x: x * 2 + x)(ml.MlxBackend().array(3.0))))
    """
    environment = {**os.environ, "PATH": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    assert done.stdout == "[0.0, 2.0]\n9.0\n"
    assert "runs line by line: MLX compiles with g++, which is not here" in done.stderr


# ------------------------------------------------------------------- tracing by MLX, and threads


def test_models_are_functions_to_mlx(backend):
    pm = compiled(backend)
    run = pm.as_function()
    params = {k: backend.array(v) for k, v in PARAMS.items()}
    x = backend.array(X)
    np.testing.assert_allclose(mx.compile(run)(params, {"x": x})["y"], Y, atol=2e-6)
    gradients = mx.grad(lambda p: run(p, {"x": x})["y"].sum())(params)
    for key, slope in SLOPES.items():
        np.testing.assert_allclose(gradients[key], slope, atol=1e-5)
    rows = mx.vmap(lambda row: run(params, {"x": row[None]})["y"][0])(x)
    np.testing.assert_allclose(rows, Y, atol=2e-6)
    # `evaluate` itself does not wait for its results inside of a trace.
    traced = mx.compile(lambda w: pm.evaluate({**params, "w": w}, {"x": x})["y"])
    np.testing.assert_allclose(traced(params["w"]), Y, atol=2e-6)


def test_pull_backs_of_nests(backend):
    x = {"a": backend.array([2.0]), "b": [backend.array([3.0]), backend.array([5.0])]}
    outputs, pull_back, aux = backend.vjp(
        lambda at: ({"p": at["a"] * at["b"][0], "q": at["b"][1]}, "aux"), x, has_aux=True
    )
    assert (outputs["p"].item(), aux) == (6.0, "aux")
    gradients = pull_back({"q": backend.array([7.0]), "p": backend.array([1.0])})
    assert [gradients["a"].item(), *(g.item() for g in gradients["b"])] == [3.0, 2.0, 7.0]


def test_jacobians(backend):
    x = backend.array([1.0, 2.0, 3.0])
    for jacobian in (backend.jacrev, backend.jacfwd):
        found = jacobian(lambda v: v[:2] * v[2])(x)
        np.testing.assert_array_equal(found, [[3.0, 0.0, 1.0], [0.0, 3.0, 2.0]])


def test_methods_are_lazy_and_threads_share_what_is_computed(backend):
    x = backend.block_until_ready(backend.add(backend.ones(3), 1.0))
    made = [backend.zeros(2), backend.randn(2), backend.array([1, 2]), x]
    found = []

    def work():
        found.extend(backend.to_numpy(backend.add(a, 1)).sum() for a in made)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(found) == len(made)
    assert found[0] == 2.0 and found[2] == 5 and found[3] == 9.0


# ----------------------------------------------------------------------------------- the numbers

POINTS = np.array([-700.0, -30.0, -3.0, -1e-3, 1e-12, 0.3, 1.5, 3.1, 20.0, 650.0])


@pytest.mark.parametrize("name", ["exp", "sin", "cos", "erf", "erfc", "sigmoid", "softplus"])
def test_float64_has_its_digits(wide, name):
    function = {
        "sigmoid": lambda x: math.exp(x) / (1 + math.exp(x)) if x < 0 else 1 / (1 + math.exp(-x)),
        "softplus": lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))),
    }.get(name) or getattr(math, name)
    expected = [function(float(x)) for x in POINTS]
    found = wide.to_numpy(getattr(wide.ops, name)(wide.array(POINTS)))
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=2e-16 if name != "erfc" else 0)


def test_error_functions_have_the_digits_of_float32(backend):
    """MLX's own erf of float32 is wrong in the seventh digit, and 0 near 0."""
    x = np.concatenate([np.linspace(-5, 5, 1001), [1e-12, 1e-8, -1e-5]]).astype(np.float32)
    for name in ("erf", "erfc"):
        expected = [getattr(math, name)(float(v)) for v in x]
        found = backend.to_numpy(getattr(backend.ops, name)(backend.array(x)))
        np.testing.assert_allclose(found, expected, rtol=4e-6 if name == "erfc" else 3e-7)


def test_numbers_beside_float64_are_not_rounded(wide):
    x = wide.array([1.0])
    for made in (wide.multiply(x, 0.1), wide.ops.full((1,), 0.1, mx.float64), wide.add(x, -0.9)):
        np.testing.assert_allclose(made, [0.1], rtol=3e-16)


def test_float64_is_refused_where_it_is_not(monkeypatch, backend):
    with pytest.raises(ml.errors.DeviceNotAvailable, match="no device 'gpu'; available: cpu:0"):
        ml.MlxBackend(device="gpu")
    monkeypatch.setattr(type(backend), "device", property(lambda self: mx.Device(mx.gpu, 0)))
    with pytest.raises(ml.errors.UnsupportedError, match="float64 is there on the CPU only"):
        ml.MlxBackend(dtype="float64")
    assert ml.MlxBackend(dtype="float32").get_device() == "gpu:0"


WINDOWS = itertools.product(
    (((0, 0), (0, 0)), ((1, 1), (2, 2)), ((1, 0), (2, 1))), ((1, 1), (2, 3)), ((1, 1), (2, 1))
)


@pytest.mark.parametrize(("padding", "stride", "dilation"), WINDOWS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_of_padded_convolutions(padding, stride, dilation, dtype):
    """Those of MLX's own padding have wrong shapes; in float64 it has no convolution at all."""
    torch = pytest.importorskip("torch")
    backend = ml.MlxBackend(dtype=dtype)
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((2, 4, 8, 7)), rng.standard_normal((6, 2, 3, 2))
    inputs = [torch.tensor(v, requires_grad=True) for v in (x, w)]
    padded = torch.nn.functional.pad(inputs[0], (*padding[1], *padding[0]))
    wanted = torch.nn.functional.conv2d(padded, inputs[1], None, stride, 0, dilation, 2)
    cotangent = rng.standard_normal(tuple(wanted.shape))
    slopes = torch.autograd.grad(wanted, inputs, torch.tensor(cotangent))
    found, gradients, _ = backend.vjp(
        lambda x, w: backend.ops.conv2d(x, w, stride, padding, dilation, 2),
        [backend.array(x), backend.array(w)],
        cotangents=backend.array(cotangent),
    )
    bound = 1e-5 if dtype == "float32" else 1e-13
    for got, want in zip([found, *gradients], [wanted, *slopes], strict=True):
        assert got.shape == tuple(want.shape)
        np.testing.assert_allclose(got, want.detach().numpy(), atol=bound * 10, rtol=bound)


def test_indices_out_of_bounds_stay_inside(backend):
    x = backend.array([[1.0, 2.0], [3.0, 4.0]])
    far = backend.array([-9, 7])
    np.testing.assert_array_equal(backend.ops.gather(x, far), [[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(backend.ops.index(x, [far]), [[1.0, 2.0], [3.0, 4.0]])
    added = backend.ops.embedding_grad(x, far, (2, 2))
    np.testing.assert_array_equal(added, [[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(IndexError, match="index 2 is out of bounds for a size of 2"):
        backend.ops.index(x, [], index=2)


def test_values_are_seen_without_a_copy(backend):
    x = backend.array([1.0, 2.0])
    first, second = backend.to_numpy(x), backend.to_numpy(x)
    assert first.ctypes.data == second.ctypes.data
    assert not first.flags.writeable


def test_gradients_stop_at_integers(backend):
    def function(x):
        whole = backend.ops.astype(x, mx.int32)
        return (backend.ops.astype(whole, mx.float32) * x).sum()

    np.testing.assert_array_equal(backend.grad(function)(backend.array([2.5, -1.5])), [2.0, -1.0])


# Of each of these MLX itself gives a wrong result, a signal, or none in finite time.
EMPTY = {
    "add": (lambda o, x, y: o.add(x, y), (0, 3), (3,), (0, 3)),
    "where": (lambda o, x, y: o.where(x > 0, x, y), (2, 0), (2, 1), (2, 0)),
    "maximum": (lambda o, x, y: o.maximum(x, y), (0, 3), (1, 3), (0, 3)),
    "matmul of nothing": (lambda o, x, y: o.matmul(x, y), (2, 0), (0, 3), (2, 3)),
    "matmul to nothing": (lambda o, x, y: o.matmul(x, y), (0, 2), (2, 3), (0, 3)),
    "linear": (lambda o, x, y: o.linear(y, x, o.scalar(1.0, mx.float32)), (0, 2), (3, 2), (0, 3)),
    "broadcast": (lambda o, x, y: o.broadcast_like(y, x), (0, 3), (3,), (0, 3)),
    "prod": (lambda o, x, y: o.prod(x) * o.sum(y), (0, 3), (2,), ()),
    "cumsum": (lambda o, x, y: o.cumsum(x, 1), (2, 0), (1,), (2, 0)),
    "softmax": (lambda o, x, y: o.log_softmax(o.softmax(x)), (2, 0), (1,), (2, 0)),
    "index": (lambda o, x, y: o.index(y, (x.astype(mx.int32),)), (0,), (4, 2), (0, 2)),
    "conv2d": (lambda o, x, y: o.conv2d(x, y), (0, 2, 4, 4), (3, 2, 2, 2), (0, 3, 3, 3)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_arrays_without_elements(backend, name):
    function, *shapes, result = EMPTY[name]
    x, y = (backend.ones(shape) for shape in shapes)
    out, gradients, _ = backend.vjp(
        lambda x, y: function(backend.ops, x, y), [x, y], cotangents=backend.ones(result)
    )
    assert out.shape == result
    assert [g.shape for g in gradients] == [tuple(shape) for shape in shapes]
    wanted = 2.0 if name == "prod" else 0.0
    np.testing.assert_array_equal(out, np.full(result, wanted))
    slope = 1.0 if name == "prod" else 0.0
    np.testing.assert_array_equal(gradients[1], np.full(shapes[1], slope))
    assert backend.ops.all(x).item() is True


@pytest.mark.parametrize("size", [1, 2, 3])
def test_gradients_of_what_is_taken_backwards(size):
    """MLX alone gives 0 where a slice takes one element backwards."""
    model = ml.Model()
    model |= ml.Buffer()(input=ml.IOKey("x", shape=[size, 2])[::-1], output="y")
    backend = ml.MlxBackend()
    pm = ml.compile(model, backend, trainable_keys={"x"}, autodiff="framework", jit=False)
    params = {"x": backend.ones(size, 2)}
    _, gradients = pm.evaluate(params, {}, output_gradients={"y": backend.ones(size, 2)})
    assert np.asarray(backend.to_numpy(gradients["x"])).tolist() == [[1.0, 1.0]] * size


# Sums of other sizes first: what they leave in memory is what MLX's sum of nothing runs over.
GRADIENTS_OF_NOTHING = """
import numpy as np
import mlx.core as mx
import mithril as ml

backend = ml.MlxBackend(dtype="float64", device="cpu")
model = ml.Model()
model |= ml.Linear(4)(input="x", weight="w", bias="b", output="y")
x = mx.array(np.random.randn(9, 8, 7, 6, 5, 4), mx.float64).transpose(5, 1, 3, 0, 2, 4)
for shapes in ({"x": [0, 3]}, {}):
    pm = ml.compile(model, backend, jit=False, autodiff="framework", shapes=shapes)
    params = {"w": backend.ones((4, 3)), "b": backend.ones((4,))}
    for _ in range(50):
        mx.eval(x[:, ::2, :, ::3].sum((0, 1, 3, 5)), x[:, ::2].sum((0, 2, 3, 4, 5)))
        result = pm.evaluate(
            params, {"x": backend.zeros((0, 3))}, output_gradients={"y": backend.zeros((0, 4))}
        )
        assert not any(np.array(g).any() for g in result.gradients.values())
    full = pm.evaluate(
        params, {"x": backend.ones((2, 3))}, output_gradients={"y": backend.ones((2, 4))}
    ) if not shapes else result
    print(result.gradients["b"].shape, full.gradients["b"].tolist())
"""


def test_gradients_of_tensors_without_elements():
    run = subprocess.run(
        [sys.executable, "-c", GRADIENTS_OF_NOTHING],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["(4,) [0.0, 0.0, 0.0, 0.0]", "(4,) [2.0, 2.0, 2.0, 2.0]"]


def test_cotangents_of_a_result_that_is_there_twice_add_up():
    backend = ml.MlxBackend()
    x, tens = backend.array([1.0, 2.0]), backend.array([10.0, 10.0])

    def twice(x):
        y = x * 3
        return y, y

    gradient = backend.vjp(twice, x, cotangents=(backend.ones(2), tens))[1]
    np.testing.assert_array_equal(backend.to_numpy(gradient), [33.0, 33.0])


def test_cotangents_of_an_output_that_is_there_twice_add_up():
    model = ml.Model()
    model |= ml.Sum(axis=0)(input="x", output="y")
    model |= ml.Sum(axis=0)(input="x", output="z")
    model.expose_keys("y", "z")
    backend = ml.MlxBackend()
    for jit in (False, True):
        pm = ml.compile(model, backend, shapes={"x": [2, 2]}, trainable_keys={"x"}, jit=jit)
        ones = {"y": backend.array([1.0, 1.0]), "z": backend.array([10.0, 10.0])}
        found = pm.evaluate({"x": backend.ones(2, 2)}, {}, output_gradients=ones)[1]["x"]
        np.testing.assert_array_equal(backend.to_numpy(found), np.full((2, 2), 11.0))
