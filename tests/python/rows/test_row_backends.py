"""Rows B1–B40: the interface of backends."""

import types

import mithril as ml
import numpy as np
import pytest
from mithril.backends.backend import Backend
from mithril.testing.backend_tests import run_backend_tests

from tests.python.rows.common import (
    EVERY,
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


class Three(Backend):
    """The documents' `MyCustomBackend`, whose dtypes are looked up as strings."""

    NAMES = {"float32": np.float32, "float64": np.float64, "int32": np.int32, "int64": np.int64,
             "bool": np.bool_}  # fmt: skip

    def __init__(self, *args, **kwargs):
        super().__init__()

    def tensor(self, data, dtype=None):
        return np.array(data, dtype=self.NAMES.get(dtype))

    def zeros(self, shape, dtype=None):
        return np.zeros(shape, dtype=self.NAMES.get(dtype))

    def ones(self, shape, dtype=None):
        return np.ones(shape, dtype=self.NAMES.get(dtype))


@every
def test_B1(name):
    backend = backend_of(name)
    made = backend.tensor([[1.5, 2], [3, 4]], "float32")
    close(values(backend, made), [[1.5, 2], [3, 4]])
    close(values(backend, backend.array([1, 2])), [1, 2])


@every
def test_B2(name):
    backend = backend_of(name)
    for made in (backend.zeros((2, 3)), backend.zeros(2, 3), backend.zeros((2, 3), dtype=None)):
        np.testing.assert_array_equal(values(backend, made), np.zeros((2, 3)))


@every
def test_B3(name):
    backend = backend_of(name)
    for made in (backend.ones((2, 3)), backend.ones(2, 3)):
        np.testing.assert_array_equal(values(backend, made), np.ones((2, 3)))
    assert str(backend.dtype(backend.ones((2,), "int32"))) == "int32"


def test_B4():
    """Three methods run a model; arrays that show nothing ask for the missing pair."""
    close(compiled(backend=Three()).evaluate({"w": W, "b": B}, {"x": X})["y"], X @ W.T + B)

    class Dark(Three):
        def tensor(self, data, dtype=None):
            return types.SimpleNamespace(shape=(), dtype="float32")

    with pytest.raises(NotImplementedError, match="to_numpy and from_numpy"):
        Dark().to_numpy(Dark().tensor(1))


def test_B5():
    assert Three().tensor([1], ml.float64).dtype == np.float64
    report = run_backend_tests(Three(), ops=["Backend.zeros", "add"], samples=1)
    assert report.failed == 0
    told = report.row("Backend.zeros").reasons
    assert any("unsupported dtype float16" in reason for reason in told)


@every
def test_B6(name):
    backend = backend_of(name)
    np.testing.assert_array_equal(values(backend, backend.eye(3)), np.eye(3))
    drawn = values(backend, backend.random_normal((1000,)))
    assert abs(drawn.mean()) < 0.15 and 0.9 < drawn.std() < 1.1
    assert values(backend, backend.randn(3, 4)).shape == (3, 4)


@every
def test_B7(name):
    backend = backend_of(name)
    a, b = np.array([1.0, -2.0, 3.0]), np.array([4.0, 5.0, -0.5])
    for op, want in (("add", a + b), ("subtract", a - b), ("multiply", a * b), ("divide", a / b)):
        close(values(backend, getattr(backend, op)(backend.array(a), backend.array(b))), want)


@every
def test_B8(name):
    backend = backend_of(name)
    a, m = np.array([0.5, 1.0, 2.0]), np.arange(6.0).reshape(2, 3)
    for op in ("exp", "log", "sin", "cos"):
        close(values(backend, getattr(backend, op)(backend.array(a))), getattr(np, op)(a))
    close(values(backend, backend.matmul(backend.array(m), backend.array(m.T))), m @ m.T)


@every
def test_B9(name):
    backend = backend_of(name)
    m = np.arange(6.0).reshape(2, 3)
    x = backend.array(m)
    close(values(backend, backend.reshape(x, (3, 2))), m.reshape(3, 2))
    close(values(backend, backend.transpose(x, (1, 0))), m.T)
    close(values(backend, backend.expand_dims(x, 1)), m[:, None])


@every
def test_B10(name):
    backend = backend_of(name)
    m = np.array([[1.0, -2.0, 3.0], [0.5, 5.0, -1.0]])
    x = backend.array(m)
    for op in ("sum", "mean", "max"):
        want = getattr(m, op)(axis=1)
        close(values(backend, getattr(backend, "reduce_" + op)(x, axis=1)), want)
        close(values(backend, getattr(backend, op)(x, axis=1)), want)


@every
def test_B11(name):
    backend, torch = backend_of(name), needs("torch")
    f = torch.nn.functional
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((2, 3, 6, 6)), rng.standard_normal((4, 3, 3, 3))
    tx, tw, (bx, bw) = torch.tensor(x), torch.tensor(w), map(backend.array, (x, w))
    close(values(backend, backend.conv2d(bx, bw)), f.conv2d(tx, tw), 1e-4, 1e-4)
    close(values(backend, backend.max_pool2d(bx, 2)), f.max_pool2d(tx, 2))
    mean, var = rng.standard_normal(3), rng.random(3) + 0.5
    scale, shift = rng.standard_normal(3), rng.standard_normal(3)

    def shaped(channels):
        return backend.array(channels.reshape(1, 3, 1, 1))

    statistics = {"running_mean": backend.array(mean), "running_var": backend.array(var)}
    got = backend.batch_norm(bx, weight=shaped(scale), bias=shaped(shift), **statistics)
    got = got[0] if isinstance(got, tuple) else got
    want = f.batch_norm(tx, *map(torch.tensor, (mean, var, scale, shift)))
    close(values(backend, got), want, 1e-4, 1e-4)


@every
def test_B12(name):
    """By place, with a dictionary, with a list: sums of squares have the slope 2 x."""
    backend = backend_of(name)

    def of_array(x):
        return backend.sum(x * x)

    x = backend.array([1.0, -2.0])
    close(values(backend, backend.grad(of_array)(x)), [2.0, -4.0])
    value, slope = backend.value_and_grad(of_array)(x)
    assert float(values(backend, value)) == 5.0
    close(values(backend, slope), [2.0, -4.0])
    of_dict = backend.grad(lambda p: backend.sum(p["a"] * p["a"]))({"a": x})
    close(values(backend, of_dict["a"]), [2.0, -4.0])
    of_list = backend.grad(lambda p: backend.sum(p[0] * p[0]))([x])
    close(values(backend, of_list[0]), [2.0, -4.0])


class Enhanced(ml.NumpyBackend):
    def __init__(self, use_bfloat16=False):
        super().__init__()
        self.use_bfloat16 = use_bfloat16
        self.made = 0

    def tensor(self, data, dtype=None):
        self.made += 1
        if dtype == "bfloat16" and self.use_bfloat16:
            bits = np.array(data, dtype=np.float32).view(np.uint32) & 0xFFFF0000
            return bits.view(np.float32)
        return super().tensor(data, dtype)

    def solve(self, a, b):
        return np.linalg.solve(a, b)


def test_B13():
    made = Enhanced().tensor([1, 2], "float64")
    assert made.dtype == np.float64 and made.tolist() == [1.0, 2.0]


def test_B14():
    """pi cut to 8 bits of mantissa is 3.140625; constants of a graph come from `tensor`, too."""
    assert float(Enhanced(use_bfloat16=True).tensor(np.pi, "bfloat16")) == 3.140625

    class Shifted(ml.NumpyBackend):
        def tensor(self, data, dtype=None):
            return super().tensor(data, dtype) + np.float32(1)

    model = ml.Model()
    model |= ml.Add()(left="x", right=ml.Tensor([10.0, 20.0]), output="y")
    pm = ml.compile(model, Shifted(), data_keys={"x"}, shapes={"x": [2]})
    got = pm.evaluate({}, {"x": np.zeros(2, np.float32)})["y"]
    assert got.tolist() == [11.0, 21.0]


def test_B15():
    backend = Enhanced()
    close(backend.solve(2 * np.eye(2), np.array([1.0, 3.0])), [0.5, 1.5])
    found = ml.NumpyBackend(dtype="float64").solve(np.diag([2.0, 4.0]), np.ones((2, 1)))
    close(found, [[0.5], [0.25]])


@every
def test_B16(name):
    backend = backend_of(name)
    backend.register_function("row_twice", lambda x: 2 * x)
    assert backend.call_custom("row_twice", 3) == 6
    with pytest.raises(ValueError, match="^Custom function 'row_thrice' not registered"):
        backend.call_custom("row_thrice")
    tensor = ml.IOKey(shape=[("V", ...)], type=ml.Tensor[float])
    model = ml.Model()
    model |= ml.Lambda("row_twice", input=tensor, output=tensor)(input="x", output="y")
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [2]})
    close(values(backend, pm.evaluate({}, {"x": backend.array([1.0, -4.0])})["y"]), [2.0, -8.0])


