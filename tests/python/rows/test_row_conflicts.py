"""Rows K1–K64: conflicts between the documents, and what was made of them.

Those about import paths, options and snippets are proven in one line more here than in the files of
these rows."""

import importlib
import inspect
import os
import pickle
import subprocess
import sys

import mithril as ml
import numpy as np
import pytest
from mithril.backends.backend import Backend
from mithril.errors import (
    InitialParamsWarning,
    KeyNotFound,
    ShapeNotKnown,
    UnsupportedError,
    UnusedKeyWarning,
    UnusedParamsWarning,
)

from tests.python.rows.common import (
    EVERY,
    PARAMS,
    ROOT,
    B,
    W,
    X,
    backend_of,
    close,
    compiled,
    every,
    linear,
    needs,
    values,
)

pytestmark = pytest.mark.documents


def only(layer, **names):
    model = ml.Model()
    model |= layer(**(names or {"input": "x", "output": "y"}))
    return model


def evaluated(model, x, backend=None, **options):
    pm = compiled(model, backend, **options)
    return pm.evaluate({}, {"x": x})["y"]


def test_K1():
    from mithril.backends.with_autograd import mlx_backend

    needs("mlx.core")
    assert ml.MLXBackend is ml.MlxBackend is mlx_backend.MLXBackend is mlx_backend.MlxBackend
    assert repr(ml.MLXBackend()).startswith("MlxBackend(")


def test_K2():
    for path in ("with_autograd.backend", "registry", "with_autograd.jax_backend.parallel"):
        assert importlib.import_module(f"mithril.backends.{path}").__file__
    assert inspect.isfunction(importlib.import_module("mithril.testing.backend_tests").check)
    assert ml.models.LogicalModel is ml.Model and callable(ml.models.resnet18)


class TensorOnly(ml.NumpyBackend):
    def tensor(self, data, dtype=None):
        return super().tensor(data, dtype) + 1


class ArrayOnly(ml.NumpyBackend):
    def array(self, data, dtype=None):
        return super().array(data, dtype) + 1


class Deeper(TensorOnly):
    def array(self, data, dtype=None):
        return super().array(data, dtype) * 10


class Both(ml.NumpyBackend):
    def tensor(self, data, dtype=None):
        return super().tensor(data, dtype) + 1

    def array(self, data, dtype=None):
        return super().array(data, dtype) + 2


def test_K3():
    for cls, want in ((TensorOnly, (1.0, 1.0)), (ArrayOnly, (1.0, 1.0)), (Deeper, (10.0, 10.0)),
                      (Both, (1.0, 2.0))):  # fmt: skip
        backend = cls()
        assert (float(backend.tensor(0.0)), float(backend.array(0.0))) == want, cls
        assert backend.tensor([1], "float64").dtype == np.float64


def test_K4():
    class Own(Backend):
        def tensor(self, data, dtype=None):
            return np.array(data, dtype)

        def zeros(self, shape, dtype=None):
            assert type(shape) is tuple
            return np.zeros(shape, dtype)

        def ones(self, shape, dtype=None):
            return np.ones(shape, dtype)

    for backend in (Own(), ml.NumpyBackend()):
        calls = ((3, 4), ((3, 4),), ([3, 4],), (3, 4, "int32"), ((3, 4), "int32"))
        for made in (backend.zeros(*call) for call in calls):
            assert made.shape == (3, 4) and not made.any()
        assert backend.zeros(3, 4, "int32").dtype == np.int32
        assert backend.randn(2, 5).shape == backend.rand((2, 5)).shape == (2, 5)


@pytest.mark.parametrize("name", EVERY)
def test_K5(name):
    own = type("Own", (type(backend_of(name)),), {})()
    pm = compiled(backend=own, shapes={"x": [4, 3]})
    params = {k: own.array(v) for k, v in PARAMS.items()}
    close(values(own, pm.evaluate(params, {"x": own.array(X)})["y"]), X @ W.T + B)


def test_K6():
    ours = list(inspect.signature(ml.compile).parameters)[1:]
    assert list(inspect.signature(ml.Model().compile).parameters) == ours
    model = ml.Model()
    model |= ml.Linear(2)(input="compile", weight="w", bias="b", output="y")
    pm = model.compile(ml.NumpyBackend(), data_keys={"compile"})
    close(pm.evaluate(PARAMS, {"compile": X})["y"], X @ W.T + B)
    assert model["compile"].key == "compile" and callable(model.compile)


