"""Rows T1–T28: claims and tables. What a document claims of other hardware is kept as a sentence
that says whose claim it is."""

import re
import subprocess
import sys

import mithril as ml
import numpy as np
import pytest

from tests.python.formats import c_cases
from tests.python.rows.common import (
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
from tests.python.test_documents import trained_by_hand

pytestmark = pytest.mark.documents
DOCS = ROOT / "docs"


def pages():
    return {path.name: path.read_text() for path in DOCS.glob("*.md")}


def net():
    model = ml.Model()
    model |= ml.Linear(5)(input="input", weight="w1", bias="b1", output="h1")
    model += ml.Relu()(input="h1", output="a1")
    model += ml.Linear(4)(input="a1", weight="w2", bias="b2", output="h2")
    model += ml.Relu()(input="h2", output="a2")
    model += ml.Linear(3)(input="a2", weight="w3", bias="b3", output="h3")
    model += ml.Softmax()(input="h3", output="output")
    return model


@every
def test_T1(name):
    """One script, the backend's line changed: three steps of a classifier, as by hand."""
    backend = backend_of(name)
    rng = np.random.default_rng(0)
    x, target = rng.standard_normal((6, 7)), np.eye(3)[[0, 1, 2, 0, 1, 2]]
    shapes = {"w1": (5, 7), "b1": (5,), "w2": (4, 5), "b2": (4,), "w3": (3, 4), "b3": (3,)}
    start = {key: rng.standard_normal(shape) / 2 for key, shape in shapes.items()}
    pm = ml.compile(net(), backend, data_keys={"input"})
    params = {key: backend.array(value) for key, value in start.items()}
    for _ in range(3):
        outputs = pm.evaluate(params, {"input": x})
        slope = np.asarray(outputs["output"]) - target
        _, gradients = pm.evaluate(params, {"input": x}, output_gradients={"output": slope})
        params = {key: params[key] - 0.1 * grad for key, grad in gradients.items()}
    predictions, wanted = trained_by_hand(start.values(), x, target, 0.1, 3)
    close(np.asarray(outputs["output"]), predictions, 1e-4, 1e-5)
    for key, want in zip(shapes, wanted, strict=True):
        close(values(backend, params[key]), want, 1e-3, 1e-5)


def test_T2():
    """JAX, PyTorch and MLX differentiate themselves; NumPy, C and ggml are differentiated."""
    kinds = {"jax": "framework", "torch": "framework", "mlx": "framework",
             "numpy": "engine", "c": "engine", "ggml": "engine"}  # fmt: skip
    for name, autodiff in kinds.items():
        backend = backend_of(name)
        assert backend.capabilities.autodiff == autodiff
        assert backend.is_manualgrad is (autodiff == "engine")


def test_T3():
    """Three layers: the model knows no backend, and one compile does not change it."""
    model = linear()
    before = model.to_json()
    for backend in (ml.NumpyBackend(), ml.CpuBackend()):
        pm = compiled(model, backend)
        assert pm.backend is backend
        close(pm.evaluate(PARAMS, {"x": X})["y"], X @ W.T + B)
    assert model.to_json() == before
    rooms = re.findall(r"^\| `(\w+)` \| (.+) \|$", pages()["architecture.md"], re.MULTILINE)
    layers = dict(rooms)
    assert "before they are compiled" in layers["logical"] and "`compile`" in layers["physical"]
    assert "backends" in layers


def test_T4():
    """XLA's, PyTorch's and MLX's compilers get the program; the engine fuses loops."""
    needs("jax")
    import jax

    pm = compiled(backend=backend_of("jax"), jit=True, shapes={"x": [4, 3]})
    function = pm.as_function()
    text = jax.jit(lambda p, x: function(p, {"x": x})["y"]).lower(
        {"w": W.astype("f"), "b": B.astype("f")}, X.astype("f")).as_text()  # fmt: skip
    assert "dot_general" in text
    backend = backend_of("mlx")
    pm = compiled(backend=backend, jit=True)
    params = {k: backend.array(v) for k, v in PARAMS.items()}
    close(values(backend, pm.evaluate(params, {"x": backend.array(X)})["y"]), X @ W.T + B)
    chain = ml.Model()
    chain |= ml.Exponential()(input="x", output="h")
    chain += ml.Sine()(input="h", output="y")
    pm = ml.compile(chain, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [4, 3]})
    assert len(str(pm.explain()).splitlines()) == 1  # one loop for both
    close(pm.evaluate({}, {"x": X})["y"], np.sin(np.exp(X)))


