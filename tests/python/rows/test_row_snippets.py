"""Rows W1–W27: whole snippets, run from the documents with lines that check them.

The blocks are run as `test_documents` runs them, a notebook for each document; what stands here of
their results is by hand or by NumPy."""

import contextlib
import io
import subprocess
import sys

import mithril as ml
import numpy as np
import pytest

from tests.python.rows.common import ROOT, close, linear, needs
from tests.python.test_documents import PRELUDES, block_source

pytestmark = pytest.mark.documents
NO_GPU = "a GPU is needed: without one the block names the devices that are there"


def notebook(documents, *labels, names=None, change=()):
    """The namespace after these blocks, each behind its prelude; what they print is "printed"."""
    namespace = {"__name__": "notebook", **(names or {})}
    out = io.StringIO()
    for label in labels:
        exec(PRELUDES.get(label, ""), namespace)
        source = block_source(documents, label)
        for old, new in change:
            source = source.replace(old, new)
        with contextlib.redirect_stdout(out):
            exec(compile(source, label, "exec"), namespace)
    namespace["printed"] = out.getvalue()
    return namespace


def has_cuda():
    return needs("torch").cuda.is_available()


def mlx():
    return needs("mlx.core")


@pytest.mark.slow
def test_W1(documents):
    line = "from mithril.testing.backend_tests import run_backend_tests"
    few = "run_backend_tests = partial(run_backend_tests, ops=['add', 'tanh'], samples=1)"
    ops = (line, f"from functools import partial\n{line}\n{few}")
    ns = notebook(documents, "S0.2", "S0.7", "S0.8", change=[ops])
    assert ns["printed"] == "Passed: 2/2 tests\n"
    assert ns["backend"].ones(2).tolist() == [1.0, 1.0]
    close(linear().compile(ns["backend"], data_keys={"x"}).evaluate(
        {"w": np.eye(2), "b": np.ones(2)}, {"x": [[2.0, 3.0]]})["y"], [[3.0, 4.0]])  # fmt: skip


def test_W2(documents):
    backend = notebook(documents, "S0.5")["EnhancedNumpyBackend"](use_bfloat16=True)
    assert float(backend.tensor(np.pi, "bfloat16")) == 3.140625
    close(backend.solve(4 * np.eye(2), np.ones(2)), [0.25, 0.25])


def test_W3(documents):
    needs("jax")
    from mithril.backends.backend import Backend

    cls = notebook(documents, "S0.6", names={"Backend": Backend})["TPUBackend"]
    with pytest.raises(TypeError, match="abstract"):
        cls()
    made = {"tensor": np.array, "zeros": np.zeros, "ones": np.ones}
    with pytest.raises(ImportError, match="^JAX is required for TPUBackend. Please install jax"):
        type("Full", (cls,), made)()


def test_W4(documents):
    needs("jax")
    with pytest.warns(ml.errors.EmptyModelWarning):
        ns = notebook(documents, "S1.4")
    assert ns["output"] == {} and type(ns["model"]) is ml.Model


@pytest.mark.limited(NO_GPU)
def test_W5(documents):
    needs("jax")
    for label in ("S1.5", "S1.6"):
        if has_cuda():
            return
        with pytest.raises(ml.errors.DeviceNotAvailable, match="available: cpu:0"):
            notebook(documents, label, names={"JaxBackend": ml.JaxBackend,
                     "TorchBackend": ml.TorchBackend, "MlxBackend": ml.MlxBackend})  # fmt: skip


@pytest.mark.parametrize("name", ["numpy", "torch", "jax", "mlx", "cpu"])
def test_W6(documents, name):
    backend = ml.get_backend(name) if name in ("numpy", "cpu") else None
    if backend is None:
        needs({"mlx": "mlx.core"}.get(name, name))
        backend = ml.get_backend(name)
    ns = notebook(documents, "S1.7", "S1.8", names={"backend": backend})
    to = backend.to_numpy
    close(to(ns["z"]), [5.0, 7.0, 9.0])
    close(to(ns["w"]), 32.0)
    close(to(ns["c"]), 21.0)
    assert ns["shape"] == (2, 2) and ns["dtype"] == "float32"
    needs("jax")
    assert notebook(documents, "S1.9")["printed"] == "[2. 4. 6.]\n"


