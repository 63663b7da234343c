# Covers: mithril/execution/interface.py
"""Emitted text as programs: running, differentiating, compiling, stepping through it."""

import gc
import importlib.util
import linecache
import threading
import traceback

import mithril as ml
import numpy as np
import pytest
from mithril.backends import Backend, get_backend
from mithril.errors import OutOfMemoryError
from mithril.execution.emitted import MOST_VJPS, EmittedExecutable, load_source

FRAMEWORKS = ("torch", "jax", "mlx")

MLP = """def evaluate(v0, v1, v2):
    v3 = ops.matmul(v0, v1)  # mlp.linear_1
    v4 = ops.add(v3, v2); del v3  # mlp.linear_1
    v5 = ops.relu(v4); del v4  # mlp.relu_1
    v6 = ops.sum(v5, axis=None, keepdim=False)
    return (v5, v6,)
"""


def installed(name):
    return name not in FRAMEWORKS or importlib.util.find_spec(name) is not None


def param(name):
    marks = [pytest.mark.frameworks] if name in FRAMEWORKS else []
    if not installed(name):
        marks.append(pytest.mark.skip(reason=f"{name} is not installed"))
    return pytest.param(name, marks=marks)


@pytest.fixture(params=[param(n) for n in ("numpy", *FRAMEWORKS)])
def backend(request):
    return get_backend(request.param)


@pytest.fixture(params=[param(n) for n in FRAMEWORKS])
def autograd(request):
    return get_backend(request.param)


def mlp_inputs(backend):
    rng = np.random.default_rng(0)
    shapes = [(5, 3), (3, 4), (4,)]
    return [backend.array(rng.standard_normal(s)) for s in shapes]


def expected_mlp(backend, inputs):
    x, w, b = (backend.to_numpy(v).astype(np.float64) for v in inputs)
    hidden = np.maximum(x @ w + b, 0)
    mask = (hidden > 0).astype(float)
    return [hidden, hidden.sum()], [mask.sum(0), x.T @ mask, mask @ w.T]


def close(backend, actual, expected):
    np.testing.assert_allclose(backend.to_numpy(actual), expected, rtol=2e-6, atol=1e-6)


class Wrapped:
    """An array that only its backend knows."""

    def __init__(self, values):
        self.values = np.asarray(values)
        self.shape, self.dtype = self.values.shape, self.values.dtype

    def __array__(self, dtype=None, copy=None):
        return self.values


class ThreeMethods(Backend):
    def tensor(self, data, dtype=None):
        return Wrapped(np.asarray(data, None if dtype is None else str(dtype)))

    def zeros(self, shape, dtype=None):
        return Wrapped(np.zeros(shape))

    def ones(self, shape, dtype=None):
        return Wrapped(np.ones(shape))


def test_three_methods_run_a_program():
    backend = ThreeMethods()
    inputs = mlp_inputs(backend)
    outputs = EmittedExecutable(backend, MLP).run(inputs)
    for actual, expected in zip(outputs, expected_mlp(backend, inputs)[0], strict=True):
        close(backend, actual, expected)
        assert isinstance(actual, Wrapped)


def test_run_gives_backend_arrays(backend):
    inputs = mlp_inputs(backend)
    outputs = EmittedExecutable(backend, MLP).run(inputs)
    for actual, expected in zip(outputs, expected_mlp(backend, inputs)[0], strict=True):
        close(backend, actual, expected)
        assert isinstance(actual, backend.get_backend_array_type())


@pytest.mark.parametrize("jit", [False, True])
def test_vjp_gives_gradients_in_the_order_asked(autograd, jit):
    if jit and autograd.backend_type == "torch":
        pytest.skip("torch.compile starts a C++ compiler: test_torch_compiles has it")
    inputs = mlp_inputs(autograd)
    executable = EmittedExecutable(autograd, MLP, jit=jit)
    outputs, gradients = executable.run_vjp(inputs, [None, autograd.ones(())], [2, 1, 0])
    values, expected = expected_mlp(autograd, inputs)
    for actual, value in zip([*outputs, *gradients], [*values, *expected], strict=True):
        close(autograd, actual, value)
        assert not getattr(actual, "requires_grad", False)


def test_cotangents_may_follow_from_the_outputs(autograd):
    inputs = mlp_inputs(autograd)
    executable = EmittedExecutable(autograd, MLP)
    outputs, gradients = executable.run_vjp(inputs, lambda out: [out[0], None], [2])
    close(autograd, gradients[0], autograd.to_numpy(outputs[0]).sum(0))