def test_T5():
    report = ml.verify(linear(), ["numpy", "cpu"], shapes={"x": [4, 3]}, data_keys={"x"})
    assert report and [row.nodes > 0 for row in report.rows] == [True] * 3

    class Wrong(ml.NumpyBackend):
        def linear(self, weight, input, bias=None, **attributes):
            return input @ weight.T + 2 * bias

    wrong = ml.verify(linear(), [Wrong()], shapes={"x": [4, 3]}, data_keys={"x"})
    assert not wrong
    assert {"used", "peak", "limit"} <= set(ml.NumpyBackend().get_memory_info())
    assert ml.NumpyBackend().capabilities.dtypes


def test_T6():
    text = pages()["mlx-backend.md"]
    for word in ("lazy", "Metal", "compile"):
        assert word.lower() in text.lower()
    mx = needs("mlx.core")
    with pytest.warns(ml.errors.MithrilWarning, match="Neural Engine"):
        backend = ml.MlxBackend(use_ane=True)
    assert backend.capabilities.autodiff == "framework" and backend.capabilities.jit
    pm = compiled(backend=backend, jit=True)
    assert pm.jit is True
    params = {key: backend.array(value) for key, value in PARAMS.items()}
    y = pm.evaluate(params, {"x": backend.array(X)}, lazy=True)["y"]
    assert isinstance(y, mx.array)
    close(values(backend, y + 1), X @ W.T + B + 1)  # goes on from what is not computed yet


def test_T7():
    """The document's "macOS and Apple silicon only" is not today's: it runs here."""
    import sys

    mx = needs("mlx.core")
    assert sys.platform == "linux"
    assert mx.array([1.0]).item() == 1.0 and ml.MlxBackend().get_device() == "cpu:0"
    assert "Linux" in pages()["mlx-backend.md"] + pages()["backends.md"]
    assert sys.version_info >= (3, 11)


def test_T8():
    lines = [line.strip("| ").split(" | ") for line in pages()["mlx-backend.md"].splitlines()]
    table = {cells[0].lower(): cells[1:] for cells in lines if len(cells) == 4}
    backends = [backend_of(name) for name in ("mlx", "torch", "jax")]
    assert table["apple silicon support"][0] == "native"
    for backend, told in zip(backends, table["automatic differentiation"], strict=True):
        assert (backend.capabilities.autodiff == "framework") is (told == "yes")
    for backend, told in zip(backends, table["jit compilation"], strict=True):
        assert backend.capabilities.jit and told in ("`mx.compile`", "`torch.compile`", "XLA")
    for backend, told in zip(backends, table["multi-gpu"], strict=True):
        assert not backend.capabilities.parallel and told == "not through this package"
    assert table["lazy evaluation"] == ["yes", "no", "under `jit`"]
    assert table["ane support"] == ["no"] * 3


def test_T9():
    """What does not fit says by how much, and what to do."""
    deep = ml.Model()
    deep |= ml.Linear(64)(input="x", output="y")
    pm = ml.compile(deep, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [256, 64]},
                    memory_limit="1KB")  # fmt: skip
    with pytest.raises(MemoryError) as error:
        pm.evaluate({}, {"x": np.ones((256, 64), "f")})
    text = str(error.value)
    # 256 x 64 numbers of 4 bytes are 65.5 kB.
    assert "help: raise memory_limit" in text and "65.5 kB" in text


def test_T10():
    model = ml.Model()
    model |= ml.Log()(input="x", output="h")
    model |= ml.Sine()(input="h", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, check_nan=True)
    with pytest.raises(FloatingPointError, match="log"):
        pm.evaluate({}, {"x": [-1.0, 2.0]})
    close(pm.evaluate({}, {"x": [1.0, 2.0]})["y"], np.sin(np.log([1.0, 2.0])))
    needs("mlx.core")
    assert compiled(backend=ml.MlxBackend(use_graph=False)).jit is False


