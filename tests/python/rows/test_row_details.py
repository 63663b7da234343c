"""What rows say beside their first sentence, each named after its row."""

import os
import re
import subprocess
import sys
from pathlib import Path

import mithril as ml
import numpy as np
import pytest
from installed_package import write_entry_points
from mithril.errors import DeviceNotAvailable, MithrilError
from mithril.testing.backend_tests import run_backend_tests

from tests.python.rows.common import (
    EVERY,
    PARAMS,
    ROOT,
    X,
    backend_of,
    close,
    compiled,
    every,
    needs,
    values,
)

pytestmark = pytest.mark.documents


def run(code, **env):
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})
    assert out.returncode == 0, out.stderr
    return out.stdout.strip()


def tanh_model():
    model = ml.Model()
    model |= ml.Tanh()(input="x", output="y")
    return model


# --- backends ------------------------------------------------------------------------------------


def test_B15_as_primitives():
    """The spectrum of four numbers by hand: sums with the powers of -i."""
    x = np.array([1.0, 2.0, 0.0, -1.0])
    powers = np.exp(-2j * np.pi * np.outer(np.arange(4), np.arange(4)) / 4)
    backend = ml.NumpyBackend(dtype="float64")
    real, imag = backend.fft(x, np.zeros(4))
    close(real, (powers @ x).real, 1e-12, 1e-12)
    close(imag, (powers @ x).imag, 1e-12, 1e-12)
    back, nothing = backend.ifft(real, imag)
    close(back, x, 1e-12, 1e-12)
    close(nothing, np.zeros(4), 1e-12, 1e-12)


def test_B17_without_jax():
    code = (
        "import sys\nsys.modules['jax'] = None\n"
        "from mithril.contrib.tpu import TPUBackend\n"
        "try: TPUBackend()\nexcept ImportError as error: print(error)"
    )
    wanted = "JAX is required for TPUBackend. Please install jax and jaxlib."
    assert run(code).splitlines()[0] == wanted


def test_B19_of_an_installed_package(tmp_path):
    """The entry points `mithril.backends` of a package are names, too."""
    (tmp_path / "row_chip.py").write_text(
        "import mithril as ml\nclass Chip(ml.NumpyBackend):\n    pass\n"
    )
    write_entry_points(tmp_path, "row_chip", "mithril.backends", "row_chip = row_chip:Chip")
    code = "import mithril as ml; print(type(ml.get_backend('row_chip')).__name__)"
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    assert run(code, PYTHONPATH=path) == "Chip"


@every
def test_B22_everywhere(name):
    """Hooks of compiled models, on every backend; None is no gradient."""

    class Steep(type(backend_of(name))):
        def backward_tanh(self, grad_output, inputs, outputs):
            return (3 * grad_output * (1 - outputs[0] * outputs[0]),)

        def backward_multiply(self, grad_output, inputs, outputs):
            return (5 * grad_output * inputs[1], None)

    backend = Steep()
    x, y = np.array([0.3, -1.0]), np.array([2.0, 4.0])
    pm = ml.compile(tanh_model(), backend, shapes={"x": [2]}, trainable_keys={"x"})
    ones = backend.ones(2)
    slopes = pm.evaluate({"x": backend.array(x)}, output_gradients={"y": ones}).gradients
    close(values(backend, slopes["x"]), 3 / np.cosh(x) ** 2)
    product = ml.Model()
    product |= ml.Multiply()(left="a", right="b", output="y")
    shapes = {"a": [2], "b": [2]}
    pm = ml.compile(product, backend, shapes=shapes, trainable_keys={"a", "b"})
    params = {"a": backend.array(x), "b": backend.array(y)}
    slopes = pm.evaluate(params, output_gradients={"y": ones}).gradients
    close(values(backend, slopes["a"]), 5 * y)
    close(values(backend, slopes["b"]), [0.0, 0.0])


def test_B22_of_the_second_order():
    class Steep(ml.NumpyBackend):
        def backward_tanh(self, grad_output, inputs, outputs):
            return grad_output * (1 - outputs[0] ** 2)

    derivative = ml.grad(tanh_model(), "x")
    with pytest.raises(MithrilError, match="tanh.*has no gradient"):
        pm = ml.compile(derivative, Steep(), shapes={"x": [2]}, trainable_keys={"x"})
        pm.evaluate({"x": [0.5, 1.0]}, output_gradients={"grad_x": [1.0, 1.0]})


