# Covers: mithril/base/arrays.py
"""Backends as objects: creation, conversion, options, and the process that they leave alone."""

import importlib.util
import os
import random as python_random
import subprocess
import sys
import textwrap
import warnings

import mithril as ml
import numpy as np
import pytest
from installed_package import write_entry_points
from mithril.backends import Backend, NumpyBackend, get_backend, register_backend
from mithril.backends.registry import available_backends
from mithril.errors import (
    ArgumentError,
    DeviceNotAvailable,
    DTypeError,
    KeyNotFound,
    SignatureError,
)
from mithril.types import Dtype

FRAMEWORKS = ("torch", "jax", "mlx")


def installed(name):
    return importlib.util.find_spec(name) is not None


def param(name):
    marks = [pytest.mark.frameworks] if name in FRAMEWORKS else []
    if name in FRAMEWORKS and not installed(name):
        marks.append(pytest.mark.skip(reason=f"{name} is not installed"))
    return pytest.param(name, marks=marks)


@pytest.fixture(params=[param(n) for n in ("numpy", *FRAMEWORKS)])
def backend(request):
    return get_backend(request.param)


@pytest.fixture(params=[param(n) for n in FRAMEWORKS])
def autograd(request):
    return get_backend(request.param)


def same(backend, actual, expected):
    np.testing.assert_array_equal(backend.to_numpy(actual), expected)


# --------------------------------------------------------------------------------- arrays


def test_dtypes_of_arrays(backend):
    assert backend.dtype(backend.array([1.0, 2.0])) == "float32"
    assert backend.dtype(backend.array(np.array([1.0]))) == "float32"
    assert backend.dtype(backend.array([True])) == "bool"
    assert backend.dtype(backend.array([1, 2])) is backend.default_int
    assert backend.dtype(backend.array([1, 2], "float16")) == "float16"
    assert backend.dtype(backend.array([1.5], Dtype.int32)) == "int32"
    assert backend.dtype(backend.array(np.array([1], np.int8))) == "int8"
    assert backend.dtype(backend.array([1.0], dtype="bfloat16")) == "bfloat16"
    assert backend.dtype(backend.array([1.0], dtype="float64")) == "float64"
    assert backend.dtype(backend.array([1], dtype="int64")) == "int64"


def test_arrays_are_copies(backend):
    source = np.array([1.0, 2.0], np.float32)
    copied = backend.array(source)
    source[0] = 7
    same(backend, copied, [1.0, 2.0])


@pytest.mark.parametrize("bad", ["text", [1 + 2j], [{}], [[1, 2], [3]]], ids=repr)
def test_what_is_no_number_is_refused(backend, bad):
    with pytest.raises((DTypeError, ValueError)):
        backend.array(bad)


def test_unusual_arrays_are_taken(backend):
    values = np.arange(6.0)
    for view in (values[::-1], values[::2], values.astype(">f8"), values.reshape(2, 3).T):
        same(backend, backend.array(view), view.astype(np.float32))
        same(backend, backend.from_numpy(view.astype(view.dtype.str.replace("8", "4"))), view)
    frozen = values.astype(np.float32)
    frozen.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(backend, backend.from_numpy(frozen), values)
    same(backend, backend.array(np.zeros((0, 3))), np.zeros((0, 3)))


def test_both_styles_of_creation(backend):
    for name, value in (("zeros", 0), ("ones", 1)):
        make = getattr(backend, name)
        for made in (make(2, 3), make((2, 3)), make([2, 3]), make(shape=(2, 3))):
            same(backend, made, np.full((2, 3), value))
        assert backend.dtype(make(2, 3, "int32")) == "int32"
        assert backend.dtype(make((2, 3), Dtype.float16)) == "float16"
        assert backend.dtype(make(2, dtype="bool")) == "bool"
        assert backend.shape(make()) == ()
        with pytest.raises(SignatureError):
            make(2, "int32", dtype="int32")
        with pytest.raises(DTypeError):
            make(2, "no dtype")
    assert backend.shape(backend.empty(2, 3)) == (2, 3)


def test_other_creation(backend):
    same(backend, backend.eye(2, 3), np.eye(2, 3))
    same(backend, backend.arange(3), [0, 1, 2])
    same(backend, backend.arange(1, 2, 0.5), [1.0, 1.5])
    assert backend.dtype(backend.arange(3)) is backend.default_int
    assert backend.dtype(backend.arange(3.0)) == "float32"
    same(backend, backend.linspace(0.0, 1.0, 3), [0.0, 0.5, 1.0])
    x = backend.array([1, 2], "int16")
    same(backend, backend.zeros_like(x), [0, 0])
    assert backend.dtype(backend.ones_like(x)) == "int16"
    assert backend.dtype(backend.ones_like(x, dtype="float32")) == "float32"
    with pytest.raises(SignatureError):
        backend.arange()