@pytest.mark.parametrize("name", ["backends.md", "comparison.md"])
def test_T11(name):
    """The tables are those that `mithril docs` makes, and say of each backend what it says."""
    text = pages()[name]
    assert "generated from `capabilities`" in text
    # In a process of its own, as tests before this one may have declared ops.
    code = "from pathlib import Path; from mithril.cli.docs import with_tables\n"
    code += f"print(with_tables(Path({str(DOCS)!r}))[{name!r}], end='')"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout == text
    for key in ("jax", "torch", "mlx", "numpy", "c", "ggml"):
        row = next(line for line in text.splitlines() if f'| "{key}" |' in line)
        gradients, compiler = row.split(" | ")[3:5]
        if key in ("torch", "jax"):
            needs(key)
        if key in ("torch", "jax", "numpy", "c"):
            can = backend_of(key).capabilities
            assert (gradients, compiler == "yes") == (f"by the {can.autodiff}", can.jit)


@every
def test_T12(name):
    """The third derivative of x⁴ is 24 x, on every backend."""
    backend = backend_of(name)
    derivative = ml.Model.create(y=ml.IOKey("x") ** 4)
    for _ in range(3):
        derivative = ml.grad(derivative, "x")
    pm = ml.compile(derivative, backend, data_keys={"x"}, shapes={"x": [2]})
    got = pm.evaluate({}, {"x": backend.array([1.0, -0.5])})["grad_x"]
    close(values(backend, got), [24.0, -12.0])
    assert backend.capabilities.jit is (name in ("torch", "jax", "mlx"))


@every
def test_T13(name):
    backend = backend_of(name)
    devices = backend.capabilities.devices
    assert devices and any(device.startswith("cpu") for device in devices)
    runs_on = {"torch": {"CPU", "GPU (CUDA)", "GPU (Apple)"}, "jax": {"CPU", "GPU", "TPU"},
               "mlx": {"CPU", "GPU"}}  # fmt: skip
    rows = [line.strip("| ").split(" | ") for line in pages()["backends.md"].splitlines()]
    (told,) = [row[6] for row in rows if len(row) == 8 and row[1] == f'"{name}"']
    assert set(told.split(", ")) == runs_on.get(name, {"CPU"})


@pytest.mark.limited("parallelism is a later feature")
@every
def test_T14(name):
    backend = backend_of(name)
    assert backend.capabilities.parallel is False
    for call in (backend.get_parallel_manager, lambda: backend.register_callable(len)):
        with pytest.raises(NotImplementedError, match="this version computes on one device"):
            call()


ALL = "float16 float32 float64 bfloat16"
TICKED = {"jax": ALL, "torch": ALL, "mlx": "float16 float32 bfloat16", "numpy": "float32 float64",
          "c": "float32 float64"}  # fmt: skip


@pytest.mark.parametrize("name", TICKED)
def test_T15(name):
    for dtype in TICKED[name].split():
        backend = backend_of(name, dtype=dtype)
        assert backend.dtype(backend.array([0.5])) == dtype
        pm = compiled(backend=backend, shapes={"x": [4, 3]})
        params = {k: backend.array(v) for k, v in PARAMS.items()}
        got = pm.evaluate(params, {"x": backend.array(X)})["y"]
        assert backend.dtype(got) == dtype
        bound = 3e-2 if "16" in dtype else 1e-5
        close(values(backend, got), X @ W.T + B, bound, bound)


@pytest.mark.parametrize("weights", ["int8", "int16"])
@pytest.mark.parametrize("name", ["jax", "torch", "mlx", "cpu", "c"])
def test_T15_quantised(name, weights):
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((32, 64)).astype("f"), rng.standard_normal((8, 64)).astype("f")
    model = ml.Model()
    model |= ml.Linear(32, use_bias=False)(input="x", weight="w", output="y")
    backend = backend_of(name)
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [8, 64]}, quantize=weights)
    for one, params in ((pm, {"w": backend.array(w)}), (pm.bind({"w": w}), {})):
        got = values(backend, one.evaluate(params, {"x": backend.array(x)})["y"])
        error = np.abs(got - x @ w.T).max() / np.abs(x @ w.T).max()
        assert (1e-6 < error < 0.02) if weights == "int8" else error < 1e-4