def test_B22_is_checked():
    """A gradient of the wrong sign fails in the conformance tests."""

    class Backwards(ml.NumpyBackend):
        def backward_tanh(self, grad_output, inputs, outputs):
            return -grad_output * (1 - outputs[0] ** 2)

    report = run_backend_tests(Backwards(), ops=["tanh"], samples=1)
    assert report.failed == 1


def test_P5_names_what_to_install():
    code = (
        "import sys\nsys.modules['ggml'] = None\nimport importlib.util as u\nfound = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n.split('.')[0] == 'ggml' else found(n, *a)\n"
        "import mithril as ml\n"
        "try: ml.GGMLBackend()\nexcept RuntimeError as error: print(error)"
    )
    assert "pip install ggml-python" in run(code, MITHRIL_GGML_LIB="")


# --- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "bound"), [("int4", 0.3), ("q8_0", 0.02), ("q5_1", 0.15)])
def test_O21_kinds(kind, bound):
    """Types of ggml by their names: fewer bits, larger errors."""
    needs("ggml")
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((32, 64)).astype("f"), rng.standard_normal((8, 64)).astype("f")
    model = ml.Model()
    model |= ml.Linear(32, use_bias=False)(input="x", weight="w", output="y")
    backend = ml.GGMLBackend(quantize=kind)
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [8, 64]}, inference=True)
    error = np.abs(pm.evaluate({"w": w}, {"x": x})["y"] - x @ w.T).max() / np.abs(x @ w.T).max()
    assert 1e-4 < error < bound


# --- compile -------------------------------------------------------------------------------------


@every
def test_C8_everywhere(name):
    """Two layers of Sine, recomputed: cos(sin x) cos x."""
    backend = backend_of(name)
    model = ml.Model()
    model |= ml.Sine()(input="x", output="h")
    model |= ml.Sine()(input="h", output="y")
    x = np.linspace(-1, 1, 6).reshape(2, 3)
    pm = ml.compile(model, backend, shapes={"x": [2, 3]}, trainable_keys={"x"},
                    gradient_checkpointing=True)  # fmt: skip
    ones = {"y": backend.ones(2, 3)}
    found = pm.evaluate({"x": backend.array(x)}, output_gradients=ones).gradients["x"]
    close(values(backend, found), np.cos(np.sin(x)) * np.cos(x), 1e-5, 1e-6)


@pytest.mark.parametrize("name", ["numpy", "torch", "jax", "mlx"])
def test_C11_everywhere(name):
    """The source computes no exponential of constants."""
    backend = backend_of(name)
    model = ml.Model()
    model |= ml.Exponential()(input=ml.Tensor([0.0, 1.0]), output="e")
    model |= ml.Multiply()(left="x", right="e", output="y")
    model.expose_keys("y")
    options = {"data_keys": {"x"}, "shapes": {"x": [2]}}
    folded = ml.compile(model, backend, static_inference=True, **options)
    close(values(backend, folded.evaluate({}, {"x": [2.0, 3.0]})["y"]), [2.0, 3 * np.e])
    assert "ops.exp" not in folded.source
    assert "ops.exp" in ml.compile(model, backend, **options).source


def test_C25_results_of_models():
    """`evaluate` gives arrays that are computed; with `lazy=True` it does not wait."""
    mx = needs("mlx.core")
    backend = backend_of("mlx")
    pm = ml.compile(tanh_model(), backend, data_keys={"x"}, jit=False)
    x = backend.block_until_ready(backend.ones(10**6))
    before = mx.get_active_memory()
    computed = pm.evaluate({}, {"x": x})["y"]
    assert mx.get_active_memory() - before > 3 * 10**6
    close(np.array(computed[:2]), np.tanh([1.0, 1.0]))
    before = mx.get_active_memory()
    later = pm.evaluate({}, {"x": x}, lazy=True)["y"]
    assert mx.get_active_memory() - before < 10**6
    close(np.array(later[:2]), np.tanh([1.0, 1.0]))
    assert mx.get_active_memory() - before > 3 * 10**6


def test_C26_on_torch():
    torch = needs("torch")
    backend = backend_of("torch")
    function = compiled(backend=backend, shapes={"x": [4, 3]}).as_function()
    params = {key: backend.array(value) for key, value in PARAMS.items()}

    def total(params):
        return function(params, {"x": backend.array(X)})["y"].sum()

    slopes = torch.func.grad(total)(params)
    close(slopes["w"], np.ones((4, 2)).T @ X)
    close(slopes["b"], [4.0, 4.0])