@pytest.mark.limited("parallelism is a later feature")
def test_W7(documents):
    needs("jax")
    with pytest.raises(NotImplementedError, match="data_parallel"):
        notebook(documents, "S1.10", names={"jax_backend": ml.JaxBackend(), "ml": ml})
    with pytest.raises(NotImplementedError, match="place_model"):
        ml.JaxBackend().place_model(linear(), {"layer1": 0, "layer2": 1})


@pytest.mark.limited("no GPU: its device is changed to the CPU")
def test_W8(documents):
    needs("jax"), mlx()
    device = "cuda" if has_cuda() else "cpu"
    ns = notebook(documents, "S2.1", change=[('device="cuda"', f'device="{device}"')])
    models = [ns[f"{name}_model"] for name in ("torch", "jax", "mlx")]
    for pm in models:
        trained = [key for key in pm.param_keys if "running" not in key]
        assert sum(int(np.prod(pm.shapes[key])) for key in trained) == 11_689_512
        assert pm.shapes["output"] == [1, 1000]


def test_W9(documents):
    """With a smaller net and fewer runs; the transformer's branch wants integers."""
    needs("torch"), needs("jax")

    def small_net():
        model = ml.Model()
        model |= ml.Conv2d(filters=2, kernel_size=3)(input="input", output="h")
        model += ml.Flatten()
        model += ml.Linear(3)
        return model

    small = [("num_runs=100", "num_runs=2"), ("224, 224", "8, 8"),
             ("model = resnet18(num_classes=1000)", "model = small_net()")]  # fmt: skip
    ns = notebook(documents, "S2.2", names={"ml": ml, "small_net": small_net}, change=small)
    assert set(ns["results"]) == {"torch", "jax", "numpy"}
    assert all(0 < seconds < 60 for seconds in ns["results"].values())
    with pytest.raises((TypeError, ValueError), match="integer"):
        gpt = ml.models.create_gpt(bias=True, block_size=8, dims=8, num_heads=2, num_layers=1,
                                   vocab_size=11)  # fmt: skip
        pm = ml.compile(gpt, ml.NumpyBackend(), data_keys={"input"}, shapes={"input": [1, 8]})
        pm.evaluate({}, {"input": np.zeros((1, 8), np.float32)})


def test_W10(documents):
    """One epoch of Adam by PyTorch, from the same start; then the outputs on JAX."""
    torch = needs("torch")
    needs("jax")
    cpu = [] if has_cuda() else [('device="cuda"', 'device="cpu"')]
    with pytest.warns(ml.errors.UnusedKeyWarning, match="target"):
        ns = notebook(documents, "S2.3", change=cpu)
    start = ns["torch_model"].init({"input": ns["jax_input"]})
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    for parameter, value in zip(net.parameters(), start.values(), strict=True):
        parameter.data = value.cpu().reshape(parameter.shape).clone()
    adam = torch.optim.Adam(net.parameters(), 1e-3)
    for x, t in ns["training_data"]:
        adam.zero_grad()
        torch.nn.functional.mse_loss(net(torch.tensor(x)), torch.tensor(t).float()).backward()
        adam.step()
    close(ns["outputs"]["output"], net(torch.tensor(ns["jax_input"])).detach())


def test_W11(documents):
    needs("torch"), needs("jax"), mlx()
    ns = notebook(documents, "S2.4")
    for name in ("jax", "torch", "mlx"):
        pm = ns[f"{name}_model"]
        assert pm.jit is True and set(pm.data_keys) == {"input"}
        assert pm.backend.backend_type == name


@pytest.mark.limited("parallelism is a later feature")
def test_W12(documents):
    needs("torch")
    cpus = [('["cuda:0", "cuda:1"]', '["cpu", "cpu"]')]
    with pytest.raises(NotImplementedError, match="parallel_strategy='data_parallel'"):
        notebook(documents, "S2.5", change=cpus)


def test_W13(documents):
    """Of CLIP's RN50 102,007,137 parameters belong to an embedding of 1024 (OpenAI's file)."""
    needs("torch"), needs("jax"), mlx()
    ns = notebook(documents, "S2.6", "S2.7", names={"ml": ml})
    clip = ns["jax_clip"]
    count = sum(int(np.prod(clip.shapes[k])) for k in clip.param_keys if "running" not in k)
    assert count == 102_007_137 - (512 * 2048 + 512) - 512 * 512
    assert ns["decoder"].shapes["output"][-1] == 32128
    assert ns["mlx_gpt"].shapes["output"][-1] == 50304