def test_K7():
    model = ml.Model()
    model |= ml.Subtract()(left="z", right="a", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"a", "z"})
    assert tuple(pm.data_keys) == ("z", "a")
    close(pm([5.0], [2.0]), [3.0])
    close(pm(a=[2.0], z=[5.0]), [3.0])
    with pytest.raises(TypeError, match="z"):
        pm([1.0], [2.0], [3.0])
    assert list(inspect.signature(pm).parameters)[:2] == ["z", "a"]
    code = (
        "import mithril as ml\nm = ml.Model()\n"
        "m |= ml.Subtract()(left='z', right='a', output='y')\n"
        "print(*ml.compile(m, ml.NumpyBackend(), data_keys={'a', 'z'}).data_keys)"
    )
    for seed in ("0", "1", "7"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", code]
        out = subprocess.run(command, env=env, capture_output=True, text=True)
        assert out.stdout.split() == ["z", "a"], out.stderr


def test_K8():
    found = compiled().evaluate(PARAMS, {"x": X}, output_gradients={"y": np.ones((4, 2), "f")})
    outputs, gradients = found
    assert found.outputs is outputs and found.gradients is gradients and len(found) == 2
    close(gradients["b"], [4.0, 4.0])


def test_K9():
    pm = compiled()
    params = pm.get_parameters()
    assert type(params) is dict is type(pm.randomize_params()) and list(params) == ["w", "b"]
    with pytest.raises(ShapeNotKnown, match="x"):
        np.asarray(params["w"])
    assert pm.init({"x": X})["w"].shape == (2, 3)
    known = compiled(shapes={"x": [4, 3]})
    first, again = known.get_parameters(), known.randomize_params(seed=0)
    known.randomize_params()
    np.testing.assert_array_equal(first["w"], again["w"])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first))["w"], first["w"])
    wide = compiled(only(ml.Linear(1000), input="x", weight="w", output="y"),
                    shapes={"x": [1, 100]})  # fmt: skip
    drawn = wide.get_parameters()["w"]
    assert np.abs(drawn).max() <= 0.1 and abs(drawn.std() - 0.1 / 3**0.5) < 0.001
    layer = only(ml.Linear(2, init={"weight": "zeros", "bias": 0.5}), input="x", weight="w",
                 bias="b", output="y")  # fmt: skip
    said = compiled(layer, shapes={"x": [4, 3]})
    assert (said.get_parameters()["w"] == 0).all() and (said.randomize_params()["b"] == 0.5).all()
    by_pattern = said.randomize_params(seed=0, init={"w*": "ones"})
    assert (by_pattern["w"] == 1).all() and (by_pattern["b"] == 0.5).all()


def test_K10():
    pm = compiled(shapes={"x": [4, 3]})
    with pytest.warns(InitialParamsWarning):
        _, gradients = pm.evaluate({}, {"x": X}, output_gradients={"y": np.ones((4, 2), "f")})
    assert set(gradients) == {"w", "b"}
    with pytest.raises(KeyNotFound, match="'w'") as error:
        pm.evaluate({"ww": W, "b": B}, {"x": X})
    assert "ww" in str(error.value)
    with pytest.warns(UnusedParamsWarning, match="more"):
        pm.evaluate({**PARAMS, "more": 1}, {"x": X})
    with pytest.raises(KeyNotFound):
        compiled(strict=True).evaluate({**PARAMS, "more": 1}, {"x": X})


def test_K11():
    with pytest.warns(UnusedKeyWarning, match="'xx', did you mean 'x'"):
        pm = ml.compile(linear(), ml.NumpyBackend(), data_keys={"x", "xx"})
    close(pm.evaluate(PARAMS, {"x": X, "xx": 1})["y"], X @ W.T + B)
    with pytest.raises(KeyError, match="xx"):
        ml.compile(linear(), ml.NumpyBackend(), data_keys={"x", "xx"}, strict=True)
    with pytest.raises(KeyNotFound, match="x") as error:
        compiled().evaluate(PARAMS, {"xs": X})
    assert "xs" in str(error.value)


def test_K12():
    """What a call of a layer gives is a request to extend and a connection at once."""
    called = ml.Relu()(input="x", output="h")
    model = ml.Model()
    model |= called
    model |= ml.Multiply().connect(left="h", right="h", output="y")
    close(evaluated(model, X), np.maximum(X, 0) ** 2)
    x = ml.IOKey("x")
    functional = ml.Model.create(y=ml.Relu()(x) * 3)
    close(evaluated(functional, X), np.maximum(X, 0) * 3)