def test_C27_opaque(tmp_path):
    """Python that cannot be traced says where, and how it can be called all the same."""
    with pytest.raises(ml.errors.TraceError) as error:
        ml.Lambda(lambda x: x if x > 0 else -x)
    assert "opaque=True" in error.value.hint
    place = error.value.place
    line = Path(__file__).read_text().splitlines()[place.line - 1]
    assert place.file == __file__ and "x if x > 0" in line
    tensor = ml.IOKey(shape=[2], type=ml.Tensor[float])
    model = ml.Model()
    model |= ml.Lambda(np.sin, opaque=True, input=tensor, output=tensor)(input="x", output="y")
    with pytest.raises(MithrilError, match="OpaqueLambda calls a function"):
        model.save(tmp_path / "opaque.mithril")
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [2]})
    close(pm.evaluate({}, {"x": [0.5, 1.0]})["y"], np.sin([0.5, 1.0]))
    with pytest.raises(MithrilError, match=r"'opaquelambda' \(test_row_details.py:\d+\)"):
        pm.export_c(tmp_path)


# --- conflicts -----------------------------------------------------------------------------------


PACKAGE_INDEX = re.compile(r"pip install[^`\n]*\bmithril\b(?!\.)")


def test_K25_pages_and_messages():
    """Another project has the name on the package index: nothing says to install it from there."""
    places = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]
    for folder in ("python/mithril", "examples", "csrc"):
        files = (path for path in (ROOT / folder).rglob("*") if path.is_file())
        places += [path for path in files if path.suffix in (".py", ".md", ".cc", ".h", ".pyi")]
    assert len(places) > 300
    wrong = [str(p.relative_to(ROOT)) for p in places if PACKAGE_INDEX.search(p.read_text("utf-8"))]
    assert wrong == []
    assert PACKAGE_INDEX.search('`pip install "mithril[mlx]"`')


def test_K25_half_an_installation(tmp_path):
    """What bare `pip install mlx` gives on Linux: a package that lacks its library."""
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "__init__.py").write_text("")
    (tmp_path / "mlx" / "core.py").write_text(
        "raise ImportError('libmlx.so: cannot open shared object file')\n"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport mithril as ml\n"
        "try: ml.MlxBackend()\nexcept RuntimeError as error: print(error)"
    )
    told = run(code)
    assert "libmlx.so" in told and "pip install 'mlx[cpu]'" in told


def test_K25_without_a_compiler(tmp_path):
    needs("mlx.core")
    code = (
        "import mithril as ml\n"
        "m = ml.Model(); m |= ml.Tanh()(input='x', output='y')\n"
        "pm = ml.compile(m, ml.MlxBackend(), data_keys={'x'}, jit=True)\n"
        "print(pm.evaluate({}, {'x': [0.0]})['y'].tolist())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                         env={**os.environ, "PATH": str(tmp_path), "MITHRIL_LOG": "info"},
                         check=True)  # fmt: skip
    assert out.stdout.strip() == "[0.0]", out.stderr
    assert "runs line by line: MLX compiles with g++, which is not here" in out.stderr


def test_K48_the_variable():
    """`MITHRIL_LOG` shows what `verbose=True` shows."""
    code = (
        "import mithril as ml\n"
        "m = ml.Model(); m |= ml.Linear(2)(input='x', weight='w', output='y')\n"
        "ml.compile(m, ml.NumpyBackend(), data_keys={'x'}, shapes={'x': [4, 3]})"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, "MITHRIL_LOG": "debug"})  # fmt: skip
    assert told.returncode == 0 and told.stdout + told.stderr != ""
    assert run(code) == ""


def test_K57_hint():
    model = ml.Model()
    model |= ml.Embedding(5, 3)(input="tokens", weight="w", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"tokens"})
    with pytest.raises(MithrilError) as error:
        pm.evaluate({"w": np.ones((5, 3), "f")}, {"tokens": np.array([1.0], np.float32)})
    assert "integer" in str(error.value) and "cast" in str(error.value) + error.value.hint