def test_W14(documents):
    mx = mlx()
    from mithril.compat.mlx import install

    cpu = [("mx.devices.gpu", "mx.devices.cpu")] if not mx.device_count(mx.gpu) else []
    with install(), pytest.warns(ml.errors.EmptyModelWarning):
        ns = notebook(documents, *(f"S3.{i}" for i in range(2, 9)), change=cpu)
    assert isinstance(ns["x"], mx.array) and ns["np_array"].shape == (3, 4)
    np.testing.assert_array_equal(np.array(ns["zeros"]), np.zeros((3, 4)))
    np.testing.assert_array_equal(np.array(ns["ones"]), np.ones((3, 4)))
    ns["backend"].reset()


def mlx_names(label):
    """A layer, data and a loss for the blocks that train on MLX."""
    names = {"MLXBackend": ml.MlxBackend, "ml": ml, "mx": mlx()}
    exec(PRELUDES["S3.9"], names)
    return names


def test_W15(documents):
    names = mlx_names("S3.11")
    exec(PRELUDES["S3.11"], names)
    ns = notebook(documents, "S3.11", names=names)
    x = np.array(ns["inputs"], np.float64)
    slopes = [np.array(g) for g in ns["grads"].values()]
    for slope in slopes:
        want = np.ones((4, 2)).T @ x if slope.ndim == 2 else np.full(2, 4.0)
        close(slope, want)


def test_W16(documents):
    """It reads `outputs` before there are any; behind S3.9 those of the step before it."""
    names = mlx_names("S3.13")
    with pytest.raises(NameError, match="outputs"):
        notebook(documents, "S3.13", names=dict(names))
    ns = notebook(documents, "S3.9", "S3.13", names=names)
    pm = ns["compiled_model"]
    earlier, params = (
        [np.array(given[key], np.float64) for key in ("weight", "bias")]
        for given in (pm.randomize_params(0), pm.get_parameters())
    )
    # Two epochs by hand: the targets are zeros.
    x = np.ones((4, 3))
    outputs = x @ earlier[0].T + earlier[1]
    for _ in range(2):
        slope, outputs = 2 * outputs, x @ params[0].T + params[1]
        params = [params[0] - 0.1 * slope.T @ x, params[1] - 0.1 * slope.sum(0)]
    for key, value in zip(("weight", "bias"), params, strict=True):
        close(ns["params"][key], value, 1e-4)


def test_W17(documents):
    """MLX's own `update` returns None, so the block needs the additions."""
    needs("mlx.optimizers")
    from mithril.compat.mlx import install

    names = mlx_names("S3.14")
    with pytest.raises(AttributeError):
        notebook(documents, "S3.14", names=dict(names))
    with install():
        before = {k: np.array(v) for k, v in names["params"].items()}
        ns = notebook(documents, "S3.14", names=names)
    # Adam by its formulas, without bias correction; gradients of one size stay as they are.
    steps = 0.001 * (0.1 / 0.001**0.5 + 0.19 / 0.001999**0.5)
    for key, value in ns["params"].items():
        close(np.abs(np.array(value) - before[key]), np.full(before[key].shape, steps), 1e-3)


def test_W18(documents, tmp_path, monkeypatch):
    mlx()
    monkeypatch.chdir(tmp_path)
    backend = ml.MlxBackend()
    ns = notebook(documents, "S3.15", names={"backend": backend, "ml": ml})
    pm = ml.compile(ns["model"], backend, data_keys={"input"}, shapes={"input": [2, 3]})
    params = pm.get_parameters()
    x = np.ones((2, 3), np.float32)
    first = np.array(pm.evaluate(params, {"input": x})["output"])
    h = [np.array(v, np.float64) for v in params.values()]
    (w1, b1), (w2, b2) = ((next(a for a in h if a.shape == s) for s in shapes)
                          for shapes in (((64, 3), (64,)), ((10, 64), (10,))))  # fmt: skip
    inner = x @ w1.T + b1
    close(first, np.maximum(0.01 * inner, inner) @ w2.T + b2, 1e-4, 1e-5)
    again = notebook(documents, "S3.16", names={"backend": backend, "params": params})
    close(np.array(pm.evaluate(again["params"], {"input": x})["output"]), first)


@pytest.mark.limited("coremltools has no such class: the replacement runs")
def test_W19(documents):
    mx = mlx()
    with pytest.raises(ImportError):
        notebook(documents, "S3.19", names={"np_array": np.ones(3), "mx": mx})
    backend = ml.MlxBackend()
    assert np.array(backend.from_mlx(mx.array(np.ones(3)))).tolist() == [1.0, 1.0, 1.0]