def test_T16():
    needs("jax")
    backend = backend_of("jax")
    x = backend.array([1.0, 2.0, 3.0])
    square = backend.jacrev(lambda x: x * x)(x)
    close(np.asarray(square), np.diag([2.0, 4.0, 6.0]))
    close(np.asarray(backend.jacfwd(lambda x: x * x)(x)), np.diag([2.0, 4.0, 6.0]))
    close(np.asarray(backend.vmap(lambda row: row.sum())(backend.array(X))), X.sum(1))


def test_T17():
    text = pages()["jax-backend.md"].lower()
    for limit in ("first", "shape", "debug"):
        assert limit in text
    jax = needs("jax")
    backend = backend_of("jax")
    with pytest.raises(TypeError):
        backend.ones(2)[0] = 3.0  # arrays do not change
    seen = []
    backend.register_function("noted", lambda x: seen.append(type(x)) or x + 1)
    model = ml.Model()
    anything = ml.IOKey(shape=[("V", ...)], type=ml.Tensor[float])
    model |= ml.Lambda("noted", input=anything, output=anything)(input="x", output="y")
    compiles = ml.compile(model, backend, data_keys={"x"}, jit=True)
    for size in (2, 2, 3, 3):
        compiles.evaluate({}, {"x": np.ones(size)})
    assert len(seen) == 2 and all(issubclass(kind, jax.core.Tracer) for kind in seen)
    seen.clear()
    by_line = ml.compile(model, backend, data_keys={"x"}, jit=False)
    for size in (2, 2, 3):
        by_line.evaluate({}, {"x": np.ones(size)})
    assert len(seen) == 3 and not any(issubclass(kind, jax.core.Tracer) for kind in seen)


def test_T18(tmp_path):
    """Line-by-line source in a file, which runs as that file."""
    needs("torch")
    path = tmp_path / "model.py"
    backend = backend_of("torch")
    pm = compiled(backend=backend, jit=False, file_path=path, shapes={"x": [None, 3]})
    params = {k: backend.array(v) for k, v in PARAMS.items()}
    close(values(backend, pm.evaluate(params, {"x": X})["y"]), X @ W.T + B)
    assert "def evaluate(" in path.read_text() and "ops.linear" in path.read_text()
    assert pm._compilation.program.forward.function.__code__.co_filename == str(path)
    for size in (1, 7):  # dynamic
        x = np.ones((size, 3))
        close(values(backend, pm.evaluate(params, {"x": x})["y"]), x @ W.T + B)


def test_T19():
    text = pages()["mlx-backend.md"]
    assert "10%" in text and "original guide" in text


def test_T20():
    text = pages()["jax-backend.md"]
    assert "up to 2x faster than PyTorch" in text and "original guide" in text


def test_T21():
    """Only NumPy is needed: no framework is loaded by what the NumPy backend does."""
    code = (
        "import sys, mithril as ml\n"
        "model = ml.Model()\n"
        "model |= ml.Linear(2)(input='x', weight='w', bias='b', output='y')\n"
        "pm = ml.compile(model, ml.NumpyBackend(), data_keys={'x'})\n"
        "out = pm.evaluate({'w': [[1.0, 2.0]] * 2, 'b': [0.0, 1.0]}, {'x': [[3.0, 4.0]]})\n"
        "print(out['y'].tolist(), {'torch', 'jax', 'mlx', 'ggml'} & set(sys.modules))"
    )
    import sys

    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[[11.0, 12.0]] set()"
    source = compiled(shapes={"x": [4, 3]}).source
    assert "ops.linear" in source and len(source.splitlines()) < 20


def test_T22(tmp_path):
    """A program of its own: compiled without Python, its numbers are NumPy's."""
    model = linear()
    pm = compiled(model, ml.CpuBackend(), shapes={"x": [4, 3]})
    params = {k: v.astype("f") for k, v in PARAMS.items()}
    pm.export_c(tmp_path, params=params, name="net")
    text = (tmp_path / "net.c").read_text() + (tmp_path / "net.h").read_text()
    assert "Python.h" not in text and "malloc" not in text
    c_cases.built(tmp_path)
    c_cases.write_inputs(tmp_path, {"x": X})
    close(c_cases.run(tmp_path)["y"], X @ W.T + B)


def test_T23():
    """C trains: its gradients are those of NumPy's formula; sizes of a batch may be open."""
    pm = compiled(backend=ml.CBackend())
    dy = np.ones((4, 2), np.float32)
    found = pm.evaluate(PARAMS, {"x": X}, output_gradients={"y": dy}).gradients
    close(found["w"], dy.T @ X)
    close(pm.evaluate(PARAMS, {"x": X[:1]})["y"], X[:1] @ W.T + B)
    assert ml.CBackend().capabilities.open_sizes