def test_gradient_functions_are_bounded(autograd):
    arguments = ", ".join(f"v{i}" for i in range(40))
    text = f"def evaluate({arguments}):\n    return (ops.add(v0, v39),)\n"
    executable = EmittedExecutable(autograd, text)
    x = autograd.ones(2)
    for i in range(40):
        executable.run_vjp([x] * 40, [x], [i])
    assert len(executable._vjps) == MOST_VJPS


def test_inputs_that_do_not_matter_get_zeros(autograd):
    text = "def evaluate(v0, v1):\n    return (ops.exp(v0),)\n"
    x = autograd.ones(2)
    _, gradients = EmittedExecutable(autograd, text).run_vjp([x, x], [x], [0, 1])
    close(autograd, gradients[1], [0.0, 0.0])
    _, gradients = EmittedExecutable(autograd, text).run_vjp([x, x], [x], [1])
    close(autograd, gradients[0], [0.0, 0.0])


def test_numpy_asks_for_the_engines_gradients():
    backend = get_backend("numpy")
    with pytest.raises(NotImplementedError, match="autodiff='engine'"):
        EmittedExecutable(backend, MLP).run_vjp(mlp_inputs(backend), [None, None], [0])


def test_outputs_own_their_memory(backend):
    text = "def evaluate(v0):\n    return (v0, ops.reshape(v0, shape=(2, 1)), v0,)\n"
    x = backend.array([1.0, 2.0])
    outputs = EmittedExecutable(backend, text).run([x])
    if backend.backend_type == "jax":  # immutable, unlike the objects of the others
        return
    outputs[0][0] = 7.0
    close(backend, x, [1.0, 2.0])
    close(backend, outputs[1], [[1.0], [2.0]])
    close(backend, outputs[2], [1.0, 2.0])


def test_gradients_own_their_memory(autograd):
    text = "def evaluate(v0, v1):\n    return (ops.add(v0, v1),)\n"
    x, dy = autograd.ones(2), autograd.ones(2)
    _, gradients = EmittedExecutable(autograd, text).run_vjp([x, x], [dy], [0, 1])
    if autograd.backend_type == "jax":
        return
    gradients[0][0] = 7.0
    close(autograd, gradients[1], [1.0, 1.0])
    close(autograd, dy, [1.0, 1.0])


def test_constants_and_host_inputs(backend):
    text = """def evaluate(v0, v1):
    n0 = v0.shape[0]
    v2 = ops.multiply(v0, C[0])
    v3 = ops.reshape(v2, shape=(n0 // v1, v1))
    return (v3, (n0, C[1]),)
"""
    constants = [np.array([1.0, 2.0, 3.0, 4.0], np.float32), "name"]
    executable = EmittedExecutable(backend, text, constants)
    outputs = executable.run([backend.ones(4), 2])
    close(backend, outputs[0], [[1.0, 2.0], [3.0, 4.0]])
    assert outputs[1] == (4, "name")


@pytest.mark.parametrize("name", [param("jax"), param("mlx")])
def test_jit_takes_host_inputs_as_part_of_the_program(name):
    backend = get_backend(name)
    text = "def evaluate(v0, v1):\n    return (ops.reshape(v0, shape=(v1, -1)),)\n"
    executable = EmittedExecutable(backend, text, jit=True)
    assert executable.run([backend.ones(6), 2])[0].shape == (2, 3)
    assert executable.run([backend.ones(6), 3])[0].shape == (3, 2)


def test_the_function_is_traceable(autograd):
    function = EmittedExecutable(autograd, MLP).function
    inputs = mlp_inputs(autograd)
    gradient = autograd.grad(lambda b: function(inputs[0], inputs[1], b)[1])(inputs[2])
    close(autograd, gradient, expected_mlp(autograd, inputs)[1][0])


@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.skipif(not installed("torch"), reason="torch is not installed")
def test_torch_compiles():
    backend = get_backend("torch")
    executable = EmittedExecutable(backend, MLP, jit=True, jit_options={"backend": "aot_eager"})
    inputs = mlp_inputs(backend)
    outputs, gradients = executable.run_vjp(inputs, [None, backend.ones(())], [2, 1, 0])
    values, expected = expected_mlp(backend, inputs)
    for actual, value in zip([*outputs, *gradients], [*values, *expected], strict=True):
        close(backend, actual, value)