def test_conversion(backend):
    x = backend.array([[1.0, 2.0, 3.0]])
    assert backend.shape(x) == (1, 3)
    assert isinstance(backend.to_numpy(x), np.ndarray)
    assert backend.dtype(backend.cast(x, "int32")) == "int32"
    same(backend, backend.from_numpy(np.array([1, 2], np.int16)), [1, 2])
    assert backend.dtype(backend.from_numpy(np.array([1], np.int64))) == "int64"
    bits = backend.array([1.5, -2.0], "bfloat16")
    same(backend, backend.from_numpy(backend.to_numpy(bits)), [1.5, -2.0])
    assert backend.block_until_ready(x) is not None
    info = backend.get_memory_info()
    assert info["used_bytes"] > 0
    assert info["used"] == info["used_bytes"] / 2**20


@pytest.mark.frameworks
@pytest.mark.skipif(not all(map(installed, FRAMEWORKS)), reason="needs both frameworks")
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "bool"])
def test_arrays_move_between_frameworks(dtype):
    backends = {name: get_backend(name) for name in ("numpy", *FRAMEWORKS)}
    for source in backends.values():
        x = source.array([[1, 0, 2]], dtype)
        for name, target in backends.items():
            moved = target.tensor(x, dtype)
            assert target.dtype(moved) == dtype
            same(target, moved, source.to_numpy(x))
            if name != "numpy":
                other = getattr(source, f"to_{name}")(x)
                assert target.dtype(other) == dtype
                same(source, getattr(source, f"from_{name}")(other), source.to_numpy(x))


# ----------------------------------------------------------------------------------- random


@pytest.mark.frameworks
def test_random_numbers_are_equal_on_every_backend():
    backends = [get_backend(n) for n in ("numpy", *FRAMEWORKS) if n == "numpy" or installed(n)]
    for draw in (
        lambda b: b.randn(3, 4),
        lambda b: b.rand((5,)),
        lambda b: b.random_normal(shape=(3, 4), mean=1.0, stddev=2.0),
        lambda b: b.rand_uniform(-1.0, 1.0, 4),
        lambda b: b.randint(-3, 5, 6, 2),
        lambda b: b.multinomial(b.array([0.1, 0.0, 0.9]), 2),
        lambda b: b.multinomial(b.array([0.1, 0.0, 0.9]), 20, replacement=True),
    ):
        drawn = [b.to_numpy(draw(b)) for b in backends]
        for other in drawn[1:]:
            np.testing.assert_array_equal(drawn[0], other)


def test_seeds(backend):
    first = backend.to_numpy(backend.randn(4))
    assert not np.array_equal(backend.to_numpy(backend.randn(4)), first)
    backend.set_seed(0)
    same(backend, backend.randn(4), first)
    same(backend, backend.randn(4, key=5), backend.to_numpy(backend.randn(4, key=5)))
    backend.set_seed(1)
    assert not np.array_equal(backend.to_numpy(backend.randn(4)), first)


def test_draws_without_replacement_need_enough_weights(backend):
    with pytest.raises(ValueError, match="more samples"):
        backend.multinomial(backend.array([0.5, 0.5, 0.0]), 3)


# ------------------------------------------------------------------------------ ops as methods


def test_ops_are_methods(backend):
    x, y = backend.array([1.0, 2.0, 3.0]), backend.array([4.0, 5.0, 6.0])
    same(backend, backend.add(x, y), [5, 7, 9])
    same(backend, backend.multiply(x, 2.0), [2, 4, 6])
    dot = backend.matmul(x, y)
    same(backend, dot, 32)
    assert backend.shape(dot) == ()
    assert isinstance(dot, backend.get_backend_array_type())
    same(backend, backend.relu(backend.array(-1.0)), 0)
    same(backend, backend.reduce_sum(x), 6)
    same(backend, backend.reduce_mean(x), 2)
    same(backend, backend.power(x, 2), [1, 4, 9])
    same(backend, backend.transpose(backend.ones(2, 3), (1, 0)), np.ones((3, 2)))
    same(backend, backend.expand_dims(x, 0), [[1, 2, 3]])
    same(backend, backend.maximum(0.01 * x, x), [1, 2, 3])
    same(backend, backend.reshape(backend.ones(6), [2, 3]), np.ones((2, 3)))
    same(backend, backend.concat([x, y], 0), [1, 2, 3, 4, 5, 6])
    assert backend.shape(backend.flatten(backend.ones(2, 3))) == (6,)
    assert "softmax" in dir(backend)


