"""Rows K37–K64: the second half of the conflicts."""

import os
import re
import subprocess
import sys
import warnings

import mithril as ml
import numpy as np
import pytest
from mithril.backends.backend import Backend
from mithril.errors import DTypeWarning, EmptyModelWarning, ModeWarning

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

pytestmark = pytest.mark.documents


def run(code, **env):
    import os

    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                         env={**os.environ, **env})  # fmt: skip
    assert out.returncode == 0, out.stderr
    return out.stdout.strip()


def test_K37():
    pm = compiled(shapes={"x": [4, 3]})
    f = {k: v.astype("f") for k, v in PARAMS.items()}
    assert pm.evaluate(f, {"x": X})["y"].dtype == np.float32  # float64 data are cast
    with pytest.warns(DTypeWarning, match="'w' was float64"):
        compiled().evaluate(PARAMS, {"x": X})
    with pytest.raises(TypeError, match="float64"):
        compiled(strict_dtypes=True).evaluate(f, {"x": X})
    whole = ml.Model()
    whole |= ml.Add()(left="n", right="n", output="y")
    counts = ml.compile(whole, ml.NumpyBackend(), data_keys={"n"}, types={"n": ml.int8})
    assert counts.evaluate({}, {"n": np.array([3])})["y"].tolist() == [6]
    with pytest.raises(OverflowError, match="300"):
        counts.evaluate({}, {"n": np.array([300])})
    with pytest.raises(TypeError, match="int"):
        counts.evaluate({}, {"n": np.array([0.5])})


@every
def test_K38(name):
    backend = backend_of(name)
    x = backend.zeros(2, 0, 3)
    assert backend.shape(x) == (2, 0, 3) and all(type(n) is int for n in backend.shape(x))
    assert type(backend.dtype(x)) is ml.Dtype


def test_K39():
    info = ml.NumpyBackend().get_memory_info()
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * 4096
    assert info["used_bytes"] == pytest.approx(resident, rel=0.2)
    assert info["used"] == pytest.approx(info["used_bytes"] / 2**20)


@pytest.mark.limited("parallelism is a later feature")
def test_K40():
    with pytest.raises(NotImplementedError, match="place_model"):
        ml.NumpyBackend().place_model(linear(), {"layer1": 0})


@pytest.mark.limited("parallelism is a later feature")
def test_K41():
    needs("jax")
    with pytest.raises(RuntimeError, match="xla_force_host_platform_device_count=64"):
        ml.JaxBackend(device_mesh=(64,))


def test_K42():
    """The names that torchvision's class has, with and without a bottleneck."""
    names = {"conv1.weight", "bn1.weight", "layer1.0.conv1.weight", "layer4.1.bn2.bias",
             "layer2.0.downsample.0.weight", "fc.weight", "fc.bias"}  # fmt: skip
    pm = ml.compile(ml.models.resnet18(num_classes=3), ml.NumpyBackend(), data_keys={"input"},
                    shapes={"input": [1, 3, 64, 64]}, inference=True, naming="path")  # fmt: skip
    dotted = {key.replace("_", ".") for key in pm.param_keys} | set(pm.param_keys)
    missing = {
        name for name in names if name not in dotted and name.replace("_", ".") not in dotted
    }
    assert not missing, sorted(pm.param_keys)[:8]
    assert any("running" in key for key in pm.param_keys)  # batch norm


def test_K43():
    import mithril.examples.gpt.model as packaged

    code = "from examples.gpt.model import create_gpt; print(create_gpt.__module__)"
    assert run(code, PYTHONPATH=os.pathsep.join([str(ROOT), *sys.path])).startswith("mithril.")
    assert callable(packaged.create_gpt)


def test_K44():
    from mithril.backends.registry import available_backends

    documents = {"jax", "torch", "mlx", "numpy", "c", "ggml"}
    assert documents | {"cpu", "opencl", "cuda"} <= set(available_backends())


def test_K45():
    from mithril import backends
    from mithril.backends import registry

    assert backends.get_backend is registry.get_backend is ml.get_backend
    assert backends.register_backend is registry.register_backend is ml.register_backend


def test_K46():
    from mithril.models import LogicalModel

    assert LogicalModel is ml.Model and isinstance(ml.Relu(), LogicalModel)


def test_K47():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11" and sys.version_info >= (3, 11)
    supported = {c.rpartition(" ")[2] for c in project["classifiers"] if ":: 3." in c}
    assert supported >= {"3.11", "3.12", "3.13"}
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in supported
    page = (ROOT / "docs" / "mlx-backend.md").read_text()
    assert "asks for Python 3.8, macOS 12 and MLX 0.0.3, which is history" in " ".join(page.split())
    extras = project["optional-dependencies"]
    assert not any("==" in line for name in ("jax", "torch", "mlx") for line in extras[name])