def test_K13():
    for given, want in (
        ({"input": "x"}, np.tanh(np.maximum(X, 0))),
        ({}, np.tanh(np.maximum(X, 0))),
    ):
        model = ml.Model()
        model |= ml.Relu()(input="x", output="h")
        model += ml.Tanh()(**({"input": "h"} if given else {}), output="y")
        close(evaluated(model, X), want)
    twice = {"left": "x", "right": "x"}
    for given, want in (({"left": "x"}, X + np.maximum(X, 0)), (twice, X + X)):
        model = ml.Model()
        model |= ml.Relu()(input="x", output="h")
        model += ml.Add()(**given, output="y")
        close(evaluated(model, X), want)
    model = ml.Model()
    model |= ml.Relu()(input="x", output="h")
    child = ml.Model()
    child |= ml.Add()(left="p", right="q", output="r")
    child.set_cin("p", "q")
    with pytest.raises(KeyError, match="p.*q"):
        model += child(r="y")


def test_K14():
    torch = needs("torch")
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 2, 5, 5)), rng.standard_normal((3, 2, 3, 3))
    names = {"input": "x", "weight": "w", "output": "y"}
    for padding, want in (("same", "same"), ("SAME", "same"), ("Valid", "valid"), (1, 1),
                          ((1, 1), 1), (ml.PaddingType.VALID, "valid")):  # fmt: skip
        for layer in (ml.Conv2d(filters=3, kernel_size=3, padding=padding, use_bias=False),
                      ml.models.Convolution2D(3, 3, padding=padding, use_bias=False)):  # fmt: skip
            got = compiled(only(layer, **names)).evaluate({"w": w}, {"x": x})["y"]
            expected = torch.nn.functional.conv2d(*map(torch.tensor, (x, w)), padding=want)
            close(got, expected, 1e-4, 1e-4)
    pooled = [evaluated(only(c(kernel_size=2)), x[..., :4, :4])
              for c in (ml.MaxPool2d, ml.models.MaxPool2D)]  # fmt: skip
    close(pooled[0], x[..., :4, :4].reshape(1, 2, 2, 2, 2, 2).max((3, 5)))
    close(pooled[1], pooled[0])


def test_K15():
    assert ml.Linear is ml.models.Linear and ml.float == "float32" and ml.bool == "bool"
    assert not {"float", "int", "bool", "compile"} & set(ml.__all__) and "Linear" in ml.__all__


def test_K16():
    x = np.arange(24.0).reshape(2, 3, 4)
    assert evaluated(only(ml.Flatten()), x).tolist() == x.reshape(2, 12).tolist()
    assert ml.NumpyBackend().flatten(x).tolist() == x.reshape(-1).tolist()


def test_K16_error():
    with pytest.raises(ml.errors.MithrilError, match="start_dim"):
        evaluated(only(ml.Flatten()), np.ones(3))


def test_K17():
    import ml_dtypes

    torch, mx, jax = needs("torch"), needs("mlx.core"), needs("jax")
    for given, want in ((ml.float32, "float32"), ("bfloat16", "bfloat16"), (np.int16, "int16"),
                        (np.dtype("float64"), "float64"), (ml_dtypes.bfloat16, "bfloat16"),
                        (torch.float16, "float16"), (mx.bfloat16, "bfloat16"),
                        (jax.numpy.int32, "int32"), (bool, "bool")):  # fmt: skip
        assert ml.as_dtype(given) == want
    table = {"float32": 1}
    assert table.get(ml.float32) == 1 and f"{ml.float32}" == "float32"
    assert ml.float32 == "float32" and hash(ml.float32) == hash("float32")


def test_K18():
    needs("mlx.core")
    pairs = (("dtype", "default_dtype", "float16"), ("seed", "random_seed", 3),
             ("auto_free_tensors", "eager_free", False))  # fmt: skip
    for one, other, value in pairs:
        first, second = (ml.MlxBackend(**{key: value}) for key in (one, other))
        assert (first.default_dtype, first.seed) == (second.default_dtype, second.seed)
        ml.MlxBackend(**{one: value, other: value})
    with pytest.raises(TypeError, match="dtype.*default_dtype"):
        ml.MlxBackend(dtype="float16", default_dtype="float32")


def test_K19():
    needs("torch")
    assert ml.TorchBackend(use_amp=True).compute_dtype == "bfloat16"
    assert ml.TorchBackend(enable_amp=True).compute_dtype == "bfloat16"
    assert compiled(backend=ml.TorchBackend(compile=True)).jit is True
    assert compiled(backend=ml.TorchBackend(jit_compile=True)).jit is True
    with pytest.raises(TypeError, match="enable_amp=True and use_amp=False"):
        ml.TorchBackend(use_amp=False, enable_amp=True)