def test_methods_promote_their_operands(backend):
    x, n = backend.array([1.0]), backend.array([2])
    assert backend.dtype(backend.add(x, n)) == "float32"
    assert backend.dtype(backend.divide(n, n)) == "float32"
    assert backend.dtype(backend.add(n, 1)) is backend.default_int
    assert backend.dtype(backend.add(n, 0.5)) == "float32"
    same(backend, backend.add([1.0], np.array([2.0])), [3.0])


def test_unknown_methods_get_a_suggestion(backend):
    with pytest.raises(AttributeError, match="did you mean 'softmax'"):
        backend.sofmax  # noqa: B018


def test_gradients_of_functions(autograd):
    gradient = autograd.grad(lambda x: autograd.reduce_sum(autograd.power(x, 2)))
    same(autograd, gradient(autograd.array([1.0, 2.0, 3.0])), [2.0, 4.0, 6.0])
    value, slope = autograd.value_and_grad(lambda x: autograd.sum(x * x))(autograd.array([3.0]))
    same(autograd, value, 9.0)
    same(autograd, slope, [6.0])
    x = autograd.array([1.0, 2.0])
    output, gradients, aux = autograd.vjp(lambda a: a * 3.0, x, cotangents=autograd.ones(2))
    same(autograd, output, [3.0, 6.0])
    same(autograd, gradients, [3.0, 3.0])
    assert aux == []
    _, gradients, _ = autograd.vjp(lambda a, b: a * b, [x, x], cotangents=autograd.ones(2))
    assert len(gradients) == 2
    same(autograd, autograd.vmap(lambda a: a * 2.0)(x), [2.0, 4.0])


def test_numpy_differentiates_what_can_be_recorded():
    x = NumpyBackend().array([1.0, 2.0])
    same(NumpyBackend(), NumpyBackend().grad(lambda x: (x * x).sum())(x), [2.0, 4.0])
    with pytest.raises(TypeError, match="cannot be recorded"):
        NumpyBackend().grad(lambda x: float(x[0]))(x)


# --------------------------------------------------------------------------- options, devices


def test_options_are_checked(backend):
    with pytest.raises(DeviceNotAvailable, match="available: .*cpu"):
        type(backend)(device="abacus")
    with pytest.raises(DTypeError):
        type(backend)(dtype="int32")
    assert type(backend)(dtype="float64").precision == 64
    assert type(backend).__name__ in repr(backend)
    assert backend.is_manualgrad is (backend.backend_type == "numpy")


@pytest.mark.frameworks
@pytest.mark.skipif(not installed("jax"), reason="jax is not installed")
def test_options_of_jax():
    from mithril.backends.with_autograd.jax_backend import JaxBackend

    assert JaxBackend(platform="cpu", device="cpu").get_device() == "cpu:0"
    with pytest.raises(SignatureError, match="device='cpu' and platform='tpu'"):
        JaxBackend(device="cpu", platform="tpu")
    assert JaxBackend(jit_compile=False).jit_default is False
    with pytest.raises(ValueError, match="precision"):
        JaxBackend(precision="float128")
    with pytest.raises(DeviceNotAvailable, match="xla_force_host_platform_device_count"):
        JaxBackend(device_mesh=(64, 64))
    with pytest.raises(OverflowError):
        JaxBackend().array(np.array([2**40]))


@pytest.mark.frameworks
@pytest.mark.skipif(not installed("torch"), reason="torch is not installed")
def test_options_of_torch():
    from mithril.backends.with_autograd.torch_backend import TorchBackend

    assert TorchBackend(device="cpu", compile=True).jit_default is True
    assert TorchBackend(device_mesh=1).device_mesh == (1,)


@pytest.mark.frameworks
@pytest.mark.skipif(not installed("mlx"), reason="mlx is not installed")
def test_options_of_mlx():
    import mlx.core as mx
    from mithril.backends import MLXBackend, MlxBackend

    assert MLXBackend is MlxBackend
    for device in ("cpu", "cpu:0", mx.cpu, mx.Device(mx.cpu, 0)):
        assert MlxBackend(device=device).get_device() == "cpu:0"
    assert MlxBackend(seed=42, default_dtype="float16").default_dtype is Dtype.float16
    assert MlxBackend(dtype=mx.bfloat16, random_seed=3, compute_precision="bfloat16").seed == 3
    with pytest.raises(SignatureError, match="seed=1 and random_seed=2"):
        MlxBackend(seed=1, random_seed=2)
    with pytest.raises(SignatureError, match="dtype=.* and default_dtype="):
        MlxBackend(dtype=mx.float16, default_dtype="float32")
    assert MlxBackend(use_graph=False).jit_default is False
    assert MlxBackend(device_mesh=1).device_mesh == (1,)