@pytest.mark.limited("a TPU is needed: without one its constructor lists what there is")
def test_B17():
    needs("jax")
    from mithril.contrib.tpu import TPUBackend

    assert issubclass(TPUBackend, ml.JaxBackend)
    with pytest.raises(RuntimeError, match="available: cpu:0"):
        TPUBackend()


def test_B18():
    report = run_backend_tests(ml.NumpyBackend(), ops=["add", "relu"], samples=1)
    assert (report.passed, report.total, report.failed, report.skipped) == (2, 2, 0, 0)
    assert report.native == 2 and report.fallback == 0
    assert "| relu | passed |" in report.to_markdown() and "<table>" in report._repr_html_()
    assert f"{report.passed}/{report.total}" == "2/2"


def test_B19():
    ml.register_backend("row_custom", Three)
    assert type(ml.get_backend("row_custom")) is Three
    assert ml.get_backend("row_custom").zeros(2).tolist() == [0.0, 0.0]


def test_B20():
    assert ml.NumpyBackend().dtype_map["int16"] == np.int16
    assert ml.NumpyBackend().dtype_map[ml.float64] == np.float64
    torch = needs("torch")
    assert ml.TorchBackend().dtype_map["bfloat16"] is torch.bfloat16


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("name", EVERY)
def test_B21(name, padding):
    backend, torch = backend_of(name), needs("torch")
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((1, 2, 5, 5)), rng.standard_normal((3, 2, 3, 3))
    want = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(w), padding=padding.lower())
    bx, bw = backend.array(x), backend.array(w)
    got = backend.conv2d(bx, bw, (3, 3), (1, 1), padding)
    close(values(backend, got), want, 1e-4, 1e-4)
    named = backend.conv2d(x=bx, filters=bw, kernel_size=3, strides=1, padding=padding)
    close(values(backend, named), want, 1e-4, 1e-4)