@pytest.mark.parametrize("name", [*EVERY, "opencl"])
def test_K61_random_streams(name):
    """Whoever draws from a framework's own stream draws what he would without us."""
    torch, mx = needs("torch"), needs("mlx.core")

    def draws():
        return (torch.rand(2).tolist(), np.array(mx.random.uniform(shape=(2,))).tolist(),
                np.random.rand(2).tolist())  # fmt: skip

    def seeded():
        torch.manual_seed(1), mx.random.seed(1), np.random.seed(1)

    seeded()
    wanted = draws()
    seeded()
    try:
        backend = backend_of(name, seed=5)
    except DeviceNotAvailable as error:
        pytest.skip(str(error))
    backend.set_seed(7)
    backend.rand(3), backend.randn(2, 2)
    compiled(backend=backend, shapes={"x": [4, 3]}).randomize_params(seed=3)
    assert draws() == wanted


def test_K62_says_so_each_time():
    with pytest.warns(ml.errors.EmptyModelWarning):
        pm = ml.Model().compile(ml.NumpyBackend())
    with pytest.warns(ml.errors.EmptyModelWarning):
        assert pm(np.ones((2, 3))) == {}


# --- composition and claims ----------------------------------------------------------------------


def test_M9_exposed():
    """An exposed wire is an output beside what was said to be one."""
    model = ml.Model()
    model |= ml.Relu()(input="input", output="hidden")
    model += ml.Tanh()(input="hidden", output="output")
    model.expose_keys("hidden")
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"input"})
    out = pm.evaluate({}, {"input": X})
    close(out["hidden"], np.maximum(X, 0))
    assert list(out) == list(pm.output_keys)


def test_M11_layers():
    """The last layer takes the 512 channels of the network; its width is the classes'."""
    pm = ml.compile(ml.models.resnet18(num_classes=7), ml.NumpyBackend(), data_keys={"input"},
                    shapes={"input": [2, 3, 64, 64]}, inference=True, naming="path")  # fmt: skip
    last = [key for key in pm.param_keys if "fc" in key]
    assert sorted(tuple(pm.shapes[key]) for key in last) == [(7,), (7, 512)]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_T15_ggml(kind):
    """Floats are float32; the halves that the guide ticks for it are types of weights."""
    needs("ggml")
    backend = ml.GGMLBackend(quantize=kind)
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((32, 64)).astype("f"), rng.standard_normal((8, 64)).astype("f")
    model = ml.Model()
    model |= ml.Linear(32, use_bias=False)(input="x", weight="w", output="y")
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [8, 64]}, inference=True)
    error = np.abs(pm.evaluate({"w": w}, {"x": x})["y"] - x @ w.T).max() / np.abs(x @ w.T).max()
    assert 1e-6 < error < 1e-2


def test_T25_of_the_documents(monkeypatch, capsys):
    """Three tables, a row for each model and backend, the documents' numbers as theirs."""
    from mithril.cli import bench
    from mithril.cli.__main__ import main

    rates = {"median": 3.0, "low": 2.0, "high": 4.0}
    made = {"device": "cpu", "inference": rates, "train": rates, "memory": rates}
    monkeypatch.setattr(bench, "_in_its_own_process", lambda task: {**task, **made})
    models = ["resnet18", "resnet50", "vit_b_16"]
    assert main(["bench", *models, "--backends=all", "--train", "--memory"]) == 0
    out = capsys.readouterr().out
    text = next((ROOT.parent / "shared" / "mission").glob("004_*.txt"), None)
    tables = [part for part in out.split("\n\n") if "original guide" in part]
    assert len(tables) == 3
    guide = {("resnet50", "torch"): ("450", "28", "4.2"), ("vit_b_16", "jax"): ("180", "12", "8.6"),
             ("resnet18", "ggml"): ("50", "-", "0.5")}  # fmt: skip
    for (model, name), numbers in guide.items():
        for table, number in zip(tables, numbers, strict=True):
            row = next(line.split() for line in table.splitlines() if line.split()[:2] == [
                model, name])  # fmt: skip
            assert row[2:] == ["cpu", "3", "2", "to", "4", number]
    assert text is None or "480" in text.read_text()


def test_T9_other_cures():
    """A step that does not end in numbers names the op and the model's path."""
    model = ml.Model()
    model |= ml.Log()(input="x", output="y")
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, check_nan=True)
    with pytest.raises(FloatingPointError, match="log") as told:
        pm.evaluate({}, {"x": [-1.0]})
    assert "help: keep its operands where it is finite" in str(told.value)
    assert "a smaller rate, or clip_norm=" in str(told.value)