def test_W20(documents):
    mlx()
    np.random.seed(0)
    ns = notebook(documents, "S3.34")
    lines = ns["printed"].splitlines()
    assert len(lines) == 10 and lines[9].startswith("Epoch 9, Accuracy: ")
    predictions = np.array(ns["predictions"], np.float64)
    close(predictions.sum(1), np.ones(100))
    assert float(lines[9].split()[-1]) == pytest.approx(np.mean(predictions.argmax(1) == ns["y"]))


def test_W21(documents):
    mx = mlx()
    pm = notebook(documents, "S3.35", names={"ml": ml, "MLXBackend": ml.MlxBackend, "mx": mx})[
        "compiled_model"
    ]
    x = np.ones((2, 3, 8, 8), np.float16)
    params = pm.init({"input": x})
    shapes = sorted(tuple(v.shape) for v in params.values())
    weights = [(16, 3, 3, 3), (32, 16, 3, 3), (64, 128), (10, 64)]
    assert shapes == sorted([*weights, (1, 16, 1, 1), (1, 32, 1, 1), (64,), (10,)])
    out = pm.evaluate(params, {"input": x})["output"]
    assert out.dtype == mx.float16 and tuple(out.shape) == (2, 10)


@pytest.mark.limited(NO_GPU + "; meshes are a later feature")
def test_W22(documents):
    needs("jax"), needs("torch"), mlx(), needs("ggml")
    ns = notebook(documents, "S4.3", "S4.4", "S4.5", "S4.8", "S4.9", "S4.10", "S4.11")
    assert type(ns["backend"]) is ml.CBackend and ns["backend"].default_dtype == "float32"
    if not has_cuda():
        for label, device in (
            ("S4.1", "gpu"),
            ("S4.2", "cuda"),
            ("S4.6", "gpu"),
            ("S4.7", "cuda:0"),
        ):
            with pytest.raises((RuntimeError, NotImplementedError), match=device):
                notebook(documents, label, names={"ml": ml})


def test_W23(documents):
    needs("torch"), needs("jax"), mlx()
    ns = notebook(documents, "S4.12", "S4.13")
    for key, value in ns["mlx_params"].items():
        np.testing.assert_array_equal(np.array(value), ns["torch_params"][key].numpy())
    shapes = sorted(tuple(v.shape) for v in ns["jax_params"].values())
    assert shapes == [(2,), (2, 4), (4,), (4, 3)]


def test_W24(documents):
    """On Linux `pip install mlx` gives a package that does not import; ours names the right one."""
    code = (
        "import sys\nsys.modules['mlx'] = None\nsys.modules['mlx.core'] = None\n"
        "import mithril as ml\n"
        "try: ml.MlxBackend()\nexcept RuntimeError as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'mlx[cpu]'" in out.stdout
    assert 'pip install "mlx[cpu]"' in (ROOT / "docs" / "backends.md").read_text()


def test_W25(documents):
    mx = mlx()
    backend = ml.MlxBackend()
    ns = notebook(documents, "S3.12", "S3.22", "S3.23")
    assert ns["batch_size"] == 32
    ns["large_tensor"] = backend.block_until_ready(backend.ones(10**7))
    held = backend.get_memory_info()["used_bytes"]
    source = block_source(documents, "S3.25")
    exec(source, ns)
    assert held - mx.get_active_memory() >= 4 * 10**7 and "large_tensor" not in ns


def test_W26(documents):
    mx = mlx()
    names = {"MLXBackend": ml.MlxBackend, "mx": mx, "inputs": mx.array([1.0, 5.0])}
    ns = notebook(documents, *(f"S3.{i}" for i in (20, 21, 24, 30, 31, 32, 33)), names=names)
    assert np.array(ns["inputs"]).tolist() == [-1.0, 1.0]  # mean 3, std 2
    assert ns["backend"].default_dtype == "float32"


def test_W27(documents, caplog):
    mx = mlx()
    backend = ml.MlxBackend()
    names = {"backend": backend, "ml": ml, "model": linear(), "tensor": mx.ones((2, 3))}
    with caplog.at_level("DEBUG", logger="mithril"):
        ns = notebook(documents, "S3.26", "S3.27", "S3.28", "S3.29", names=names)
    assert "Used memory: " in ns["printed"] and " MB\n" in ns["printed"]
    assert "Shape: (2, 3), Dtype: float32\n" in ns["printed"]
    assert "Contains NaN: " in ns["printed"] and not bool(ns["has_nan"])
    assert "w" in caplog.text