def test_B21_as_the_method_of_a_class():
    """What a class defines in this signature is what a model runs."""
    torch = needs("torch")

    class Own(ml.NumpyBackend):
        def conv2d(self, x, filters, kernel_size, strides=(1, 1), padding="SAME"):
            self.seen = (kernel_size, strides)
            return 2 * super().conv2d(x, filters, kernel_size, strides, padding)

    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((1, 2, 5, 5)), rng.standard_normal((3, 2, 3, 3))
    model = ml.Model()
    model |= ml.Conv2d(filters=3, kernel_size=3, stride=2, padding=1, use_bias=False)(
        input="x", weight="w", output="y")  # fmt: skip
    backend = Own()
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [1, 2, 5, 5]})
    want = 2 * torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(w), stride=2, padding=1)
    close(pm.evaluate({"w": w.astype("f")}, {"x": x})["y"], want, 1e-4, 1e-4)
    assert backend.seen[0] == (3, 3)


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_B22(name):
    """The hook wins over what the framework would do: three times the slope of tanh."""
    base = type(backend_of(name))

    class Steep(base):
        def backward_tanh(self, grad_output, inputs, outputs):
            assert isinstance(inputs, tuple) and isinstance(outputs, tuple)
            return 3 * grad_output * (1 - outputs[0] * outputs[0])

    model = ml.Model()
    model |= ml.Tanh()(input="x", output="y")
    pm = ml.compile(model, Steep(), shapes={"x": [2]}, trainable_keys={"x"})
    x = np.array([0.3, -1.0], np.float32)
    found = pm.evaluate({"x": x}, output_gradients={"y": np.ones(2, np.float32)}).gradients["x"]
    close(values(pm.backend, found), 3 / np.cosh(x) ** 2)


@every
def test_B23(name):
    """`execute` runs every program of compiled models, and a class may have its own."""
    base = type(backend_of(name))
    seen = []

    class Own(base):
        def execute(self, graph, buffers):
            seen.append([tuple(np.shape(x)) for x in buffers])
            assert graph.outputs == ("y",) and set(graph.inputs) == {"x", "w", "b"}
            return super().execute(graph, buffers)

    backend = Own()
    got = compiled(backend=backend, shapes={"x": [4, 3]}).evaluate(
        {"w": backend.array(W), "b": backend.array(B)}, {"x": backend.array(X)}
    )["y"]
    close(values(backend, got), X @ W.T + B)
    assert len(seen) == 1 and sorted(seen[0]) == [(2,), (2, 3), (4, 3)]


def test_B24():
    text = (ROOT / "docs" / "custom_backends.md").read_text()
    heads = [line.lower() for line in text.splitlines() if line.startswith("## ")]
    for aim in ("framework", "hardware", "domain", "functions of your own"):
        assert any(aim in head for head in heads), aim


@every
def test_B25(name):
    backend = backend_of(name)
    assert backend.is_manualgrad is (name not in ("torch", "jax", "mlx"))
    assert backend.capabilities.autodiff == ("engine" if backend.is_manualgrad else "framework")


def test_B26(capsys):
    from mithril.cli.__main__ import main

    assert main(["backends", "numpy", "--ops"]) == 0
    out = capsys.readouterr().out
    native, emulated = out.partition("\nemulated")[::2]
    assert "matmul" in native and "layer_norm" in emulated