def test_K48():
    code = (
        "import mithril as ml\n"
        "m = ml.Model(); m |= ml.Linear(2)(input='x', weight='w', output='y')\n"
        "ml.compile(m, ml.NumpyBackend(), data_keys={'x'}, shapes={'x': [4, 3]}, verbose=True)"
    )
    assert "[2, 3]" in run(code)
    quiet = code.replace(", verbose=True", "")
    assert run(quiet) == ""


@pytest.mark.parametrize("name", ["mlx", "jax", "torch", "cpu"])
def test_K49(name):
    """NCHW and OIHW outside, whatever lies inside."""
    backend, torch = backend_of(name), needs("torch")
    rng = np.random.default_rng(0)
    x, w1, w2 = (rng.standard_normal(s) for s in ((1, 2, 6, 7), (3, 2, 3, 3), (4, 3, 1, 1)))
    model = ml.Model()
    model |= ml.Conv2d(filters=3, kernel_size=3, use_bias=False)(input="x", weight="a", output="h")
    model += ml.Conv2d(filters=4, kernel_size=1, use_bias=False)(input="h", weight="c", output="y")
    pm = compiled(model, backend, shapes={"x": [1, 2, 6, 7]})
    got = pm.evaluate({"a": backend.array(w1), "c": backend.array(w2)}, {"x": backend.array(x)})
    conv = torch.nn.functional.conv2d
    want = conv(conv(torch.tensor(x), torch.tensor(w1)), torch.tensor(w2))
    assert backend.shape(got["y"]) == (1, 4, 4, 5)
    close(values(backend, got["y"]), want, 1e-4, 1e-4)


@pytest.mark.limited("there is no Apple device here: the options warn of it")
def test_K50():
    mx = needs("mlx.core")
    with pytest.warns(ml.errors.MithrilWarning, match="Neural Engine"):
        ml.MlxBackend(use_ane=True)
    if not mx.metal.is_available():
        with pytest.warns(ml.errors.MithrilWarning, match="no Metal"):
            ml.MlxBackend(enable_mps_optimization=True)


def test_K51():
    pm = compiled(static_shapes=True)
    pm.evaluate(PARAMS, {"x": X})
    with pytest.raises(ValueError, match=r"\[4, 3\]") as error:
        pm.evaluate(PARAMS, {"x": X[:1]})
    assert "test_row_conflicts_2.py" in str(error.value)


def test_K52(capsys):
    """Measured numbers, with the guide's beside them, labelled as its own."""
    from mithril.cli.__main__ import main

    words = ["bench", "mlp", "--backends=numpy", "--memory", "--repeats=2", "--warm-up=1"]
    assert main([*words, "--train"]) == 0
    out = capsys.readouterr().out
    for title in ("(images/second)", "(iterations/second)", "(GB)"):
        assert title in out
    assert re.search(r"^mlp +numpy +cpu +\d", out, re.MULTILINE) and "original guide" in out


@every
def test_K53(name):
    backend = backend_of(name)
    x = backend.array([3.0, 4.0])
    for made in (backend.matmul(x, x), backend.sum(x), backend.max(x)):
        assert isinstance(made, backend.get_backend_array_type())
        assert backend.shape(made) == ()
    model = ml.Model()
    model |= ml.Sum()(input="x", output="y")
    got = compiled(model, backend, shapes={"x": [2]}).evaluate({}, {"x": x})["y"]
    assert isinstance(got, backend.get_backend_array_type()) and float(values(backend, got)) == 7


def test_K54(tmp_path):
    needs("jax")
    backend = backend_of("jax")
    pm = compiled(backend=backend, jit=True, file_path=tmp_path / "model.py")
    close(values(backend, pm.evaluate(PARAMS, {"x": X})["y"]), X @ W.T + B)
    assert "def evaluate" in (tmp_path / "model.py").read_text()


def test_K55():
    texts = [path.read_text() for path in (ROOT / "docs").glob("*.md")]
    assert not [t for t in texts if "Inductor for Apple" in t] and len(texts) > 20


def test_K56():
    pm = compiled(inference=True)
    with pytest.raises(ml.errors.MithrilError, match="inference=True|inference"):
        pm.evaluate(PARAMS, {"x": X}, output_gradients={"y": np.ones((4, 2))})