@pytest.mark.frameworks
@pytest.mark.skipif(not installed("mlx"), reason="mlx is not installed")
def test_limits_of_memory_are_undone():
    import mlx.core as mx

    before = mx.set_memory_limit(2**34)
    mx.set_memory_limit(before)
    backend = get_backend("mlx", memory_limit="4GB", auto_free_tensors=True)
    try:
        assert mx.set_memory_limit(4 * 10**9) == 4 * 10**9
        backend.array([1.0])
        assert mx.get_cache_memory() == 0
    finally:
        backend.reset()
    assert mx.set_memory_limit(before) == before


@pytest.mark.parametrize(
    ("name", "install"),
    [
        ("torch", "pip install torch"),
        ("jax", "pip install jax"),
        ("mlx", "pip install 'mlx[cpu]'"),
    ],
)
def test_a_missing_framework_shows_at_construction_only(name, install):
    script = f"""
        import sys
        sys.modules[{name!r}] = None  # what an import of it finds
        from mithril.backends import JaxBackend, TorchBackend, get_backend
        from mithril.errors import DeviceNotAvailable
        assert not [m for m in sys.modules if m.startswith(("torch.", "jax."))]
        try:
            get_backend({name!r})
        except DeviceNotAvailable as error:
            print(error)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert install in result.stdout


# ---------------------------------------------------------------------------- custom backends


class TensorOnly(Backend):
    def tensor(self, data, dtype=None):
        return np.array(data, None if dtype is None else str(dtype))

    def zeros(self, shape, dtype=None):
        return np.zeros(shape, dtype or "float32")

    def ones(self, shape, dtype=None):
        return np.ones(shape, dtype or "float32")


def test_three_methods_make_a_backend():
    backend = TensorOnly()
    same(backend, backend.array([1, 2]), [1, 2])
    same(backend, backend.zeros(2, 3), np.zeros((2, 3)))
    same(backend, backend.ones((2,), "int32"), [1, 1])
    assert backend.randn(2, 2).shape == (2, 2)
    assert backend.dtype(backend.eye(2)) == "float32"

    class Half(Backend):
        def tensor(self, data, dtype=None):
            return data

    with pytest.raises(TypeError, match="ones, zeros|abstract"):
        Half()


def test_tensor_and_array_are_one_method():
    class ByArray(NumpyBackend):
        def array(self, data, dtype=None):
            return super().array(data, dtype) + 1

    class ByTensor(ByArray):
        def tensor(self, data, dtype=None):
            return super().tensor(data, dtype) * 10

    class Both(ByTensor):
        def array(self, data, dtype=None):
            return np.array([5.0])

        def tensor(self, data, dtype=None):
            return np.array([6.0])

    for backend, expected in ((ByArray(), 2.0), (ByTensor(), 20.0)):
        same(backend, backend.tensor([1.0]), [expected])
        same(backend, backend.array([1.0]), [expected])
    assert Both().array([1.0]) == 5.0
    assert Both().tensor([1.0]) == 6.0


def test_custom_functions():
    backend = TensorOnly()
    backend.register_function("twice", lambda x: 2 * x)
    assert backend.call_custom("twice", 4) == 8
    with pytest.raises(ValueError, match="Custom function 'thrice' not registered"):
        backend.call_custom("thrice", 4)
    with pytest.raises(ArgumentError) as error:
        backend.call_custom("twise", 4)
    assert error.value.message == "Custom function 'twise' not registered, did you mean 'twice'?"
    assert "knows 'twice'" in error.value.hint
    with pytest.raises(SignatureError, match="'foo' requires a function, got 3"):
        backend.register_function("foo", 3)
    with pytest.raises(SignatureError, match="register_function: name"):
        backend.register_function(3, lambda x: x)
    assert list(backend._custom) == ["twice"]


def test_registry():
    register_backend("tensor_only", TensorOnly)
    assert isinstance(get_backend("tensor_only"), TensorOnly)
    assert {"numpy", "torch", "jax", "mlx", "tensor_only"} <= set(available_backends())
    with pytest.raises(KeyNotFound, match="no backend named 'numpi', did you mean 'numpy'"):
        get_backend("numpi")
    with pytest.raises(SignatureError):
        register_backend("bad", object)


def test_the_engine_is_told_by_its_own_name_of_a_backend():
    """A class derived from a backend of the engine may have any name; one unknown to it is told."""

    class Renamed(ml.CpuBackend):
        backend_type = "renamed"

    class Unknown(ml.CpuBackend):
        engine_target = "unknown"

    data = {"input": np.ones((1, 4), np.float32)}
    pm = ml.compile(ml.Softmax(), Renamed(), data_keys={"input"})
    np.testing.assert_array_equal(pm.evaluate({}, data)["output"], np.full((1, 4), 0.25))
    with pytest.raises(KeyNotFound, match="engine_target: requires the name .*, got 'unknown'"):
        ml.compile(ml.Softmax(), Unknown(), data_keys={"input"})


def test_a_name_has_one_backend():
    """Another class gets no name that is taken; one that is defined again gets its own."""

    def defined():
        class Again(NumpyBackend):
            pass

        return Again

    register_backend("again", defined())
    register_backend("again", newer := defined())
    assert type(get_backend("again")) is newer
    with pytest.raises(ArgumentError, match="the name 'again' is taken by .*:.*Again"):
        register_backend("again", TensorOnly)
    with pytest.raises(ArgumentError, match="the name 'cpu' is taken by mithril.*:CpuBackend"):
        register_backend("cpu", TensorOnly)
    assert type(get_backend("again")) is newer
    assert type(get_backend("cpu")) is not TensorOnly


# --------------------------------------------------------------------- the process is left alone


@pytest.mark.frameworks
@pytest.mark.skipif(not all(map(installed, FRAMEWORKS)), reason="needs both frameworks")
def test_process_state_is_left_alone():
    import jax
    import sympy  # noqa: F401 - PyTorch imports it late, and it has filters of warnings
    import torch
    from mithril.execution.emitted import EmittedExecutable

    def state():
        return {
            "x64": jax.config.jax_enable_x64,
            "matmul": jax.config.jax_default_matmul_precision,
            "device": jax.config.jax_default_device,
            "tf32": torch.backends.cudnn.allow_tf32,
            "benchmark": torch.backends.cudnn.benchmark,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "dtype": torch.get_default_dtype(),
            "grad": torch.is_grad_enabled(),
            "numpy errors": np.geterr(),
            "warnings": list(warnings.filters),
            "environment": dict(os.environ),
            "torch random": torch.get_rng_state().tolist(),
            "numpy random": np.random.get_state()[1].tolist(),
            "python random": python_random.getstate(),
        }

    before = state()
    text = "def evaluate(v0):\n    return (ops.sum(ops.exp(v0), axis=None, keepdim=False),)\n"
    for name in ("numpy", *FRAMEWORKS):
        for dtype in ("float32", "float64"):
            backend = get_backend(name, dtype=dtype)
            x = backend.randn(3)
            backend.set_seed(3)
            executable = EmittedExecutable(backend, text)
            executable.run([x])
            if not backend.is_manualgrad:
                executable.run_vjp([x], [backend.ones(())], [0])
            assert state() == before


@pytest.mark.frameworks
@pytest.mark.skipif(not installed("jax"), reason="jax is not installed")
def test_global_setters_are_undone():
    import jax

    backend = get_backend("jax")
    backend.enable_x64()
    try:
        assert jax.config.jax_enable_x64
    finally:
        backend.reset()
    assert not jax.config.jax_enable_x64


def test_names_of_plugins_are_taken_and_what_they_offer_is_a_class(tmp_path, monkeypatch):
    points = ["plug_p = plug_module:P", "plug_seven = plug_module:f"]
    write_entry_points(tmp_path, "plug", "mithril.backends", *points)
    code = "import mithril as ml\nclass P(ml.NumpyBackend): pass\ndef f(**_): return 7\n"
    (tmp_path / "plug_module.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))

    class Mine(ml.NumpyBackend):
        pass

    with pytest.raises(ArgumentError, match="'plug_p' is taken by plug_module:P"):
        register_backend("plug_p", Mine)
    with pytest.raises(
        SignatureError, match="plug_seven = plug_module:f of mithril.backends is no"
    ):
        get_backend("plug_seven")
    offered = type(get_backend("plug_p"))
    register_backend("plug_p", offered)
    assert type(get_backend("plug_p")) is offered


def test_classes_that_cannot_be_made_and_empty_names_are_refused():
    class Half(ml.Backend):
        def tensor(self, data, dtype=None):
            return data

    with pytest.raises(SignatureError, match="Half lacks .*zeros"):
        register_backend("half", Half)
    with pytest.raises(ArgumentError, match="may not be empty"):
        register_backend("", ml.NumpyBackend)
    assert not {"half", ""} & set(available_backends())