def test_K20():
    needs("jax")
    backend = ml.JaxBackend(dtype=ml.float32, precision="bfloat16", platform="cpu")
    assert (backend.default_dtype, backend.compute_dtype) == ("float32", "bfloat16")
    pm = compiled(backend=backend, shapes={"x": [4, 3]})
    assert {str(v.dtype) for v in pm.get_parameters().values()} == {"float32"}
    for other in (ml.NumpyBackend(compute_precision="bfloat16"),
                  ml.CpuBackend(compute_precision="bfloat16")):  # fmt: skip
        assert other.compute_dtype == "bfloat16"


@pytest.mark.limited("meshes of several devices are a later feature")
def test_K21():
    needs("mlx.core")
    assert ml.MlxBackend(device_mesh=(1)).device_mesh == (1,)
    with pytest.raises(UnsupportedError, match=r"device_mesh=\(2,\)"):
        ml.MlxBackend(device_mesh=2)


def test_K22():
    for dtype in ("float16", "float32", "float64", "bfloat16"):
        made = ml.NumpyBackend(dtype=dtype).ones(2)
        assert made.dtype.name == dtype
    for dtype in ("int8", "int16", "int32", "int64"):
        assert ml.NumpyBackend().array([1, -1], dtype).dtype == np.dtype(dtype)


@every
def test_K23(name):
    """Gradients of one program, whoever runs it: autodiff="engine" everywhere."""
    backend = backend_of(name)
    pm = compiled(backend=backend, autodiff="engine", shapes={"x": [4, 3]})
    params = {k: backend.array(v) for k, v in PARAMS.items()}
    dy = np.arange(8.0).reshape(4, 2)
    found = pm.evaluate(params, {"x": backend.array(X)}, output_gradients={"y": backend.array(dy)})
    close(values(backend, found.gradients["w"]), dy.T @ X)


@pytest.mark.parametrize("name", ["c", "ggml"])
def test_K24(name):
    """They train: ten steps down the slope of a line's squared error, as by hand."""
    backend = backend_of(name)
    w, b = np.zeros((1, 3)), np.zeros(1)
    target = X @ np.array([[1.0, -2.0, 0.5]]).T
    pm = compiled(only(ml.Linear(1), input="x", weight="w", bias="b", output="y"), backend)
    params = {"w": backend.array(w), "b": backend.array(b)}
    for _ in range(10):
        slope = lambda y: 2 * (np.asarray(y) - target) / 4  # noqa: E731
        y = pm.evaluate(params, {"x": X.astype("f")})["y"]
        _, g = pm.evaluate(
            params, {"x": X.astype("f")}, output_gradients={"y": slope(y).astype("f")}
        )
        params = {k: params[k] - 0.1 * g[k] for k in params}
        dy = slope(X @ w.T + b)
        w, b = w - 0.1 * dy.T @ X, b - 0.1 * dy.sum(0)
    close(params["w"], w, 1e-4, 1e-5)
    close(params["b"], b, 1e-4, 1e-5)


def test_K25():
    """No gate for a platform; what to install is named without the package index's `mithril`."""
    needs("mlx.core")
    assert ml.MlxBackend().get_device() == "cpu:0"
    source = (ROOT / "python/mithril/backends/with_autograd/mlx_backend/backend.py").read_text()
    assert "platform.system" not in source and "'mlx[cpu]'" in source


def test_K26():
    mx = needs("mlx.core")
    backend = ml.MlxBackend(dtype="float64", device="cpu")
    assert backend.ones(2).dtype == mx.float64
    params = {"w": backend.array([[1 / 3, 0, 0]] * 2), "b": backend.zeros(2)}
    third = compiled(backend=backend).evaluate(params, {"x": np.eye(3)[:1]})["y"]
    assert np.array(third)[0, 0] == 1 / 3
    if mx.device_count(mx.gpu):
        with pytest.raises(UnsupportedError, match="float64"):
            ml.MlxBackend(dtype="float64", device="gpu")


def test_K27():
    needs("mlx.core")
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((32, 64)).astype("f"), rng.standard_normal((8, 64)).astype("f")
    model = only(ml.Linear(32, use_bias=False), input="x", weight="w", output="y")
    pm = compiled(model, ml.MlxBackend(), shapes={"x": [8, 64]})
    got = np.array(pm.bind({"w": w}, weights="int8").evaluate({}, {"x": x})["y"])
    assert 1e-6 < np.abs(got - x @ w.T).max() / np.abs(x @ w.T).max() < 0.02