def test_T24():
    found = ml.recommend_backend(linear(), shapes={"x": [4, 3]}, backends=["numpy", "cpu"])
    assert found.make().backend_type == "cpu"  # kernels of its own before line by line
    assert "with gradients" in str(found)
    inferring = ml.recommend_backend(
        linear(), training=False, dtype="float64", shapes={"x": [4, 3]}, backends=["numpy", "cpu"]
    )
    assert "with gradients" not in str(inferring)
    assert inferring.make().default_dtype == "float64"
    called = ml.Model()
    tensor = ml.IOKey(shape=[("V", ...)], type=ml.Tensor[float])
    called |= ml.Lambda(np.sin, opaque=True, input=tensor, output=tensor)(input="x", output="y")
    for_python = ml.recommend_backend(called, shapes={"x": [4]}, backends=["numpy", "cpu"])
    assert for_python.make().backend_type == "numpy"  # a Python function is called
    assert "Choosing a backend" in pages()["backends.md"]


def test_T25(capsys):
    """The three tables of this machine; larger models by their names."""
    from mithril.cli.__main__ import main

    words = ["bench", "mlp", "--backends=numpy", "--memory", "--repeats=2", "--warm-up=1"]
    assert main([*words, "--train"]) == 0
    out = capsys.readouterr().out
    for title in ("(images/second)", "(iterations/second)", "(GB)"):
        assert title in out
    assert len(re.findall(r"^mlp +numpy +cpu +\d", out, re.MULTILINE)) == 3
    assert {"resnet18", "resnet50", "vit_b_16"} <= set(dir(ml.models))


def test_T26():
    """Types by a map, shapes by transposes, gradients by what sums what was repeated."""
    backend = ml.NumpyBackend()
    assert backend.dtype_map["int64"] == np.int64
    assert backend.convert_to_logical(np.dtype("float16")) == ml.float16
    gradient = backend.accumulate_grads(backend.ones(4, 3), backend.ones(1, 3))
    np.testing.assert_array_equal(gradient, [[4.0, 4.0, 4.0]])
    x = np.arange(24.0).reshape(1, 2, 3, 4)
    np.testing.assert_array_equal(backend.transpose(x, (0, 2, 3, 1)), x.transpose(0, 2, 3, 1))


def test_T27(tmp_path):
    """Trained on one backend, deployed to MLX, to C and to a GGUF file."""
    needs("torch")
    torch_backend = backend_of("torch")
    pm = compiled(backend=torch_backend)
    params = {k: torch_backend.array(v) for k, v in PARAMS.items()}
    _, grads = pm.evaluate(params, {"x": X}, output_gradients={"y": torch_backend.ones(4, 2)})
    params = {k: params[k] - 0.5 * g for k, g in grads.items()}
    want = X @ (W - 0.5 * np.ones((4, 2)).T @ X).T + (B - 2.0)
    for name in ("mlx", "c"):
        other = backend_of(name)
        got = compiled(backend=other).evaluate(ml.transfer(params, to=other), {"x": X})["y"]
        close(values(other, got), want)
    needs("gguf")
    host = ml.transfer(params, to=ml.NumpyBackend())
    ml.save_gguf(tmp_path / "net.gguf", host)
    import gguf

    read = {t.name: np.array(t.data) for t in gguf.GGUFReader(tmp_path / "net.gguf").tensors}
    close(read["w"].reshape(2, 3), W - 0.5 * np.ones((4, 2)).T @ X)


@pytest.mark.limited("parallelism is a later feature")
def test_T28():
    import importlib

    needs("torch"), needs("jax")
    module = importlib.import_module("mithril.backends.with_autograd.jax_backend.parallel")
    with pytest.raises(NotImplementedError, match="data_parallel"):
        module.data_parallel(lambda x: x, num_devices=2)
    with pytest.raises(NotImplementedError, match="place_model"):
        ml.JaxBackend().place_model(linear(), {"a": 0})
    with pytest.raises(NotImplementedError, match="parallel_strategy='mixed'"):
        ml.TorchBackend(parallel_strategy="mixed")