def test_K57():
    model = ml.Model()
    model |= ml.Embedding(5, 3)(input="tokens", weight="w", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"tokens"})
    w = np.arange(15.0, dtype=np.float32).reshape(5, 3)
    assert pm.evaluate({"w": w}, {"tokens": np.array([1, 4])})["y"].tolist() == w[[1, 4]].tolist()
    with pytest.raises((TypeError, ValueError), match="int") as error:
        pm.evaluate({"w": w}, {"tokens": np.array([1.0, 4.0], np.float32)})
    assert "tokens" in str(error.value) and "float32" in str(error.value)


def test_K58():
    assert Backend.__abstractmethods__ == frozenset({"tensor", "zeros", "ones"})
    lacking = type("Lacking", (Backend,), {"tensor": np.array, "zeros": np.zeros})
    with pytest.raises(TypeError, match="ones"):
        lacking()


def test_K59():
    needs("jax")
    import jax

    backend = backend_of("jax")
    backend.ones(2)  # JAX has started
    backend.set_platform("cpu")
    assert backend.ones(2).devices() == {jax.devices("cpu")[0]}
    with pytest.raises(RuntimeError, match="no device 'tpu'; available"):
        backend.set_platform("tpu")


def normed(**options):
    model = ml.Model()
    model |= ml.models.BatchNorm2D()(input="x", output="y")
    model.expose_keys("y")
    return ml.compile(
        model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [4, 2, 3, 3]}, **options
    )


def test_K60():
    """Statistics of the batch in training, running ones else."""
    x = np.random.default_rng(0).standard_normal((4, 2, 3, 3)).astype("f") * 2 + 1
    train, evaluates = normed(mode="train"), normed()
    state = train.initial_state(seed=0)
    params = train.get_parameters()
    result = train.evaluate(params, {"x": x}, state=state)
    y, new_state = result.outputs["y"], result[-1]
    mean, var = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    close(y, (x - mean) / np.sqrt(var + 1e-5), 1e-4, 1e-5)
    assert set(state) == set(new_state) <= set(evaluates.param_keys)
    got = evaluates.evaluate({**params, **state}, {"x": x})["y"]
    close(got, x / np.sqrt(1 + 1e-5), 1e-4, 1e-5)  # statistics begin as 0 and 1
    with pytest.warns(ModeWarning, match="mode="):
        grads = evaluates.evaluate(
            {**params, **state}, {"x": x}, output_gradients={"y": y}
        ).gradients
    assert not set(grads) & set(state)


def test_K61():
    torch, mx = needs("torch"), needs("mlx.core")
    needs("jax")
    import jax

    torch.manual_seed(0)
    want = torch.rand(3)
    torch.manual_seed(0)
    mx.random.seed(0)

    def flags_now():
        of_torch = (torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled())
        return (*of_torch, jax.config.jax_enable_x64, str(mx.default_device()))

    flags = flags_now()
    for name in ("torch", "jax", "mlx", "numpy", "cpu"):
        backend = backend_of(name, seed=5, dtype="float64")
        pm = compiled(backend=backend, shapes={"x": [4, 3]})
        params = {k: backend.array(v) for k, v in PARAMS.items()}
        close(values(backend, pm.evaluate(params, {"x": X})["y"]), X @ W.T + B, 1e-12)
        backend.rand(3)
    assert flags_now() == flags
    np.testing.assert_array_equal(torch.rand(3), want)


def test_K62():
    with pytest.warns(EmptyModelWarning):
        pm = ml.Model().compile(ml.NumpyBackend())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyModelWarning)
        assert pm.evaluate({}) == {} and pm(np.ones((2, 3))) == {}


@every
def test_K63(name):
    backend = backend_of(name)
    x = backend.ones(3)
    again = backend.block_until_ready({"a": [x + x]})
    assert values(backend, again["a"][0]).tolist() == [2.0, 2.0, 2.0]


def test_K64():
    x, w = ml.IOKey("x"), np.arange(30.0, dtype=np.float32).reshape(10, 3)
    model = ml.Model.create(y=ml.Linear(10, use_bias=False)(x))
    pm = compiled(model)
    (key,) = pm.param_keys
    close(pm.evaluate({key: w}, {"x": X})["y"], X @ w.T)
    plain = ml.Model()
    plain |= ml.Subtract()(left="a", right="b", output="y")
    plain.expose_keys("y")
    p, q = ml.IOKey("p"), ml.IOKey("q")
    outer = ml.compile(ml.Model.create(y=plain(p, q)), ml.NumpyBackend(), data_keys={"p", "q"})
    close(outer.evaluate({}, {"p": [5.0], "q": [2.0]})["y"], [3.0])