@every
def test_B27(name):
    backend = backend_of(name)
    pm = linear().compile(backend, data_keys={"x"}, shapes={"x": [4, 3]})
    got = pm.evaluate({"w": backend.array(W), "b": backend.array(B)}, {"x": backend.array(X)})["y"]
    close(values(backend, got), X @ W.T + B)


def test_B28():
    pm = compiled()
    close(pm(X, params={"w": W, "b": B}), X @ W.T + B)


@every
def test_B29(name):
    backend = backend_of(name)
    made = backend.tensor([1, 2, 3], dtype="float32")
    assert backend.dtype(made) == "float32"
    assert values(backend, made).tolist() == [1.0, 2.0, 3.0]


@every
def test_B30(name):
    backend = backend_of(name)
    x, y = backend.tensor([1, 2, 3], dtype="float32"), backend.tensor([4, 5, 6], dtype="float32")
    product = backend.matmul(x, y)
    assert isinstance(product, backend.get_backend_array_type())
    assert tuple(product.shape) == () and float(values(backend, product)) == 32.0


@every
def test_B31(name):
    backend = backend_of(name)
    w = backend.tensor(32.0)
    close(values(backend, backend.sigmoid(w)), 1 / (1 + np.exp(-32.0)))
    assert float(values(backend, backend.relu(backend.tensor(-2.0)))) == 0.0
    assert float(values(backend, backend.reduce_sum(w))) == 32.0
    assert float(values(backend, backend.reduce_mean(w))) == 32.0
    assert isinstance(backend.reduce_mean(w), backend.get_backend_array_type())


@every
def test_B32(name):
    backend = backend_of(name)
    given = np.array([[1.5, 2.0], [3.0, 4.0]], np.float32)
    back = backend.to_numpy(backend.from_numpy(given))
    assert type(back) is np.ndarray and back.dtype == np.float32
    np.testing.assert_array_equal(back, given)


@every
def test_B33(name):
    backend = backend_of(name)
    x = backend.ones(2, 3)
    assert backend.shape(x) == (2, 3) and type(backend.shape(x)) is tuple
    assert backend.dtype(x) == "float32" and isinstance(backend.dtype(x), ml.Dtype)


@every
def test_B34(name):
    backend, other = backend_of(name), ml.NumpyBackend()
    for b in (backend, other):
        b.set_seed(3)
    drawn = values(backend, backend.random_normal(shape=(3, 400), mean=5.0, stddev=2.0))
    assert abs(drawn.mean() - 5) < 0.3 and 1.8 < drawn.std() < 2.2
    close(drawn, other.random_normal(shape=(3, 400), mean=5.0, stddev=2.0))


@every
def test_B35(name):
    backend = backend_of(name)
    backend.set_seed(42)
    first = values(backend, backend.rand(5))
    second = values(backend, backend.rand(5))
    backend.set_seed(42)
    np.testing.assert_array_equal(values(backend, backend.rand(5)), first)
    assert not np.array_equal(first, second)


@every
def test_B36(name):
    backend = backend_of(name)
    grad_f = backend.grad(lambda x: backend.reduce_sum(backend.power(x, 2)))
    found = backend.to_numpy(grad_f(backend.tensor([1.0, 2.0, 3.0])))
    assert str(found) == "[2. 4. 6.]"


@pytest.mark.limited("parallelism is a later feature")
@pytest.mark.parametrize(
    "where", ["with_autograd.jax", "with_autograd.torch", "with_manualgrad.cpu"]
)
def test_B37(where):
    import importlib

    module = importlib.import_module(f"mithril.backends.{where}_backend.parallel")
    with pytest.raises(NotImplementedError, match=r"data_parallel.*num_devices=4"):
        module.data_parallel(lambda x: x, backend=ml.NumpyBackend(), num_devices=4)


@pytest.mark.limited("parallelism is a later feature")
@every
def test_B38(name):
    with pytest.raises(NotImplementedError, match="place_model"):
        backend_of(name).place_model(linear(), {"layer1": 0, "layer2": 1})


def test_B39():
    class Free(Three):
        def __init__(self, *args, **kwargs):
            super().__init__()
            self.given = (args, kwargs)

    assert Free(1, a=2).given == ((1,), {"a": 2})
    assert Free().zeros(2).tolist() == [0.0, 0.0]


def test_B40():
    found = ml.recommend_backend(linear(), shapes={"x": [4, 3]}, backends=["cpu", "numpy"])
    backend = found.make()
    assert type(backend).__name__ in ("CpuBackend", "NumpyBackend")
    assert len(str(found).splitlines()) > 2  # with reasons
    text = (ROOT / "docs" / "backends.md").read_text()
    assert "Choosing a backend" in text