def test_K28():
    mx = needs("mlx.core")
    from mithril.compat import mlx as compat

    assert not hasattr(mx, "devices")
    with compat.install(devices=True, optimizer_update=False):
        assert mx.devices.cpu == mx.cpu and mx.devices.gpu == mx.gpu
        compat.install()
    assert not hasattr(mx, "devices")
    compat.install()
    compat.uninstall()
    assert not hasattr(mx, "devices")


def test_K29():
    mx, optim = needs("mlx.core"), needs("mlx.optimizers")
    from mithril.compat.mlx import install

    given, slope = {"w": mx.array([1.0, 2.0])}, {"w": mx.array([2.0, 2.0])}
    adopted = ml.optim.adopt(optim.SGD(learning_rate=0.5)).update(dict(given), slope)
    assert np.array(adopted["w"]).tolist() == [0.0, 1.0]
    assert optim.SGD(learning_rate=0.5).update(dict(given), slope) is None
    with install(devices=False):
        found = optim.SGD(learning_rate=0.5).update(dict(given), slope)
    assert np.array(found["w"]).tolist() == [0.0, 1.0]


@pytest.mark.limited("a TPU is needed: the page and the error stand for it")
def test_K30():
    needs("jax")
    from mithril.contrib.tpu import TPUBackend

    text = (ROOT / "docs" / "jax-backend.md").read_text()
    assert "jax_xla_backend" in text and "jax_backend_target" in text and "jax_platforms" in text
    with pytest.raises(RuntimeError, match="no device 'tpu:0'"):
        TPUBackend()


@every
def test_K31(name):
    """Anything with `__array__`, a buffer or DLPack."""
    import array

    backend, mx = backend_of(name), needs("mlx.core")

    class Shows:
        def __array__(self, dtype=None, copy=None):
            return np.array([1.5, 2.5])

    for data in (Shows(), array.array("d", [1.5, 2.5]), mx.array([1.5, 2.5]), memoryview(
            np.array([1.5, 2.5]))):  # fmt: skip
        assert values(backend, backend.array(data)).tolist() == [1.5, 2.5]


def test_K32():
    module = importlib.import_module("mithril.backends.with_manualgrad.cpu_backend")
    assert module.CpuBackend is ml.CpuBackend and ml.CpuBackend().is_manualgrad
    assert ml.CpuBackend().capabilities.autodiff == "engine"
    assert ml.CudaBackend.backend_type == "cuda" and ml.CudaBackend.is_manualgrad


def test_K33():
    torch = needs("torch")
    backend = backend_of("torch")
    pm = compiled(backend=backend, jit=True, shapes={"x": [4, 3]},
                  jit_options={"backend": "torchscript"})  # fmt: skip
    params = {k: backend.array(v) for k, v in PARAMS.items()}
    close(values(backend, pm.evaluate(params, {"x": backend.array(X)})["y"]), X @ W.T + B)
    (traced,) = pm._compilation.program.forward.compiled._traces.values()
    assert isinstance(traced, torch.jit.ScriptFunction)


@pytest.mark.parametrize("name", EVERY)
def test_K34(name):
    backend, torch, mx = backend_of(name), needs("torch"), needs("mlx.core")
    pm = compiled(backend=backend, shapes={"x": [4, 3]})
    params = {k: backend.array(v) for k, v in PARAMS.items()}
    x = X.astype("f")
    for given in (x, x.tolist(), torch.tensor(x), mx.array(x)):
        close(values(backend, pm.evaluate(params, {"x": given})["y"]), X @ W.T + B)


def test_K35():
    pm = compiled()
    dy = np.ones((4, 2), np.float32)
    assert set(pm.evaluate(PARAMS, {"x": X}, output_gradients={"y": dy}).gradients) == {"w", "b"}
    asked = pm.evaluate(PARAMS, {"x": X}, output_gradients={"y": dy}, wrt=["x"]).gradients
    assert set(asked) == {"w", "b", "x"}
    close(asked["x"], dy @ W)


@every
def test_K36(name):
    """Cotangents as a function of the outputs: one pass."""
    backend = backend_of(name)
    pm = compiled(backend=backend, shapes={"x": [4, 3]})
    params = {k: backend.array(v) for k, v in PARAMS.items()}
    found = pm.evaluate(params, {"x": backend.array(X)},
                        output_gradients=lambda out: {"y": 2 * out["y"]})  # fmt: skip
    close(values(backend, found.gradients["b"]), 2 * (X @ W.T + B).sum(0))