def test_text_goes_to_a_file_and_runs_from_it(backend, tmp_path):
    path = tmp_path / "model.py"
    executable = EmittedExecutable(backend, MLP, file_path=str(path))
    assert path.read_text() == MLP
    assert executable.function.__code__.co_filename == str(path)
    assert list(tmp_path.iterdir()) == [path]
    executable.run(mlp_inputs(backend))
    with pytest.raises(ValueError, match="ends in .py"):
        EmittedExecutable(backend, MLP, file_path=str(tmp_path / "model.txt"))
    with pytest.raises(FileNotFoundError):
        EmittedExecutable(backend, MLP, file_path=str(tmp_path / "no" / "model.py"))


def test_texts_go_with_their_functions_and_names_stay():
    """Functions may die while `linecache` walks through its names: each must be found."""
    text = "def evaluate(x):\n    return (x,)\n"
    function = load_source(ml.NumpyBackend(), text)
    name = function.__code__.co_filename
    assert linecache.getline(name, 2) == "    return (x,)\n"
    for known in list(linecache.cache):
        if function is not None:
            function = None
            gc.collect()
        assert linecache.cache[known] is not None
    assert linecache.getline(name, 2) == ""
    names = {load_source(ml.NumpyBackend(), text).__code__.co_filename for _ in range(20)}
    gc.collect()
    again = {load_source(ml.NumpyBackend(), text).__code__.co_filename for _ in range(20)}
    assert again & names  # names of the dead are given again


def test_tracebacks_show_the_line(backend):
    executable = EmittedExecutable(backend, MLP)
    x = backend.ones(2, 3)
    try:
        executable.run([x, x, x])
    except Exception:
        assert "v3 = ops.matmul(v0, v1)  # mlp.linear_1" in traceback.format_exc()
    else:
        pytest.fail("shapes that do not fit were multiplied")


def test_many_threads_run_one_executable(backend):
    executable = EmittedExecutable(backend, MLP)
    inputs = mlp_inputs(backend)
    expected = backend.to_numpy(executable.run(inputs)[0])
    failures = []

    def work():
        for _ in range(20):
            if not np.array_equal(backend.to_numpy(executable.run(inputs)[0]), expected):
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_warnings_and_overflow_stay_quiet(backend):
    text = "def evaluate(v0):\n    return (ops.exp(ops.divide(v0, 0.0)),)\n"
    outputs = EmittedExecutable(backend, text).run([backend.ones(2)])
    close(backend, outputs[0], [np.inf, np.inf])


@pytest.mark.parametrize("shape", [(2, 6), (0, 6)])
@pytest.mark.parametrize("jit", [False, True])
def test_pieces_of_a_split_are_one_call_whose_gradient_joins_them(autograd, jit, shape):
    if jit and autograd.backend_type == "torch":
        pytest.skip("torch.compile starts a C++ compiler; the text is that of jit=False")
    model = ml.Model()
    model |= ml.Split(3, axis=-1)(input="input", output="pieces")
    for i in range(3):
        model |= ml.Buffer()(input=model.pieces[i], output=f"piece{i}")
        model.expose_keys(f"piece{i}")
    model.set_differentiability(input=True)
    pm = ml.compile(model, autograd, shapes={"input": list(shape)}, jit=jit)
    assert pm.source.count("ops.split_with_sizes") == 1
    assert "ops.index" not in pm.source

    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    cotangents = [-p for p in np.split(x, 3, -1)]
    outputs, gradients = pm.evaluate(
        {"input": autograd.array(x)},
        output_gradients={f"piece{i}": autograd.array(c) for i, c in enumerate(cotangents)},
    )
    for i, piece in enumerate(np.split(x, 3, -1)):
        np.testing.assert_array_equal(autograd.to_numpy(outputs[f"piece{i}"]), piece)
    np.testing.assert_array_equal(autograd.to_numpy(gradients["input"]), -x)


def test_results_beyond_memory_are_a_typed_error(backend):
    """64 TiB; MLX would end the process."""
    model = ml.Model.create(y=ml.Full(shape=(2**20, 2**20, 16), value=1.0)())
    pm = ml.compile(model, backend)
    with pytest.raises(OutOfMemoryError):
        pm.evaluate()
